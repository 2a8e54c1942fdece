"""The packet engine: closed forms to the picosecond, and what arrives."""

from __future__ import annotations

import numpy as np
import pytest

from rocelab.base.errors import InputError
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.results.engines import Engine, PortModel
from rocelab.sim.options import Options
from rocelab.sim.packets import build, run
from rocelab.sim.packets.run import PacketRun
from rocelab.sim.simulate import Simulation, simulate
from tests.unit.sim.packet_runs import (
    ACK_PS,
    CLEARANCE_BYTES,
    FRAME,
    FULL_PS,
    LATENCY_PS,
    Flow,
    arranged,
    ran,
)


def sent(
    paths: list[list[int]],
    payload: list[int],
    after: list[list[int]] | None = None,
    progress: ProgressSink = no_progress,
    **changes: int,
) -> PacketRun:
    """A task per flow; `after`: the tasks that each waits for, none by default."""
    waits = after or [[] for _ in paths]
    flows = [Flow(*row) for row in zip(paths, payload, waits, strict=True)]
    return ran(flows, progress=progress, **changes)


def test_a_single_flow_takes_its_bytes_one_frame_per_further_hop_and_its_last_ack() -> None:
    done = sent([[0, 2, 4]], [100 * 4096])
    expected = (100 + 2) * FULL_PS + 3 * LATENCY_PS + 3 * (ACK_PS + LATENCY_PS)
    assert done.finish_s[0] * 1e12 == pytest.approx(expected, abs=0.5)
    assert (done.packets, done.acks, done.packet_hops) == (100, 100, 600)


def test_a_window_of_one_packet_waits_for_each_ack() -> None:
    done = sent([[0, 2]], [10 * 4096], window=1, ack_every=16, message=10)
    middle_ps, headers_ps = FULL_PS - 20 * 80, 20 * 80
    expected = 10 * (2 * middle_ps + 2 * ACK_PS + 4 * LATENCY_PS) + 2 * headers_ps
    assert done.finish_s[0] * 1e12 == pytest.approx(expected, abs=0.5)


def test_acks_are_asked_for_as_in_the_lab() -> None:
    def acks(packets: int, **keys: int) -> int:
        return sent([[0, 2]], [packets * 4096], **{"message": 256} | keys).acks

    assert acks(40, ack_every=16) == 3, "packets 16, 32 and the last"
    assert acks(40, ack_every=16, message=10) == 6, "and the last of each message"
    assert acks(32, ack_every=512, window=8) >= 4, "and the one that fills the window"


def test_a_receiver_goes_on_when_data_has_arrived_and_a_sender_when_it_is_acknowledged() -> None:
    # Port 3 leads to the NIC that sends by port 2.
    done = sent([[0, 3], [2, 5], [0, 7]], [4096] * 3, after=[[], [0], [0]])
    arrival = 2 * (FULL_PS + LATENCY_PS)
    ack = arrival + 2 * (ACK_PS + LATENCY_PS)
    # The receiver's ACK goes first at its NIC.
    starts = done.start_s * 1e12
    assert starts.tolist() == pytest.approx([0, arrival, ack], abs=0.5)
    assert done.end_s[1] * 1e12 == pytest.approx(arrival + ACK_PS + ack, abs=0.5)


def test_a_run_is_told_of_and_can_be_interrupted_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_EVENTS_AT_ONCE", 50)
    text: list[Progress] = []

    def interrupt(progress: Progress) -> None:
        text.append(progress)
        if progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sent([[0, 2]] * 2, [4096, 100 * 4096], progress=interrupt)
    assert (text[-1].done, text[-1].total) == (1, 2)


def test_an_incast_drains_at_the_rate_of_its_last_port() -> None:
    done = sent([[2 * number, 20] for number in range(8)], [50 * 4096] * 8)
    expected = FULL_PS + 8 * 50 * FULL_PS + 2 * LATENCY_PS + 2 * (ACK_PS + LATENCY_PS)
    assert done.finish_s.max() * 1e12 == pytest.approx(expected, abs=0.5)
    assert done.highest_bytes.argmax() == 20
    assert done.highest_bytes[20] == (8 * 50 - 50 - 1) * FRAME, (
        "the last eight arrive as frame 50 starts, and the last of them finds the others"
    )


