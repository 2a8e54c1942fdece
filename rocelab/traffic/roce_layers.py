"""The headers behind the BTH that Scapy's RoCE module lacks, as Scapy layers in its manner.

In: nothing; importing this binds them. Out: `RETH`, `ImmDt`, `IETH`, `AtomicETH`, `AtomicAckETH`,
found by the BTH's opcode when a frame is dissected; Scapy's own BTH (with its ICRC), AETH and
CNPPadding are used as they are. What follows the headers, padding included, is `Raw`.

`rocelab.agent.headers.extensions` says which headers an opcode has. Only dissection is bound, and
only where Scapy leaves `Raw`: nobody's packets are built differently, and other bindings come
first.
"""

from __future__ import annotations

from scapy.config import conf
from scapy.contrib.roce import AETH, BTH
from scapy.fields import IntField, LongField, XIntField, XLongField
from scapy.packet import Packet, bind_bottom_up

from rocelab.agent.headers import Extension, Opcode, extensions


def _behind(self: Packet, _payload: bytes) -> type[Packet]:
    """The header that the opcode of the BTH below puts behind this one, else `Raw`."""
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
    """Immediate data: four bytes handed to the receiver's completion."""

    name = "ImmDt"
    fields_desc = (XIntField("data", 0),)
    default_payload_class = _behind


class IETH(Packet):  # type: ignore[misc]
    """Invalidate extended transport header: the remote key that a SEND makes invalid."""

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
    """What the remote memory held before an atomic operation."""

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

# A subclass of AETH would not be found as packet[AETH]: Scapy compares classes exactly.
AETH.default_payload_class = _behind

for _opcode in Opcode:
    if _first := extensions(_opcode)[:1]:
        bind_bottom_up(BTH, LAYERS[_first[0]], opcode=int(_opcode))
