"""`python -m bench.simgrid`: both engines asked the same, and its pure parts."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bench.campaign.pages import page_of
from bench.maxmin import max_min_rates
from bench.simgrid import STUDY, ask, distinct, simgrid_version, widest_difference
from bench.simgrid_cases import (
    CASES,
    Case,
    Problem,
    Traffic,
    pairs_of,
    problem_of,
    read_problem,
    spec_of,
    write_problem,
)
from bench.simgrid_engine import all_at_once
from bench.simgrid_results import Compared, Side, Times, growths, worst_difference
from rocelab.base.errors import MachineError
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.run import run
from tests.unit.bench.documents import document

SMALL = Case("fat-tree-4", Traffic.ALLTOALL, 8, 2)


@pytest.fixture(scope="module")
def simgrid() -> str:
    try:
        return simgrid_version()
    except MachineError as error:
        pytest.skip(str(error))


def asked(problem: Problem, folder: Path) -> tuple[list[float], list[float]]:
    write_problem(problem, folder / "problem")
    answer = ask(Side.SIMGRID, folder / "problem", 60, to_the_end=True)
    return answer.rates_bps.tolist(), answer.ends_s.tolist()


@pytest.mark.usefixtures("simgrid")
def test_simgrid_shares_links_max_min_fairly_as_worked_out_by_hand(tmp_path: Path) -> None:
    # Two flows meet on a link of 12 GB/s, one of them and a third on one of 30 GB/s.
    paths = Paths(np.array([0, 1, 3, 4]), np.array([0, 0, 1, 1], np.int32))
    sizes, capacity = np.array([60, 60, 60]) * 10**9, np.array([12, 30]) * 10**9
    rates, ends = asked(Problem(paths, sizes, capacity), tmp_path)
    assert rates == pytest.approx([48e9, 48e9, 192e9], rel=1e-9)
    assert ends == pytest.approx([10, 10, 2.5], rel=1e-9)


@pytest.mark.usefixtures("simgrid")
def test_simgrid_and_the_engine_agree_on_every_rate_and_every_end(tmp_path: Path) -> None:
    problem = problem_of(SMALL)
    rates, ends = asked(problem, tmp_path)
    program, capacity = all_at_once(problem), problem.capacity_bps
    finish_s = run(program, problem.paths, capacity).finish_s
    solved = max_min_rates(problem.paths, capacity)
    assert len(set(finish_s)) > len(finish_s) / 2
    assert rates == pytest.approx(solved, rel=1e-9)
    assert ends == pytest.approx(finish_s, rel=1e-9)


def test_a_problem_is_read_as_it_was_written(tmp_path: Path) -> None:
    problem = problem_of(SMALL)
    write_problem(problem, tmp_path / "problem")
    read = read_problem(tmp_path / "problem")
    np.testing.assert_array_equal(read.paths.start, problem.paths.start)
    np.testing.assert_array_equal(read.paths.sends, problem.paths.sends)
    np.testing.assert_array_equal(read.size_bytes, problem.size_bytes)
    np.testing.assert_array_equal(read.capacity, problem.capacity)


def test_no_flow_ends_before_rates_are_read() -> None:
    problem = problem_of(SMALL)
    assert (problem.size_bytes / problem.capacity.max()).min() >= 2


def test_a_ring_has_each_rank_once_and_an_alltoall_every_pair() -> None:
    assert pairs_of(Traffic.RING, 4).tolist() == [0 * 4 + 1, 1 * 4 + 2, 2 * 4 + 3, 3 * 4 + 0]
    assert pairs_of(Traffic.ALLTOALL, 3).tolist() == [1, 2, 3, 5, 6, 7]


def test_a_cut_fabric_differs_from_the_catalogs_only_where_it_is_cut() -> None:
    cut = next(case for case in CASES if case.cut)
    whole = spec_of(replace(cut, cut=())).fabric.model_dump()
    assert spec_of(cut).fabric.model_dump() == whole | dict(cut.cut)


def test_rates_are_distinct_beyond_rounding_and_differences_relative() -> None:
    assert distinct(np.array([2.0, 1.0, 2.0 + 1e-12])) == 2
    assert widest_difference(np.array([1.0, 3.0]), np.array([1.0, 2.0])) == 0.5
    assert widest_difference(np.array([1.0]), np.empty(0)) is None


def compared(subflows: int, theirs: float | None, kit: float, differ: float = 0.0) -> Compared:
    times = {
        Side.SIMGRID: [Times(solve_s=0.01, to_the_end_s=theirs)],
        Side.OURS: [Times(solve_s=0.001, to_the_end_s=kit)],
    }
    return Compared(SMALL, subflows, 1, 0.0, differ, times)


def test_what_takes_longer_than_the_limit_is_shown_as_that() -> None:
    page = page_of(STUDY, document(asdict(compared(5, None, 2.0))))
    (row,) = (line for line in page.splitlines() if "over 60" in line)
    assert row.endswith("| 10.0 | over 60 s | 2.00 |  |")


def test_growth_is_a_power_of_the_two_largest_sizes_that_both_reached() -> None:
    (growth,) = growths(
        [compared(10, 1, 9), compared(100, 2, 3), compared(1000, 200, 30), compared(9999, None, 1)]
    )
    assert (growth.small, growth.large) == (100, 1000)
    assert growth.powers == pytest.approx({Side.SIMGRID: 2.0, Side.OURS: 1.0})


@pytest.mark.parametrize(("differ", "word"), [(2e-6, "**No agreement**"), (2e-7, "Agreement")])
def test_a_difference_above_the_target_is_no_agreement(differ: float, word: str) -> None:
    one = compared(5, 1, 1, differ)
    assert worst_difference([one]) == differ
    assert page_of(STUDY, document(asdict(one))).splitlines()[-1].startswith(f"{word}: no rate")
