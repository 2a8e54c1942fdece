"""Max-min fair rates of transfers over shared links.

`rocelab.sim.engine.proof` can prove the rates.
"""

from __future__ import annotations

import numpy as np

from rocelab.arrays import Floats, Ints
from rocelab.sim.engine import state as at
from rocelab.sim.engine.backend import Backend, chosen
from rocelab.sim.engine.rounds import rates_in_rounds
from rocelab.sim.engine.state import checked, fair_state
from rocelab.sim.fabric.flows import Paths


def max_min_rates(
    paths: Paths, capacity_bps: Floats, flow: Ints | None = None, backend: Backend | None = None
) -> Floats:
    """The max-min fair rate, bit/s, of each transfer; transfer i takes the path of flow[i] (None:
    one for each flow). By progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).

    Over each send, the sum of share x rate stays within its capacity. A transfer without a path, or
    over a send of capacity 0, has rate 0. Raises ValueError for impossible capacities, sends or
    shares; MachineError if the backend is not installed.
    """
    flows = len(paths)
    transfers = np.ones(flows, np.int32)
    if flow is not None:
        transfers = np.bincount(flow, minlength=flows).astype(np.int32)
    if chosen(backend) is Backend.NUMBA:
        from rocelab.sim.engine.filling import solve_all

        fair = fair_state(paths, capacity_bps)
        fair.of_flow[at.TRANSFERS, :flows] = transfers
        solve_all(fair)
        rates: Floats = fair.flow[at.RATE].copy()
    else:
        checked(paths, capacity_bps)
        rates = rates_in_rounds(paths, capacity_bps, transfers)
    return rates if flow is None else rates[flow]
