"""Killed at any moment, a lab leaves nothing that the next `down` does not find."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labs.runtime import daemons
from labs.runtime.record import LabFiles, read_left_outside, recorded_labs
from labs.runtime.teardown import take_down

pytestmark = pytest.mark.side_by_side

SPEC = "name: it-kill\nfabric: {kind: clos, racks: 4, spines: 2}\n"
UP_TAKES_S = 2.0
MOMENTS = 4
"""One in each quarter of an `up`; the soak tests kill a hundred times."""

BEGAN_S = time.time()
"""Of the tests of this process."""


def belongings(lab: str, since_s: float = BEGAN_S) -> list[str]:
    """Whatever of the lab is still on the machine: processes, mounts and files.

    A suite of the pytest plugin has labs `<lab>-p<number>`: they belong to it. since_s: Unix time
    when the lab can first have been there.
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
    return left + unused_crash_folders(since_s)


def unused_crash_folders(since_s: float) -> list[str]:
    """Folders that FRR has made for crash logs since then, and that nobody will remove.

    Not those that a process uses, is about to use or that a lab has on record: those of labs that
    others run meanwhile.
    """
    found = [path for path in daemons.CRASH_FOLDER.glob("*.*") if is_made_since(since_s, path)]
    accounted = daemons.crash_folders_of(
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()
    )
    for lab in recorded_labs():
        files = LabFiles(lab)
        accounted |= read_left_outside(files) | recorded_crash_folders(files.nodes)
    return [
        str(path)
        for path in found
        if path not in accounted and not is_starting(path) and path.exists()
    ]


def is_made_since(since_s: float, path: Path) -> bool:
    try:
        return path.stat().st_ctime >= since_s
    except FileNotFoundError:
        return False


def recorded_crash_folders(nodes: Path) -> set[Path]:
    """What a lab has on record; of a lab that goes meanwhile, what could still be read."""
    try:
        return daemons.recorded_crash_folders(nodes)
    except FileNotFoundError:
        return set()


def is_starting(crash_folder: Path) -> bool:
    """Whether the process that a folder is named after runs: it ends once its daemon is ready."""
    daemon, _, pid = crash_folder.name.partition(".")
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == daemon
    except (FileNotFoundError, ProcessLookupError):
        return False


def host_interfaces() -> set[str]:
    return {interface.name for interface in Path("/sys/class/net").iterdir()}


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_killed_at_a_random_moment_of_up_the_next_down_leaves_nothing(
    tmp_path: Path, moment: int
) -> None:
    spec = tmp_path / "lab.yaml"
    spec.write_text(SPEC)
    before, began_s = host_interfaces(), time.time()
    program = f"from labs.lab import Lab; Lab.planned({str(spec)!r}).up()"
    with subprocess.Popen([sys.executable, "-c", program]) as driver:
        wait_until_started(driver, "it-kill")
        time.sleep(random.Random(moment).uniform(moment, moment + 1) * UP_TAKES_S / MOMENTS)
        driver.send_signal(signal.SIGKILL)
    take_down("it-kill")
    assert belongings("it-kill", began_s) == []
    assert host_interfaces() == before


def wait_until_started(driver: subprocess.Popen[bytes], lab: str) -> None:
    """Return once the driver has made the lab's folder."""
    while driver.poll() is None and not Path("/run/rocelab", lab).exists():
        time.sleep(0.005)


def test_down_killed_half_way_is_finished_by_the_next_down(tmp_path: Path) -> None:
    began_s, spec = time.time(), tmp_path / "lab.yaml"
    spec.write_text(SPEC)
    up = f"from labs.lab import Lab; Lab.planned({str(spec)!r}).up()"
    subprocess.run([sys.executable, "-c", up], check=True)
    down = "from labs.runtime.teardown import take_down; print(flush=True); take_down('it-kill')"
    with subprocess.Popen([sys.executable, "-c", down], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
    take_down("it-kill")
    assert belongings("it-kill", began_s) == []


def test_a_process_that_is_not_of_the_lab_is_left_alone(tmp_path: Path) -> None:
    spec = tmp_path / "lab.yaml"
    spec.write_text(SPEC)
    up = f"from labs.lab import Lab; Lab.planned({str(spec)!r}).up()"
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            subprocess.run([sys.executable, "-c", up], check=True)
            take_down("it-kill")
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_down_of_a_lab_that_is_not_there_is_quiet() -> None:
    began_s = time.time()
    take_down("it-never")
    assert belongings("it-never", began_s) == []
