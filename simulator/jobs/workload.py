"""What a job does, step by step, before it is placed on a network.

Collectives, training steps, inference and recorded traces all become a `Workload`; from there on
they are simulated alike. A step is a set of sends that start together, so that a collective of
thousands of ranks is one step with a few arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.fabric.network import Ints

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sends:
    """Bytes of payload between ranks, by column: source, destination (never the same), size_bytes
    (> 0). rounds: how many sends one after the other each of them stands for; each costs a latency.
    parts: how many sends, one after the other or not, each is the sum of, all of about one size;
    each of those is cut into messages and packets for itself. None: one.
    """

    source: Ints
    destination: Ints
    size_bytes: Longs
    rounds: int = 1
    parts: Longs | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """After all steps `after` (lower numbers) and then `compute_s`, `sends`; None: only compute.

    iteration: the repetition of the job that it belongs to, from 0; a pause before one is its.
    """

    name: str
    after: tuple[int, ...] = ()
    compute_s: float = 0.0
    sends: Sends | None = None
    iteration: int = 0


@dataclass(frozen=True, eq=False)
class Workload:
    """The steps of a job with ranks 0 to `ranks` - 1.

    ordered: each send of a schedule is a step of its own and waits for those that the lab's waits
    for; else all that one rank sends another in a collective is one send, and all begin together.
    """

    ranks: int
    steps: tuple[Step, ...]
    ordered: bool = False
