"""A job as steps, before it is placed on a network.

Collectives, training steps, inference and recorded traces all become a `Workload`, which the
simulator runs. A step is a set of sends that start together, so that a collective of
thousands of ranks is one step with a few arrays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rocelab.base.arrays import Ints, Longs


@dataclass(frozen=True, eq=False)
class Sends:
    """Bytes of payload between ranks, by column: source, destination (never the same), size_bytes
    (> 0)."""

    source: Ints
    destination: Ints
    size_bytes: Longs
    rounds: int | Longs = 1
    """Of the longest chain of sends one after the other, of all sends or of each."""
    parts: Longs | None = None
    """The number of sends of about one size, consecutive or not, that each merged send is the sum
    of; each of them is cut into messages and packets separately. None: one."""
    chain: Ints | None = None
    """The number of the chain that each send is part of, NONE for none; a round costs the latency
    of the chain's average hop, so that a ring's latency is that of its own hops. None: each send
    is a chain by itself."""
    hops: Longs | None = None
    """How many hops of its chain each send stands for, as a pair of ranks has one in each of
    several channels, 0 outside of chains. None: one."""
    fill_bytes: int = 0
    """The bytes that pass NICs one after the other before the last rank gets a byte, in a pipeline
    of pieces."""
    tokens: int = 0
    """Where chains are rings, how many chunks begin on each hop, so that chunks hide each other's
    latency; 0: chains are not rings."""
    turn: Ints | None = None
    """The number of the queue in which each send waits for the one before it, in the order of the
    columns, NONE for one that waits for none. None: no send waits."""

    @property
    def each_parts(self) -> Longs:
        """`parts` of each send, 1 without them."""
        return np.ones(len(self.source), np.int64) if self.parts is None else self.parts

    @property
    def each_hops(self) -> Longs:
        """`hops` of each send, 1 without them."""
        return np.ones(len(self.source), np.int64) if self.hops is None else self.hops


class Dimension(StrEnum):
    """A kind of parallelism, or of serving, that a step sends for."""

    TENSOR = "TP"
    CONTEXT = "CP"
    PIPELINE = "PP"
    DATA = "DP"
    EXPERT = "EP"
    CACHE = "KV cache"
    CHECKPOINT = "checkpoint"


class StepTiming(StrEnum):
    """How a step counts in the time of its iteration."""

    WITHIN = "within"
    """The iteration is over when all such steps are."""
    BEFORE = "before"
    """It waits for the clock: the iteration's time begins when it ends."""
    BESIDE = "beside"
    """It goes on beside the iterations that follow, which do not wait for it."""


@dataclass(frozen=True, eq=False)
class Step:
    """After all steps `after` (lower numbers) and then `compute_s`, `sends`; None: only compute."""

    name: str
    after: tuple[int, ...] = ()
    compute_s: float = 0.0
    sends: Sends | None = None
    iteration: int = 0
    """The repetition of the job that it belongs to, from 0; a pause before an iteration belongs to
    it."""
    launches: bool = True
    """Whether its sends are the first of their ranks in a collective, which hosts launch
    (`rocelab.hosts`); False: they are a later part of one."""
    dimension: Dimension | None = None
    """What the sends are for."""
    inside: tuple[tuple[Dimension, float], ...] = ()
    """Seconds of `compute_s` in which GPUs wait for one another within their servers."""
    counts: StepTiming = StepTiming.WITHIN


@dataclass(frozen=True, eq=False)
class Workload:
    """The steps of a job with ranks 0 to `ranks` - 1."""

    ranks: int
    steps: tuple[Step, ...]
    ordered: bool = False
    """Each send of a schedule is its own step and waits for the same sends as in the lab; else
    everything that one rank sends another in a collective is one send, and all begin together,
    except those of an AlltoAll(v), which go in turn."""
    own_queue_pairs: bool = False
    """Each send has a connection of its own; else all that two ranks send each other share one."""
    warnings: tuple[str, ...] = ()
    """The parts of a trace that were ignored."""

    @property
    def is_alike(self) -> bool:
        """Whether all iterations are, and none has steps that others lack or waits for the
        clock."""
        lengths = Counter(step.iteration for step in self.steps)
        return len(set(lengths.values())) < 2 and all(
            step.counts is StepTiming.WITHIN for step in self.steps
        )
