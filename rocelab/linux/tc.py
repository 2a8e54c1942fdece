"""Encodes traffic control's netlink messages, and reads qdiscs, classes and filters.

A request has a kind (`htb`, `bpf`), handles and packed options, and asks for an acknowledgement. It
is made once with interface index 0 and then addressed to each interface, since the ports of a lab
differ in little else.

Source: include/uapi/linux/rtnetlink.h, pkt_sched.h, pkt_cls.h and gen_stats.h.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from rocelab.linux import netlink

RTM_NEWQDISC = 36
RTM_DELQDISC = 37
RTM_GETQDISC = 38
RTM_NEWTCLASS = 40
RTM_GETTCLASS = 42
RTM_NEWTFILTER = 44
RTM_DELTFILTER = 45
RTM_GETTFILTER = 46

TCA_KIND = 1
TCA_OPTIONS = 2
TCA_XSTATS = 4
TCA_STATS2 = 7
TC_H_ROOT = 0xFFFF_FFFF
TC_H_CLSACT = 0xFFFF_FFF1
CLSACT_INGRESS = 0xFFFF_FFF2
CLSACT_EGRESS = 0xFFFF_FFF3
CLSACT_HANDLE = 0xFFFF_0000

TCMSG = struct.Struct("=BxxxiIII")
ETH_P_ALL = 0x0003
_INDEX_AT = netlink.HEADER.size + 4
_INDEX = struct.Struct("=i")
_TCA_STATS_BASIC, _TCA_STATS_QUEUE = 1, 3
_BASIC = struct.Struct("=QI")
_QUEUE = struct.Struct("=5I")
_TCA_BPF_CLASSID, _TCA_BPF_FD, TCA_BPF_NAME, _TCA_BPF_FLAGS = 3, 6, 7, 8
_TCA_NETEM_LATENCY64 = 10
_ACT_DIRECT = 1


class QdiscCounts(NamedTuple):
    """The counters of a qdisc since its creation, and its current backlog."""

    packets: int
    bytes: int
    dropped: int
    backlog_bytes: int


class InstalledFilter(NamedTuple):
    """A qdisc, class or filter in the kernel. Attributes are decoded on access."""

    interface: int
    handle: int
    parent: int
    info: int
    body: bytes

    @property
    def kind(self) -> str:
        """Its name, such as `htb`; empty if the kernel gives none."""
        return netlink.text(self.find(TCA_KIND))

    @property
    def options(self) -> dict[int, bytes]:
        """Its options."""
        return netlink.attributes(self.find(TCA_OPTIONS))

    @property
    def counts(self) -> QdiscCounts:
        """The counters of a qdisc."""
        stats = self.find(TCA_STATS2)
        size, packets = _BASIC.unpack_from(netlink.find(stats, 0, _TCA_STATS_BASIC))
        _, backlog, drops, _, _ = _QUEUE.unpack_from(netlink.find(stats, 0, _TCA_STATS_QUEUE))
        return QdiscCounts(packets, size, drops, backlog)

    def find(self, kind: int) -> bytes:
        """One of its attributes, empty if missing."""
        return netlink.find(self.body, TCMSG.size, kind)


def message(
    kind: int,
    what: str,
    *,
    handle: int = 0,
    parent: int,
    info: int = 0,
    options: bytes = b"",
    flags: int = netlink.REQUEST_ACK_CREATE_EXCL,
) -> bytes:
    """A request about a qdisc, class or filter of kind `what` on the interface of index 0.

    By default it creates one that must not exist yet; `flags` can change that.
    """
    body = TCMSG.pack(socket.AF_UNSPEC, 0, handle, parent, info)
    body += netlink.attribute(TCA_KIND, what.encode() + b"\0")
    body += netlink.attribute(TCA_OPTIONS, options) if options else b""
    return netlink.request(kind, body, flags)


def clsact(kind: int = RTM_NEWQDISC, *, flags: int = netlink.REQUEST_ACK_CREATE) -> bytes:
    """A request about the clsact hooks (ingress and egress) of the interface of index 0. By default
    it creates them unless they exist."""
    return message(kind, "clsact", handle=CLSACT_HANDLE, parent=TC_H_CLSACT, flags=flags)


def netem_options(delay_ns: int, packets: int) -> bytes:
    """A delay without jitter, loss or reordering, and room for so many packets (struct
    tc_netem_qopt; the delay in ns is an attribute behind it)."""
    options = struct.pack("=IIIIII", 0, packets, 0, 0, 0, 0)
    return options + netlink.attribute(_TCA_NETEM_LATENCY64, struct.pack("=q", delay_ns))


def bpf_filter(program: int, parent: int, priority: int, name: str, classid: int = 0) -> bytes:
    """A request for a program, by its descriptor, to classify every packet at a hook, replacing an
    existing one; the program finds `classid` in its packets."""
    return _bpf_filter(
        RTM_NEWTFILTER,
        parent,
        priority,
        netlink.attribute(_TCA_BPF_CLASSID, netlink.u32(classid)) * bool(classid)
        + netlink.attribute(_TCA_BPF_FD, netlink.u32(program))
        + netlink.attribute(TCA_BPF_NAME, f"{name}\0".encode())
        + netlink.attribute(_TCA_BPF_FLAGS, netlink.u32(_ACT_DIRECT)),
        netlink.REQUEST_ACK_CREATE,
    )


def bpf_removal(parent: int, priority: int) -> bytes:
    """A request to remove such a program."""
    return _bpf_filter(RTM_DELTFILTER, parent, priority, b"", netlink.REQUEST_ACK)


def _bpf_filter(kind: int, parent: int, priority: int, options: bytes, flags: int) -> bytes:
    info = filter_info(priority, ETH_P_ALL)
    return message(kind, "bpf", handle=1, parent=parent, info=info, options=options, flags=flags)


def on_interface(request: bytes, index: int) -> bytes:
    """The same request for the interface of that index."""
    return request[:_INDEX_AT] + _INDEX.pack(index) + request[_INDEX_AT + 4 :]


def filter_info(priority: int, ethernet_protocol: int) -> int:
    """A filter's tcm_info: its priority and the packets that it matches."""
    return priority << 16 | socket.htons(ethernet_protocol)


def read(
    channel: socket.socket, kind: int, interface: int = 0, parent: int = 0
) -> list[InstalledFilter]:
    """The qdiscs, classes or filters (`RTM_GETQDISC` ...) of an interface of the socket's
    namespace, filters those below `parent`; 0: the qdiscs of all interfaces. Raises OSError."""
    body = TCMSG.pack(socket.AF_UNSPEC, interface, 0, parent, 0)
    entries = map(parse, netlink.dump(channel, kind, body))
    # The kernel lists the qdiscs of all interfaces, whatever the request.
    return [installed for installed in entries if interface in (0, installed.interface)]


def parse(body: bytes) -> InstalledFilter:
    """A qdisc, class or filter from the body of its message."""
    _, interface, handle, parent, info = TCMSG.unpack_from(body)
    return InstalledFilter(interface, handle, parent, info, body)
