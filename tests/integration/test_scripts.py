"""The short scripts over the library, run as their first lines say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab import Lab
from rocelab.forwarding.path import find_nic, walk
from rocelab.runtime.teardown import take_down

pytestmark = pytest.mark.side_by_side

SCRIPTS = Path(__file__).parents[2] / "scripts"
NAME = "t-scripts"


def printed(script: str, *arguments: str | Path) -> list[str]:
    command = [sys.executable, SCRIPTS / f"{script}.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("lab") / "lab.yaml"
    file.write_text(f"name: {NAME}\nfabric: {{racks: 3, spines: 2, links_per_pair: 2}}\n")
    return file


@pytest.fixture(scope="module")
def lab(file: Path) -> Iterator[Lab]:
    made = Lab.planned(file)
    take_down(NAME)
    made.up()
    yield made
    take_down(NAME)


def test_no_script_is_long() -> None:
    scripts = list(SCRIPTS.glob("*.py"))
    assert len(scripts) >= 3
    assert [each.name for each in scripts if len(each.read_text().splitlines()) > 60] == []


def test_the_links_found_are_those_of_the_running_kernels_tables(lab: Lab, file: Path) -> None:
    fabric = lab.fabric
    ends = find_nic(fabric, "srv1-1"), find_nic(fabric, "srv3-1")
    taken = walk(fabric, lab.fib_of, *ends, 50000)
    lines = printed("find_link", file, "srv1-1", "srv3-1", "50000")
    assert [line.split()[0] for line in lines] == list(taken.nodes)
    assert [line.split()[2] for line in lines[:-1]] == [hop.link for hop in taken.hops]


def test_one_seed_leaves_half_of_the_links_unused() -> None:
    own, shared = printed("polarization", "zone-small")
    assert own.startswith("a seed per switch") and own.endswith("32 of 32 links used")
    assert shared.startswith("one seed for all") and shared.endswith("16 of 32 links used")


def test_a_pulled_cable_changes_tables_at_both_of_its_ends(lab: Lab) -> None:
    lines = printed("flap_link", NAME, "rtsw1:ctsw2")
    assert [line for line in lines if line.endswith(":")] == [
        "rtsw1:ctsw2 down:",
        "rtsw1:ctsw2 up:",
    ]
    assert {line.split()[0] for line in lines if line.startswith(" ")} >= {"rtsw1", "ctsw2"}
    assert lab.node("rtsw1").exec(["ip", "link", "show", "up", "ctsw2"]).stdout
