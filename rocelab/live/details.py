"""What the page's side panel shows of a node or a link: one JSON document each.

Counters are those of the sampler's newest reading, with its time; sessions are asked of bgpd, and
configuration and logs are read, when the panel is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict

from rocelab.base.files import untrusted_tail
from rocelab.base.wording import printable
from rocelab.lab.node import NamespaceNode
from rocelab.live.feed import Feed
from rocelab.live.state import condition, find_link
from rocelab.observe.health.reading import Reading
from rocelab.observe.health.sessions import ANSWER_LIMIT_S, links_by_neighbour
from rocelab.planning.fabric import Fabric, Link, Port
from rocelab.planning.zones import zone_titles

LOG_BYTES = 8192
LOG_LINES = 20


def node_document(feed: Feed, name: str) -> Mapping[str, object]:
    """A node: its interfaces, sessions, daemons, configuration and log. Raises InputError if the
    lab has none of that name."""
    handle = feed.lab.node(name)
    node = feed.lab.fabric.node(name)
    reading = _reading(feed)
    state = condition(feed.lab.fabric, name, reading)
    peers, problem = _peers(feed.lab.fabric, handle) if node.is_switch else ([], None)
    links = feed.lab.fabric.links_of[name]
    daemons = feed.lab.daemons_of(name)
    return {
        "name": name,
        "role": node.role.name,
        "zone": zone_titles(feed.lab.fabric).get(name),
        "networks": feed.lab.fabric.networks_of[name],
        "asn": node.asn,
        "loopback": node.loopback,
        "t_ns": reading.time_ns,
        "condition": None if state is None else asdict(state),
        "interfaces": [_interface(feed, link, link.port(name), reading) for link in links],
        "sessions": peers,
        "problem": problem,
        "daemons": {daemon: handle.daemons().get(daemon) for daemon in daemons},
        "configuration": _configuration(handle, daemons),
        "log": _log(handle, daemons),
    }


def link_document(feed: Feed, name: str) -> Mapping[str, object]:
    """A link and both its ports. Raises InputError if the lab has none of that name."""
    link = find_link(feed.lab.fabric, name)
    reading = _reading(feed)
    return {
        "name": name,
        "network": feed.lab.fabric.network_of(link.b.node).network_name,
        "tier": link.tier,
        "rate_bps": link.rate_bps,
        "mtu": link.mtu,
        "t_ns": reading.time_ns,
        "session": reading.sessions.get(name),
        "ends": [_interface(feed, link, port, reading) for port in (link.a, link.b)],
    }


def _reading(feed: Feed) -> Reading:
    assert feed.snapshot is not None  # the page is served after the first sample
    return feed.snapshot.reading


def _interface(feed: Feed, link: Link, port: Port, reading: Reading) -> Mapping[str, object]:
    place = port.node, port.interface
    counters = reading.ports.get(place)
    return {
        "node": port.node,
        "interface": port.name,
        "link": link.name,
        "network": feed.lab.fabric.network_of(link.b.node).network_name,
        "peer": str(link.far(port.node)),
        "address": port.address,
        "mac": port.mac,
        "counters": None if counters is None else asdict(counters),
        "queues": [
            {
                "class": number,
                "packets": queue.packets,
                "bytes": queue.bytes,
                "marked": queue.marked,
                "dropped": queue.dropped_packets,
                "depth_bytes": queue.depth_bytes,
            }
            for number, queue in reading.queues.get(place, {}).items()
            if queue.packets or queue.dropped_packets
        ],
    }


def _peers(fabric: Fabric, handle: NamespaceNode) -> tuple[list[Mapping[str, object]], str | None]:
    """The BGP sessions, or why they are not known."""
    try:
        peers = handle.stack.peers(handle.daemon_files, ANSWER_LIMIT_S)
    except OSError as error:
        return [], f"{handle.stack.speaker} does not answer: {error.strerror or error}"
    link_of = links_by_neighbour(fabric)
    rows: list[Mapping[str, object]] = []
    for name, peer in peers.items():
        link = link_of.get((handle.name, name))
        ends = {} if link is None else {"link": link.name, "peer": link.far(handle.name).node}
        rows.append({"neighbour": name, **ends, **asdict(peer)})
    return rows, None


def _configuration(handle: NamespaceNode, daemons: tuple[str, ...]) -> Mapping[str, str]:
    """The files that `up` wrote, by daemon; of a lab that was adopted there are none."""
    files = {}
    for daemon in daemons:
        with suppress(OSError):
            files[daemon] = handle.daemon_files.configuration(daemon).read_text()
    return files


def _log(handle: NamespaceNode, daemons: tuple[str, ...]) -> Mapping[str, list[str]]:
    """The last lines of each daemon's log."""
    lines = {}
    for daemon in daemons:
        with suppress(OSError):
            text = untrusted_tail(handle.daemon_files.log(daemon), LOG_BYTES).decode(
                errors="replace"
            )
            lines[daemon] = [printable(line) for line in text.splitlines()[-LOG_LINES:]]
    return lines
