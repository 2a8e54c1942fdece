"""Hand-made and random paths and programs for the tests of rocelab.sim.engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from rocelab.base.arrays import Floats
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Change, Program, Rings


def offsets(lists: Sequence[Sequence[object]]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)


def paths(*sends: Sequence[int], share: Sequence[float] | None = None) -> Paths:
    flat = np.array([send for one in sends for send in one], np.int32)
    return Paths(offsets(sends), flat, None if share is None else np.array(share, float))


def program(
    *transfers: Sequence[tuple[int, float]],
    after: Sequence[Sequence[int]] | None = None,
    delay: Sequence[float] | None = None,
    latency: Sequence[float] | None = None,
    rings: Rings | None = None,
) -> Program:
    """A program of tasks with their transfers, each a flow and bits."""
    tasks = len(transfers)
    before = [[] for _ in range(tasks)] if after is None else after
    return Program(
        after_start=offsets(before),
        after=np.array([task for one in before for task in one], np.int32),
        delay_s=np.zeros(tasks) if delay is None else np.array(delay, float),
        latency_s=np.zeros(tasks) if latency is None else np.array(latency, float),
        first_transfer=offsets(transfers),
        flow=np.array([flow for one in transfers for flow, _ in one], np.int32),
        size_bits=np.array([bits for one in transfers for _, bits in one], float),
        rings=rings,
    )


def drawn_paths(rng: np.random.Generator, flows: int, sends: int, *, shared: bool) -> Paths:
    chosen = [
        rng.choice(sends, min(sends, int(rng.integers(0, 5))), replace=False).tolist()
        for _ in range(flows)
    ]
    count = sum(len(one) for one in chosen)
    return paths(*chosen, share=rng.uniform(0.1, 1, count).tolist() if shared else None)


def drawn_capacity(rng: np.random.Generator, sends: int) -> Floats:
    return rng.choice([0.0, 1.0, 2.0, 4.0, 10.0], sends, p=[0.06, 0.3, 0.24, 0.2, 0.2])


Case = tuple[Program, Paths, Floats, list[Change]]


def _drawn_rings(rng: np.random.Generator, counts: np.ndarray) -> Rings:
    """Up to two rings in each task."""
    task = np.repeat(np.arange(len(counts)), counts)
    ring = 2 * task + rng.integers(0, 2, len(task))
    ring[rng.random(len(task)) < 0.3] = -1
    rings = 2 * len(counts)
    return Rings(
        ring.astype(np.int32),
        rng.uniform(0, 1, rings),
        rng.choice([0.0, 3.0], rings),
        np.zeros(rings, np.bool_),
    )


def drawn_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    sends, flows, tasks = (int(rng.integers(low, high)) for low, high in ((2, 14), (1, 50), (1, 8)))
    shared = bool(rng.random() < 0.5)
    sizes = rng.choice([1.0, 2.0, 3.7], 64) * rng.choice([1.0, rng.uniform(0.5, 2)], 64)
    counts = rng.integers(0, 25, tasks)
    work = program(
        *(
            [(int(rng.integers(flows)), float(rng.choice(sizes))) for _ in range(count)]
            for count in counts
        ),
        after=[
            sorted(rng.choice(task, int(rng.integers(0, min(task, 3) + 1)), replace=False).tolist())
            for task in range(tasks)
        ],
        delay=rng.choice([0.0, 0.5, 1.3], tasks).tolist(),
        latency=rng.choice([0.0, 0.2], tasks).tolist(),
        rings=_drawn_rings(rng, counts),
    )
    times = np.cumsum(rng.choice([0.0, 1.0, 7.3, 20.0], int(rng.integers(0, 5))))
    changes = [
        Change(
            float(time),
            drawn_capacity(rng, sends) if rng.random() < 0.6 else None,
            drawn_paths(rng, flows, sends, shared=shared) if rng.random() < 0.5 else None,
        )
        for time in times
    ]
    first = drawn_paths(rng, flows, sends, shared=shared)
    return work, first, drawn_capacity(rng, sends), changes


cases = st.integers(0, 2**32 - 1).map(drawn_case)
"""Programs with dependencies over random networks that change."""
