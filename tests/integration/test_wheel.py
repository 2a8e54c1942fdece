"""The source distribution, the wheel that pip builds of it, and that wheel installed in the
environment of another project whose folders have the same names as rocelab's."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers.openssh import ROCELAB, ssh_server

ROOT = Path(__file__).parents[2]
FOLDERS = ("labs", "report", "scripts", "templates", "traffic")
OWN = f"""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rocelab
from rocelab.linux import pidfile
from rocelab.linux.background import launch
from rocelab.lab.management import ManagementFiles
from rocelab.dataplane.pfc import control
from rocelab.dataplane.steering.controller import controller_pid
from rocelab import RunningLab

import {", ".join(FOLDERS)}

HERE = Path(__file__).parents[1]

def test_its_own_packages_are_imported():
    for package in ({", ".join(FOLDERS)}):
        assert Path(package.__file__).parents[1] == HERE

@pytest.mark.lab("tiny")
def test_the_agents_and_the_guardian_are_the_wheels(lab: RunningLab, traffic, measure):
    assert Path(rocelab.__file__).is_relative_to(sys.prefix)
    with measure(traffic(flows=4), accept_invalid=True) as run:
        run.carry_out("delay", link="rtsw1:ctsw1", delay="1ms", lasts="300ms")
    assert run.repeat.events[0].event.change == "begin"
    assert run.affected_flows == 0

@pytest.mark.lab("mine")
def test_its_own_labs_are_found_by_name(lab: RunningLab):
    assert len(lab.fabric.switches) == 4

def environment_of(process: Path) -> list[str]:
    return (process / "environ").read_text().split(chr(0))
"""
MORE = f"""{OWN}

