"""Queues of switch ports on a real lab: the kernel's behaviour compared with the plan.

`tests.helpers.queue_wire` has the port under test and the wire through it.
"""

from __future__ import annotations

import json
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from rocelab.base.errors import InputError, MachineError
from rocelab.dataplane.queues.engine import FEATURES
from rocelab.dataplane.queues.reading import (
    DepthSample,
    QueueReader,
    QueueSampler,
    read_queue_counters,
)
from rocelab.faults.kinds.rate_degrade import RateDegrade
from rocelab.lab.lab import RunningLab
from rocelab.lab.wiring import LONGEST_PACKETS
from rocelab.labfile.queues import QueueEngine
from rocelab.linux import namespaces, probes
from rocelab.observe.queues import QueueWatch
from rocelab.planning.queues import plan_queues
from rocelab.record import LabFiles
from rocelab.routing.frr.vty import vty_json
from tests.helpers.measured import measured
from tests.helpers.own_programs import connected, flooded
from tests.helpers.queue_lines import mark_probability
from tests.helpers.queue_wire import (
    ACK,
    CE,
    CNP,
    DATA,
    ECT0,
    PREAMBLE_AND_MORE,
    TINY,
    UNDER_TEST,
    Drained,
    Seen,
    Wire,
    arrivals,
    counted_at,
    lab_with,
    two_sided,
    wire,
)
from tests.helpers.waiting import LIMIT_S, wait_until
from tests.integration.conftest import MakeLab

SLOW_PPM = 10_000
MORE = 10_000
"""More packets than a queue holds."""


