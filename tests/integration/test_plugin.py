"""A fault of another package in a real lab, and one whose package goes meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.record import LabFiles
from tests.helpers.plugin import FAULTS, PluginEnvironment
from tests.helpers.waiting import wait_until

LAB = "t-plugin"
FILE = f"name: {LAB}\nfabric: {{kind: clos, racks: 2, spines: 2, servers_per_rack: 1}}\n"
KILLED = """
import os, signal, sys
from rocelab.faults.asked import asked_fault
from rocelab.faults.running import injected
from rocelab.lab.lab import RunningLab
lab = RunningLab.open(sys.argv[1])
with injected(lab, asked_fault("duct-cut", ["link=rtsw1:ctsw1"])):
    os.kill(os.getpid(), signal.SIGKILL)
"""
GONE = "is of lab-faults 1.2, which is not installed any more"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[PluginEnvironment]:
    """An environment with the package, in which the lab is up."""
    environment = PluginEnvironment(tmp_path / "environment")
    environment.install("lab_faults", FAULTS)
    file = tmp_path / "lab.yaml"
    file.write_text(FILE)
    try:
        up = environment.rocelab("up", str(file))
        assert up.returncode == 0, up.stderr
        yield environment
    finally:
        environment.rocelab("down", LAB)


@pytest.mark.side_by_side
def test_a_fault_of_a_package_is_undone_and_without_the_package_goes_with_the_lab(
    there: PluginEnvironment,
) -> None:
    cut = ("fault", "inject", LAB, "duct-cut", "link=rtsw1:ctsw1")
    injected, listing, restored = there.in_turn(
        cut, ("fault", "list", LAB, "--json"), ("fault", "restore", LAB, "1")
    )
    assert injected.returncode == 0
    (listed,) = json.loads(listing.stdout)
    assert (listed["kind"], listed["subject"], listed["lost"]) == ("duct-cut", "rtsw1:ctsw1", None)
    assert restored.stdout == f"lab {LAB}: no trace of duct-cut of rtsw1:ctsw1 remains\n"
    # Its guardian, a process of its own, knows the package as well.
    killed = there.run(KILLED, LAB)
    assert killed.returncode < 0, killed.stderr
    wait_until(lambda: not list(LabFiles(LAB).faults.glob("*.json")), "the guardian has undone it")

    blackhole = ("fault", "inject", LAB, "blackhole", "link=rtsw2:ctsw2")
    assert [done.returncode for done in there.in_turn(cut, blackhole)] == [0, 0]
    there.uninstall("lab_faults")
    listing, status, one, every = there.in_turn(
        ("fault", "list", LAB),
        ("status", LAB),
        ("fault", "restore", LAB, "1"),
        ("fault", "restore", LAB, "--all"),
    )
    assert listing.returncode == 0
    assert f"it {GONE}" in " ".join(listing.stdout.split())
    assert f"fault 1 {GONE}" in status.stdout
    assert "Traceback" not in status.stderr
    assert one.returncode == 2
    assert f"duct-cut of rtsw1:ctsw1 cannot be undone: it {GONE}" in one.stderr
    assert every.returncode == 2
    assert [path.name for path in LabFiles(LAB).faults.glob("*.json")] == ["1.json"]
    down = there.rocelab("down", LAB)
    assert (down.returncode, down.stderr) == (0, "")
    assert not LabFiles(LAB).root.exists()
