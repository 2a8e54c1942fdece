"""The event loop: timing of tasks, completions, stalls and changes, on both backends."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given

from rocelab.errors import MachineError
from rocelab.progress import Progress, no_progress
from rocelab.sim.engine import backend as backends
from rocelab.sim.engine.backend import Backend
from rocelab.sim.engine.program import Change, Outcome, Rings
from rocelab.sim.engine.run import drive, run
from tests.helpers.engine_samples import BACKENDS, Case, cases, paths, program

each_backend = pytest.mark.parametrize("backend", BACKENDS)
ONE = paths([0])


@each_backend
def test_a_shorter_transfer_leaves_the_link_to_the_longer_one(backend: Backend) -> None:
    both = program([(0, 10.0), (1, 30.0)])
    outcome = run(both, paths([0], [0]), np.array([10.0]), backend=backend)
    np.testing.assert_allclose(outcome.finish_s, [2.0, 4.0])
    np.testing.assert_allclose(outcome.end_s, [4.0])
    np.testing.assert_allclose(outcome.sent_bits, [40.0])


@each_backend
def test_a_task_waits_for_others_then_its_delay_and_ends_after_its_latency(
    backend: Backend,
) -> None:
    chain = program(
        [(0, 10.0)],
        [],
        [(0, 20.0)],
        after=[[], [], [0, 1]],
        delay=[0.5, 2.0, 1.0],
        latency=[0.25, 0.125, 0.5],
    )
    outcome = run(chain, ONE, np.array([10.0]), backend=backend)
    np.testing.assert_allclose(outcome.start_s, [0.5, 2.0, 3.125])
    np.testing.assert_allclose(outcome.end_s, [1.75, 2.125, 5.625])
    np.testing.assert_allclose(outcome.finish_s, [1.5, 5.125])


@each_backend
def test_a_rings_latency_passes_while_its_slowest_hop_sends(backend: Backend) -> None:
    """Hops of 1, 1 and 4 s: a chunk takes 2 s on average, and its latency."""
    for latency_s, over_s in ((1.5, 4.0), (3.0, 5.0)):
        rings = Rings(np.zeros(3, np.int32), np.array([1 / 3]), np.array([latency_s]))
        ring = program([(0, 1.0), (1, 1.0), (2, 4.0)], [], after=[[], [0]], rings=rings)
        outcome = run(ring, paths([0], [1], [2]), np.ones(3), backend=backend)
        np.testing.assert_allclose(outcome.finish_s, [1, 1, 4])
        np.testing.assert_allclose(outcome.end_s, [over_s, over_s])


@each_backend
def test_compute_alone_takes_its_time_in_a_chain(backend: Backend) -> None:
    chain = program([], [], [], after=[[], [0], [1]], delay=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(run(chain, ONE, np.ones(1), backend=backend).end_s, [1, 3, 6])


@each_backend
def test_transfers_of_one_flow_go_one_after_the_other(backend: Backend) -> None:
    queue = program([(0, 1.0), (0, 2.0), (0, 3.0)], [(0, 1.0)], delay=[0.0, 3.0])
    outcome = run(queue, ONE, np.ones(1), backend=backend)
    np.testing.assert_allclose(outcome.finish_s, [1.0, 3.0, 6.0, 7.0])


@each_backend
def test_a_link_that_dies_stalls_what_is_on_it_until_it_returns(backend: Backend) -> None:
    changes = [Change(1.0, np.array([0.0, 10.0])), Change(5.0, np.array([10.0, 10.0]))]
    pair = program([(0, 20.0), (1, 20.0)])
    outcome = run(pair, paths([0], [1]), np.full(2, 10.0), changes=changes, backend=backend)
    np.testing.assert_allclose(outcome.finish_s, [6.0, 2.0])


@each_backend
def test_what_can_never_move_again_never_ends(backend: Backend) -> None:
    chain = program([(0, 20.0), (1, 20.0)], [(1, 1.0)], after=[[], [0]])
    outcome = run(
        chain,
        paths([0], [1]),
        np.full(2, 10.0),
        changes=[Change(1.0, np.array([0.0, 10.0]))],
        backend=backend,
    )
    np.testing.assert_allclose(outcome.finish_s, [np.inf, 2.0, np.inf])
    assert np.isinf(outcome.end_s).all()
    assert np.isinf(outcome.start_s[1])
    np.testing.assert_allclose(outcome.sent_bits, [10.0, 20.0])


@each_backend
def test_bits_are_counted_on_the_links_that_carried_them(backend: Backend) -> None:
    moved = Change(1.0, paths=paths([1, 2], share=[1.0, 0.5]))
    first = paths([0], share=[1.0])
    outcome = run(program([(0, 30.0)]), first, np.full(3, 10.0), changes=[moved], backend=backend)
    np.testing.assert_allclose(outcome.sent_bits, [10.0, 20.0, 10.0])
    np.testing.assert_allclose(outcome.finish_s, [3.0])


@each_backend
def test_a_flow_without_a_path_begins_to_move_when_it_gets_one(backend: Backend) -> None:
    outcome = run(
        program([(0, 10.0)]),
        paths([]),
        np.array([10.0]),
        changes=[Change(2.0, paths=ONE)],
        backend=backend,
    )
    np.testing.assert_allclose(outcome.finish_s, [3.0])


@each_backend
def test_a_change_is_fetched_when_the_one_before_is_applied(backend: Backend) -> None:
    fetched: list[float] = []

    def endless() -> Iterator[Change]:
        while True:
            fetched.append(float(len(fetched) + 1))
            yield Change(fetched[-1], np.array([10.0]))

    run(program([(0, 35.0)]), ONE, np.array([10.0]), changes=endless(), backend=backend)
    assert fetched == [1.0, 2.0, 3.0, 4.0]


@each_backend
def test_changes_out_of_order_or_of_another_size_are_refused(backend: Backend) -> None:
    work = program([(0, 100.0)])
    late = [Change(2.0), Change(1.0)]
    with pytest.raises(ValueError, match="comes after"):
        run(work, ONE, np.ones(1), changes=late, backend=backend)
    with pytest.raises(ValueError, match="other numbers"):
        run(work, ONE, np.ones(1), changes=[Change(1.0, np.ones(2))], backend=backend)


@each_backend
def test_the_total_rate_is_kept_in_few_points(backend: Backend) -> None:
    many = program([(0, float(bits)) for bits in range(1, 2101)])
    outcome = run(many, ONE, np.ones(1), backend=backend)
    assert len(outcome.rate_times_s) <= 2050
    assert (np.diff(outcome.rate_times_s) > 0).all()
    np.testing.assert_allclose(outcome.rate_bps[:-1], 1.0)
    assert outcome.rate_bps[-1] == 0.0


@each_backend
@pytest.mark.parametrize("eps", [0.01, 0.1])
def test_taking_completions_together_errs_by_little_and_late(backend: Backend, eps: float) -> None:
    # On one link each batch of k of n flows leaves k/n of it unused for at most eps of what
    # remains; over all batches that is eps (1 + ln n) of the whole.
    flows = 300
    sizes = np.random.default_rng(7).uniform(1, 100, flows)
    shared = paths(*([0] for _ in range(flows)))
    work = program([(flow, float(bits)) for flow, bits in enumerate(sizes)])
    exact = run(work, shared, np.ones(1), backend=backend)
    rough = run(work, shared, np.ones(1), eps=eps, backend=backend)
    assert exact.end_s[0] == pytest.approx(sizes.sum())
    assert 1 <= rough.end_s[0] / exact.end_s[0] <= 1 + eps * (1 + math.log(flows))
    assert rough.solves < exact.solves / 2


def test_equal_transfers_are_solved_once() -> None:
    # The fastest finish first, and rates of slower ones do not depend on faster ones.
    line = paths([0, 1], [0], [1], [1])
    work = program([(flow, 6.0) for flow in range(4)])
    outcome = run(work, line, np.array([2.0, 3.0]), backend=BACKENDS[-1])
    np.testing.assert_allclose(outcome.finish_s, [6.0] * 4)
    assert outcome.solves == 1


def _same(one: Outcome, other: Outcome) -> None:
    for name in ("start_s", "end_s", "finish_s", "sent_bits"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9, err_msg=name
        )


@given(case=cases)
def test_every_solve_of_any_program_is_proven_and_both_backends_agree(case: Case) -> None:
    work, first, capacity, changes = case
    outcomes = [
        run(work, first, capacity, changes=changes, prove=True, backend=backend)
        for backend in BACKENDS
    ]
    _same(outcomes[0], outcomes[-1])


@given(case=cases)
def test_solving_what_an_event_touches_equals_solving_everything(case: Case) -> None:
    pytest.importorskip("numba")
    from rocelab.sim.engine.incremental import Incremental

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
    outcome = run(work, first, capacity, backend=BACKENDS[-1])
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


def test_asking_for_numba_where_it_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "best_backend", lambda: Backend.NUMPY)
    with pytest.raises(MachineError, match="numba is not installed"):
        run(program([(0, 1.0)]), ONE, np.ones(1), backend=Backend.NUMBA)
