"""Programs of lossless classes that lose packets or events uncounted: runs that they spoil say so,
also beside a fault that takes no packet."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocelab.dataplane.pfc import program
from rocelab.faults.base import Timed
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.jobs.job import JobSpec
from rocelab.runs.jobs import run_jobs
from tests.helpers.lossless import LOSSLESS, Rig
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.few_at_once

LAB = """
name: t-lossless-leak
fabric: {kind: clos, racks: 2, spines: 1, servers_per_rack: 1}
links: {rate: 100G, server_rate: 100G}
dilation: 2500
queues: {pfc: {}}
"""
ONE_OF_64 = "if (skb->len > 1000 && !(bpf_get_prandom_u32() & 63))\n\t\treturn TC_ACT_STOLEN;"
ADMITS = "	if (from && !admit_from("
ENTERS = "	late = left_late(skb->tc_index, port, slot);"


@contextmanager
def lab_with(old: str, new: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A lab whose program has `new` where the kit's has `old`."""
    source = program.SOURCE.read_text()
    assert source.count(old) == 1
    for header in program.SOURCE.parent.glob("*.h"):
        shutil.copy(header, folder)
    changed = folder / program.SOURCE.name
    changed.write_text(source.replace(old, new))
    monkeypatch.setattr(program, "SOURCE", changed)
    with Rig.of(LAB, folder) as rig:
        yield rig


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (ADMITS, "packets that came into"),
        (ENTERS, "packets in its queue"),
    ],
    ids=["before a queue", "on a cable"],
)
def test_packets_that_vanish_uncounted_make_a_run_invalid(
    before: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leak = f"\t{ONE_OF_64}\n{before}"
    job = JobSpec.model_validate(
        {
            **{"pattern": "alltoall", "ranks": 2, "size": "2MB", "iterations": 1},
            "warmup_iterations": 0,
            "transport": {"dcqcn": "off", "ecn": "not-ect", "ack_timeout": "400us"},
        }
    )
    with lab_with(before, leak, tmp_path, monkeypatch) as rig:
        spec = {"kind": "slow-receiver", "server": "srv2-1", "rate": "50%"}
        fault = Timed(SINGLE_FAULT.validate_python(spec), 0, None)
        (report,) = run_jobs(rig.lab, [job], faults=[fault]).reports
    assert report.roce.retransmitted > 0
    assert [problem for problem in report.problems if why in problem]


def test_events_that_the_pausing_process_never_got_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event takes 40 bytes of the kernel's ring."""
    frames, room = 200, 1 << 12
    with lab_with("(1 << 18)", f"{room}", tmp_path, monkeypatch) as rig:
        pauser = rig.processes().pauser
        before = rig.maps.egresses.get(rig.gate * 8 + LOSSLESS, "resumes")
        os.kill(pauser, signal.SIGSTOP)
        try:
            for _ in range(frames):
                rig.send_foreign_pause({LOSSLESS: 0})
            wait_until(
                lambda: (
                    rig.maps.egresses.get(rig.gate * 8 + LOSSLESS, "resumes") - before == frames
                ),
                "the switch has got all frames",
            )
            assert rig.reader.unreported() == frames - room // 40
        finally:
            os.kill(pauser, signal.SIGCONT)
