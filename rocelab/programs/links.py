"""What links carried while programs ran, by the kernel's counters of their ports.

In: the counters before and after, and the TCP connections of the time. Out: a row for each
direction of a link. Which links between switches a connection crosses is not known: the kernel
chooses by the hash of its socket (`skb->l4_hash`), which nothing outside can read. Its first and
its last link are known: those of the two NICs, where a NIC has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rocelab.dataplane.queues.engine import read_engine
from rocelab.dataplane.queues.reading import read_queue_counters
from rocelab.lab.lab import RunningLab
from rocelab.labfile.queues import QueueEngine
from rocelab.linux import links, namespaces
from rocelab.linux.counters import Place
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.planning.queues import lab_rate_bps
from rocelab.record import LabFiles
from rocelab.results.programs import ProgramLink, TcpConnection, UdpCounts

_SNMP = Path("/proc/thread-self/net/snmp")
"""The MIB of the calling thread's namespace (proc(5))."""


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """Counters so far; ports are (node, interface)."""

    sent_bytes: Mapping[Place, int]
    queue_drops: Mapping[Place, int]
    """Of ports of switches, where these have queues."""

    datagrams: Mapping[str, tuple[int, int, int]]
    """UDP datagrams of each server: sent, received, and those that it could not take."""


def read_counts(lab: RunningLab) -> LinkCounts:
    """The counters now. A node that is gone, as after a power loss, is left out."""
    sent_bytes: dict[Place, int] = {}
    datagrams: dict[str, tuple[int, int, int]] = {}
    for node in lab.fabric.nodes:
        with suppress(OSError):
            counters, snmp = namespaces.inside(lab.node(node.name).netns, _read)
            sent_bytes |= {(node.name, name): port.tx_bytes for name, port in counters.items()}
            if not node.is_switch:
                datagrams[node.name] = udp_counts(snmp)
    drops = {
        place: sum(queue.dropped_packets for queue in queues.values())
        for network in lab.fabric.networks
        if read_engine(LabFiles.of(network)) is not QueueEngine.OFF
        for place, queues in read_queue_counters(network).items()
    }
    return LinkCounts(sent_bytes, drops, datagrams)


def _read() -> tuple[Mapping[str, links.LinkCounters], str]:
    return links.read_counters(), _SNMP.read_text()


def udp_counts(snmp: str) -> tuple[int, int, int]:
    """Datagrams sent, received and not taken (`InErrors`, which has full buffers too), by the text
    of /proc/net/snmp."""
    names, values = (line.split()[1:] for line in snmp.splitlines() if line.startswith("Udp:"))
    counts = dict(zip(names, map(int, values), strict=True))
    return counts["OutDatagrams"], counts["InDatagrams"], counts["InErrors"]


def link_uses(
    fabric: Fabric,
    before: LinkCounts,
    after: LinkCounts,
    connections: Sequence[TcpConnection],
    lasted_ns: int,
) -> tuple[ProgramLink, ...]:
    """The directions of links that sent anything, those that sent most first. What was counted anew
    meanwhile, as after a power loss, is left out."""
    crossing = _crossing(fabric, connections)
    uses = []
    for link in fabric.directed_links:
        port = link.sender, link.port.interface
        sent_bytes = _grown(before.sent_bytes, after.sent_bytes, port)
        if not sent_bytes:
            continue
        known = crossing.get(link)
        network = fabric.network_of(link.link.b.node)
        stalls = [stall for connection in known or () for stall in connection.stalls]
        uses.append(
            ProgramLink(
                link=link.name,
                sender=link.sender,
                receiver=link.receiver,
                network=network.network_name,
                sent_bytes=sent_bytes,
                share=sent_bytes * 8e9 / lasted_ns / lab_rate_bps(link.link, fabric.spec.dilation),
                queue_drops=_grown(before.queue_drops, after.queue_drops, port),
                connections=None if known is None else len(known),
                resent_bytes=None if known is None else sum(one.resent_bytes for one in known),
                stalls=None if known is None else len(stalls),
                longest_stall_ns=max((stall.lasted_ns for stall in stalls), default=None),
            )
        )
    return tuple(sorted(uses, key=lambda use: -use.sent_bytes))


def udp_uses(before: LinkCounts, after: LinkCounts) -> tuple[UdpCounts, ...]:
    """The servers that sent or received UDP, without those whose counters began anew."""
    rows = []
    for server, counts in after.datagrams.items():
        then = before.datagrams.get(server, counts)
        sent, received, errors = (new - old for old, new in zip(then, counts, strict=True))
        if min(sent, received, errors) >= 0 and max(sent, received, errors) > 0:
            rows.append(UdpCounts(server, sent, received, errors))
    return tuple(rows)


def _grown(before: Mapping[Place, int], after: Mapping[Place, int], port: Place) -> int | None:
    if port not in before or port not in after or after[port] < before[port]:
        return None
    return after[port] - before[port]


def _crossing(
    fabric: Fabric, connections: Iterable[TcpConnection]
) -> dict[DirectedLink, list[TcpConnection]]:
    """The connections whose data crosses each direction of a server's link, for NICs with one."""
    of_nic = {
        (network.network_name, f"{server.name}:{nic.number}"): nic.links[0]
        for network in fabric.networks
        for server in network.servers
        for nic in network.nics(server.name)
        if len(nic.links) == 1
    }
    crossing: dict[DirectedLink, list[TcpConnection]] = {
        direction: [] for link in of_nic.values() for direction in (link.up, link.down)
    }
    for connection in connections:
        for nic, is_up in ((connection.source, True), (connection.destination, False)):
            link = of_nic.get((connection.network, nic))
            if link is not None:
                crossing[link.up if is_up else link.down].append(connection)
    return crossing
