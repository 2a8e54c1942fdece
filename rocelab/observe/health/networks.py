"""The totals of each network of a lab with several, over a time in which its health was watched.

In: the first and the last reading, and the SLIs that missed their objective. Out: what each network
has, what of it is missing, and what its ports counted. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from rocelab.observe.health.ports import PortReading
from rocelab.observe.health.reading import Reading
from rocelab.planning.fabric import Fabric
from rocelab.results.health import NetworkHealth


def network_totals(
    fabric: Fabric, first: Reading, last: Reading, missed: Callable[[str], tuple[str, ...]]
) -> tuple[NetworkHealth, ...]:
    """The totals of the networks that `fabric` has, or of the one that it is; none of a lab with
    one. missed: the SLIs that missed their objective in a network."""
    return tuple(
        _totals(part, first, last, missed(part.network_name))
        for part in fabric.networks
        if part.network_name is not None
    )


def _totals(part: Fabric, first: Reading, last: Reading, missed: tuple[str, ...]) -> NetworkHealth:
    ports = [(port.node, port.interface) for link in part.links for port in (link.a, link.b)]

    def grown(value: Callable[[PortReading], int]) -> int:
        pairs = ((first.ports.get(port), last.ports.get(port)) for port in ports)
        return sum(value(now) - value(then) for then, now in pairs if then and now)

    sessions = [last.sessions[link.name] for link in part.links if link.name in last.sessions]
    return NetworkHealth(
        network=part.network_name or "",
        switches=len(part.switches),
        links=len(part.links),
        links_down=sum(
            not all(
                last.ports[port.node, port.interface].carrier
                for port in (link.a, link.b)
                if (port.node, port.interface) in last.ports
            )
            for link in part.links
        ),
        sessions=len(sessions),
        sessions_down=sessions.count(False),
        sent_packets=grown(lambda port: port.tx_packets),
        sent_bytes=grown(lambda port: port.tx_bytes),
        lost_packets=sum(
            last.lost.get(link, 0) - first.lost.get(link, 0) for link in part.directed_links
        ),
        queue_drops=sum(chain(_drops(part, last), (-n for n in _drops(part, first)))),
        missed=missed,
    )


def _drops(part: Fabric, reading: Reading) -> Iterator[int]:
    for link in part.directed_links:
        queues = reading.queues.get((link.sender, link.port.interface), {})
        yield from (queue.dropped_packets for queue in queues.values())
