"""A folder of traps: modules with the names of Python's, of libraries' and of rocelab's that record
their import, and settings files that libraries read from the current folder."""

from __future__ import annotations

from pathlib import Path

NAMES = (
    *("struct", "ctypes", "json", "socket", "typing", "os", "re", "dataclasses", "select"),
    *("subprocess", "multiprocessing", "concurrent", "pickle", "signal", "threading", "venv"),
    *("yaml", "typer", "rich", "pydantic", "numpy", "numba", "jinja2", "pyroute2", "paramiko"),
    *("rocelab", "labs", "scripts", "traffic", "simulator", "report", "templates"),
    *("sitecustomize", "usercustomize", "matplotlib", "click", "shellingham"),
)
_TRAP = "import builtins\nbuiltins.open(__file__ + '.sprung', 'w').close()\n"


def fill_with_traps(folder: Path) -> None:
    """Make a module of every name, for half of them a package, and settings files in a folder."""
    for number, name in enumerate(NAMES):
        if number % 2 and not name.endswith("customize"):
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(_TRAP)
        else:
            (folder / f"{name}.py").write_text(_TRAP)

    (folder / "matplotlibrc").write_text("text.usetex: True\n")
    (folder / ".numba_config.yaml").write_text(f"chrome_trace: {folder}/numba.sprung\n")


def sprung(folder: Path) -> list[str]:
    """The modules that were imported, and the settings that wrote a file."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.sprung"))