def test_each_port_carries_every_byte_once() -> None:
    done = sent([[0, 2, 4], [6, 2, 4]], [10_000, 4096], ack_every=2)
    data = 10_000 + 4096 + 4 * 102
    assert done.sent_bits[[0, 2, 4, 6]].tolist() == [
        8.0 * (10_000 + 3 * 102),
        8.0 * data,
        8.0 * data,
        8.0 * (FRAME + 24),
    ]
    assert done.sent_bits[5] == 8.0 * 86 * done.acks


def test_sizes_without_a_ring_take_their_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = [1000, 2000, 3000, 4000, 5000, 10_000]
    flows = [Flow([2 * n, 20, 22], size, ack_every=2) for n, size in enumerate(payload)]

    def rings() -> int:
        return int(build.state_of(*arranged(flows)).rules.port_rings)

    ringed, before = ran(flows), rings()
    monkeypatch.setattr(build, "RINGED_SIZES", 2)
    assert (before, rings()) == (4, 2)
    timed = ran(flows)
    assert timed.sent_bits.tolist() == ringed.sent_bits.tolist()
    assert timed.finish_s.tolist() == pytest.approx(ringed.finish_s.tolist())
    last = sent([[0, 2]], [1000]).finish_s[0] * 1e12
    assert last == pytest.approx(2 * 1102 * 80 + 2 * ACK_PS + 4 * LATENCY_PS, abs=0.5)


def test_a_run_that_takes_too_long_is_refused_with_an_estimate() -> None:
    """Its packets' hops and those of as many ACKs."""
    with pytest.raises(InputError, match="packet-hops") as refused:
        sent([[0, 2, 4]], [4096 * 10**9])
    about_s = 2 * 3 * 10**9 / run.HOPS_PER_SECOND
    assert (f"1,000,000,000 packets and 3,000,000,000 packet-hops, about {about_s:,.0f} s;") in str(
        refused.value
    )


def test_a_job_runs_through_the_same_report_and_is_no_faster_than_the_fluid() -> None:
    spec = load_spec(find_lab("zone-1-1"))
    job = collective_job(JobSpec.model_validate({"pattern": "alltoall", "ranks": 4, "size": "1MB"}))
    fluid, packets = (
        simulate(spec, [job], Options(engine=engine)).jobs[0].headline("jct_ratio").modelled.median
        for engine in (Engine.FLUID, Engine.PACKETS)
    )
    assert fluid <= packets < 1.5 * fluid


def simulated(lab: str, options: Options, **keys: object) -> float:
    """The modelled time of an iteration in ns."""
    job = collective_job(JobSpec.model_validate({"size": "256KB", "iterations": 1} | keys))
    (report,) = simulate(load_spec(find_lab(lab)), [job], options).jobs
    return report.headline("iteration_time").modelled.median


def test_data_that_arrives_at_one_port_of_a_nic_lets_it_send_by_the_other() -> None:
    """Each step of a ring takes a way of the data; the last one also that of an ACK."""
    ring = {"pattern": "allreduce", "ranks": 8, "transport": {"qps": 2}}
    fluid, packets = (
        simulated("hpn-small", Options(engine=engine, hop_latency_ns=20_000), **ring)
        for engine in (Engine.FLUID, Engine.PACKETS)
    )
    assert fluid < packets < 1.1 * fluid


