"""The hashes of switch ASICs: CRCs of the five-tuple.

An ASIC takes the remainder of a flow's hash by the width of the group. The CRCs are those in switch
vendors' hash settings; which bits of which fields an ASIC hashes is not public.
"""

from __future__ import annotations

from enum import Enum
from functools import cache

import numpy as np
import numpy.typing as npt

from rocelab.routes.flows import HeaderColumns, Words
from rocelab.routes.models import Model


class Crc(Enum):
    """CRCs by their names in the RevEng catalogue: bits, polynomial, reflected, final XOR."""

    CRC_16_IBM_3740 = (16, 0x1021, False, 0)
    CRC_16_ARC = (16, 0x8005, True, 0)
    CRC_32_ISO_HDLC = (32, 0x04C11DB7, True, 0xFFFF_FFFF)
    CRC_32_ISCSI = (32, 0x1EDC6F41, True, 0xFFFF_FFFF)

    @property
    def bits(self) -> int:
        return self.value[0]


CRCS = {Model.CRC16: Crc.CRC_16_IBM_3740, Model.CRC32: Crc.CRC_32_ISO_HDLC}


def crc_hashes(flows: HeaderColumns, seed: int | Words, *, crc: Crc) -> Words:
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
