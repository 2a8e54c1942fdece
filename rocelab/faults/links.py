"""Faults of links: no carrier, a lower rate, one end with a smaller MTU.

In: planned links. Out: faults that act on the veth pairs' ends. Packets lost with the carrier up
are `rocelab.faults.impairments`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rocelab.errors import InputError
from rocelab.faults.ports import port_faults, read_default_ports, read_ports, running_ports
from rocelab.faults.selectors import named
from rocelab.kernel import namespaces, tc
from rocelab.kernel.bracket import Bracket, spanning
from rocelab.plan.fabric import DirectedLink, Fabric, Link
from rocelab.plan.queues import lab_rate_bps
from rocelab.runtime import wiring
from rocelab.runtime.lab import Lab
from rocelab.runtime.queues import rates
from rocelab.runtime.queues.engine import read_engine
from rocelab.runtime.record import LabFiles
from rocelab.spec.queues import QueueEngine

MIN_IPV4_MTU, MIN_IPV6_MTU = 68, 1280
"""Below these the kernel takes IP from an interface (RFC 791, RFC 8200 section 5)."""

ALL_PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class CarrierDown:
    """A pulled cable: the lower ends go down, and both ends lose their carrier at once."""

    links: tuple[Link, ...]
    kind: str = "carrier-down"

    @property
    def subject(self) -> str:
        return named(self.links)

    @property
    def nodes(self) -> tuple[str, ...]:
        return ends_of(self.links)

    def prepare(self, lab: Lab) -> None:
        """Nothing takes time."""

    def dark_ports(self, fabric: Fabric) -> tuple[tuple[str, str], ...]:
        return tuple((end.node, end.interface) for link in self.links for end in (link.a, link.b))

    def intact(self, lab: Lab) -> frozenset[str]:
        return running_ports(
            lab, [(end.node, end) for link in self.links for end in (link.a, link.b)]
        )

    def inject(self, lab: Lab) -> Bracket:
        """All links of a node in one batch: the kernel takes them one after the other."""
        dark = []
        for node, links in _by_lower_end(self.links):
            indexes = lab.link(links[0].name).indexes
            messages = [wiring.set_up(indexes[node, link.a.interface], up=False) for link in links]
            dark.append(lab.node(node).send(messages))
        return spanning(dark)

    def restore(self, lab: Lab) -> Bracket:
        lit = []
        for node, links in _by_lower_end(self.links):
            indexes = lab.link(links[0].name).indexes
            messages = []
            for link in links:
                messages += wiring.bring_up(link, node, indexes)
            lit.append(lab.node(node).send(messages))
            if not lab.fabric.node(node).is_switch:
                _restore_default_route(lab, node)
        return spanning(lit)

    def remains(self, lab: Lab) -> tuple[str, ...]:
        found: list[str] = []
        for node, links in _by_lower_end(self.links):
            found += port_faults(lab.node(node), links)
            if not lab.fabric.node(node).is_switch and _lacking_ports(lab, node):
                found.append(f"{node} has not its default route")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class MtuMismatch:
    """The ends at `side` take packets of `mtu` bytes at most.

    A larger one that the far end sends is dropped on arrival and nobody is told; BGP's small ones
    pass (drivers/net/veth.c, is_skb_forwardable of include/linux/netdevice.h).
    """

    links: tuple[Link, ...]
    side: str
    mtu: int
    kind: str = "mtu-mismatch"

    @property
    def subject(self) -> str:
        return named(self.links)

    @property
    def nodes(self) -> tuple[str, ...]:
        return ends_of(self.links)

    def prepare(self, lab: Lab) -> None:
        """Raises InputError where the MTU is not below the links', or takes their addresses."""
        least = MIN_IPV4_MTU if lab.fabric.numbered else MIN_IPV6_MTU
        for link in self.links:
            if not least <= self.mtu < link.mtu:
                raise InputError(
                    f"{link.name}, whose MTU is {link.mtu}, can not be given {self.mtu} at one end",
                    hint=f"from {least} to {link.mtu - 1}",
                )

    def intact(self, lab: Lab) -> frozenset[str]:
        ports = read_ports(lab.node(self.side))
        names = [link.port(self.side).interface for link in self.links]
        return frozenset(f"{self.side}:{name} has an MTU of {ports[name].mtu}" for name in names)

    def inject(self, lab: Lab) -> Bracket:
        return self._set(lab, [self.mtu] * len(self.links))

    def restore(self, lab: Lab) -> Bracket:
        return self._set(lab, [link.mtu for link in self.links])

    def remains(self, lab: Lab) -> tuple[str, ...]:
        ports = read_ports(lab.node(self.side))
        found = [(link, ports[link.port(self.side).interface].mtu) for link in self.links]
        return tuple(
            f"{self.side}:{link.port(self.side).interface} has an MTU of {mtu} instead of "
            f"{link.mtu}"
            for link, mtu in found
            if mtu != link.mtu
        )

    def _set(self, lab: Lab, mtus: list[int]) -> Bracket:
        indexes = lab.link(self.links[0].name).indexes
        return lab.node(self.side).send(
            [
                wiring.set_mtu(indexes[self.side, link.port(self.side).interface], mtu)
                for link, mtu in zip(self.links, mtus, strict=True)
            ]
        )


