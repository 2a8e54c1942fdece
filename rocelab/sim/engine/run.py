"""Runs a program to its end over paths and capacities that may change meanwhile.

Rates are max-min fair at every moment. The engine does not model the rest of a real network: the
time that congestion control takes, queues and losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from rocelab.base.arrays import Floats
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.incremental import Incremental, no_load
from rocelab.sim.engine.program import Change, Outcome, Program
from rocelab.sim.engine.proof import prove as prove_rates


def run(
    program: Program,
    paths: Paths,
    capacity_bps: Floats,
    *,
    eps: float = 0.0,
    changes: Iterable[Change] = (),
    prove: bool = False,
    load: Callable[[], object] = no_load,
    progress: ProgressSink = no_progress,
) -> Outcome:
    """Run a program until nothing can move.

    eps: completions that fall within eps times the longest remaining time may be taken together,
    each at its own time at the rates before; rates are then out of date for at most that long. 0 is
    exact. changes: in order of time; the next is fetched when the one before has been applied.
    prove: prove every solve (`rocelab.sim.engine.proof`). load: loads the compiled engine, before
    it is needed. A transfer whose path has a send of capacity 0, or that has no path, waits for a
    change.

    Raises ValueError for impossible capacities, sends, shares, sizes or eps and for changes out of
    order; NotFairError if a proof fails.
    """
    if eps < 0:
        raise ValueError(f"eps is {eps}, below 0")
    if program.transfers and not program.size_bits.min() > 0:
        raise ValueError("a transfer has no bits")
    engine = Incremental(program, paths, capacity_bps, eps, load=load)
    return drive(engine, program.transfers, changes, prove, progress)


def drive(
    engine: Incremental,
    transfers: int,
    changes: Iterable[Change],
    prove: bool,
    progress: ProgressSink,
) -> Outcome:
    """Run an engine to the end. Raises ValueError and NotFairError as `run` does."""
    coming = iter(changes)
    change, now_s = next(coming, None), 0.0
    while True:
        until_s = math.inf if change is None else change.time_s
        if until_s < now_s:
            raise ValueError(f"a change at {until_s} s comes after one at {now_s} s")
        arrived = engine.advance(until_s, one_event=prove)
        progress(Progress("simulating", engine.finished, transfers))
        if prove:
            flow, rates_bps = engine.rates()
            prove_rates(engine.paths, engine.capacity_bps, rates_bps, flow)
        if not arrived:
            continue
        if change is None or engine.finished == transfers:
            return engine.outcome()
        engine.change(change)
        change, now_s = next(coming, None), until_s
