"""What `import rocelab` gives: one list for exports, types and pages, which import nothing else."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocelab
from rocelab.api import DOORS, HOMES, place
from tests.helpers.page_python import BLOCKS

ROOT = Path(__file__).parents[2]
PUBLIC = {"rocelab", "rocelab.mininet", *DOORS}
BENCH = (ROOT / "tests/data/bench_imports.txt").read_text().split()
"""Private modules that bench/ measures from within, such as parts of an engine. It only shrinks:
what a user would want of them belongs in the face."""


def imported(text: str) -> Iterator[str]:
    """The modules of rocelab that a program imports from."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == "rocelab")


@pytest.mark.parametrize("name", HOMES)
def test_a_public_name_is_what_its_module_has(name: str) -> None:
    module, attribute = place(name)
    __import__(module)
    assert getattr(rocelab, name) is getattr(sys.modules[module], attribute)


def test_the_typed_imports_are_those_of_the_list() -> None:
    typed: dict[str, tuple[str, str]] = {}
    for block in ast.parse((ROOT / "rocelab/__init__.py").read_text()).body:
        for node in block.body if isinstance(block, ast.If) else ():
            if isinstance(node, ast.ImportFrom):
                assert node.module is not None
                typed |= {name.asname or name.name: (node.module, name.name) for name in node.names}
            elif isinstance(node, ast.Assign):
                assert isinstance(node.targets[0], ast.Name)
                assert isinstance(node.value, ast.Name)
                typed[node.targets[0].id] = typed.pop(node.value.id)
    assert typed == {name: place(name) for name in HOMES}


def test_no_package_has_the_name_of_something_public() -> None:
    packages = {module.name for module in pkgutil.iter_modules(rocelab.__path__)}
    assert "planning" in packages
    assert not packages & set(HOMES)


def test_a_name_that_is_not_public_is_an_error_and_dir_lists_the_others() -> None:
    assert dir(rocelab) == sorted([*HOMES, "__version__"])
    with pytest.raises(AttributeError, match="no attribute 'labs'"):
        rocelab.labs  # noqa: B018


def test_an_import_of_the_package_loads_nothing_else() -> None:
    program = "import sys; old = set(sys.modules); import rocelab; print(*set(sys.modules) - old)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded - sys.stdlib_module_names == {"rocelab"}
    assert {name for name in done.stdout.split() if "rocelab" in name} == {"rocelab", "rocelab.api"}


@pytest.mark.parametrize("block", BLOCKS)
def test_python_of_a_page_imports_public_names_only(block: str) -> None:
    assert set(imported(BLOCKS[block])) <= PUBLIC


@pytest.mark.parametrize("folder", ["scripts", "traffic", "examples"])
def test_programs_for_users_import_public_names_only(folder: str) -> None:
    for file in (ROOT / folder).rglob("*.py"):
        assert set(imported(file.read_text())) <= PUBLIC, file


def test_bench_imports_no_more_private_modules_than_it_did() -> None:
    names = {name for file in (ROOT / "bench").rglob("*.py") for name in imported(file.read_text())}
    assert sorted(names - {"rocelab"}) == BENCH, "remove from the list what is gone; add nothing"


def test_old_names_of_the_kit_still_work_with_a_warning() -> None:
    import rocelab.testkit

    with pytest.warns(DeprecationWarning, match="import Duration from rocelab"):
        assert rocelab.testkit.Duration is rocelab.Duration


@pytest.mark.parametrize("package", sorted((ROOT / "tests/data/plugins").iterdir()))
def test_plug_ins_import_public_modules_only(package: Path) -> None:
    for file in package.glob("*.py"):
        names = {name for name in imported(file.read_text()) if name.split(".")[0] == "rocelab"}
        # The fault of a test is one of ours by another name.
        assert names - {"rocelab.faults.kinds.carrier_down"} <= PUBLIC, file