@dataclass(frozen=True, slots=True)
class RateDegrade:
    """Links carry a share of their rate, towards one node or in both directions.

    It is the sending switch's port that is slower. Towards a server this is also a slow receiver as
    a lab without PFC has it: packets queue, are marked and dropped in the port in front of its NIC.
    """

    links: tuple[Link, ...]
    share_ppm: int
    towards: str | None = None
    kind: str = "rate-degrade"

    @property
    def subject(self) -> str:
        return named(self.links)

    @property
    def nodes(self) -> tuple[str, ...]:
        return ends_of(self.links)

    def prepare(self, lab: Lab) -> None:
        """Raises InputError where a server is to send more slowly."""
        for link in self._slowed():
            if not link.port.role.is_switch:
                raise InputError(
                    f"{link.sender} paces what it sends by itself: {link.name} can not be "
                    f"slower towards {link.receiver}",
                    hint=f"name it with towards: {link.sender}",
                )

    def intact(self, lab: Lab) -> frozenset[str]:
        return frozenset(
            f"{link.port} has its own rate"
            for link in self._slowed()
            if not self._is_slower(lab, link)
        )

    def inject(self, lab: Lab) -> Bracket:
        slowed = []
        queued, buffer_bytes = _has_queues(lab), lab.fabric.spec.queues.buffer
        for link in self._slowed():
            request = rates.change(
                self.rate_bps(lab.fabric, link.link),
                link.link.mtu,
                queued=queued,
                buffer_bytes=buffer_bytes,
            )
            message = tc.on_interface(request, _index(lab, link))
            slowed.append(lab.node(link.sender).send([message]))
        return spanning(slowed)

    def restore(self, lab: Lab) -> Bracket | None:
        mended = []
        queued, buffer_bytes = _has_queues(lab), lab.fabric.spec.queues.buffer
        for link in self._slowed():
            if not self._is_slower(lab, link):
                continue
            if queued:
                own = lab_rate_bps(link.link, lab.fabric.spec.dilation)
                request = rates.change(own, link.link.mtu, queued=True, buffer_bytes=buffer_bytes)
            else:
                request = rates.bucket_removal()
            message = tc.on_interface(request, _index(lab, link))
            mended.append(lab.node(link.sender).send([message]))
        return spanning(mended) if mended else None

    def remains(self, lab: Lab) -> tuple[str, ...]:
        return tuple(
            f"{link.port} has not its own rate"
            for link in self._slowed()
            if self._is_slower(lab, link)
        )

    def rate_bps(self, fabric: Fabric, link: Link) -> int:
        """The rate that is left of a link's, by the lab's clock."""
        return max(8, lab_rate_bps(link, fabric.spec.dilation) * self.share_ppm // ALL_PPM)

    def _slowed(self) -> Iterator[DirectedLink]:
        return directed(self.links, self.towards)

    def _is_slower(self, lab: Lab, link: DirectedLink) -> bool:
        index = _index(lab, link)
        found = namespaces.inside(lab.node(link.sender).netns, lambda: rates.read_rate(index))
        if found is None:
            return False
        own = lab_rate_bps(link.link, lab.fabric.spec.dilation)
        return found.kind == "tbf" or found.rate_bps != 8 * (own // 8)


def directed(links: Iterable[Link], towards: str | None = None) -> Iterator[DirectedLink]:
    """Links in both directions, or towards one node alone."""
    for link in links:
        for each in (link.up, link.down):
            if towards in (None, each.receiver):
                yield each


def ends_of(links: tuple[Link, ...]) -> tuple[str, ...]:
    """The nodes at the ends of links, each once."""
    return tuple(dict.fromkeys(node for link in links for node in (link.a.node, link.b.node)))


def _by_lower_end(links: tuple[Link, ...]) -> list[tuple[str, list[Link]]]:
    found: dict[str, list[Link]] = {}
    for link in links:
        found.setdefault(link.a.node, []).append(link)
    return list(found.items())


def _has_queues(lab: Lab) -> bool:
    return read_engine(LabFiles(lab.name)) is not QueueEngine.OFF


def _index(lab: Lab, link: DirectedLink) -> int:
    return lab.link(link.name).indexes[link.sender, link.port.interface]


def _lacking_ports(lab: Lab, server: str) -> tuple[Link, ...]:
    """The ports that a server's default route should leave by and does not, those down left out."""
    node = lab.node(server)
    ports, used = read_ports(node), read_default_ports(node)
    return tuple(
        link
        for link in lab.fabric.nics(server)[0].links
        if ports[link.a.interface].up and ports[link.a.interface].index not in used
    )


def _restore_default_route(lab: Lab, server: str) -> None:
    """The kernel drops a route with its last next hop, and does not make it again."""
    if not _lacking_ports(lab, server):
        return
    node = lab.node(server)
    ports = read_ports(node)
    usable = [link for link in lab.fabric.nics(server)[0].links if ports[link.a.interface].up]
    indexes = lab.link(usable[0].name).indexes
    node.send([wiring.default_route(lab.fabric, server, indexes, by=usable)])
