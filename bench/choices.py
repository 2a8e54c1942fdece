"""ECMP choices for comparison: the kernel's and those of switch ASICs, with one interface.

`choose` returns the index of a next hop per flow. A `ChoiceModel` is a hash and a way to divide the
hash space: by threshold as Linux does (RFC 2992), or by modulo as switch ASICs and most simulators
do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np

from rocelab import HashPolicy, multipath_hashes
from rocelab.labfile.model import HashField
from rocelab.routes.asic import Crc, crc_hashes
from rocelab.routes.bulk import by_threshold
from rocelab.routes.flows import HeaderColumns, Indices, Words
from rocelab.routes.multipath import HASH_BITS, upper_bounds

HashFunction = Callable[[HeaderColumns, int], Words]
"""Hashes of flows under a seed."""


class Cut(Enum):
    """How the hash space is divided among the next hops of a group."""

    THRESHOLD = "threshold"
    MODULO = "modulo"


@dataclass(frozen=True, slots=True)
class ChoiceModel:
    """A switch's choice among equal paths: its hash function, and how it divides the hash space."""

    hash_of: HashFunction
    hash_bits: int
    cut: Cut

    def choose(self, flows: HeaderColumns, seed: int, weights: Sequence[int]) -> Indices:
        """The index of the next hop that each flow takes in a group with these weights.

        Modulo counts a next hop as often as its weight, as in the tables of ASICs.
        Raises ValueError for an empty group.
        """
        if not weights:
            raise ValueError("a group needs at least one next hop")
        hashes = self.hash_of(flows, seed)
        if self.cut is Cut.MODULO:
            entries = np.repeat(np.arange(len(weights)), weights)
            taken: Indices = entries[hashes % np.uint32(len(entries))]
            return taken
        return by_threshold(hashes, upper_bounds(weights, self.hash_bits))


def kernel_model(
    policy: HashPolicy, fields: Collection[HashField] = (), cut: Cut = Cut.THRESHOLD
) -> ChoiceModel:
    """Linux's choice; with Cut.MODULO, as if it divided the hash space like ASICs."""
    return ChoiceModel(partial(multipath_hashes, policy=policy, fields=fields), HASH_BITS, cut)


def crc_model(crc: Crc, cut: Cut = Cut.MODULO) -> ChoiceModel:
    """The choice of a switch that starts `crc` from its seed and runs it over the five-tuple."""
    return ChoiceModel(partial(crc_hashes, crc=crc), crc.bits, cut)
