"""The package of examples/plugin, installed by pip beside rocelab and used as its page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from shutil import copytree

import pytest

from rocelab.record import LabFiles
from tests.helpers.measured import measured, problems_of_command
from tests.helpers.plugin import PluginEnvironment

pytestmark = pytest.mark.few_at_once

ROOT = Path(__file__).parents[2]
LAB = "small-hall"
SHIPPED = "t-hole"
FILE = f"name: {SHIPPED}\nfabric: {{kind: clos, racks: 2, spines: 2, servers_per_rack: 1}}\n"
"""A lab of a kind that ships, which is known without the package."""
(SHOWN,) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/plugins.md").read_text(), re.DOTALL)
SHOWS = {
    "rocelab doctor": "rocelab-example 1.0.0",
    "rocelab fault kinds": "route-hole",
    "rocelab drill run scripts/hole.yaml": "Lost per million",
    "rocelab fault list small-hall": "route-hole",
}
PIP = ("-m", "pip", "-q", "--disable-pip-version-check", "--python")
INSTALL = ("install", "--no-compile", "--no-build-isolation", "--no-deps", "--no-index")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, in which results are written."""
    return copytree(ROOT / "examples/plugin", tmp_path_factory.mktemp("project") / "plugin")


@pytest.fixture(scope="module")
def there(project: Path) -> Iterator[PluginEnvironment]:
    """An environment with the package. Its functions are not compiled, which takes minutes."""
    environment = PluginEnvironment(project.parent / "environment")
    subprocess.run([sys.executable, *PIP, environment.python, *INSTALL, project], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1")
        yield environment
        environment.rocelab("down", LAB)


@pytest.mark.long
def test_the_commands_of_the_page_do_what_it_says(there: PluginEnvironment, project: Path) -> None:
    for line in SHOWN.splitlines():
        words = shlex.split(line)[1:]
        ran = measured(partial(there.rocelab, *words, cwd=project), problems_of_command)
        assert ran.returncode == 0, (line, ran.stdout, ran.stderr)
        assert SHOWS.get(line, "") in ran.stdout, line


def test_a_suite_of_pytest_uses_its_fault(there: PluginEnvironment, project: Path) -> None:
    suite = ("-p", "no:cacheprovider", "--rocelab-require", "tests")
    ran = there.run("import pytest, sys; sys.exit(pytest.main())", *suite, cwd=project)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.long
def test_a_lab_goes_after_the_package_of_its_fault(there: PluginEnvironment, project: Path) -> None:
    (project / "labs" / f"{SHIPPED}.yaml").write_text(FILE)
    try:
        up = there.rocelab("up", SHIPPED, cwd=project)
        assert up.returncode == 0, up.stderr
        fault = ("route-hole", "switch=rtsw1", "server=srv2-1")
        assert there.rocelab("fault", "inject", SHIPPED, *fault).returncode == 0
        gone = [sys.executable, *PIP, str(there.python), "uninstall", "-y", "rocelab-example"]
        subprocess.run(gone, check=True)
        listed = there.rocelab("fault", "list", SHIPPED)
        assert listed.returncode == 0, listed.stderr
        assert "is of rocelab-example 1.0.0, which is not installed" in listed.stdout
    finally:
        down = there.rocelab("down", SHIPPED)
    assert (down.returncode, down.stderr) == (0, "")
    assert not LabFiles(SHIPPED).root.exists()


@pytest.mark.parametrize("file", sorted((ROOT / "examples/plugin").rglob("*.py")))
def test_no_module_of_it_is_long(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 80
