"""Faults of links: no carrier, a lower rate, one end with a smaller MTU.

They act on the ends of the veth pairs. For packet loss with the carrier up see
`rocelab.faults.impairments`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.base.units import SharePpm
from rocelab.dataplane.queues import rates
from rocelab.dataplane.queues.engine import read_engine
from rocelab.faults.base import ALL_PPM, LinkFaultSpec, LinksFault, NicFaultSpec, Towards
from rocelab.faults.fibre import BrokenFibre
from rocelab.faults.ports import read_default_ports, read_ports, running_ports
from rocelab.faults.selectors import NodeName, check_end, directed, find_nic_link
from rocelab.lab import wiring
from rocelab.lab.lab import RunningLab
from rocelab.labfile.queues import QueueEngine
from rocelab.linux import namespaces, tc
from rocelab.linux.bracket import Bracket, spanning
from rocelab.plan.fabric import DirectedLink, Fabric, Link, Nic
from rocelab.plan.queues import lab_rate_bps
from rocelab.record import LabFiles

MIN_IPV4_MTU, MIN_IPV6_MTU = 68, 1280
"""Below these the kernel removes IP from an interface (RFC 791, RFC 8200 section 5)."""


@dataclass(frozen=True, slots=True)
class CarrierDown(LinksFault):
    """A pulled cable: the lower ends go down, and both ends lose their carrier at once."""

    kind: str = "carrier-down"

    def dark_ports(self, fabric: Fabric) -> tuple[tuple[str, str], ...]:
        return tuple((end.node, end.interface) for link in self.links for end in (link.a, link.b))

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return running_ports(
            lab, [(end.node, end) for link in self.links for end in (link.a, link.b)]
        )

    def prepare(self, lab: RunningLab) -> None:
        for node, links in _by_lower_end(self.links):
            lab.node(node).keep_ports(links)

    def inject(self, lab: RunningLab) -> Bracket:
        """All links of a node in one batch: the kernel handles them one after the other."""
        dark = []
        for node, links in _by_lower_end(self.links):
            dark.append(lab.node(node).lower_ports(links))
        return spanning(dark)

    def restore(self, lab: RunningLab) -> Bracket:
        lit = []
        for node, links in _by_lower_end(self.links):
            lit.append(lab.node(node).raise_ports(links))
            if not lab.fabric.node(node).is_switch and lab.fabric.observed is None:
                _restore_default_routes(lab, node)
        return spanning(lit)

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        found: list[str] = []
        for node, links in _by_lower_end(self.links):
            found += lab.node(node).port_faults(links)
            if lab.fabric.observed is not None or lab.fabric.node(node).is_switch:
                continue
            found += [f"{node} has no default route{_of(nic)}" for nic, _ in _lacking(lab, node)]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class MtuMismatch(LinksFault):
    """The ends at `side` take packets of `mtu` bytes at most.

    A larger packet from the far end is dropped on arrival without notice; BGP's small packets pass
    (drivers/net/veth.c, is_skb_forwardable of include/linux/netdevice.h).
    """

    side: str
    mtu: int
    kind: str = "mtu-mismatch"

    def prepare(self, lab: RunningLab) -> None:
        """Raises InputError if the MTU is not below the links', or would remove their addresses, or
        a port of an adopted lab has another one than its link: its own would not come back."""
        numbered = lab.fabric.numbered and lab.fabric.observed is None
        least = MIN_IPV4_MTU if numbered else MIN_IPV6_MTU
        if lab.fabric.observed is not None and (changed := self.remains(lab)):
            raise InputError(changed[0], hint="set both ends of its cable to the same MTU")
        for link in self.links:
            if not least <= self.mtu < link.mtu:
                raise InputError(
                    f"{link.name}, whose MTU is {link.mtu}, cannot be given {self.mtu} at one end",
                    hint=f"from {least} to {link.mtu - 1}",
                )

    def intact(self, lab: RunningLab) -> frozenset[str]:
        mtus = self._mtus(lab).items()
        return frozenset(f"{link.port(self.side)} has an MTU of {mtu}" for link, mtu in mtus)

    def inject(self, lab: RunningLab) -> Bracket:
        return self._set(lab, dict.fromkeys(self._mtus(lab), self.mtu))

    def restore(self, lab: RunningLab) -> Bracket:
        return self._set(lab, {link: link.mtu for link in self._mtus(lab)})

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(
            f"{link.port(self.side)} has an MTU of {mtu} instead of {link.mtu}"
            for link, mtu in self._mtus(lab).items()
            if mtu != link.mtu
        )

    def _mtus(self, lab: RunningLab) -> Mapping[Link, int]:
        """The MTU of each port that still exists, whatever its name is now."""
        found = {port.index: port.mtu for port in read_ports(lab.node(self.side)).values()}
        at = {link: link.port(self.side).index for link in self.links}
        return {link: found[index] for link, index in at.items() if index in found}

    def _set(self, lab: RunningLab, mtus: Mapping[Link, int]) -> Bracket:
        return lab.node(self.side).send(
            [wiring.set_mtu(link.port(self.side).index, mtu) for link, mtu in mtus.items()]
        )


@dataclass(frozen=True, slots=True)
class RateDegrade(LinksFault):
    """Links carry a share of their rate, towards one node or in both directions.

    The sending switch's port gets slower. Towards a server this models a slow receiver without PFC:
    packets are queued, marked and dropped in the port before its NIC.
    """

    share_ppm: int
    towards: str | None = None
    kind: str = "rate-degrade"

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"{link.port} has its own rate"
            for link in self._slowed()
            if not self._is_slower(lab, link)
        )

    def inject(self, lab: RunningLab) -> Bracket:
        slowed = []
        queued, buffer_bytes = _has_queues(lab), lab.fabric.spec.queues.buffer
        for link in self._slowed():
            request = rates.change(
                self.rate_bps(lab.fabric, link.link),
                link.link.mtu,
                queued=queued,
                buffer_bytes=buffer_bytes,
            )
            message = tc.on_interface(request, link.port.index)
            slowed.append(lab.node(link.sender).send([message]))
        return spanning(slowed)

    def restore(self, lab: RunningLab) -> Bracket | None:
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
            message = tc.on_interface(request, link.port.index)
            mended.append(lab.node(link.sender).send([message]))
        return spanning(mended) if mended else None

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(
            f"{link.port} still has a reduced rate"
            for link in self._slowed()
            if self._is_slower(lab, link)
        )

    def rate_bps(self, fabric: Fabric, link: Link) -> int:
        """The remaining rate of a link, in the lab's clock."""
        return max(8, lab_rate_bps(link, fabric.spec.dilation) * self.share_ppm // ALL_PPM)

    def _slowed(self) -> Iterator[DirectedLink]:
        return directed(self.links, self.towards)

    def _is_slower(self, lab: RunningLab, link: DirectedLink) -> bool:
        index = link.port.index
        found = namespaces.inside(lab.node(link.sender).netns, lambda: rates.read_rate(index))
        if found is None:
            return False
        own = lab_rate_bps(link.link, lab.fabric.spec.dilation)
        return found.kind == "tbf" or found.rate_bps != 8 * (own // 8)


def _by_lower_end(links: tuple[Link, ...]) -> list[tuple[str, list[Link]]]:
    found: dict[str, list[Link]] = {}
    for link in links:
        found.setdefault(link.a.node, []).append(link)
    return list(found.items())


def _has_queues(lab: RunningLab) -> bool:
    return read_engine(LabFiles(lab.name)) is not QueueEngine.OFF


def _lacking(lab: RunningLab, server: str) -> list[tuple[Nic, list[Link]]]:
    """A server's NICs whose default route does not use all of their ports that are there and up,
    with these."""
    node = lab.node(server)
    ports, lacking = read_ports(node), []
    for nic in lab.fabric.nics(server):
        usable = [
            link
            for link in nic.links
            if (port := ports.get(link.a.interface)) is not None and port.up
        ]
        used = read_default_ports(node, nic.table) if usable else frozenset()
        if any(ports[link.a.interface].index not in used for link in usable):
            lacking.append((nic, usable))
    return lacking


def _restore_default_routes(lab: RunningLab, server: str) -> None:
    """Restore the routes, each of which the kernel drops with its last next hop."""
    routes = [wiring.default_route(nic, by=usable) for nic, usable in _lacking(lab, server)]
    if routes:
        lab.node(server).send(routes)


def _of(nic: Nic) -> str:
    return "" if nic.number == 1 else f" for packets from NIC {nic.number}"


def check_rates(fabric: Fabric) -> None:
    """Raises InputError if the fabric's links have no rate."""
    if fabric.observed is not None:
        raise InputError(
            f"lab {fabric.name} was adopted: its links have no rate to reduce",
            hint="loss, delay and carrier-down work on any link",
        )


class CarrierDownSpec(LinkFaultSpec):
    """The carrier goes away, as when a cable is pulled; with `side`, one end alone sees it go and
    gets nothing, as when one fibre of two breaks."""

    kind: Literal["carrier-down"]
    side: Annotated[NodeName | None, Field(description="the end that sees it; else both")] = None

    def resolve(self, fabric: Fabric) -> CarrierDown | BrokenFibre:
        links = self.find(fabric, self.side)
        return CarrierDown(links) if self.side is None else BrokenFibre(links, self.side)


class RateDegradeSpec(LinkFaultSpec):
    """A link trains at a lower rate."""

    kind: Literal["rate-degrade"]
    towards: Towards = None
    rate: Annotated[SharePpm, Field(gt=0, lt=ALL_PPM, description="of the link's own")] = (
        ALL_PPM // 4
    )

    def resolve(self, fabric: Fabric) -> RateDegrade:
        check_rates(fabric)
        links = self.find(fabric, self.towards)
        for link in links:
            if not link.is_between_switches and self.towards != link.a.node:
                raise InputError(
                    f"{link.a.node} paces itself: no port of a switch sends from it to "
                    f"{link.b.node}",
                    hint=f"set towards: {link.a.node}",
                )
        return RateDegrade(links, self.rate, self.towards)


class MtuMismatchSpec(LinkFaultSpec):
    """One end takes smaller packets only: large ones vanish, BGP's pass."""

    kind: Literal["mtu-mismatch"]
    side: Annotated[NodeName | None, Field(description="the end; else the upper one")] = None
    mtu: Annotated[int, Field(ge=576, le=9216, description="bytes of an IP packet")] = 1500

    def resolve(self, fabric: Fabric) -> MtuMismatch:
        links = self.find(fabric, self.side)
        side = self.side or links[0].b.node
        for link in links:
            check_end(link, side)
        return MtuMismatch(links, side, self.mtu)


class NicPortDownSpec(NicFaultSpec):
    """A port of a server's NIC loses its carrier."""

    kind: Literal["nic-port-down"]
    port: Annotated[int, Field(ge=1, le=2, description="from 1; NICs have one or two")] = 1

    def resolve(self, fabric: Fabric) -> CarrierDown:
        link = find_nic_link(fabric, self.server, self.nic, self.port)
        return CarrierDown((link,), kind=self.kind)
