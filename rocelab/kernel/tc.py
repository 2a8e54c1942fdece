"""Traffic control's netlink messages as bytes.

In go a kind (`htb`, `bpf`), handles and packed options; out come complete rtnetlink messages that
ask for an acknowledgement. A message is made once with interface index 0 and then addressed to
each interface, since the ports of a lab differ in little else.

Source: include/uapi/linux/rtnetlink.h, pkt_sched.h and pkt_cls.h.
"""

from __future__ import annotations

import socket
import struct

from rocelab.kernel.netlink import HEADER

RTM_NEWQDISC = 36
RTM_DELQDISC = 37
RTM_GETQDISC = 38
RTM_NEWTCLASS = 40
RTM_GETTCLASS = 42
RTM_NEWTFILTER = 44
RTM_DELTFILTER = 45
REQUEST_ACK = 0x005
REQUEST_ACK_CREATE = 0x405
REQUEST_ACK_CREATE_EXCL = 0x605

TCA_KIND = 1
TCA_OPTIONS = 2
TCA_STATS2 = 7
TC_H_ROOT = 0xFFFF_FFFF
TC_H_CLSACT = 0xFFFF_FFF1
CLSACT_INGRESS = 0xFFFF_FFF2
CLSACT_EGRESS = 0xFFFF_FFF3
CLSACT_HANDLE = 0xFFFF_0000

TCMSG = struct.Struct("=BxxxiIII")
_INDEX_AT = HEADER.size + 4
_ATTRIBUTE = struct.Struct("=HH")
_INDEX = struct.Struct("=i")


def attribute(kind: int, value: bytes) -> bytes:
    """A netlink attribute, padded to four bytes."""
    return _ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind, b"".join(attributes))


def message(
    kind: int,
    what: str,
    *,
    handle: int = 0,
    parent: int,
    info: int = 0,
    options: bytes = b"",
    flags: int = REQUEST_ACK_CREATE_EXCL,
) -> bytes:
    """A request about a qdisc, class or filter of kind `what` on the interface of index 0.

    Makes one that must not be there yet, unless `flags` say otherwise.
    """
    body = TCMSG.pack(socket.AF_UNSPEC, 0, handle, parent, info)
    body += attribute(TCA_KIND, what.encode() + b"\0")
    body += attribute(TCA_OPTIONS, options) if options else b""
    return HEADER.pack(HEADER.size + len(body), kind, flags, 0, 0) + body


def on_interface(request: bytes, index: int) -> bytes:
    """The same request for the interface of that index."""
    return request[:_INDEX_AT] + _INDEX.pack(index) + request[_INDEX_AT + 4 :]


def filter_info(priority: int, ethernet_protocol: int) -> int:
    """What a filter's message holds in tcm_info: when it is asked and for which packets."""
    return priority << 16 | socket.htons(ethernet_protocol)


def attributes(data: bytes) -> dict[int, bytes]:
    """Attributes by kind, from the bytes that hold them."""
    found, offset = {}, 0
    while offset + 4 <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        found[kind & 0x3FFF] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found
