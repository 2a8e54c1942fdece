"""Flows as columns, and the paths they take.

A flow is everything that one end of a queue pair sends; switches can tell flows apart. The columns
are frozen; `rocelab.sim.fabric` routes them through a network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocelab.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Flows:
    """F flows. source, destination: NICs; port: of its NIC (from 0) that a flow leaves by; sport:
    UDP source port; dest_qp: BTH destination queue pair."""

    source: Ints
    destination: Ints
    port: Ints
    sport: Ints
    dest_qp: Ints

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class Paths:
    """The sends of each flow, flow by flow: those of flow f are sends[start[f]:start[f + 1]].

    share: the part of the flow that each send carries, where switches divide a flow over several;
    None where each carries all of it. A flow without any send has no path: nothing arrives.
    """

    start: npt.NDArray[np.int64]
    sends: Ints
    share: Floats | None = None

    def __len__(self) -> int:
        return len(self.start) - 1
