"""ECMP choices for comparison: the kernel's and those of switch ASICs, with one interface.

`choose` returns the index of a next hop per flow. A `ChoiceModel` is a hash and a way to divide the
hash space: by threshold as Linux does (RFC 2992), or by modulo as switch ASICs and most simulators
do. The CRCs are those in switch vendors' hash settings; which bits of which fields an ASIC hashes
is not public.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from rocelab.forwarding.bulk import by_threshold, multipath_hashes
from rocelab.forwarding.flows import Flows, Indices, Words
from rocelab.forwarding.multipath import HASH_BITS, upper_bounds
from rocelab.spec.model import HashField, HashPolicy

HashFunction = Callable[[Flows, int], Words]
"""Hashes of flows under a seed."""


class Crc(Enum):
    """CRCs by their names in the RevEng catalogue: bits, polynomial, reflected, final XOR."""

    CRC_16_IBM_3740 = (16, 0x1021, False, 0)
    CRC_16_ARC = (16, 0x8005, True, 0)
    CRC_32_ISO_HDLC = (32, 0x04C11DB7, True, 0xFFFF_FFFF)
    CRC_32_ISCSI = (32, 0x1EDC6F41, True, 0xFFFF_FFFF)

    @property
    def bits(self) -> int:
        return self.value[0]


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

    def choose(self, flows: Flows, seed: int, weights: Sequence[int]) -> Indices:
        """The index of the next hop that each flow takes in a group with these weights.

        Modulo counts a next hop as often as its weight, like ASICs, which repeat it in their
        tables. Raises ValueError for an empty group.
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


def crc_hashes(flows: Flows, seed: int | Words, *, crc: Crc) -> Words:
    """The CRC of each flow's source and destination address, protocol and ports, as on the wire.

    `seed`, one for all or each flow's own, is the register's start value (its lowest 16 bits for
    a CRC of 16). A CRC is linear: for messages of one length, the hashes under two seeds differ by
    the same XOR for every flow.
    """
    message = np.concatenate(
        [
            flows.source,
            flows.destination,
            flows.protocol.astype(np.uint8)[:, None],
            flows.source_port.astype(">u2").view(np.uint8).reshape(-1, 2),
            flows.destination_port.astype(">u2").view(np.uint8).reshape(-1, 2),
        ],
        axis=1,
    )
    return crc_of(message, seed, crc)


def crc_of(messages: npt.NDArray[np.uint8], start: int | Words, crc: Crc) -> Words:
    """The CRC of each row of bytes, from the register value `start`, one for all or one per row.

    Source: Williams, "A painless guide to CRC error detection algorithms" (1993), table-driven.
    """
    bits, _, reflected, final = crc.value
    table = _table(crc)
    mask = np.uint32((1 << bits) - 1)
    register = np.full(len(messages), start & int(mask), np.uint32)
    for column in messages.T:
        if reflected:
            register = table[(register ^ column) & np.uint32(0xFF)] ^ register >> np.uint32(8)
        else:
            index = (register >> np.uint32(bits - 8) ^ column) & np.uint32(0xFF)
            register = (table[index] ^ register << np.uint32(8)) & mask
    return register ^ np.uint32(final)


@cache
def _table(crc: Crc) -> Words:
    bits, polynomial, reflected, _ = crc.value
    mask = (1 << bits) - 1
    table = []
    for byte in range(256):
        register = byte if reflected else byte << bits - 8
        for _ in range(8):
            if reflected:
                backwards = int(f"{polynomial:0{bits}b}"[::-1], 2)
                register = register >> 1 ^ (backwards if register & 1 else 0)
            else:
                register = (register << 1 ^ (polynomial if register >> bits - 1 else 0)) & mask
        table.append(register)
    return np.array(table, np.uint32)
