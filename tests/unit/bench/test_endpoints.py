"""The pure parts of `python -m bench.endpoints`: verdicts on samples, bursts, tables."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import senders
from bench.arrivals import SampleCheck, check_sample
from bench.campaign.document import Document, PointResult
from bench.campaign.pages import page_of
from bench.endpoints import (
    CONDITIONS,
    PACINGS,
    POINTS,
    STUDY,
    WAYS,
    Point,
    kernel_rate,
    lab_of,
    paced_flows,
)
from bench.pacing import BURST_NS, Pacing, bursts, pacing, rate_error
from bench.senders import NEEDED, SEND, Sender
from bench.throughput import DESTINATION, SOURCE, Throughput
from rocelab.jobs.flow import ProbeStream, resolve_flow
from rocelab.jobs.sport import FIRST_SPORT
from rocelab.traffic.result import AgentRecord, FlowTransmission, TrafficResult
from rocelab.traffic.roce import Envelope, roce_frame
from rocelab.wire.headers import PSN_MASK, Opcode
from tests.unit.bench.documents import document

BARE = CONDITIONS[-2]


def frame(psn: int, dest_qp: int = 2) -> bytes:
    envelope = Envelope(
        source_mac="02:00:00:00:00:01",
        next_hop_mac="02:00:00:00:00:02",
        source_ip="198.18.0.1",
        destination_ip="198.18.0.3",
        sport=FIRST_SPORT,
        dest_qp=dest_qp,
    )
    return roce_frame(envelope, Opcode.RC_WRITE_MIDDLE, psn=psn, payload=bytes(64))


def test_a_sample_counts_across_the_end_of_the_psns() -> None:
    check = check_sample([frame(psn) for psn in (PSN_MASK - 1, PSN_MASK, 0, 1)])
    assert check == SampleCheck(frames=4, right_icrcs=4, queue_pairs=1, steps=3, counted=3)
    assert check.icrcs_are_right
    assert check.psns_count


def test_queue_pairs_in_turn_count_each_for_itself() -> None:
    check = check_sample([frame(psn, queue_pair) for psn in range(3) for queue_pair in (2, 3)])
    assert (check.queue_pairs, check.steps, check.counted) == (2, 4, 4)


def test_a_gap_a_repetition_and_a_wrong_icrc_are_seen() -> None:
    damaged = bytearray(frame(6))
    damaged[-1] ^= 1
    check = check_sample([frame(1), frame(3), frame(3), frame(4), frame(5), bytes(damaged)])
    assert (check.frames, check.right_icrcs) == (6, 5)
    assert (check.steps, check.counted) == (5, 3)
    assert not check.icrcs_are_right
    assert not check.psns_count


def test_a_sample_of_nothing_proves_nothing() -> None:
    check = check_sample([])
    assert not check.icrcs_are_right
    assert not check.psns_count


@given(st.lists(st.integers(0, 10**8), min_size=1, max_size=60))
def test_a_burst_is_what_any_millisecond_holds(times: list[int]) -> None:
    lengths = bursts(np.array(sorted(times), np.int64))
    longest = max(sum(start <= t < start + BURST_NS for t in times) for start in times)
    assert lengths.max() == longest
    assert lengths.min() >= 1


def record(flow: ProbeStream, receive_ns: list[int]) -> FlowTransmission:
    sequence = np.arange(len(receive_ns), dtype=np.int64)
    times = np.array(receive_ns, np.int64)
    return FlowTransmission(
        flow=flow,
        sent_seq=sequence,
        sent_ns=times,
        refused_seq=sequence[:0],
        refused_ns=sequence[:0],
        received_seq=sequence,
        send_ns=times,
        receive_ns=times,
        ttl=np.full(len(receive_ns), 61, np.uint8),
        intended=len(receive_ns),
        lag_p99_ns=5,
        lag_max_ns=9,
    )


def test_a_rate_is_held_against_what_was_asked() -> None:
    flow = paced_flows()[0]
    assert rate_error(record(flow, [0, 1_000_000, 2_000_000])) == 0
    assert rate_error(record(flow, [0, 1_010_000])) == pytest.approx(1 - 1 / 1.01)
    assert rate_error(record(flow, [0, 990_000])) == pytest.approx(1 / 0.99 - 1)
    with pytest.raises(ValueError, match="0 packets of flow 0"):
        rate_error(record(flow, []))


def test_pacing_takes_the_worst_flow_and_the_largest_burst() -> None:
    first, second = paced_flows()[:2]
    even = [n * 1_000_000 for n in range(10)]
    stalled = [0, 1_000_000, *(5_000_000 + n for n in range(4)), *even[6:]]
    agents = tuple(
        AgentRecord(name, cpu_s, 0, 0, {}, 0, 0, True)
        for name, cpu_s in ((SOURCE, 20e-6), (DESTINATION, 1.0))
    )
    figures = pacing(
        TrafficResult(
            flows=(record(first, even), record(second, stalled)),
            agents=agents,
            started_ns=0,
            stopped_ns=10**7,
            clock_jump_ns=0,
            softnet_drops=0,
            problems=(),
        )
    )
    assert (figures.burst_of_a_flow, figures.burst_of_all) == (4, 5)
    assert figures.worst_rate_error == pytest.approx(0)
    assert figures.sender_us == pytest.approx(1.0)
    assert figures.lost == 0


def test_the_paced_flows_fit_both_labs_whose_paths_are_alike() -> None:
    flows = paced_flows()
    assert len({flow.sport for flow in flows}) == len(flows) == 50
    for queues in (True, False):
        fabric = lab_of(queues).fabric
        assert {resolve_flow(fabric, flow).interface for flow in flows} == {"rtsw1"}
        assert [node.name for node in fabric.switches if node.name.startswith("ctsw")] == ["ctsw1"]


def test_every_sender_can_send_and_has_its_points() -> None:
    assert set(SEND) == set(Sender)
    assert set(NEEDED) <= set(Sender)
    assert set(Sender) < set(WAYS)
    assert len({point.name for point in POINTS}) == len(POINTS) == 4 * len(WAYS) + 2


def throughput(packets_per_s: float) -> Throughput:
    return Throughput(packets_per_s, 8.0, 4.0, 12.0, SampleCheck(100, 100, 1, 99, 99))


def measured(rates: Mapping[Any, list[float]]) -> Document:
    return document(
        points=tuple(
            PointResult(Point(BARE, way).name, tuple(asdict(throughput(rate)) for rate in many))
            for way, many in rates.items()
        )
    )


def section(page: str, title: str) -> list[str]:
    return page.split(f"## {title}\n")[1].partition("\n## ")[0].splitlines()


def test_the_kernel_path_is_the_faster_loop_by_medians() -> None:
    loops = {
        Sender.FRAME_LOOP_IN_C: [10.0, 200_000.0, 210_000.0],
        Sender.UDP_LOOP_IN_C: [190_000.0, 900_000.0, 180_000.0],
    }
    figures = measured(loops)
    assert kernel_rate(figures, BARE) == 200_000
    assert kernel_rate(figures, CONDITIONS[0]) is None
    assert kernel_rate(document(), BARE) is None


def test_the_verdict_gives_target_and_ratio() -> None:
    figures = measured({Sender.FRAME_LOOP_IN_C: [200_000.0], 1: [90_000.0, 100_000.0, 110_000.0]})
    reached = section(page_of(STUDY, figures), "No port queues")[1]
    assert reached.startswith("The agent reaches 100,000/s: 100,000/s over 1 queue pair, 50% of")
    page = page_of(STUDY, measured({1: [99_999.0]}))
    assert section(page, "No port queues")[1] == (
        "The agent misses 100,000/s: 99,999/s over 1 queue pair."
    )
    assert section(page, "Port queues")[1] == "No agent was measured."


def test_the_table_names_what_is_missing_and_what_went_wrong() -> None:
    agent = replace(throughput(120_000.0), retransmitted=7, trouble="3 wrong ICRCs")
    figures = document(
        points=(
            PointResult(Point(BARE, Sender.SENDPFAST).name, missing="tcpreplay is not installed"),
            PointResult(Point(BARE, 1).name, (asdict(agent),)),
        )
    )
    table = section(page_of(STUDY, figures), "No port queues")
    assert any("sendpfast" in line and "tcpreplay is not installed" in line for line in table)
    (row,) = (line for line in table if "agent, 1 queue pair" in line)
    assert "120,000" in row
    assert "100 of 100 | 99 of 99 | 7 |" in row
    assert "Not as it should be: 3 wrong ICRCs." in table


def test_the_pacing_table_gives_spreads_and_problems() -> None:
    one = Pacing(50, 0.0001, 0, 2, 80, 75, 400_000, 3_000_000, 13.0, ())
    late = replace(one, worst_rate_error=0.02, problems=("not valid because it was late",))
    with_queues, without = (point.name for point in PACINGS)
    figures = document(
        points=(
            PointResult(with_queues, (asdict(one), asdict(late))),
            PointResult(without, (asdict(one),)),
        )
    )
    table = page_of(STUDY, figures).splitlines()
    assert "| rate error of the worst flow | 1.0050% (0.0100% to 2.0000%) | 0.0100% |" in table
    assert any("is not within 1%" in line for line in table)
    assert table[-1] == "A run was not valid because it was late."


def test_what_root_compiles_and_runs_is_not_at_a_name_that_others_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, planted = tmp_path / "victim", tmp_path / "send_loop"
    victim.write_text("kept")
    planted.symlink_to(victim)
    run: list[str] = []

    def compile_it(command: list[str], *, check: bool) -> None:
        Path(command[command.index("-o") + 1]).write_text("program")

    def execute(program: int, arguments: list[str], environment: object) -> None:
        run.append(os.read(program, 99).decode())
        os.close(program)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", compile_it)
    monkeypatch.setattr(os, "execve", execute)
    monkeypatch.setattr(os, "execv", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with socket.socket() as outlet:
        senders._become_c_loop(outlet, b"", b"")
    assert victim.read_text() == "kept"
    assert run == ["program"]
    assert sorted(tmp_path.iterdir()) == [planted, victim]
