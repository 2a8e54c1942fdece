"""What the leaves of a running lab know of its tenants, by their kernels' tables, and waiting until
they know all of it.

EVPN gives a leaf the far ends of a tenant (type-3 routes), to each of which it copies what goes to
all, and where each MAC is (type-2 routes). A leaf learns the MACs of its own NICs from their
packets, so each announces itself while the lab comes up.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from rocelab.base.progress import Progress, ProgressSink
from rocelab.base.wording import counted
from rocelab.lab.convergence import NotConvergedError, convergence_timeout_s
from rocelab.linux import namespaces, netlink
from rocelab.linux.bridges import FLOODED, ForwardingEntry, read_forwarding
from rocelab.planning.fabric import Fabric, Link
from rocelab.planning.tenancy import leaves_of
from rocelab.planning.tenant import Tenant

POLL_S = 0.05
ANNOUNCE_S = 0.5
SHOWN = 8
_ARP = struct.Struct("!HHBBH6s4s6s4s")


class SegmentNode(Protocol):
    """The part of a node that is used."""

    @property
    def netns(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class LeafSegment:
    """A tenant at one of its leaves: what the kernel's tables have, and how much that is in a whole
    lab."""

    leaf: str
    tenant: Tenant
    far_leaves: int
    """To which it copies what goes to all."""
    far_leaves_expected: int
    macs: int
    """MACs of NICs, here and at other leaves, whose place it knows."""
    macs_expected: int
    silent: tuple[str, ...]
    """The links to NICs here that have sent nothing yet."""
    misplaced: tuple[str, ...] = ()
    """What leads elsewhere than planned, in words."""

    @property
    def is_whole(self) -> bool:
        """Whether what goes to all reaches each leaf of the tenant, and nothing goes elsewhere. A
        MAC that is not known is no loss: packets to it go to all."""
        return self.far_leaves == self.far_leaves_expected and not self.misplaced

    @property
    def is_complete(self) -> bool:
        """Whether it also knows the place of each MAC."""
        return self.is_whole and self.macs == self.macs_expected


def read_segments(fabric: Fabric, node_of: Callable[[str], SegmentNode]) -> tuple[LeafSegment, ...]:
    """Each tenant at each of its leaves; nothing is known at a leaf that is gone. Raises
    PermissionError."""
    leaves = {leaf: None for tenant in fabric.tenants for leaf in leaves_of(fabric, tenant)}
    tables = {leaf: _read(node_of(leaf).netns) for leaf in leaves}
    return tuple(
        segment_of(fabric, tenant, leaf, tables[leaf])
        for tenant in fabric.tenants
        for leaf in leaves_of(fabric, tenant)
    )


def _read(netns: Path) -> tuple[ForwardingEntry, ...]:
    if not netns.exists():
        return ()

    def read() -> tuple[ForwardingEntry, ...]:
        with netlink.open_socket(receive_buffer_bytes=4 << 20) as channel:
            return tuple(read_forwarding(channel))

    return namespaces.inside(netns, read)


def segment_of(
    fabric: Fabric, tenant: Tenant, leaf: str, table: Iterable[ForwardingEntry]
) -> LeafSegment:
    """A tenant at a leaf whose tables are these."""
    links = [fabric.link_by_name[name] for name in tenant.links]
    loopbacks = {fabric.node(name).loopback: name for name in leaves_of(fabric, tenant)}
    far = {loopback for loopback, name in loopbacks.items() if name != leaf}
    here = {link.b.index: link for link in links if link.b.node == leaf}
    owner = {link.a.mac: link for link in links}
    floods: set[str] = set()
    known: set[str] = set()
    misplaced: list[str] = []
    for entry in table:
        if entry.interface == tenant.tunnel_index and entry.far_end is not None:
            place = loopbacks.get(entry.far_end)
            if entry.mac == FLOODED:
                floods.add(entry.far_end)
            elif (link := owner.get(entry.mac)) is not None and place == link.b.node:
                known.add(entry.mac)
            if place is None or (entry.mac in owner and place != owner[entry.mac].b.node):
                misplaced.append(f"{entry.mac} at {place or entry.far_end}")
        elif entry.interface in here and not entry.is_own:
            if entry.mac == here[entry.interface].a.mac:
                known.add(entry.mac)
            else:
                misplaced.append(f"{entry.mac} at {here[entry.interface].b}")
    silent = tuple(link.name for link in here.values() if link.a.mac not in known)
    return LeafSegment(
        leaf,
        tenant,
        len(floods & far),
        len(far),
        len(known),
        len(links),
        silent,
        tuple(dict.fromkeys(misplaced)),
    )


def await_segments(
    fabric: Fabric, node_of: Callable[[str], SegmentNode], progress: ProgressSink
) -> None:
    """Return when the leaves know every NIC of their tenants and every leaf of these. Nothing tells
    of it, so this asks repeatedly. Raises NotConvergedError with what is missing when the time for
    convergence is over."""
    if not fabric.tenants:
        return
    timeout_s = convergence_timeout_s(fabric)
    deadline_s = time.monotonic() + timeout_s
    announced_s = 0.0
    while True:
        segments = read_segments(fabric, node_of)
        missing = [segment for segment in segments if not segment.is_complete]
        progress(Progress("tenants", len(segments) - len(missing), len(segments)))
        if not missing:
            return
        now_s = time.monotonic()
        if now_s > deadline_s:
            lines = [f"  {text}" for segment in missing[:SHOWN] for text in lacks(segment)]
            more = len(missing) - SHOWN
            lines += [f"  and {more:,} more"] if more > 0 else []
            raise NotConvergedError(
                "\n".join((f"tenants are not whole after {timeout_s:.0f} s:", *lines)),
                "ask a leaf with `rocelab vtysh LAB LEAF` and `show evpn vni`",
                nodes=list(dict.fromkeys(segment.leaf for segment in missing)),
            )
        if now_s - announced_s > ANNOUNCE_S:
            announce(fabric, node_of, (name for one in missing for name in one.silent))
            announced_s = now_s
        time.sleep(POLL_S)


def lacks(segment: LeafSegment) -> Iterator[str]:
    """What a tenant lacks at a leaf, in sentences."""
    of = f"of tenant {segment.tenant.name}"
    if segment.far_leaves != segment.far_leaves_expected:
        expected = counted(segment.far_leaves_expected, "other leaf", "other leaves")
        yield f"{segment.leaf} knows {segment.far_leaves:,} of {expected} {of}"
    if segment.macs != segment.macs_expected:
        expected = counted(segment.macs_expected, "NIC")
        yield f"{segment.leaf} knows where {segment.macs:,} of {expected} {of} are"
    for text in segment.misplaced:
        yield f"{segment.leaf} sees a MAC {of} where it is not planned: {text}"


def announce(fabric: Fabric, node_of: Callable[[str], SegmentNode], names: Iterable[str]) -> None:
    """Have the NICs of these links announce their addresses: a gratuitous ARP request (RFC 5227
    section 3) of each. Raises OSError."""
    by_server: dict[str, list[Link]] = {}
    for name in dict.fromkeys(names):
        link = fabric.link_by_name[name]
        by_server.setdefault(link.a.node, []).append(link)

    for server, links in by_server.items():
        namespaces.inside(node_of(server).netns, partial(_send, links))


def _send(links: Iterable[Link]) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        for link in links:
            sender.sendto(announcement(link), (link.a.interface, 0))


def announcement(link: Link) -> bytes:
    """The frame by which the NIC of a link announces its IPv4 address."""
    mac = bytes.fromhex(link.a.mac.replace(":", ""))
    ip = socket.inet_aton(link.a.ip)
    ethernet = b"\xff" * 6 + mac + struct.pack("!H", 0x0806)
    return ethernet + _ARP.pack(1, 0x0800, 6, 4, 1, mac, ip, bytes(6), ip)
