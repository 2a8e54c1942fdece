"""The engine `red` on a kernel with sch_red: which packets it marks and how often, drops, counters.

test_queues.py tests the common behaviour of both engines. Kernels without sch_red skip these tests;
`make test-vm` runs them on one that has it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocelab.dataplane.queues.engine import FEATURES
from rocelab.dataplane.queues.red import red_probability
from rocelab.labfile.queues import EcnSpec, QueueEngine
from rocelab.linux import probes
from tests.helpers.queue_lines import mark_probability
from tests.helpers.queue_wire import (
    CE,
    CNP,
    DATA,
    ECT0,
    arrivals,
    counted_at,
    lab_with,
    two_sided,
    wire,
)
from tests.integration.conftest import MakeLab

ECT1 = 1


@pytest.fixture(autouse=True)
def red() -> None:
    lacking = probes.missing(FEATURES[QueueEngine.RED])
    if lacking:
        pytest.skip(f"the engine red does not run here: {lacking}")


def red_share(ecn: EcnSpec, depth_bytes: float) -> float:
    """The share of packets that RED marks at a constant depth: the engine's own deviation."""
    line = mark_probability(ecn, depth_bytes)
    if line in (0.0, 1.0):
        return line
    drawn = red_probability(ecn.pmax) * line / ecn.pmax
    return 2 * drawn / (1 + drawn)


def test_marks_follow_the_wred_line(
    make_lab: MakeLab, record_property: Callable[[str, object], None]
) -> None:
    """The depth at each packet's arrival is computed.

    Confidence: each bin of 16 kB, and all together, stays within the exact binomial bounds at
    0.1 % over the number of tests (Bonferroni). RED spaces marks more evenly than chance, so its
    counts vary less than a binomial and a correct marker fails even more rarely.
    """
    queues = "engine: red, ecn: {kmin: 50KB, kmax: 250KB, pmax: 0.4}, buffer: 400KB"
    lab = lab_with(make_lab, "t-red-wred", "1M", queues)
    ecn, length = lab.fabric.spec.queues.ecn, 110
    count, width, rounds = 3200, 16_000, 3
    seen_in: dict[int, list[tuple[float, float, bool]]] = {}
    with wire(lab) as line:
        for _ in range(rounds):
            for marked, depth, least in arrivals(line, length, count, 1_000_000):
                assert not marked or depth > ecn.kmin - 2 * length
                assert marked or least <= ecn.kmax + 2 * length
                seen_in.setdefault(depth // width, []).append(
                    (mark_probability(ecn, depth), red_share(ecn, depth), marked)
                )
        queue = line.queue(3)

    sloped = {
        size_bin: seen for size_bin, seen in seen_in.items() if all(0 < p < 1 for p, _, _ in seen)
    }
    assert len(sloped) >= 10
    bins = {f"{size_bin * width} bytes": seen for size_bin, seen in sorted(sloped.items())}
    bins["all"] = [one for seen in sloped.values() for one in seen]
    for where, seen in bins.items():
        packets, marks = len(seen), sum(marked for _, _, marked in seen)
        on_line, expected = (sum(one[index] for one in seen) / packets for index in (0, 1))
        line_text = f"{where}: {packets} packets, marked {marks / packets:.4f}, line {on_line:.4f}"
        record_property(f"marks at {where}", f"{line_text}, RED {expected:.4f}")
        assert two_sided(marks, packets, expected) > 0.001 / len(bins), line_text
        assert expected == pytest.approx(on_line, abs=0.06 * ecn.pmax)

    marks = sum(marked for seen in seen_in.values() for _, _, marked in seen)
    assert (queue.packets, queue.bytes) == (rounds * count, rounds * count * length)
    assert (queue.marked, queue.dropped_packets) == (marks, 0)


