"""The packet engine: closed forms to the picosecond, and what arrives."""

from __future__ import annotations

import numpy as np
import pytest

from rocelab.errors import InputError
from rocelab.jobs.dcqcn_profiles import PROFILES
from rocelab.jobs.job import JobSpec
from rocelab.jobs.spec import collective_job
from rocelab.progress import Progress, ProgressSink, no_progress
from rocelab.results.simulation import Engine
from rocelab.sim.engine.program import Program
from rocelab.sim.fabric.flows import Paths
from rocelab.sim.packets import run
from rocelab.sim.packets.run import PacketRun, Sending, run_packets
from rocelab.sim.simulate import Options, simulate
from rocelab.spec.catalog import find_lab
from rocelab.spec.load import load_spec

RATE_BPS = 100e9
LATENCY_PS = 1_000_000
FULL_PS, ACK_PS = 4178 * 80, 86 * 80


def sent(
    paths: list[list[int]],
    payload: list[int],
    after: list[list[int]] | None = None,
    window: int = 512,
    ack_every: int = 1,
    message: int = 256,
    progress: ProgressSink = no_progress,
) -> PacketRun:
    """A task per flow; `after`: the tasks that each waits for, none by default."""
    flows = len(paths)
    waits = after or [[] for _ in paths]
    numbers = np.arange(flows + 1, dtype=np.int64)
    program = Program(
        np.concatenate(([0], np.cumsum([len(each) for each in waits]))).astype(np.int64),
        np.array([task for each in waits for task in each], np.int32),
        np.zeros(flows),
        np.zeros(flows),
        numbers,
        np.arange(flows, dtype=np.int32),
        np.array(payload) * 8.0,
    )
    starts = np.concatenate(([0], np.cumsum([len(path) for path in paths]))).astype(np.int64)
    sends = np.array([send for path in paths for send in path], np.int32)
    ones = np.ones(flows, np.int64)
    sending = Sending(
        np.array(payload, np.int64),
        4096 * ones,
        window * ones,
        ack_every * ones,
        message * ones,
        82,
    )
    capacity_bps = np.full(2 * (1 + sends.max() // 2), RATE_BPS)
    return run_packets(
        program, Paths(starts, sends), capacity_bps, LATENCY_PS / 1e12, sending, progress
    )


def test_a_single_flow_takes_its_bytes_one_frame_per_further_hop_and_its_last_ack() -> None:
    ran = sent([[0, 2, 4]], [100 * 4096])
    expected = (100 + 2) * FULL_PS + 3 * LATENCY_PS + 3 * (ACK_PS + LATENCY_PS)
    assert ran.outcome.finish_s[0] * 1e12 == pytest.approx(expected, abs=0.5)
    assert (ran.packets, ran.acks, ran.packet_hops) == (100, 100, 600)


def test_a_window_of_one_packet_waits_for_each_ack() -> None:
    ran = sent([[0, 2]], [10 * 4096], window=1, ack_every=16)
    expected = 10 * (2 * FULL_PS + 2 * ACK_PS + 4 * LATENCY_PS)
    assert ran.outcome.finish_s[0] * 1e12 == pytest.approx(expected, abs=0.5)


def test_acks_are_asked_for_as_in_the_lab() -> None:
    def acks(packets: int, **keys: int) -> int:
        return sent([[0, 2]], [packets * 4096], **keys).acks

    assert acks(40, ack_every=16) == 3, "packets 16, 32 and the last"
    assert acks(40, ack_every=16, message=10) == 6, "and the last of each message"
    assert acks(32, ack_every=512, window=8) >= 4, "and the one that fills the window"


def test_a_receiver_goes_on_when_data_has_arrived_and_a_sender_when_it_is_acknowledged() -> None:
    # Port 3 leads to the NIC that sends by port 2.
    ran = sent([[0, 3], [2, 5], [0, 7]], [4096] * 3, after=[[], [0], [0]])
    arrival = 2 * (FULL_PS + LATENCY_PS)
    ack = arrival + 2 * (ACK_PS + LATENCY_PS)
    # The receiver's ACK goes first at its NIC.
    starts = ran.outcome.start_s * 1e12
    assert starts.tolist() == pytest.approx([0, arrival, ack], abs=0.5)
    assert ran.outcome.end_s[1] * 1e12 == pytest.approx(arrival + ACK_PS + ack, abs=0.5)


def test_a_run_is_told_of_and_can_be_interrupted_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_EVENTS_AT_ONCE", 50)
    told: list[Progress] = []

    def interrupt(progress: Progress) -> None:
        told.append(progress)
        if progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sent([[0, 2]] * 2, [4096, 100 * 4096], progress=interrupt)
    assert (told[-1].done, told[-1].total) == (1, 2)


def test_an_incast_drains_at_the_rate_of_its_last_port() -> None:
    ran = sent([[2 * number, 20] for number in range(8)], [50 * 4096] * 8)
    expected = FULL_PS + 8 * 50 * FULL_PS + 2 * LATENCY_PS + 2 * (ACK_PS + LATENCY_PS)
    assert ran.outcome.finish_s.max() * 1e12 == pytest.approx(expected, abs=0.5)
    assert ran.highest_bytes.argmax() == 20
    assert ran.highest_bytes[20] == (8 * 50 - 50) * 4178, "the last eight arrive as frame 50 starts"


def test_each_port_carries_every_byte_once() -> None:
    ran = sent([[0, 2, 4], [6, 2, 4]], [10_000, 4096], ack_every=2)
    data = 10_000 + 4096 + 4 * 82
    assert ran.outcome.sent_bits[[0, 2, 4, 6]].tolist() == [
        8.0 * (10_000 + 3 * 82),
        8.0 * data,
        8.0 * data,
        8.0 * 4178,
    ]
    assert ran.outcome.sent_bits[5] == 8.0 * 86 * ran.acks


def test_sizes_without_a_ring_take_their_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = [1000, 2000, 3000, 4000, 5000, 10_000]
    ways = [[2 * number, 20, 22] for number in range(len(payload))]
    ringed = sent(ways, payload, ack_every=2)
    monkeypatch.setattr(run, "RINGED_SIZES", 1)
    timed = sent(ways, payload, ack_every=2)
    assert timed.outcome.sent_bits.tolist() == ringed.outcome.sent_bits.tolist()
    assert timed.outcome.finish_s.tolist() == pytest.approx(ringed.outcome.finish_s.tolist())
    last = sent([[0, 2]], [1000]).outcome.finish_s[0] * 1e12
    assert last == pytest.approx(2 * 1082 * 80 + 2 * ACK_PS + 4 * LATENCY_PS, abs=0.5)


def test_a_run_that_takes_too_long_is_refused_with_an_estimate() -> None:
    with pytest.raises(InputError, match="packet-hops"):
        sent([[0, 2, 4]], [4096 * 10**9])


def test_a_job_runs_through_the_same_report_and_is_no_faster_than_the_fluid() -> None:
    spec = load_spec(find_lab("zone-1-1"))
    job = collective_job(JobSpec.model_validate({"pattern": "alltoall", "ranks": 4, "size": "1MB"}))
    fluid, packets = (
        simulate(spec, [job], Options(engine=engine)).jobs[0].headline("jct_ratio").modelled.median
        for engine in Engine
    )
    assert fluid <= packets < 1.5 * fluid


def test_what_the_engine_does_not_simulate_is_refused() -> None:
    spec = load_spec(find_lab("zone-1-1"))
    keys = {"pattern": "alltoall", "ranks": 4, "size": "1MB", "transport": {}}
    keys["transport"] = {"dcqcn": next(iter(PROFILES))}
    with pytest.raises(InputError, match="DCQCN"):
        simulate(
            spec, [collective_job(JobSpec.model_validate(keys))], Options(engine=Engine.PACKETS)
        )
