"""Queues of lab and simulator compared: ports within a range, high-water marks, marks by depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.agreement.plan import SHAPES
from bench.agreement.queues import (
    LEAST_DEEP_BYTES,
    HighWater,
    Inside,
    PortCounts,
    Queues,
    high_water,
    inside,
    joined,
    markings,
)
from bench.agreement.run import queues_of
from bench.agreement.significance import Verdict, holm, proportion_p
from bench.agreement.simulated import simulate_packets
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.queues import EcnSpec, QueuesSpec
from rocelab.planning.queues import BINS, BINS_BELOW
from rocelab.results.lossless import Lossless, PauseFigures
from tests.helpers.phases_sample import idle, queue
from tests.helpers.queue_lines import mark_probability

ECN, BUFFER = EcnSpec.model_validate({"kmin": "100KB", "kmax": "260KB", "pmax": 0.4}), 500_000
NONE = (0,) * BINS


def port(name: str, **counts: Sequence[int]) -> PortCounts:
    none = dict.fromkeys(("marks", "drops", "highest_bytes", "pauses"), (0,) * 3)
    return PortCounts(name, **{key: tuple(count) for key, count in (none | counts).items()})


def queues(*ports: PortCounts) -> Queues:
    return Queues(ports, NONE, NONE)


def binned(counts: dict[int, tuple[int, int]]) -> Queues:
    """Packets and marks, by bin."""
    return Queues((), *(tuple(counts.get(b, (0, 0))[i] for b in range(BINS)) for i in range(2)))


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        ((10, 10, 0), Inside(1, 1)),
        ((12, 30, 30), Inside(1, 1)),
        ((9, 9, 30), Inside(0, 1)),
        ((0, 31, 31), Inside(0, 1)),
    ],
)
def test_a_port_is_inside_where_the_median_is_within_the_lab_s_extremes(
    theirs: tuple[int, ...], expected: Inside
) -> None:
    lab, packets = port("a", pauses=(30, 10, 20)), port("a", pauses=theirs)
    assert inside(queues(lab), queues(packets), "pauses") == expected
    assert inside(queues(lab), queues(packets), "marks") == Inside(0, 0)


def test_a_port_that_only_one_side_used_is_not_inside() -> None:
    busy = queues(port("a", drops=(5, 5, 5)))
    assert inside(busy, queues(), "drops") == inside(queues(), busy, "drops") == Inside(0, 1)


def test_high_water_marks_are_near_within_a_fifth_and_the_worst_is_told() -> None:
    lab = queues(
        *(port(name, highest_bytes=(90_000, 100_000, 150_000)) for name in "abc"),
        port("small", highest_bytes=(4154,) * 3),
    )
    packets = queues(
        port("a", highest_bytes=(120_000,) * 3),
        port("b", highest_bytes=(79_000,) * 3),
        port("c", highest_bytes=(124_000,) * 3),
        port("small", highest_bytes=(8308,) * 3),
    )
    assert high_water(lab, packets) == HighWater(1, 3, 0.79)
    assert high_water(lab, queues()) == HighWater(0, 3, 0)
    assert high_water(queues(), lab) == HighWater(0, 3, math.inf)
    assert high_water(queues(), queues()) == HighWater(0, 0, None)


def test_a_single_deep_run_moves_no_high_water_mark() -> None:
    lab = queues(port("a", highest_bytes=(30_000,)))
    packets = queues(port("a", highest_bytes=(30_000, 30_000, 90_000)))
    assert high_water(lab, packets) == high_water(packets, lab) == HighWater(1, 1, 1)


@pytest.mark.parametrize(("deep", "ports"), [(LEAST_DEEP_BYTES, 1), (LEAST_DEEP_BYTES - 1, 0)])
def test_a_queue_is_deep_from_five_frames_on(deep: int, ports: int) -> None:
    lab = queues(port("a", highest_bytes=(deep,)))
    assert high_water(lab, lab) == HighWater(ports, ports, 1 if ports else None)


def test_runs_are_joined_port_by_port_and_ports_that_did_nothing_count_zero() -> None:
    one, two = (
        replace(binned({9: (n, n)}), ports=(PortCounts(name, (n,), (0,), (0,), (0,)),))
        for name, n in (("a", 3), ("b", 4))
    )
    counts = joined([one, two])
    assert [(port.port, port.marks) for port in counts.ports] == [("a", (3, 0)), ("b", (0, 4))]
    # As many runs as a port has, when joined before.
    (_, again) = joined([joined([one, one]), two]).ports
    assert again.marks == (0, 0, 4)
    assert counts.markable[9] == counts.marked[9] == 7
    assert sum(counts.markable) == 7


def test_a_bin_s_line_is_that_of_its_ends() -> None:
    first, last, above = markings(
        ECN, BUFFER, binned({8: (1, 0), 23: (1, 0), 24: (1, 1), BINS_BELOW - 1: (5, 0)})
    )
    assert first.floor_bytes == ECN.kmin + 1
    assert first.low == mark_probability(ECN, first.floor_bytes)
    assert first.high == mark_probability(ECN, ECN.kmin + 10_000)
    assert (last.high, above.floor_bytes) == (ECN.pmax, ECN.kmax + 1)
    assert (above.low, above.high) == (1, 1)


@pytest.mark.parametrize(
    ("bin_", "packets", "marked", "verdict"),
    [
        (16, 10_000, 2_100, Verdict.AGREES),
        (16, 10_000, 1_900, Verdict.DIFFERS),
        (16, 10_000, 2_400, Verdict.DIFFERS),
        (16, 10, 2, Verdict.UNDECIDED),
        (8, 1_000, 20, Verdict.AGREES),
        (8, 1_000, 60, Verdict.DIFFERS),
        (8, 20, 0, Verdict.UNDECIDED),
        (24, 5, 5, Verdict.AGREES),
        (24, 5, 4, Verdict.DIFFERS),
    ],
)
def test_marks_of_a_bin_are_tested_against_the_marking_line(
    bin_: int, packets: int, marked: int, verdict: Verdict
) -> None:
    (row,) = markings(ECN, BUFFER, binned({bin_: (packets, marked)}))
    assert row.verdict is verdict


def test_among_many_bins_one_that_is_a_little_off_is_chance() -> None:
    expected = {b: (1000, round(1000 * ECN.pmax * (b - 8 + 0.5) / 16)) for b in range(9, 24)}
    off = {16: (1000, 257)}
    (alone,) = markings(ECN, BUFFER, binned(off))
    assert alone.verdict is Verdict.DIFFERS
    among = markings(ECN, BUFFER, binned(expected | off))
    assert {row.verdict for row in among} == {Verdict.AGREES}


def test_among_many_bins_packets_decide_less_than_alone() -> None:
    few = {12: (40, 5)}
    (alone,) = markings(ECN, BUFFER, binned(few))
    assert alone.verdict is Verdict.AGREES
    first, *_ = markings(ECN, BUFFER, binned(few | {13: (1, 0), 14: (1, 0)}))
    assert first.verdict is Verdict.UNDECIDED


def test_p_values_are_corrected_after_holm() -> None:
    # Holm 1979: the least times 3, the next times 2, never below the one before.
    assert holm([0.04, 0.01, 0.02]) == pytest.approx((0.04, 0.03, 0.04))
    assert holm([0.6, 0.9]) == (1.0, 1.0)
    assert proportion_p(5, 10, 0.4, 0.6) == 1
    assert proportion_p(0, 3, 0.5, 0.6) == pytest.approx(2 * 0.5**3)


def test_of_the_lab_only_queues_count_to_which_nothing_came_marked() -> None:
    counts: dict[str, Any] = {"packets_by_depth": (1,) * BINS, "marked_by_depth": (0,) * 31 + (1,)}
    first = replace(queue(3, 32, 1, 500_000), **counts)
    queues = queues_of(
        load_spec(find_lab("two-leaves")),
        replace(
            idle(),
            queues=(
                first,
                replace(first, interface="srv1-2", ce_out=2, dropped_packets=4),
                replace(first, traffic_class=6, depth_max_bytes=600_000),
                queue(4, 10, 0, 0),
            ),
        ),
    )
    assert queues.markable == (1,) * BINS
    assert queues.marked == (0,) * 31 + (1,)
    assert queues.ports == (
        PortCounts("rtsw1:srv1-1", (2,), (0,), (600_000,), (0,)),
        PortCounts("rtsw1:srv1-2", (1,), (4,), (500_000,), (0,)),
    )


def test_pauses_of_the_lab_are_those_that_a_port_obeyed() -> None:
    paused = PauseFigures(
        "srv1-1", "rtsw1", 3, "rtsw1", 0, 9, 7, 5, 100, 50, 0, 0, 0, 0, 0, 0, 0, 0
    )  # fmt: skip
    lossless = Lossless((3,), (paused,), (), 0, 1000, None, None, None, (), True)
    queues = queues_of(
        load_spec(find_lab("lossless")), replace(idle(), queues=(), lossless=lossless)
    )
    assert queues.ports == (PortCounts("srv1-1:rtsw1", (0,), (0,), (0,), (5,)),)


def test_the_packet_engine_marks_as_the_line_says_at_every_depth() -> None:
    spec = load_spec(find_lab("two-leaves"))
    ecn = {"kmin": "20KB", "kmax": "80KB"}
    spec = spec.model_copy(update={"queues": QueuesSpec.model_validate({"ecn": ecn})})
    job = SHAPES[1].job(8, 2**18)
    runs = [simulate_packets(spec, job, seed) for seed in range(3)]
    counts = joined([run for _, run in runs])
    rows = markings(spec.queues.ecn, spec.queues.buffer, counts)
    assert {row.verdict for row in rows} <= {Verdict.AGREES, Verdict.UNDECIDED}
    assert Verdict.AGREES in {row.verdict for row in rows}
    marks = np.sum([port.marks for port in counts.ports], axis=0).tolist()
    assert marks == [run.marked for run, _ in runs]
    assert sum(counts.marked) == sum(marks) > 1000
    assert {port.port for port in counts.ports if any(port.marks)} == {
        "rtsw1:ctsw1", "rtsw2:ctsw1"
    }  # fmt: skip