@pytest.mark.lab("mine")
def test_the_controller_and_the_relay_are_the_wheels(lab: RunningLab):
    controller = Path("/proc", str(controller_pid(lab.runtime.files)))
    assert f"PYTHONPATH={{Path(rocelab.__file__).parents[1]}}" in environment_of(controller)
    configuration = ManagementFiles(lab.runtime.files).configuration
    assert f"PYTHONPATH={{Path(rocelab.__file__).parents[1]}}" in configuration.read_text()
    done = subprocess.run(
        ["ssh", "-F", configuration, "ctsw1", "echo $ROCELAB_NODE"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "ctsw1", done.stderr

@pytest.mark.lab("lossless")
def test_the_process_of_lossless_classes_is_the_wheels(lab: RunningLab):
    pauses = Path("/proc", str(pidfile.holder(control.pid_file(lab.runtime.files))))
    assert f"PYTHONPATH={{Path(rocelab.__file__).parents[1]}}" in environment_of(pauses)

@pytest.mark.lab("lossless")
def test_the_job_and_the_terminal_of_the_page_are_the_wheels(lab: RunningLab):
    read, write = os.pipe()
    spec = '{{"pattern": "pairs", "ranks": 2, "size": "64KB"}}'
    asked = ("rocelab.live.job", lab.name, "job", spec)
    with launch(*asked, str(write), stdin=subprocess.PIPE, pass_fds=(write,)) as job:
        os.close(write)
        with open(read) as lines:
            assert "report" in json.loads(list(lines)[-1])
        assert job.wait() == 0  # the end of its input, when the block ends, would interrupt it
    terminal, end = os.openpty()
    asked = ("rocelab.live.shell", str(end), lab.name, "ctsw1", "shell")
    with launch(*asked, stdin=subprocess.PIPE, pass_fds=(end,)) as shell:
        os.close(end)
        os.write(terminal, b"echo in-$ROCELAB_NODE; exit\\n")
        shown = b""
        while b"in-ctsw1" not in shown:
            shown += os.read(terminal, 4096)  # an error once the shell has ended
    os.close(terminal)
"""
"""And every process of a controller, a management network, lossless classes and a page."""
LAB = """name: mine
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 1}
"""
MANAGED = f"{LAB}scheme: {{kind: te}}\nmanagement: true\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip builds of the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    (source,) = built.glob("*.tar.gz")
    pip("wheel", "--no-build-isolation", "-w", folder, source)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment in which pip has installed the wheel; its dependencies are those of this
    one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    made = folder / "bin" / "python"
    pip("--python", made, "install", "--no-compile", wheel)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def pip(*words: str | Path) -> None:
    """Run pip, which is not to look for anything elsewhere."""
    # Options of a command come behind it, and pip's own before.
    apart = [*words, "--no-deps", "--no-index"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *apart], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def content(wheel: Path) -> dict[str, int]:
    """The files of a wheel with their checksums."""
    return {member.filename: member.CRC for member in zipfile.ZipFile(wheel).infolist()}


@pytest.mark.long
@pytest.mark.side_by_side
def test_a_source_distribution_gives_the_wheel_of_the_checkout(built: Path, wheel: Path) -> None:
    (of_checkout,) = built.glob("*.whl")
    assert content(wheel) == content(of_checkout)


@pytest.mark.side_by_side
def test_a_source_distribution_has_what_tests_and_make_need_and_nothing_that_was_made(
    built: Path,
) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as packed:
        names = {name.partition("/")[2].partition("/")[0] for name in packed.getnames()}
    assert {"Makefile", "setup.sh", "LICENSE", "tests", "labs", "docs"} <= names
    made = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()}
    assert not names & made


@pytest.mark.side_by_side
def test_an_installed_wheel_has_the_command_and_its_manual_pages(python: Path) -> None:
    command = python.with_name("rocelab")
    process = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert process.stdout == f"rocelab {project['version']}\n"
    pages = python.parents[1] / "share/man/man1"
    assert sorted(path.name for path in pages.iterdir()) == sorted(
        path.name for path in (ROOT / "docs/man").iterdir()
    )


@pytest.mark.side_by_side
def test_a_wheel_has_one_package_and_what_users_read(wheel: Path) -> None:
    names = content(wheel)
    roots = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert roots == {"rocelab", f"{wheel.name.partition('-py3')[0]}.data"}
    assert "rocelab/py.typed" in names
    for shipped in ("labs/tiny.yaml", "scripts/link-flap.yaml", "traffic/inference.yaml"):
        assert f"rocelab/_data/{shipped}" in names
        assert (ROOT / shipped).exists()


@pytest.mark.parametrize(
    ("lab", "tests", "passed"),
    [(LAB, OWN, 3), pytest.param(MANAGED, MORE, 6, marks=pytest.mark.long)],
    ids=["a few processes", "every process"],
)
@pytest.mark.side_by_side
def test_a_project_with_folders_of_our_names_runs_its_tests_with_the_plugin(
    python: Path, tmp_path: Path, lab: str, tests: str, passed: int
) -> None:
    project = tmp_path / "project"
    for folder in (*FOLDERS, "tests"):
        (project / folder).mkdir(parents=True)
        (project / folder / "__init__.py").touch()
    (project / "labs" / "mine.yaml").write_text(lab)
    (project / "tests" / "test_own.py").write_text(tests)
    run = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "--rocelab-require"]
    done = subprocess.run(run, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout


@pytest.mark.long
@pytest.mark.side_by_side
def test_a_suite_of_a_user_passes_mypy_strict_with_the_wheel(python: Path, tmp_path: Path) -> None:
    suite = tmp_path / "test_own.py"
    suite.write_text((ROOT / "tests/typing/test_own.py").read_text())
    checked = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        str(python),
        str(suite),
    ]
    done = subprocess.run(checked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.side_by_side
def test_a_wheel_sends_its_kit_whose_supervisor_runs_the_command(
    python: Path, tmp_path: Path
) -> None:
    with ssh_server(tmp_path / "server", "t-wheel", 2223) as server:
        server.client = (str(python), *ROCELAB[1:])
        environment = server.environment(PYTHONPATH="")
        words = ("plan", "tiny", "--json")
        code, out, errors = server.rocelab(*words, cwd=tmp_path, environment=environment)
    assert code == 0, errors
    assert json.loads(out)["lab"] == "tiny"
