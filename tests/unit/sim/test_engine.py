"""The event loop: timing of tasks, completions, stalls and changes, beside the oracle."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from rocelab.base import compiling
from rocelab.base.progress import Progress, no_progress
from rocelab.sim.engine import incremental
from rocelab.sim.engine.compiling import LIBRARY
from rocelab.sim.engine.filling import LONG_LIST
from rocelab.sim.engine.incremental import Incremental
from rocelab.sim.engine.program import Change, Outcome, Rings
from rocelab.sim.engine.run import drive, run
from tests.helpers.engine_samples import Case, cases, drawn_case, paths, program
from tests.helpers.fluid_oracle import run_stepwise

Engine = Callable[..., Outcome]
each_engine = pytest.mark.parametrize("engine", [run, run_stepwise])
ONE = paths([0])


@each_engine
def test_a_shorter_transfer_leaves_the_link_to_the_longer_one(
    engine: Engine,
) -> None:
    both = program([(0, 10.0), (1, 30.0)])
    outcome = engine(both, paths([0], [0]), np.array([10.0]))
    np.testing.assert_allclose(outcome.finish_s, [2.0, 4.0])
    np.testing.assert_allclose(outcome.end_s, [4.0])
    np.testing.assert_allclose(outcome.sent_bits, [40.0])


@each_engine
def test_a_task_waits_for_others_then_its_delay_and_ends_after_its_latency(
    engine: Engine,
) -> None:
    chain = program(
        [(0, 10.0)],
        [],
        [(0, 20.0)],
        after=[[], [], [0, 1]],
        delay=[0.5, 2.0, 1.0],
        latency=[0.25, 0.125, 0.5],
    )
    outcome = engine(chain, ONE, np.array([10.0]))
    np.testing.assert_allclose(outcome.start_s, [0.5, 2.0, 3.125])
    np.testing.assert_allclose(outcome.end_s, [1.75, 2.125, 5.625])
    np.testing.assert_allclose(outcome.finish_s, [1.5, 5.125])


@each_engine
def test_a_rings_latency_passes_while_its_slowest_hop_sends(engine: Engine) -> None:
    """Hops of 1, 1 and 4 s: a chunk takes 2 s on average, and its latency."""
    for latency_s, over_s in ((1.5, 4.0), (3.0, 5.0)):
        rings = Rings(
            np.zeros(3, np.int32), np.array([1 / 3]), np.array([latency_s]), np.array([False])
        )
        ring = program([(0, 1.0), (1, 1.0), (2, 4.0)], [], after=[[], [0]], rings=rings)
        outcome = engine(ring, paths([0], [1], [2]), np.ones(3))
        np.testing.assert_allclose(outcome.finish_s, [1, 1, 4])
        np.testing.assert_allclose(outcome.end_s, [over_s, over_s])


@each_engine
def test_compute_alone_takes_its_time_in_a_chain(engine: Engine) -> None:
    chain = program([], [], [], after=[[], [0], [1]], delay=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(engine(chain, ONE, np.ones(1)).end_s, [1, 3, 6])


@each_engine
def test_transfers_of_one_flow_go_one_after_the_other(engine: Engine) -> None:
    queue = program([(0, 1.0), (0, 2.0), (0, 3.0)], [(0, 1.0)], delay=[0.0, 3.0])
    outcome = engine(queue, ONE, np.ones(1))
    np.testing.assert_allclose(outcome.finish_s, [1.0, 3.0, 6.0, 7.0])


@each_engine
def test_a_link_that_dies_stalls_what_is_on_it_until_it_returns(
    engine: Engine,
) -> None:
    changes = [Change(1.0, np.array([0.0, 10.0])), Change(5.0, np.array([10.0, 10.0]))]
    pair = program([(0, 20.0), (1, 20.0)])
    outcome = engine(pair, paths([0], [1]), np.full(2, 10.0), changes=changes)
    np.testing.assert_allclose(outcome.finish_s, [6.0, 2.0])


@each_engine
def test_what_can_never_move_again_never_ends(engine: Engine) -> None:
    chain = program([(0, 20.0), (1, 20.0)], [(1, 1.0)], after=[[], [0]])
    outcome = engine(
        chain,
        paths([0], [1]),
        np.full(2, 10.0),
        changes=[Change(1.0, np.array([0.0, 10.0]))],
    )
    np.testing.assert_allclose(outcome.finish_s, [np.inf, 2.0, np.inf])
    assert np.isinf(outcome.end_s).all()
    assert np.isinf(outcome.start_s[1])
    np.testing.assert_allclose(outcome.sent_bits, [10.0, 20.0])


@each_engine
def test_bits_are_counted_on_the_links_that_carried_them(engine: Engine) -> None:
    moved = Change(1.0, paths=paths([1, 2], share=[1.0, 0.5]))
    first = paths([0], share=[1.0])
    outcome = engine(program([(0, 30.0)]), first, np.full(3, 10.0), changes=[moved])
    np.testing.assert_allclose(outcome.sent_bits, [10.0, 20.0, 10.0])
    np.testing.assert_allclose(outcome.finish_s, [3.0])


@each_engine
def test_a_flow_without_a_path_begins_to_move_when_it_gets_one(
    engine: Engine,
) -> None:
    outcome = engine(
        program([(0, 10.0)]),
        paths([]),
        np.array([10.0]),
        changes=[Change(2.0, paths=ONE)],
    )
    np.testing.assert_allclose(outcome.finish_s, [3.0])


@each_engine
def test_a_change_is_fetched_when_the_one_before_is_applied(engine: Engine) -> None:
    fetched: list[float] = []

    def endless() -> Iterator[Change]:
        while True:
            fetched.append(float(len(fetched) + 1))
            yield Change(fetched[-1], np.array([10.0]))

    engine(program([(0, 35.0)]), ONE, np.array([10.0]), changes=endless())
    assert fetched == [1.0, 2.0, 3.0, 4.0]


def test_changes_out_of_order_or_of_another_size_are_refused() -> None:
    work = program([(0, 100.0)])
    late = [Change(2.0), Change(1.0)]
    with pytest.raises(ValueError, match="comes after"):
        run(work, ONE, np.ones(1), changes=late)
    with pytest.raises(ValueError, match="other numbers"):
        run(work, ONE, np.ones(1), changes=[Change(1.0, np.ones(2))])


def test_the_total_rate_is_kept_in_few_points() -> None:
    many = program([(0, float(bits)) for bits in range(1, 2101)])
    outcome = run(many, ONE, np.ones(1))
    assert len(outcome.rate_times_s) <= 2050
    assert (np.diff(outcome.rate_times_s) > 0).all()
    np.testing.assert_allclose(outcome.rate_bps[:-1], 1.0)
    assert outcome.rate_bps[-1] == 0.0


@each_engine
@pytest.mark.parametrize("eps", [0.01, 0.1])
def test_taking_completions_together_errs_by_little_and_late(engine: Engine, eps: float) -> None:
    # On one link each batch of k of n flows leaves k/n of it unused for at most eps of what
    # remains; over all batches that is eps (1 + ln n) of the whole.
    flows = 300
    sizes = np.random.default_rng(7).uniform(1, 100, flows)
    shared = paths(*([0] for _ in range(flows)))
    work = program([(flow, float(bits)) for flow, bits in enumerate(sizes)])
    exact = engine(work, shared, np.ones(1))
    rough = engine(work, shared, np.ones(1), eps=eps)
    assert exact.end_s[0] == pytest.approx(sizes.sum())
    assert 1 <= rough.end_s[0] / exact.end_s[0] <= 1 + eps * (1 + math.log(flows))
    assert rough.solves < exact.solves / 2


def test_equal_transfers_are_solved_once() -> None:
    # The fastest finish first, and rates of slower ones do not depend on faster ones.
    line = paths([0, 1], [0], [1], [1])
    work = program([(flow, 6.0) for flow in range(4)])
    outcome = run(work, line, np.array([2.0, 3.0]))
    np.testing.assert_allclose(outcome.finish_s, [6.0] * 4)
    assert outcome.solves == 1


def _same(one: Outcome, other: Outcome) -> None:
    for name in ("start_s", "end_s", "finish_s", "sent_bits"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9, err_msg=name
        )


@given(case=cases)
def test_every_solve_of_any_program_is_proven_and_the_oracle_agrees(case: Case) -> None:
    work, first, capacity, changes = case
    result = run(work, first, capacity, changes=changes, prove=True)
    _same(result, run_stepwise(work, first, capacity, changes=changes))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("uplink", [500.0, 1330.0])
@pytest.mark.parametrize("flows", [LONG_LIST - 1, LONG_LIST, LONG_LIST + 1])
def test_the_oracle_agrees_where_a_link_gets_a_long_list(
    flows: int, uplink: float, shared: bool
) -> None:
    """All flows share an uplink, which holds back most of them or the fastest alone. Then an end
    affects few, and the load of the uplink changes more often than it may before it is summed."""
    rng, leaves = np.random.default_rng(flows), 30
    share = np.tile(rng.uniform(0.5, 1, flows), (2, 1)).T.ravel().tolist() if shared else None
    incast = paths(*([flow % leaves, leaves] for flow in range(flows)), share=share)
    capacity = np.append(np.linspace(1.0, 90.0, leaves), uplink)
    work = program([(flow, bits) for flow, bits in enumerate(rng.uniform(1, 100, flows).tolist())])
    result = run(work, incast, capacity)
    assert result.solves > flows / 2
    _same(result, run_stepwise(work, incast, capacity))


def test_the_oracle_agrees_where_ended_flows_are_taken_off_the_lists() -> None:
    """Lists are cleared when 4,096 flows more have ended than twice those under way. The last task
    begins flows anew that are off the lists."""
    rng, flows, leaves = np.random.default_rng(1), 4400, 30
    first = paths(*(rng.choice(leaves, 2, replace=False).tolist() for _ in range(flows)))
    sizes = rng.choice([1.0, 2.0, 3.0], flows)
    work = program(
        [(flow, bits) for flow, bits in enumerate(sizes.tolist())],
        [(flow, float(1000 + flow)) for flow in range(40)],
        [(flow, float(2 + flow % 2)) for flow in range(30, 90)],
        after=[[], [], [0]],
    )
    capacity = rng.uniform(1.0, 4.0, leaves)
    _same(run(work, first, capacity), run_stepwise(work, first, capacity))


NOT_COMPILED = """
import json
from rocelab.sim.engine.heap import sink
from rocelab.sim.engine.run import run
from tests.helpers.engine_samples import drawn_case
work, first, capacity, changes = drawn_case(7)
found = run(work, first, capacity, changes=changes, prove=True)
print(json.dumps([type(sink).__name__, found.finish_s.tolist(), found.sent_bits.tolist()]))
"""


def test_code_that_is_not_compiled_gives_the_same() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", NOT_COMPILED],
        cwd=Path(__file__).parents[3],
        env={**os.environ, compiling.OFF: "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    kind, finish_s, sent_bits = json.loads(ended.stdout)
    assert (kind, ended.stderr) == ("function", "")
    work, first, capacity, changes = drawn_case(7)
    result = run(work, first, capacity, changes=changes)
    assert np.isfinite(result.finish_s).any()
    np.testing.assert_allclose(finish_s, result.finish_s, rtol=1e-9)
    np.testing.assert_allclose(sent_bits, result.sent_bits, rtol=1e-9)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Python begins no program once the compiled loop is loaded."""
    LIBRARY.load()


