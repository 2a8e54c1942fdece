"""The headers after the BTH that Scapy's RoCE module lacks, as Scapy layers.

Importing this module binds `RETH`, `ImmDt`, `IETH`, `AtomicETH` and `AtomicAckETH` to the BTH's
opcodes for dissection. Scapy's own BTH (with its ICRC), AETH and CNPPadding are unchanged.
Everything after the headers, padding included, is `Raw`.

`rocelab.wire.headers.extensions` says which headers an opcode has. Only dissection is bound, and
only where Scapy leaves `Raw`: building packets does not change, and other bindings come first.
"""

from __future__ import annotations

from scapy.config import conf
from scapy.contrib.roce import AETH, BTH
from scapy.fields import IntField, LongField, XIntField, XLongField
from scapy.packet import Packet, bind_bottom_up

from rocelab.wire.headers import Extension, Opcode, extensions


def _behind(self: Packet, _payload: bytes) -> type[Packet]:
    """The header that follows this one for the opcode of the BTH below, else `Raw`."""
    position = 1
    below = self.underlayer
    while below is not None and not isinstance(below, BTH):
        position += 1
        below = below.underlayer
    following = extensions(below.opcode)[position:] if below is not None else ()
    return LAYERS[following[0]] if following else conf.raw_layer


class RETH(Packet):  # type: ignore[misc]
    """RDMA extended transport header: the remote memory of a WRITE or a READ."""

    name = "RETH"
    fields_desc = (XLongField("va", 0), XIntField("rkey", 0), IntField("dmalen", 0))
    default_payload_class = _behind


class ImmDt(Packet):  # type: ignore[misc]
    """Immediate data: four bytes for the receiver's completion."""

    name = "ImmDt"
    fields_desc = (XIntField("data", 0),)
    default_payload_class = _behind


class IETH(Packet):  # type: ignore[misc]
    """Invalidate extended transport header: the remote key that a SEND invalidates."""

    name = "IETH"
    fields_desc = (XIntField("rkey", 0),)
    default_payload_class = _behind


class AtomicETH(Packet):  # type: ignore[misc]
    """The remote memory and the operands of a COMPARE_SWAP or a FETCH_ADD."""

    name = "AtomicETH"
    fields_desc = (
        XLongField("va", 0),
        XIntField("rkey", 0),
        LongField("swap", 0),
        LongField("compare", 0),
    )
    default_payload_class = _behind


class AtomicAckETH(Packet):  # type: ignore[misc]
    """The remote memory's content before an atomic operation."""

    name = "AtomicAckETH"
    fields_desc = (LongField("value", 0),)
    default_payload_class = _behind


LAYERS: dict[Extension, type[Packet]] = {
    Extension.RETH: RETH,
    Extension.IMM: ImmDt,
    Extension.IETH: IETH,
    Extension.ATOMIC: AtomicETH,
    Extension.AETH: AETH,
    Extension.ATOMIC_ACK: AtomicAckETH,
}

# packet[AETH] would not find a subclass of AETH: Scapy compares classes exactly.
AETH.default_payload_class = _behind

for _opcode in Opcode:
    if _first := extensions(_opcode)[:1]:
        bind_bottom_up(BTH, LAYERS[_first[0]], opcode=int(_opcode))
