"""The packet engine with another congestion control than DCQCN."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.sim.packet_runs import ACK_PS, FULL_PS, LATENCY_PS

PACKETS = 50
WITH_ANOTHER = f"""
import json, sys
import rocelab.sim.packets
from tests.unit.sim import constant_rate
# As if the import of `rocelab.sim.packets.control` named it.
sys.modules["rocelab.sim.packets.dcqcn"] = rocelab.sim.packets.dcqcn = constant_rate
from tests.unit.sim.packet_runs import Flow, at, finish_ps, ran
flow = Flow([0, 2], {PACKETS} * 4096, ecn=at.ALL_CE, rule=constant_rate.rule_of(None, 100e9))
done = ran([flow])
print(json.dumps([finish_ps(done)[0], int(done.cnps[0])]))
"""


def test_another_control_takes_the_place_of_dcqcn() -> None:
    """In a process of its own, not compiled: the engine takes it from one import."""
    ended = subprocess.run(
        [sys.executable, "-c", WITH_ANOTHER],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    finish_ps, cnps = json.loads(ended.stdout)
    end_ps = (PACKETS - 1) * 4 * FULL_PS + 2 * (FULL_PS + ACK_PS) + 4 * LATENCY_PS
    assert end_ps < finish_ps < end_ps + 2 * ACK_PS, "the last ACK waits for a CNP"
    assert cnps == PACKETS
