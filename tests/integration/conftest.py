"""Labs for the tests: each with its own name, always taken down."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocelab import Lab, RunningLab
from rocelab.lab.teardown import take_down
from rocelab.routing.frr import installation
from rocelab.routing.frr.installation import find_installation

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MakeLab = Callable[..., RunningLab]

LONGEST_FIRST = (
    # Four at once.
    *("live_browser", "live", "runtimes", "hostile_folder", "cli", "drill_command", "interrupts"),
    *("hostile_daemons", "fabric", "management", "remote", "faults", "fabric_kinds", "replay"),
    # Three at once.
    *("lossless", "own_routing", "job_runs", "lossless_classes", "controller", "example_plugin"),
    *("lossless_accounting", "cables", "drill_runs", "lossless_views", "testkit"),
    *("lossless_memory", "impairments", "deadlock", "queues", "graph_fabric", "profiles", "stages"),
    *("health", "predict", "schemes", "frr_parser", "forensics"),
)
"""The files that take longest: if several processes run file after file, the last one to start
would delay the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order of LONGEST_FIRST, then the others; each in its own order."""
    place = {f"test_{name}.py": number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.fixture(scope="session", autouse=True)
def root() -> None:
    """These tests make real labs: without root they fail rather than skip."""
    assert os.geteuid() == 0, "integration tests need root: run `make test`"


@pytest.fixture(scope="session", autouse=True)
def chosen_frr(pytestconfig: pytest.Config) -> Iterator[None]:
    """With `--rocelab-frr PREFIX` labs that tests make themselves use that FRR instead of this
    machine's; commands that tests start use this machine's."""
    prefix = pytestconfig.getoption("--rocelab-frr")
    with pytest.MonkeyPatch.context() as patch:
        if prefix is not None:
            chosen = find_installation(Path(prefix))
            patch.setattr(installation, "_own", lambda: chosen)
        yield


@pytest.fixture
def common_folder() -> Iterator[Path]:
    """A folder that every user may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[MakeLab]:
    """`make_lab("name", "fabric: {...}")` plans a lab; it is down when the test ends."""
    names: list[str] = []

    def make(name: str, body: str) -> RunningLab:
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"name: {name}\n{body}\n")
        names.append(name)
        take_down(name)
        return Lab.planned(file).unstarted()

    yield make
    for name in names:
        take_down(name)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's own: Playwright downloads none. Root's Chromium has no sandbox."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium-headless-shell", args=["--no-sandbox"]
        )
        yield chromium
        chromium.close()