def test_only_ecn_capable_packets_of_marked_classes_are_marked(make_lab: MakeLab) -> None:
    """With kmax below a kilobyte, every packet that finds two more in its queue must be marked."""
    queues = "engine: red, marked: [3], ecn: {kmin: 100B, kmax: 900B, pmax: 1}, buffer: 1MB"
    lab = lab_with(make_lab, "t-red-ecn", "2M", queues)
    kinds = [(DATA, 0), (DATA, ECT0), (DATA, ECT1), (DATA, CE), (CNP, ECT0), (32, ECT0), (0, ECT1)]
    with wire(lab) as line:
        frames = [line.frame(*kinds[number % 7], 500, number) for number in range(350)]
        line.send(frames)
        got = line.receive(350)
        counted = counted_at(lab)

    assert len(got) == 350
    for kind in range(7):
        dscp, sent_as = kinds[kind]
        # The first few of a class meet no queue.
        seen = [packet.ecn for packet in sorted(got, key=lambda packet: packet.number)][kind::7][5:]
        capable = dscp == DATA and sent_as != 0
        assert set(seen) == {CE if capable else sent_as}, (dscp, sent_as)
    assert all(counted[number].dropped_packets == 0 for number in range(8))
    assert {number for number in range(8) if counted[number].marked} == {3}
    # sch_red counts a packet that came in marked as marked again.
    marks = sum(packet.ecn == CE for packet in got)
    assert marks - 5 <= counted[3].marked <= marks


def test_the_counters_are_what_a_packet_socket_saw(make_lab: MakeLab) -> None:
    queues = "engine: red, marked: [3, 4], dscp: {cs1: 4}, ecn: {kmin: 1KB, kmax: 40KB, pmax: 0.5}"
    lab = lab_with(make_lab, "t-red-count", "4M", queues)
    kinds = [(DATA, 0), (DATA, ECT0), (CNP, 0), (46, 1), (0, 0), (8, 2), (63, 3)]
    with wire(lab) as line:
        line.send([line.frame(*kinds[n % 7], 100 + n, n) for n in range(420)])
        got = line.receive(420)
        counted = counted_at(lab)

    assert len(got) == 420
    classes = lab.fabric.spec.queues.dscp
    for number in range(8):
        mine = [one for one in got if classes.get(one.dscp, one.dscp >> 3) == number]
        marks = sum(one.ecn == CE for one in mine) if number != 7 else 0
        counts = counted[number]
        assert (counts.packets, counts.bytes) == (len(mine), sum(one.length for one in mine))
        assert (counts.marked, counts.dropped_packets, counts.depth_bytes) == (marks, 0, 0)
        assert (counts.dropped_bytes, counts.ce_out, counts.on_arrival) == (None, None, None)
    assert counted[3].marked > 0
    assert counted[4].marked > 0


@pytest.mark.parametrize("ecn", [0, ECT0])
def test_what_is_beyond_the_buffer_is_dropped_to_the_packet(make_lab: MakeLab, ecn: int) -> None:
    queues = "engine: red, ecn: {kmin: 10KB, kmax: 20KB, pmax: 0.5}, buffer: 100KB"
    lab = lab_with(make_lab, "t-red-drop", "1M", queues)
    length, count = 1000, 300
    with wire(lab) as line:
        line.send([line.frame(DATA, ecn, length, number) for number in range(count)])
        filled_bytes = line.queue(3).depth_bytes
        queue = line.taken(3, count)
        got = line.receive(queue.packets)

    assert queue.packets == len(got)
    assert queue.bytes == len(got) * length
    # sch_red marks before it looks whether the packet fits: a mark may be of a dropped packet.
    marked_out = sum(packet.ecn == CE for packet in got)
    if ecn == ECT0:
        assert queue.marked == marked_out + queue.dropped_packets
        assert marked_out > 70
    else:
        assert queue.marked == marked_out == 0
    passed = {packet.number for packet in got}
    first_lost = next(number for number in range(count) if number not in passed)
    # What passed at once (the burst, and what a few milliseconds carry) never was in the queue.
    assert 100 <= first_lost <= 100 + 3000 // length + 5
    assert 80_000 < filled_bytes <= 100_000
