"""The packet engine's random numbers."""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import Longs
from rocelab.sim.packets.compiling import entry

M31 = 2**31 - 1
TIES = -1
"""In place of a port: of things that happen at one instant. No two numbers below 2^31 draw the
same."""


@entry
def draw(seed: int, port: int, count: int) -> int:
    """A random number below 2^31: a hash of the three, so that each port has its own sequence.

    Multiplications and shifts as in MurmurHash3's finalizer, with 31 bits, which a product of 64
    bits holds.
    """
    word = (seed * 0x2545F491 + int(port) * 0x1B873593 + count) & M31
    for _ in range(2):
        word = ((word ^ word >> 16) * 0x45D9F3B) & M31
        word = ((word ^ word >> 15) * 0x119DE1F3) & M31
    return word ^ word >> 16


def drawn_order(seed: int, count: int) -> Longs:
    """So many things in an order that the seed draws."""
    return np.argsort([draw(seed, TIES, number) for number in range(count)])


def order_by_nic(seed: int, nic: Longs) -> Longs:
    """Things of NICs, NIC by NIC in an order that the seed draws, those of a NIC in their own."""
    used, place = np.unique(nic, return_inverse=True)
    return np.argsort(drawn_order(seed, len(used))[place], kind="stable")
