"""What a core installation does without the libraries of the extras, and what it says of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from scipy.special import stdtrit  # type: ignore[import-untyped]

from rocelab.base import extras
from rocelab.base.statistics import student_t

ROOT = Path(__file__).parents[3]
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder
from rocelab.base.extras import _EXTRA_OF

class Without(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in _EXTRA_OF:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
"""


def without(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program where no library of an extra can be imported."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


CORE = (
    "--help",
    "plan tiny --json",
    "render tiny --out out",
    "graph tiny",
    "up --help",
    "adopt --help",
    "health --help",
    "fault kinds",
    "drill list",
    "drill show link-flap",
    "predict tiny --pattern allreduce --ranks 4 --size 1MB",
)
IN_TURN = """
from rocelab.cli.main import main
for line in LINES:
    try:
        main(line.split())
    except SystemExit as end:
        assert not end.code, line
"""


def test_core_commands_need_no_extra(tmp_path: Path) -> None:
    done = without(f"LINES = {CORE}\n{IN_TURN}", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("simulate tiny --pattern allreduce --ranks 4 --size 1MB --engine packets", "sim"),
        ("--host root@203.0.113.1 list", "remote"),
        ("import cables.dot", "drawings"),
    ],
)
def test_a_command_without_its_extra_says_in_a_line_which(
    line: str, extra: str, tmp_path: Path
) -> None:
    (tmp_path / "cables.dot").write_text("graph { leaf1 -- spine1 }")
    done = without(f"from rocelab.cli.main import main\nmain({line.split()})", tmp_path)
    assert done.returncode == 3, done.stderr
    assert f'pip install "rocelab[{extra}]"' in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_small_fluid_is_simulated_without_a_compiler(tmp_path: Path) -> None:
    words = ["simulate", "tiny", "--pattern", "allreduce", "--ranks", "4", "--size", "1MB"]
    done = without(f"from rocelab.cli.main import main\nmain({words})", tmp_path)
    assert done.returncode == 0, done.stderr


def test_running_labs_drills_and_their_pages_need_no_extra(tmp_path: Path) -> None:
    modules = ("drills.run", "runs.jobs", "observe.health.monitor", "testkit.kit", "lab.adoption")
    program = "".join(f"import rocelab.{name}\n" for name in modules) + (
        "from functools import partial\n"
        "from rocelab.report.document import Figure\n"
        "from rocelab.report.renderers.page import draw\n"
        "from rocelab.report.plots import link_loads\n"
        "assert 'rocelab[report]' in draw(Figure('x', partial(link_loads, ())))\n"
        "import rocelab\n"
        "try:\n    rocelab.open_ssh('lab', 'node')\n"
        "except rocelab.MachineError as error:\n    assert 'rocelab[remote]' in error.hint\n"
        "else:\n    raise AssertionError\n"
    )
    done = without(program, tmp_path)
    assert done.returncode == 0, done.stderr


def test_each_library_is_in_the_extra_that_messages_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    local = {
        "llvmlite": "numba",
        "cryptography": "paramiko",
        "google": "protobuf",
        "pyparsing": "pydot",
        "prometheus_client": "prometheus-client",
    }
    for library, extra in extras._EXTRA_OF.items():
        name = local.get(library, library)
        assert any(
            requirement.startswith(name) for requirement in project["optional-dependencies"][extra]
        )
        assert not any(requirement.startswith(name) for requirement in project["dependencies"])


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 30, 101, 1000])
def test_the_quantiles_of_students_t_are_scipys(degrees: int) -> None:
    assert student_t(0.95, degrees) == pytest.approx(stdtrit(degrees, 0.975), rel=1e-9)