@pytest.mark.parametrize(
    ("size", "transport"),
    [
        ("1MB", {}),
        ("1MB", {"qps": 3, "strategy": "split", "message": "16KiB"}),
        ("100001B", {"qps": 4, "message": "7001B", "mtu": 1024}),
        ("4B", {"qps": 16, "strategy": "split"}),
    ],
)
def test_a_queue_pair_puts_on_the_wire_what_the_lab_s_does(
    size: str, transport: dict[str, object]
) -> None:
    """Its part of each message, to the byte: with headers, padding and empty packets."""
    keys = {"pattern": "incast", "ranks": 3, "size": size, "transport": transport}
    job = collective_job(JobSpec.model_validate(keys))
    simulation = Simulation(load_spec(find_lab("zone-1-1")), [job], Options(engine=Engine.PACKETS))
    program, paths = simulation.program, simulation.whole_paths
    outcome = simulation.run_packets()
    bits = np.bincount(program.flow, program.size_bits)
    expected = np.bincount(paths.sends, np.repeat(bits, np.diff(paths.start)))
    (used,) = expected.nonzero()
    assert not outcome.retransmitted.any()
    assert outcome.sent_bits[used].tolist() == expected[used].tolist()


def test_ports_of_a_lab_without_a_latency_are_refused() -> None:
    options = Options(engine=Engine.PACKETS, ports=PortModel.LAB, hop_latency_ns=0)
    with pytest.raises(InputError, match="hop latency of 0"):
        simulated("zone-1-1", options, pattern="incast", ranks=2)


def test_with_one_buffer_each_message_waits_until_the_one_before_is_cleared() -> None:
    """Four messages of 64 kB over two links of 400G: the first waits for a clear-to-send too."""
    byte_ps, first_bytes = 20, 4096 + 58 + 16 + 24
    ack_ps = ACK_PS // 80 * byte_ps
    # Its ACK goes before what it lets the sender's NIC send.
    clear_ps = 2 * (CLEARANCE_BYTES * byte_ps + LATENCY_PS) + ack_ps

    def time_ps(**admission: object) -> float:
        options = Options(engine=Engine.PACKETS, hop_latency_ns=LATENCY_PS // 1000)
        transport = {"message": "64KB", **admission}
        keys = {"pattern": "incast", "ranks": 2, "transport": transport}
        return 1000 * simulated("zone-1-1", options, **keys)

    without_ps = time_ps()
    many_ps = time_ps(admission={"channels": 64, "buffer": "64KB"})
    one_ps = time_ps(admission={"channels": 1, "buffer": "64KB"})
    # A message is behind the sender's NIC for as long as its longest packet, the first one.
    there_ps = LATENCY_PS + first_bytes * byte_ps + LATENCY_PS + ack_ps
    assert many_ps - without_ps == pytest.approx(clear_ps, abs=1)
    assert one_ps - many_ps == pytest.approx(3 * (there_ps + clear_ps), abs=1)


@pytest.mark.parametrize("qps", [2, 4])
def test_clear_to_sends_reach_the_queue_pair_that_a_rings_next_send_is_on(qps: int) -> None:
    one, several = (
        simulated(
            "two-leaves",
            Options(engine=Engine.PACKETS),
            pattern="allreduce",
            ranks=4,
            transport={"admission": True, "qps": number},
        )
        for number in (1, qps)
    )
    assert several == pytest.approx(one, rel=0.01)


def test_a_job_that_sends_nothing_takes_as_long_as_in_the_fluid() -> None:
    """Tensor parallelism is NVLink's; without pipeline or replicas nothing else is sent."""
    shape = {"layers": 4, "hidden": 256, "heads": 4, "ffn": 512, "vocab": 1000, "sequence": 64}
    training = {"model": shape, "tensor": 2, "server_gpus": 2, "gpu_flops": "100T"}
    job = SimulatedJob.model_validate({"name": "alone", "training": training})
    fluid, packets = (
        simulate(load_spec(find_lab("zone-1-1")), [job], Options(engine=engine)).jobs[0]
        for engine in (Engine.FLUID, Engine.PACKETS)
    )
    assert packets.payload_bytes == 0
    assert packets.iterations_ns == pytest.approx(fluid.iterations_ns, rel=1e-6)
