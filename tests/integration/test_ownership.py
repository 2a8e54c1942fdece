"""A lab killed at any moment leaves nothing that the next `down` does not find."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocelab.lab.lab import Lab
from rocelab.lab.teardown import take_down
from tests.helpers.long import mostly_long

pytestmark = pytest.mark.side_by_side

SPEC = "name: it-kill\nfabric: {kind: clos, racks: 4, spines: 2}\n"
KILLED = """
import os, signal, sys
from rocelab.lab.lab import Lab

file, stage = sys.argv[1:]


def look(step):
    if step.stage == stage and step.done >= step.total / 2:
        os.kill(os.getpid(), signal.SIGKILL)


Lab.planned(file).up(look)
"""
"""Ends itself when half of a stage is done; the soak tests kill at a hundred random moments."""


def belongings(lab: str) -> list[str]:
    """The lab's remaining processes, mounts and files on the machine.

    A suite of the pytest plugin has labs `<lab>-p<number>`: they belong to it.
    """
    of_the_lab = re.compile(rf"/run/rocelab/{re.escape(lab)}(-p\d+)?(?![\w-])").search
    left = [
        line.split()[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if of_the_lab(line)
    ]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if of_the_lab(command):
            left.append(command)
    left += [str(path) for path in Path("/run/rocelab").glob("*") if of_the_lab(str(path))]
    return left


def host_interfaces() -> set[str]:
    return {interface.name for interface in Path("/sys/class/net").iterdir()}


@pytest.mark.parametrize(
    "stage", mostly_long(("nodes", "links", "daemons", "convergence"), ("nodes", "convergence"))
)
def test_killed_amid_any_stage_of_up_the_next_down_leaves_nothing(
    tmp_path: Path, stage: str
) -> None:
    spec = tmp_path / "lab.yaml"
    spec.write_text(SPEC)
    before = host_interfaces()
    driver = subprocess.run([sys.executable, "-c", KILLED, str(spec), stage], check=False)
    assert driver.returncode == -signal.SIGKILL
    take_down("it-kill")
    assert belongings("it-kill") == []
    assert host_interfaces() == before


def test_down_killed_between_its_steps_is_finished_by_the_next_down(tmp_path: Path) -> None:
    spec = tmp_path / "lab.yaml"
    spec.write_text(SPEC)
    Lab.planned(spec).up()
    for step in ("_provider", "namespaces.detach_mounts", "remove_files"):
        down = (
            "from threading import Event; from rocelab.lab import teardown; "
            f"teardown.{step} = lambda *_: print(flush=True) or Event().wait(); "
            "teardown.take_down('it-kill')"
        )
        with subprocess.Popen([sys.executable, "-c", down], stdout=subprocess.PIPE) as driver:
            assert driver.stdout is not None
            assert driver.stdout.readline() == b"\n"
            driver.send_signal(signal.SIGKILL)
        assert belongings("it-kill") != [], step
    take_down("it-kill")
    assert belongings("it-kill") == []


def test_a_process_that_is_not_of_the_lab_is_left_alone(tmp_path: Path) -> None:
    spec = tmp_path / "lab.yaml"
    spec.write_text(SPEC)
    with subprocess.Popen(["sleep", "infinity"]) as stranger:
        try:
            Lab.planned(spec).up()
            take_down("it-kill")
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_down_of_a_lab_that_is_not_there_is_quiet() -> None:
    take_down("it-never")
    assert belongings("it-never") == []