@pytest.fixture(params=["bpf", "red"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine of queues; skipped if this kernel has no sch_red."""
    lacking = probes.missing(FEATURES[QueueEngine.RED]) if request.param == "red" else None
    if lacking:
        pytest.skip(f"the engine red does not run here: {lacking}")
    return str(request.param)


@pytest.mark.few_at_once
def test_marks_follow_the_wred_line(make_lab: MakeLab) -> None:
    """The depth at each packet's arrival is computed.

    Confidence: each of the bins of 16 kB stays within the exact binomial bounds at 0.1 % over the
    number of bins (Bonferroni), so a correct marker fails at most one run in a thousand.
    """
    lab = lab_with(
        make_lab, "t-queues-wred", "4M", "ecn: {kmin: 50KB, kmax: 250KB, pmax: 0.4}, buffer: 400KB"
    )
    ecn, length = lab.fabric.spec.queues.ecn, 110
    count, width = 3200, 16_000
    seen_in: dict[int, list[tuple[float, bool]]] = {}
    with wire(lab) as line:
        for _ in range(4):
            for marked, depth, least in arrivals(line, length, count, 4_000_000):
                assert not marked or depth > ecn.kmin - 2 * length
                assert marked or least <= ecn.kmax + 2 * length
                seen_in.setdefault(depth // width, []).append(
                    (mark_probability(ecn, depth), marked)
                )
        queue = line.queue(3)

    sloped = {
        size_bin: seen for size_bin, seen in seen_in.items() if all(0 < p < 1 for p, _ in seen)
    }
    assert len(sloped) >= 10
    for bin_number, met in sloped.items():
        mean = sum(expected for expected, _ in met) / len(met)
        marks = sum(marked for _, marked in met)
        # Depths within a bin differ, so the count spreads less than a binomial: the bound is safe.
        chance = two_sided(marks, len(met), mean)
        assert chance > 0.001 / len(sloped), (bin_number * width, len(met), marks, mean)

    marks = sum(marked for seen in seen_in.values() for _, marked in seen)
    assert (queue.packets, queue.marked, queue.ce_out) == (4 * count, marks, marks)
    assert queue.bytes == 4 * count * length
    assert queue.on_arrival is not None
    assert sum(queue.on_arrival.packets) == 4 * count


def test_the_deepest_queue_of_a_run_is_its_own_though_it_was_deeper_before(
    make_lab: MakeLab,
) -> None:
    lab = lab_with(make_lab, "t-queues-deep", "100M")
    runs = []
    with wire(lab) as line:
        for count in (100, 2):
            watch = QueueWatch(lab.fabric)
            line.send([line.frame(DATA, ECT0, 1000, number) for number in range(count)])
            assert len(line.receive(count)) == count
            (queue,) = (
                figure
                for figure in watch.figures()
                if (figure.node, figure.interface, figure.traffic_class) == (*UNDER_TEST, 3)
            )
            assert sum(queue.packets_by_depth) == count
            runs.append(queue.depth_max_bytes or 0)
    assert runs[1] <= 1000 < runs[0], "the second of two finds the first"


@pytest.mark.side_by_side
def test_the_counters_are_what_a_packet_socket_saw(make_lab: MakeLab) -> None:
    lab = lab_with(make_lab, "t-queues-count", "100M", "marked: [3, 4], dscp: {cs1: 4}")
    with wire(lab) as line:
        kinds = [(DATA, 0), (DATA, ECT0), (DATA, CE), (CNP, 0), (ACK, 1), (0, 0), (8, 2), (63, 3)]
        frames = [
            line.frame(*kinds[number % len(kinds)], 100 + number, number) for number in range(400)
        ]
        line.send(frames)
        got = line.receive(400)
        counted = read_queue_counters(lab.fabric)[UNDER_TEST]

    classes = lab.fabric.spec.queues.dscp
    for number in range(8):
        mine = [one for one in got if classes.get(one.dscp, one.dscp >> 3) == number]
        assert counted[number].packets == len(mine)
        assert counted[number].bytes == sum(one.length for one in mine)
        assert counted[number].ce_out == sum(one.ecn == CE for one in mine)
        assert (counted[number].marked, counted[number].dropped_packets) == (0, 0)
    assert counted[4].packets == counted[5].packets == counted[6].packets == 50
    assert counted[3].packets == 150


@pytest.mark.side_by_side
def test_what_is_not_roce_is_counted_apart_by_protocol(make_lab: MakeLab) -> None:
    lab = lab_with(make_lab, "t-queues-others", "100M")
    with wire(lab) as line:
        whole = [line.frame(DATA, ECT0, 500, number) for number in range(20)]
        udp = [line.frame(DATA, CE, 300, number, port=5000) for number in range(7)]
        fragments = [with_fragment_offset(line.frame(DATA, 0, 200, 0)) for _ in range(3)]
        kinds = [with_protocol(line.frame(DATA, 0, 100, 0), number) for number in (6, 1, 1, 132)]
        line.send([*whole, *udp, *fragments, *kinds])
        queue = line.taken(3, 34)

    assert queue.packets == 34 and queue.others is not None
    others = queue.others
    assert (others.tcp, others.udp, others.icmp, others.rest) == (1, 10, 2, 1)
    assert others.bytes == 7 * 300 + 3 * 200 + 4 * 100
    assert (others.ce_out, queue.ce_out) == (7, 7)
    assert 0 < others.held_max_bytes <= others.bytes
    assert (others.dropped_packets, others.marked, others.crowded_out) == (0, 0, 0)


def with_protocol(frame: bytes, protocol: int) -> bytes:
    """The frame with another IP protocol, and a checksum that fits."""
    return _with_word(frame, 22, frame[22] << 8 | protocol)


def with_fragment_offset(frame: bytes) -> bytes:
    """The frame as a fragment that is not the first."""
    return _with_word(frame, 20, 1)


def _with_word(frame: bytes, at: int, word: int) -> bytes:
    """RFC 1624."""
    (checksum,), (before,) = (
        struct.unpack_from(">H", frame, 24),
        struct.unpack_from(">H", frame, at),
    )
    total = (~checksum & 0xFFFF) + (~before & 0xFFFF) + word
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    made = bytearray(frame)
    struct.pack_into(">H", made, at, word)
    struct.pack_into(">H", made, 24, ~total & 0xFFFF)
    return bytes(made)


@pytest.mark.few_at_once
def test_a_class_that_fills_leaves_room_for_others_and_says_whom_it_crowded_out(
    make_lab: MakeLab,
) -> None:
    lab = lab_with(make_lab, "t-queues-room", "10M", "buffer: 100KB")
    # The NIC sends what is not RoCE at its rate, ten times that of the port under test.
    RateDegrade((lab.fabric.links_of["srv1-2"][0],), 100_000, "srv1-2").inject(lab)
    with wire(lab) as line:
        line.send([line.frame(0, 0, 1000, number, port=5000) for number in range(300)])
        filled = line.taken(0, 300)
        line.send([line.frame(DATA, 0, 1000, number) for number in range(10)])
        assert line.taken(3, 10).dropped_packets == 0, "the port's room was all taken"
        line.send([line.frame(DATA, 0, 1000, number) for number in range(200)])
        roce = line.taken(3, 210)
    assert filled.dropped_packets > 100 and filled.others is not None
    assert filled.others.dropped_packets == filled.dropped_packets
    assert filled.others.crowded_out == 0
    # Alone it would have had 100 kB. Beside a class that has 8/9 of the buffer it stops at 9.9 kB,
    # 8 x (11.1 kB - its own), and at more as that class drains.
    assert roce.others is not None and roce.on_arrival is not None
    assert roce.others.crowded_out == roce.dropped_packets > 0
    assert 9_000 <= roce.on_arrival.max_bytes < 100_000


@pytest.mark.few_at_once
def test_what_has_left_crowds_nobody_out(make_lab: MakeLab) -> None:
    lab = lab_with(make_lab, "t-queues-left", "10M", "buffer: 100KB")
    # What is not RoCE waits at the port, which is slower than the NIC.
    RateDegrade((lab.fabric.links_of["srv1-2"][0],), 100_000, "srv1-2").inject(lab)
    with wire(lab) as line:
        line.send([line.frame(0, 0, 1000, number, port=5000) for number in range(20)])
        line.receive(20)
        line.send([line.frame(DATA, 0, 1000, number) for number in range(300)])
        roce = line.taken(3, 300)
    assert roce.dropped_packets > 0 and roce.others is not None
    assert roce.others.crowded_out == 0


@pytest.mark.side_by_side
def test_a_tcp_that_segments_late_counts_as_the_packets_that_it_is(make_lab: MakeLab) -> None:
    lab = lab_with(make_lab, "t-queues-gso", "100M")
    near, far = connected(lab, "srv1-1", "srv1-2")
    size = 1_000_000
    with near, far, ThreadPoolExecutor() as pool:
        sent = pool.submit(near.sendall, bytes(size))
        received = 0
        while received < size:
            received += len(far.recv(1 << 16))
        sent.result()
        queue = counted_at(lab)[0]
    assert queue.others is not None
    assert queue.others.tcp == queue.packets >= size / 1460
    # An Ethernet, an IP and a TCP header, with time stamps in most.
    assert size + 54 * queue.packets <= queue.bytes <= 1514 * queue.packets


@pytest.mark.few_at_once
def test_a_servers_own_programs_send_no_faster_than_its_nic(make_lab: MakeLab, engine: str) -> None:
    """Else they would fill the queue of a switch's port of the same rate."""
    lab = lab_with(make_lab, "t-queues-nic", "20M", f"engine: {engine}, buffer: 200KB")
    with wire(lab), flooded(lab, ["srv1-1"], "srv1-2"):
        wait_until(lambda: counted_at(lab)[0].bytes > 3_000_000, "3 MB have passed")
    queue = counted_at(lab)[0]
    assert queue.dropped_packets == 0
    if queue.on_arrival is not None:
        assert queue.on_arrival.max_bytes < 50_000


@pytest.mark.few_at_once
def test_routing_protocols_and_what_is_not_ip_have_no_queue(make_lab: MakeLab, engine: str) -> None:
    lab = lab_with(make_lab, "t-queues-ctl", "1M", f"engine: {engine}")
    with wire(lab) as line:
        frames = [line.frame(48, 0, 1000, number, port=179) for number in range(200)]

        def sent_and_received() -> tuple[list[int], list[Seen]]:
            sent_ns, got = line.send(frames), line.receive(200)
            assert len(got) == 200
            return sent_ns, got

        def held_up(run: tuple[list[int], list[Seen]]) -> tuple[str, ...]:
            """A queue would send a packet every 8 ms: where none came for longer, all waited for
            the machine."""
            times_ns = (run[0][0], *(packet.time_ns for packet in run[1]))
            longest_ns = max(after - before for before, after in pairwise(times_ns))
            late = f"not valid because no packet came for {longest_ns / 1e6:.0f} ms"
            return (late,) if longest_ns > 50_000_000 else ()

        sent_ns, got = measured(sent_and_received, held_up)
        # In a queue, the middle one would wait 0.8 s for those before it.
        waited_ns = sorted(packet.time_ns - sent_ns[packet.number] for packet in got)
        assert waited_ns[100] < 200_000_000
        assert all(queue.packets == 0 for queue in counted_at(lab).values())

        line.send([line.frame(48, 0, 1000, number) for number in range(20)])
        assert len(line.receive(20)) == 20
        assert counted_at(lab)[5].packets == 20


@pytest.mark.few_at_once
def test_what_is_beyond_the_buffer_is_dropped_to_the_byte(make_lab: MakeLab) -> None:
    lab = lab_with(make_lab, "t-queues-drop", "1M", "buffer: 100KB")
    length, count = 1000, 300
    with wire(lab) as line:
        sent_ns = line.send([line.frame(DATA, 0, length, number) for number in range(count)])
        queue = line.taken(3, count)
        got = line.receive(queue.packets)
        assert line.receive(1, timeout_s=0.1) == []

    assert queue.dropped_bytes == queue.dropped_packets * length
    assert queue.others is not None and queue.others.crowded_out == 0
    # What passed at once (the burst), and while the queue was filled, never was in the full queue.
    passed = [packet.number for packet in got]
    first_lost = next(number for number in range(count) if number not in set(passed))
    carried_bytes = (sent_ns[first_lost] - sent_ns[0]) * 1e6 / 8e9
    assert 100 <= first_lost <= 100 + (3000 + carried_bytes) // length + 2
    assert len(passed) == queue.packets
    assert queue.on_arrival is not None
    assert queue.on_arrival.max_bytes <= 100_000 - length
    assert queue.on_arrival.max_bytes > 100_000 - 2 * length


@pytest.mark.few_at_once
def test_a_queue_of_more_packets_than_the_kernel_holds_drops_and_counts(make_lab: MakeLab) -> None:
    lab = lab_with(make_lab, "t-queues-long", "1M", "buffer: 64MB")
    with wire(lab) as line:
        # Less what the port sends meanwhile: some 1,500 packets a second.
        sent = len(line.send([line.frame(DATA, 0, 64, 0)] * (LONGEST_PACKETS + MORE)))
        queue = line.taken(3, sent)

    assert queue.dropped_bytes == queue.dropped_packets * 64
    assert 0 < queue.dropped_packets <= MORE
    assert queue.depth_bytes <= LONGEST_PACKETS * 64


@pytest.mark.few_at_once
def test_cnps_and_acks_overtake_a_full_data_queue(make_lab: MakeLab, engine: str) -> None:
    # A packet takes 8 ms: while one leaves, all others come in, even if the sender is held up.
    lab = lab_with(make_lab, "t-queues-prio", "1M", f"engine: {engine}")
    with wire(lab) as line:
        # HTB lets the first packet of a class in a minute go at once.
        line.send([line.frame(dscp, 0, 100, 0) for dscp in (CNP, ACK)])
        line.receive(2)
        data = [line.frame(DATA, 0, 1000, number) for number in range(100)]
        control = [line.frame(dscp, 0, 100, 1000) for dscp in (CNP, CNP, ACK, ACK)]

        def sent_and_received() -> tuple[list[int], list[Seen]]:
            return line.send(data + control), line.receive(104)

        def held_up(run: tuple[list[int], list[Seen]]) -> tuple[str, ...]:
            sent_ns, arrived_ns = run[0], [packet.time_ns for packet in run[1]]
            if any(sent_ns[100] <= time_ns <= sent_ns[103] for time_ns in arrived_ns):
                return ("not valid because the port was free while control packets were sent",)
            return ()

        sent_ns, got = measured(sent_and_received, held_up)

    order = [packet.dscp for packet in got]
    assert [dscp for dscp in order if dscp != DATA] == [ACK, ACK, CNP, CNP]
    gone = sum(packet.time_ns < sent_ns[100] for packet in got)
    assert max(index for index, dscp in enumerate(order) if dscp != DATA) < gone + 8
    assert [packet.number for packet in got if packet.dscp == DATA] == list(range(100))


def test_an_idle_port_is_at_most_a_frame_ahead_of_a_real_one(
    make_lab: MakeLab, engine: str
) -> None:
    """Ahead: frames that arrived, less those that the line could have carried since the first. A
    busy machine adds to it where it delays the first frame of a burst, and takes from it where it
    delays the sender, so the median of 20 counts, if it delayed fewer than half of them.
    """
    rate_bps, length = 80_000_000, 4154
    lab = lab_with(make_lab, "t-queues-idle", "80M", f"engine: {engine}", 9000)
    interval_ns = (length + PREAMBLE_AND_MORE) * 8e9 / rate_bps
    with wire(lab) as line:

        def bursts() -> tuple[list[float], int]:
            """How far each was ahead, and how many the machine held up."""
            ahead, held_up = [], 0
            for _ in range(20):
                time.sleep(0.02)
                sent_ns = line.send([line.frame(DATA, 0, length, number) for number in range(12)])
                arrived_ns = [packet.time_ns for packet in line.receive(12)]
                assert len(arrived_ns) == 12
                held_up += max(arrived_ns[0], sent_ns[1]) - sent_ns[0] > interval_ns / 2
                ahead.append(
                    max(
                        number - (time_ns - arrived_ns[0]) / interval_ns
                        for number, time_ns in enumerate(arrived_ns)
                    )
                )
            return ahead, held_up

        def problems(run: tuple[list[float], int]) -> tuple[str, ...]:
            late = f"not valid because the machine held up {run[1]} of 20 bursts"
            return (late,) if run[1] >= 10 else ()

        ahead, _ = measured(bursts, problems)
    assert 0.5 < statistics.median(ahead) < 1.1


@pytest.mark.few_at_once
def test_data_classes_share_a_port_byte_by_byte(make_lab: MakeLab, engine: str) -> None:
    lab = lab_with(make_lab, "t-queues-drr", "8M", f"engine: {engine}")
    with wire(lab) as line:
        small = [line.frame(DATA, 0, 250, number) for number in range(1200)]
        big = [line.frame(32, 0, 1000, number) for number in range(300)]

        def sent_and_received() -> tuple[list[int], list[Seen]]:
            return line.send(big + small), line.receive(1500)

        def held_up(run: tuple[list[int], list[Seen]]) -> tuple[str, ...]:
            if run[0][-1] > run[1][200].time_ns:
                return ("not valid because the port was half empty while the sender waited",)
            return ()

        _, got = measured(sent_and_received, held_up)

    # Past the start, where one class was alone, and before either ends.
    middle = got[200:800]
    shares = [sum(packet.length for packet in middle if packet.dscp == dscp) for dscp in (DATA, 32)]
    assert shares[0] / sum(shares) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("rate_mbps", "mtu", "count"),
    [
        (40, 1500, 2000),
        pytest.param(400, 1500, 8000, marks=pytest.mark.long),
        (2000, 9000, 5000),
    ],
)
def test_a_port_sends_at_its_rate(
    make_lab: MakeLab, engine: str, rate_mbps: int, mtu: int, count: int
) -> None:
    queues = f"engine: {engine}, buffer: 64MB"
    lab = lab_with(make_lab, f"t-queues-{rate_mbps}m", f"{rate_mbps}M", queues, mtu)
    # At 2 Gb/s a frame takes 36 us, less than a busy virtual machine's timers are late at times.
    tolerance = 0.01 if rate_mbps < 1000 else 0.03
    slow = RateDegrade((lab.fabric.links_of["srv1-2"][0],), SLOW_PPM, "srv1-2")
    slow.prepare(lab)
    with wire(lab) as line:

        def drained() -> Drained:
            """The queue is full before the port gets its rate, so that the sender need not keep up
            with it."""
            slow.inject(lab)
            line.send([line.frame(DATA, 0, mtu + 14, number) for number in range(count)])
            slow.restore(lab)
            restored_ns = time.time_ns()
            arrived_ns = [packet.time_ns for packet in line.receive(count)]
            assert len(arrived_ns) == count
            return Drained(
                [time_ns for time_ns in arrived_ns if time_ns > restored_ns][100:], mtu + 14
            )

        def problems(run: Drained) -> tuple[str, ...]:
            if len(run.arrived_ns) < count / 2:
                return (f"not valid because this process waited while most of {count} frames left",)
            return run.problems(rate_mbps * 10**6, mtu, tolerance)

        run = measured(drained, problems)
    assert run.rate_bps() == pytest.approx(rate_mbps * 1e6, rel=tolerance)


def test_depths_are_sampled_while_a_queue_drains(make_lab: MakeLab, engine: str) -> None:
    lab = lab_with(make_lab, "t-queues-depth", "2M", f"engine: {engine}")
    taken: list[DepthSample] = []
    with wire(lab) as line:

        def drained() -> Drained:
            with QueueSampler(lab.fabric, 5_000_000) as sampler:
                line.send([line.frame(DATA, 0, 1000, number) for number in range(400)])
                arrived_ns = [packet.time_ns for packet in line.receive(400)]
                assert len(arrived_ns) == 400
                rounds = len(sampler.times_ns)
                wait_until(lambda: len(sampler.times_ns) >= rounds + 2, "a sample when empty")
            taken[:] = sampler.samples
            return Drained(arrived_ns, 1000)

        measured(drained, lambda run: run.problems(2 * 10**6, 1500, 0.03))

    samples = [sample for sample in taken if (sample.node, sample.interface) == UNDER_TEST]
    assert {sample.traffic_class for sample in samples} == {3}
    depths = [sample.depth_bytes for sample in samples]
    peak = depths.index(max(depths))
    assert max(depths) > 200_000  # of 400,000 sent: a slow CPU fills while the port drains
    assert depths[-1] == 0
    assert depths[peak:] == sorted(depths[peak:], reverse=True)
    held = samples[peak:-1]
    # The median: a sampler that waits for a CPU between clock and queue has one depth too late.
    rate = statistics.median(
        (first.depth_bytes - last.depth_bytes) * 8e9 / (last.t_ns - first.t_ns)
        for first, last in zip(held, held[len(held) // 2 :], strict=False)
    )
    assert rate == pytest.approx(2e6 * 1000 / 1024, rel=0.03)


@pytest.mark.side_by_side
def test_counters_outlive_a_killed_reader_and_go_with_the_lab(make_lab: MakeLab) -> None:
    lab = lab_with(make_lab, "t-queues-life", "100M")
    files = LabFiles(lab.name)
    with wire(lab) as line:
        line.send([line.frame(DATA, 0, 200, number) for number in range(10)])
        line.taken(3, 10)
    program = (
        "import time; from rocelab.lab.lab import RunningLab;"
        "from rocelab.dataplane.queues.reading import QueueReader;"
        f"reader = QueueReader(RunningLab.open({lab.name!r}).fabric);"
        f"print(reader.counters()[{UNDER_TEST!r}][3].packets, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "10\n"
        reader.send_signal(signal.SIGKILL)

    assert counted_at(lab)[3].packets == 10
    lab.down()
    assert not files.root.exists()
    assert str(files.root) not in Path("/proc/self/mounts").read_text()
    with pytest.raises(InputError, match="have no queues"):
        QueueReader(lab.fabric)


def test_a_port_keeps_its_queues_over_a_flap(make_lab: MakeLab) -> None:
    lab = lab_with(make_lab, "t-queues-flap", "8M")
    link = lab.link("srv1-2:rtsw1")
    with wire(lab) as line:
        line.send([line.frame(DATA, 0, 1000, number) for number in range(100)])
        line.taken(3, 100)
        link.down()
        with QueueReader(lab.fabric) as reader:
            wait_until(
                lambda: reader.depths_bytes().sum() == 0, "a port without carrier holds nothing"
            )
        link.up()
    wait_until(lambda: is_up(lab, *UNDER_TEST) and is_up(lab, "srv1-2", "rtsw1"), "the carrier")
    runs = 0
    with wire(lab) as line:

        def drained() -> Drained:
            nonlocal runs
            runs += 1
            line.send([line.frame(DATA, 0, 1000, number) for number in range(100)])
            arrived_ns = [packet.time_ns for packet in line.receive(100)]
            assert len(arrived_ns) == 100
            return Drained(arrived_ns[10:], 1000)

        run = measured(drained, lambda run: run.problems(8 * 10**6, 1500, 0.02))
    assert counted_at(lab)[3].packets == 100 + 100 * runs
    assert run.rate_bps() == pytest.approx(8e6, rel=0.02)


def is_up(lab: RunningLab, node: str, interface: str) -> bool:
    """Whether the kernel sends there, which it does slightly later than the link is up."""
    (link,) = json.loads(lab.node(node).exec(["ip", "-json", "link", "show", interface]).stdout)
    return bool(link["operstate"] == "UP")


@pytest.mark.side_by_side
def test_a_session_stays_while_its_port_is_full_for_longer_than_the_hold_time(
    make_lab: MakeLab, engine: str
) -> None:
    name = "t-queues-bgp"
    body = "fabric: {racks: 2, spines: 1, servers_per_rack: 1}\ndilation: 1\n"
    body += "links: {rate: 10M, server_rate: 10M, mtu: 1500}\n"
    body += f"routing: {{keepalive: 1s, hold: 3s}}\nqueues: {{engine: {engine}, buffer: 1MB}}"
    lab = make_lab(name, body)
    lab.start()
    before = sessions(lab)
    near = lab.fabric.links_of["srv1-1"][0]
    far = lab.fabric.links_of["srv2-1"][0]

    def packet_socket() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.bind(("rtsw1", 0))
        return made

    sender = namespaces.inside(lab.node("srv1-1").netns, packet_socket)
    with sender, QueueReader(lab.fabric) as reader:
        frame = Wire(lab, sender, sender, near.a, near.b, far.a).frame(DATA, 0, 1400, 0)
        began, deepest, dropped = time.monotonic(), 0, 0
        while (spent := time.monotonic() - began) < 5 or dropped <= 1000:
            assert spent < LIMIT_S, "the port does not fill"
            # More than the port carries until this process has a CPU again.
            for _ in range(200):
                sender.send(frame)
            full = reader.counters()["rtsw1", "ctsw1"][3]
            deepest, dropped = max(deepest, full.depth_bytes), full.dropped_packets
            time.sleep(0.005)

    assert deepest > 900_000
    assert sessions(lab) == before


def sessions(lab: RunningLab) -> str:
    """Peers with the time each session was established."""
    peers = vty_json(
        lab.node("rtsw1").daemon_files, "bgpd", "show bgp ipv4 unicast summary json", dict
    )["peers"]
    return json.dumps(
        {name: (peer["connectionsEstablished"], peer["state"]) for name, peer in peers.items()}
    )


@pytest.mark.side_by_side
def test_a_lab_without_servers_has_no_queues(make_lab: MakeLab) -> None:
    lab = make_lab("t-queues-bare", "fabric: {racks: 1, spines: 1, servers_per_rack: 0}")
    lab.start()

    assert not (LabFiles(lab.name).root / "bpf").exists()
    assert plan_queues(lab.fabric).ports == ()


@pytest.mark.side_by_side
def test_the_program_is_compiled_again_where_its_cache_is_gone(
    make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocelab.linux.bpf.CACHE", tmp_path / "cache")
    lab_with(make_lab, "t-queues-cache", "100M")

    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.side_by_side
def test_without_bpf_or_red_a_lab_comes_up_and_says_that_it_has_no_queues(
    make_lab: MakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocelab.linux.bpf.CACHE", tmp_path / "cache")
    monkeypatch.setattr("rocelab.linux.clang.shutil.which", lambda _: None)
    monkeypatch.setattr(
        "rocelab.linux.probes.missing",
        lambda names: "red: not in this kernel" if "red" in names else None,
    )
    lab = lab_with(make_lab, "t-queues-none", "100M")

    (note,) = (note for note in lab.notes if "neither rate nor queue" in note)
    assert "clang is missing" in note
    with pytest.raises(InputError, match="have no queues"):
        read_queue_counters(lab.fabric)

    asked = make_lab("t-queues-asked", f"{TINY}\nqueues: {{engine: bpf}}")
    with pytest.raises(MachineError, match="clang is missing"):
        asked.start()
    assert not LabFiles(asked.name).root.exists()


@pytest.mark.few_at_once
def test_the_engine_red_sorts_drops_and_counts_on_this_kernel(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No class is marked, so that it runs without sch_red: everything but the marks is tested."""
    monkeypatch.setattr("rocelab.linux.probes.missing", lambda _: None)
    # So slow that the queue is still full when the sampler next has a CPU.
    lab = lab_with(make_lab, "t-queues-red", "1M", "engine: red, marked: [], buffer: 100KB")
    with wire(lab) as line:
        line.send([line.frame(48, 0, 1000, number, port=179) for number in range(50)])
        assert len(line.receive(50)) == 50
        kinds = [(DATA, 0), (CNP, 0), (ACK, 0), (0, 0), (63, 0)]
        line.send([line.frame(*kinds[number % 5], 200, number) for number in range(100)])
        got = line.receive(100)
        counted = counted_at(lab)
        for number in range(8):
            mine = [one for one in got if lab_class(lab, one.dscp) == number]
            assert (counted[number].packets, counted[number].bytes) == (len(mine), 200 * len(mine))

        with QueueSampler(lab.fabric) as sampler:
            line.send([line.frame(DATA, 0, 1000, number) for number in range(200)])
            queue = line.taken(3, counted[3].packets + 200)
            assert len(line.receive(200 - queue.dropped_packets)) == 200 - queue.dropped_packets
    assert queue.dropped_packets > 80
    assert 50_000 < max(sample.depth_bytes for sample in sampler.samples) <= 100_000


def lab_class(lab: RunningLab, dscp: int) -> int:
    return plan_queues(lab.fabric).class_of_dscp[dscp]
