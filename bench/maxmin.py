"""Max-min fair rates of flows that all send at once: one solve of the simulator's engine alone."""

from __future__ import annotations

from pathlib import Path

from rocelab.base.arrays import Floats
from rocelab.base.library import FunctionLibrary
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine import compiling
from rocelab.sim.engine import state as at
from rocelab.sim.engine.filling import fill, index, weigh
from rocelab.sim.engine.state import FairState, fair_state


def max_min_rates(paths: Paths, capacity_bps: Floats) -> Floats:
    """The rate, bit/s, of each flow. No path is divided.

    Raises ValueError for impossible capacities or sends.
    """
    assert paths.share is None
    fair = fair_state(paths, capacity_bps)
    fair.flow[at.GIVEN] = -1.0
    _solve(fair)
    rates: Floats = fair.flow[at.RATE].copy()
    return rates


_LIBRARY = FunctionLibrary(
    Path(compiling.__file__).parent, (Path(__file__),), types=compiling.types
)


@_LIBRARY.part
def _list_all(fair: FairState) -> None:
    """Put all flows on the lists of their sends."""
    sends, listed, end = fair.sends, fair.listed, fair.of_send[at.LIST_LENGTH]
    for send in range(len(end)):
        end[send] = fair.list_start[send]
    for flow in range(len(fair.start) - 1):
        for entry in range(fair.start[flow], fair.start[flow + 1]):
            send = sends[entry]
            place = end[send]
            listed[place] = flow
            end[send] = place + 1
    for send in range(len(end)):
        end[send] -= fair.list_start[send]


@_LIBRARY.entry
def _solve(fair: FairState) -> None:
    """Rates of flows of which none has a rate yet."""
    flows = len(fair.start) - 1
    index(fair)
    _list_all(fair)
    fill(fair, flows, weigh(fair))
    for flow in range(flows):
        fair.flow[at.RATE, flow] = max(fair.flow[at.GIVEN, flow], 0.0)
