"""Drills whose driver is killed, a hundred times: nothing is left, and the next lab is fine."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.drills.run import run_drill
from rocelab.lab.teardown import take_down
from tests.helpers.measured import probe_runs
from tests.integration.test_ownership import belongings

KILLS = 100
LONGEST_S = 9.0
"""A drill of this file takes about 8 s: kills happen in every part of it, including its end."""

MOST_OVER = 0.25
"""The largest share of kills, or one, that may come when the drill is over already."""

LAB = "name: soak-kill\nfabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 1}\n"
DRILL = """name: soak-kill
lab: {lab}
traffic: {{flows: 8, rate_pps: 200, warmup: 200ms, duration: 3s, seed: 3}}
measure: {{sampling_interval: 50ms}}
faults:
  - {{kind: carrier-down, at: 300ms, link: "rtsw1:ctsw1", lasts: 800ms}}
  - {{kind: blackhole, at: 500ms, link: "rtsw2:ctsw2", lasts: 600ms}}
  - {{kind: daemon-hang, at: 700ms, switch: ctsw2, lasts: 700ms}}
  - {{kind: power-loss, at: 1500ms, switch: ctsw1, lasts: 700ms}}
expect: {{restored: true}}
"""


def elsewhere() -> set[int]:
    """Processes in other network namespaces than this one's."""
    inode = Path("/proc/self/ns/net").stat().st_ino
    names = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "ns/net").stat().st_ino != inode:
                names.add(int(entry.name))
        except OSError:
            continue
    return names


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("soak")
    lab = folder / "soak-kill.yaml"
    lab.write_text(LAB)
    file = folder / "drill.yaml"
    file.write_text(DRILL.format(lab=lab))
    return file


@pytest.fixture(scope="module")
def killed() -> Iterator[list[bool]]:
    """Of each kill, whether the drill was under way; most must be."""
    kills: list[bool] = []
    yield kills
    over = kills.count(False)
    assert over <= max(1, MOST_OVER * len(kills)), f"{over} of {len(kills)} drills were over"


@pytest.mark.parametrize("moment", range(KILLS))
def test_a_killed_drill_leaves_nothing_after_down(
    drill: Path, killed: list[bool], tmp_path: Path, moment: int
) -> None:
    before = elsewhere()
    program = (
        f"from pathlib import Path; from rocelab.drills.run import run_drill; "
        f"run_drill(Path({str(drill)!r}))"
    )
    errors = tmp_path / "stderr"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=stderr
        ) as driver,
    ):
        time.sleep(random.Random(moment).uniform(0.3, LONGEST_S))
        driver.send_signal(signal.SIGKILL)
    take_down("soak-kill")
    assert driver.returncode in (-signal.SIGKILL, 0), errors.read_text()
    killed.append(driver.returncode != 0)
    assert belongings("soak-kill") == []
    assert elsewhere() <= before


def test_the_next_drill_is_fine(drill: Path) -> None:
    result = run_drill(drill)
    assert probe_runs(result)[0].overall.sent > 0
    assert probe_runs(result)[0].overall.restored
    assert belongings("soak-kill") == []