@pytest.mark.parametrize("begun", [1, 7, 10**6])
@pytest.mark.parametrize("seed", range(4))
def test_a_program_that_python_begins_goes_on_compiled(
    seed: int, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """begun: flows that Python solves first."""
    work, first, capacity, changes = drawn_case(seed)
    compiled = run(work, first, capacity, changes=changes)
    monkeypatch.setattr(incremental, "as_it_stands", lambda entry: entry.function)
    monkeypatch.setattr(incremental, "SMALL", max(begun, work.transfers))
    engine = Incremental(work, first, capacity, 0.0)
    engine._in_python = begun
    _same(compiled, drive(engine, work.transfers, changes, False, no_progress))


@given(case=cases)
def test_solving_what_an_event_touches_equals_solving_everything(case: Case) -> None:
    work, first, capacity, changes = case
    _same(
        *(
            drive(
                Incremental(work, first, capacity, 0.0, everything=everything),
                work.transfers,
                changes,
                False,
                no_progress,
            )
            for everything in (False, True)
        )
    )


@given(case=cases)
def test_every_bit_of_a_finished_transfer_is_on_its_path(case: Case) -> None:
    work, first, capacity, _ = case
    outcome = run(work, first, capacity)
    done = np.isfinite(outcome.finish_s)
    bits = np.bincount(work.flow[done], work.size_bits[done], len(first))
    owner = np.repeat(np.arange(len(first)), np.diff(first.start))
    share = np.ones(len(owner)) if first.share is None else first.share
    carried = np.bincount(first.sends, bits[owner] * share, len(capacity))
    np.testing.assert_allclose(outcome.sent_bits, carried, rtol=1e-9, atol=1e-9)


def test_progress_ends_with_all_transfers() -> None:
    seen: list[Progress] = []
    run(program([(0, 1.0), (0, 2.0)]), ONE, np.ones(1), progress=seen.append)
    assert (seen[-1].done, seen[-1].total) == (2, 2)
