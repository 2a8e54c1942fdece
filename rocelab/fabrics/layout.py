"""The layout of a fabric, which its kind decides: the nodes and their cables.

A kind of `rocelab.fabrics.kinds`, or of a plug-in, turns its keys into a `Layout`;
`rocelab.planning.build` adds addresses, seeds and ports, in the same way for every kind.

Names are within Linux's 15 characters. Nodes are `ctsw3`, `rtsw17`, `srv17-2` (rack, server), with
the prefix `z2-` if a fabric has several zones, and similarly for units, segments, planes and pods.
An interface is named after its neighbour, and `-2`, `-3` count parallel links, so that `ip link` on
a switch reads as a wiring list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocelab.fabrics.roles import Role

IFNAMSIZ = 15


@dataclass(frozen=True, slots=True)
class Site:
    """A planned node: `zone` is its AI zone, unit, segment, plane or pod, or None."""

    name: str
    role: Role
    zone: int | None
    asn: int | None = None
    asn_is_given: bool = False
    """Whether the AS number is the file's, which a lab's ranges of numbers leave as it is."""
    loopbacks: tuple[str, ...] = ()
    """The addresses of its loopback that are given, at most one of a family."""
    router_id: str | None = None


@dataclass(frozen=True, slots=True)
class CableSettings:
    """What a cable has of its own; without, it is as usual in the lab."""

    ports: tuple[str | None, str | None] = (None, None)
    """The names of its ports as on the switch, the lower end's first."""
    rate_bps: int | None = None
    mtu: int | None = None
    delay_ns: int | None = None
    queues: str | None = None
    """The name of the queue settings of its ports."""
    addresses: tuple[tuple[str, str], ...] = ()
    """The addresses of its ends with their lengths, the lower end's first, a pair a family."""


USUAL = CableSettings()


MOST_PORTS = 8
"""Of a NIC."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A server's next NIC: its ports, each on a switch of the lowest tier of its own. Those of
    several NICs with one address are ports of one."""

    server: str
    switches: tuple[str, ...]
    wiring: tuple[CableSettings, ...] = ()
    """Of the cable of each port; empty if all are as usual."""

    def wiring_of(self, port: int) -> CableSettings:
        """The wiring of the cable of a port, by its place."""
        return self.wiring[port] if self.wiring else USUAL


@dataclass(frozen=True, slots=True)
class Cable:
    """The `parallel`-th cable (from 1) between a switch and one of the tier above, or, in a fabric
    without tiers, another."""

    lower: str
    upper: str
    parallel: int
    wiring: CableSettings = USUAL


@dataclass(frozen=True, slots=True)
class Layout:
    """Nodes, NICs and cables between switches, each in build order."""

    sites: tuple[Site, ...]
    attachments: tuple[Attachment, ...]
    cables: tuple[Cable, ...]


def cables(lower: str, uppers: Sequence[str], count: int) -> list[Cable]:
    """`count` parallel cables from a switch to each of those above."""
    return [Cable(lower, upper, n) for upper in uppers for n in range(1, count + 1)]


def node_name(kind: str, index: int, prefix: str | None = None) -> str:
    """`rtsw17`, or `z2-rtsw17` with the prefix `z2`."""
    return f"{kind}{index}" if prefix is None else f"{prefix}-{kind}{index}"


def server_name(group: int, server: int, prefix: str | None = None) -> str:
    """`srv17-2`: the second server of rack, unit, segment or edge switch 17."""
    return f"{node_name('srv', group, prefix)}-{server}"


def _port_name(neighbour: str, parallel: int) -> str:
    return neighbour if parallel == 1 else f"{neighbour}-{parallel}"


def port_names(lower: str, upper: str, parallel: int, wiring: CableSettings) -> tuple[str, str]:
    """The names of a link's ports, the lower end's first: its own, or those of the neighbours."""
    if parallel == 1 and wiring is USUAL:
        return upper, lower
    of_lower, of_upper = wiring.ports
    return of_lower or _port_name(upper, parallel), of_upper or _port_name(lower, parallel)


def ports_of(layout: Layout) -> Iterator[tuple[str, str]]:
    """The node and the name of each port, link by link in build order."""
    cabled: Counter[tuple[str, str]] = Counter()
    for nic in layout.attachments:
        for port, switch in enumerate(nic.switches):
            cabled[nic.server, switch] += 1
            ends = nic.server, switch
            yield from zip(ends, port_names(*ends, cabled[ends], nic.wiring_of(port)), strict=True)
    for cable in layout.cables:
        ends = cable.lower, cable.upper
        yield from zip(ends, port_names(*ends, cable.parallel, cable.wiring), strict=True)


def interface_name(neighbour: str, parallel: int) -> str:
    """The interface leading to `neighbour` over the `parallel`-th link (from 1).

    Raises ValueError beyond 15 characters, which the spec's limits exclude.
    """
    name = _port_name(neighbour, parallel)
    if len(name) > IFNAMSIZ:
        raise ValueError(f"interface name {name} is longer than {IFNAMSIZ} characters")
    return name
