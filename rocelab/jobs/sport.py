"""UDP source ports of queue pairs: the entropy that a RoCEv2 sender gives to ECMP.

`source_port` computes it from the two QP numbers of a connection and the NIC's method. Standard
library only.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rocelab.base.arrays import Longs

FIRST_SPORT = 0xC000
"""RoCEv2 source ports are 0xC000 to 0xFFFF (IB_ROCE_UDP_ENCAP_VALID_PORT_MIN, Linux)."""

SPORTS = 0x4000
QPN_LIMIT = 1 << 24

_GOLDEN_RATIO_32 = 0x61C88647
_U32 = 0xFFFFFFFF

Number = TypeVar("Number", int, "Longs")
"""One number, or an array of them: the simulator computes the ports of all queue pairs at once."""


class SourcePort(StrEnum):
    """How a NIC chooses the source port of a QP."""

    FIXED = "fixed"
    PER_QP = "per-qp"
    FLOW_LABEL = "flow-label"
    RXE = "rxe"


def source_port(mode: SourcePort, *, local_qpn: int, remote_qpn: int, base: int) -> int:
    """The UDP source port, 0xC000 to 0xFFFF, of packets from the QP `local_qpn` to `remote_qpn`.

    - fixed: `base` for every QP, so that ECMP cannot tell them apart.
    - per-qp: `base` plus the QP's number, wrapped within the range: consecutive QPs differ.
    - flow-label: what Linux's drivers for mlx5, irdma and hns do if the application gave no flow
      label: rdma_calc_flow_label and rdma_flow_label_to_udp_sport (include/rdma/ib_verbs.h).
    - rxe: Linux's software RoCE, from the local QP alone (drivers/infiniband/sw/rxe/rxe_qp.c).

    Raises ValueError if `base` is outside the range or a QP number has more than 24 bits.
    """
    if not FIRST_SPORT <= base < FIRST_SPORT + SPORTS:
        raise ValueError(f"base port {base} is outside 0xC000 to 0xFFFF")
    for qpn in (local_qpn, remote_qpn):
        if not 0 <= qpn < QPN_LIMIT:
            raise ValueError(f"QP number {qpn} does not fit 24 bits")
    return unchecked_source_port(mode, local_qpn, remote_qpn, base)


def unchecked_source_port(
    mode: SourcePort, local_qpn: Number, remote_qpn: Number, base: int
) -> Number:
    """`source_port` of numbers that fit."""
    match mode:
        case SourcePort.FIXED:
            return base + 0 * local_qpn
        case SourcePort.PER_QP:
            return FIRST_SPORT + (base + local_qpn) % SPORTS
        case SourcePort.FLOW_LABEL:
            return udp_sport(flow_label(local_qpn, remote_qpn))
        case SourcePort.RXE:
            return FIRST_SPORT + hash_32(local_qpn, bits=14)


def base_port(seed: int) -> int:
    """The base port of a job's queue pairs, drawn from its seed."""
    return FIRST_SPORT + random.Random(seed).randrange(SPORTS)  # noqa: S311 - no secret


def flow_label(local_qpn: Number, remote_qpn: Number) -> Number:
    """20 bits from the product of two QP numbers, the same from both ends.

    rdma_calc_flow_label, include/rdma/ib_verbs.h.
    """
    value = local_qpn * remote_qpn
    value ^= value >> 20
    value ^= value >> 40
    return value & 0xFFFFF


def udp_sport(label: Number) -> Number:
    """The source port of a 20-bit flow label: rdma_flow_label_to_udp_sport, ib_verbs.h."""
    return FIRST_SPORT | (label & 0x3FFF) ^ (label >> 14)


def hash_32(value: Number, *, bits: int) -> Number:
    """The upper `bits` bits of a multiplicative hash: hash_32, include/linux/hash.h since 4.7."""
    return (value * _GOLDEN_RATIO_32 & _U32) >> (32 - bits)
