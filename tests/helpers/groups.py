"""The group that a switch of a simulated network has for a NIC."""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import Ints
from rocelab.routes.arrays.routes import Routes


def sends_to(routes: Routes, nic: int, switch: int) -> Ints:
    """The sends that it chooses from, in the kernel's order."""
    hops = routes.next_hops(np.array([switch], np.int32), np.array([nic], np.int32))
    return routes.members(hops, 0)
