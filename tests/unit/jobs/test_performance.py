"""Bandwidths, lower bounds and tables against nccl-tests' own figures and plain arithmetic."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.jobs.collectives import Pattern, Schedule, schedule
from rocelab.jobs.patterns.base import Algorithm, Send
from rocelab.jobs.performance import (
    FRAME_OVERHEAD_BYTES,
    PerformanceRow,
    busbw_factor,
    jct_ratio,
    nccl_table,
    ran_ahead,
    roofline_ns,
)
from tests.helpers.nccl_sample import OUT_OF_PLACE, nccl_output

GBPS_400 = 400 * 10**9


@pytest.mark.parametrize(("size", "time_us", "algbw", "busbw"), OUT_OF_PLACE)
def test_bandwidths_of_an_allreduce_are_those_nccl_tests_printed(
    size: int, time_us: float, algbw: float, busbw: float
) -> None:
    row = PerformanceRow(Pattern.ALLREDUCE, 8, size, time_us * 1000)
    assert row.algbw_gbs == pytest.approx(algbw, rel=1e-4)
    assert row.busbw_gbs == pytest.approx(busbw, rel=1e-4)


@pytest.mark.parametrize(
    ("pattern", "factor"),
    [
        (Pattern.ALLREDUCE, 2 * 7 / 8),
        (Pattern.ALLGATHER, 7 / 8),
        (Pattern.REDUCESCATTER, 7 / 8),
        (Pattern.ALLTOALL, 7 / 8),
        (Pattern.ALLTOALLV, 7 / 8),
        (Pattern.GATHER, 7 / 8),
        (Pattern.BROADCAST, 1),
        (Pattern.PAIRS, 1),
        (Pattern.PERMUTATION, 1),
        (Pattern.INCAST, 7),
    ],
)
def test_bus_bandwidth_factors_are_nccl_tests(pattern: Pattern, factor: float) -> None:
    assert busbw_factor(pattern, 8) == factor


def bound(plan: Schedule) -> float:
    """The lower bound without headers, so that it can be compared with formulas."""
    return roofline_ns(plan, GBPS_400, overhead_bytes=0)


@given(st.sampled_from([pattern for pattern in Pattern if pattern is not Pattern.ALLTOALLV]))
def test_at_the_lower_bound_the_bus_bandwidth_is_the_nics_rate(pattern: Pattern) -> None:
    plan = schedule(pattern, 8, 8 * 10**6)
    row = PerformanceRow(pattern, 8, plan.size_bytes, bound(plan))
    assert row.busbw_gbs == pytest.approx(50)


def test_a_tree_has_a_higher_bound_than_a_ring_and_a_hierarchy_the_same() -> None:
    size = 16 * 10**6
    bounds = {
        algorithm: bound(schedule(Pattern.ALLREDUCE, 16, size, algorithm=algorithm, group=group))
        for algorithm, group in (
            (Algorithm.RING, 4),
            (Algorithm.HIERARCHICAL, 4),
            (Algorithm.TREE, None),
        )
    }
    assert bounds[Algorithm.RING] == pytest.approx(2 * 15 / 16 * size / 50)
    assert bounds[Algorithm.HIERARCHICAL] == pytest.approx(bounds[Algorithm.RING])
    assert bounds[Algorithm.TREE] == pytest.approx(2 * size / 50)


def test_headers_of_every_packet_count_the_last_short_one_too() -> None:
    plan = schedule(Pattern.PAIRS, 2, 4097)
    wire_bits = 8 * (4097 + 2 * FRAME_OVERHEAD_BYTES)
    assert roofline_ns(plan, 10**9) == wire_bits
    assert roofline_ns(plan, 10**9, mtu_bytes=1024, overhead_bytes=82) == 8 * (4097 + 5 * 82)


def test_the_busiest_direction_of_the_busiest_nic_is_the_bound() -> None:
    assert bound(schedule(Pattern.INCAST, 5, 10**6)) == pytest.approx(4 * 10**6 / 50)
    sizes = {(0, 1): 10, (0, 2): 20, (1, 2): 30, (2, 0): 5}
    sends = (Send(i, *ends, size, ()) for i, (ends, size) in enumerate(sizes.items()))
    assert bound(Schedule(Pattern.ALLTOALLV, 3, 30, tuple(sends))) == pytest.approx((20 + 30) / 50)


def test_a_jct_ratio_is_measured_over_possible() -> None:
    assert jct_ratio(150.0, 100.0) == 1.5
    with pytest.raises(ValueError, match="nothing is sent"):
        jct_ratio(1.0, 0.0)


def table() -> str:
    rows = [
        PerformanceRow(Pattern.ALLREDUCE, 8, size, time_us * 1000, wrong_bytes=0)
        for size, time_us, _, _ in OUT_OF_PLACE
    ]
    return nccl_table(rows, iterations=20, warmup_iterations=5, places=["srv1-1:1", "srv1-2:1"])


def test_a_table_has_nccl_tests_columns_and_comments() -> None:
    assert table().splitlines() == [
        "# nThread 1 nGpus 1 minBytes 268435456 maxBytes 2147483648 step: 2(factor) "
        "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        "#  Rank  0 on   srv1-1:1",
        "#  Rank  1 on   srv1-2:1",
        "#",
        "# Times are of the modelled network.",
        "#",
        "#                                                             out-of-place",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)",
        "   268435456     268435456     uint8     sum      -1  1119.80  239.72  419.51       0",
        "   536870912     536870912     uint8     sum      -1  2157.50  248.84  435.47       0",
        "  1073741824    1073741824     uint8     sum      -1  4027.30  266.62  466.58       0",
        "  2147483648    2147483648     uint8     sum      -1  7983.50  268.99  470.73       0",
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 448.071",
        "#",
    ]


def test_a_row_counts_elements_per_rank_names_its_root_and_says_what_was_not_checked() -> None:
    rows = [
        PerformanceRow(Pattern.GATHER, 4, 4000, 1000.0, root=3),
        PerformanceRow(Pattern.REDUCESCATTER, 4, 4000, 1000.0, wrong_bytes=12),
    ]
    text = nccl_table(rows, iterations=1, warmup_iterations=0)
    gather, reduce_scatter = (line.split() for line in text.splitlines() if line[0] != "#")
    assert gather == ["4000", "1000", "uint8", "none", "3", "1.00", "4.00", "3.00", "N/A"]
    assert reduce_scatter[1:5] == ["1000", "uint8", "sum", "-1"]
    assert reduce_scatter[-1] == "12"
    assert "# Out of bounds values : 1 FAILED" in text
    assert "validation: 0" in text


@given(st.integers(1, 10**12), st.floats(1, 1e15))
def test_a_row_has_nine_cells_whatever_the_numbers(size: int, time_ns: float) -> None:
    row = PerformanceRow(Pattern.ALLREDUCE, 8, size, time_ns, wrong_bytes=0)
    text = nccl_table([row], iterations=1, warmup_iterations=0)
    (line,) = (line for line in text.splitlines() if line[0] != "#")
    assert len(line.split()) == 9
    assert float(line.split()[5]) == pytest.approx(time_ns / 1000, rel=0.1, abs=0.01)


def test_no_rows_and_no_time_are_refused() -> None:
    with pytest.raises(ValueError, match="a table needs a row"):
        nccl_table([], iterations=1, warmup_iterations=0)
    with pytest.raises(ValueError, match="has no bandwidth"):
        _ = PerformanceRow(Pattern.ALLREDUCE, 8, 100, 0.0).algbw_gbs


def test_the_columns_stand_where_nccl_tests_puts_them() -> None:
    """Up to #wrong, which newer versions, like rocelab, print a column wider."""

    def ends(lines: list[str]) -> list[list[int]]:
        rows = [line for line in lines if re.match(r" +[0-9]|# +(size|\(B\)) ", line)]
        return [[match.end() for match in re.finditer(r"\S+", row)] for row in rows]

    real, simulated = ends(nccl_output().splitlines()), ends(table().splitlines())
    assert len(real) == len(simulated) == 2 + len(OUT_OF_PLACE)
    assert real[0][:9] == simulated[0][:9]
    assert real[1][:6] == simulated[1]
    assert [row[:8] for row in real[2:]] == [row[:8] for row in simulated[2:]]


def test_iterations_of_ranks_that_ran_ahead_are_told_with_what_all_took() -> None:
    assert ran_ahead([]) is None
    assert ran_ahead([0.5, 0.98, 1.5]) is None
    assert ran_ahead([0.9]) is None, "there is no next one"
    said = ran_ahead([3.2, 2.4, 0.6, 0.65, 0.25])
    assert said is not None
    assert said.startswith("the median iteration took 0.65 times the least time: ")
    assert said.endswith("all 5 together took 1.42 times the least")
