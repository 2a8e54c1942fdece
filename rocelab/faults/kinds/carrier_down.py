"""A pulled cable: links lose their carrier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rocelab.faults.base import LinkFaultSpec, LinksFault, Target
from rocelab.faults.fibre import BrokenFibre
from rocelab.faults.ports import read_default_ports, read_ports, running_ports
from rocelab.faults.selectors import NodeName
from rocelab.lab import wiring
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket, spanning
from rocelab.planning.fabric import MAIN_TABLE, Fabric, Link, Nic


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
            if not lab.fabric.node(node).is_switch and not lab.fabric.is_adopted:
                _restore_default_routes(lab, node)
        return spanning(lit)

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        remains: list[str] = []
        for node, links in _by_lower_end(self.links):
            remains += lab.node(node).port_faults(links)
            if lab.fabric.is_adopted or lab.fabric.node(node).is_switch:
                continue
            remains += [
                f"{node} has no default route{_route_text(nic)}"
                for nic, _ in _incomplete_nics(lab, node)
            ]
        return tuple(remains)


def _by_lower_end(links: tuple[Link, ...]) -> list[tuple[str, list[Link]]]:
    by_end: dict[str, list[Link]] = {}
    for link in links:
        by_end.setdefault(link.a.node, []).append(link)
    return list(by_end.items())


def _incomplete_nics(lab: RunningLab, server: str) -> list[tuple[Nic, list[Link]]]:
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
    routes = [
        route
        for nic, usable in _incomplete_nics(lab, server)
        for route in wiring.default_routes(nic, by=usable)
    ]
    if routes:
        lab.node(server).send(routes)


def _route_text(nic: Nic) -> str:
    return "" if nic.table == MAIN_TABLE else f" for packets from NIC {nic.number}"


class CarrierDownSpec(LinkFaultSpec):
    """The carrier goes away, as when a cable is pulled. With `side` only that end loses it and gets
    nothing, as when one of two fibres breaks."""

    drawn = Target.LINK
    kind: Literal["carrier-down"]
    side: Annotated[
        NodeName | None, Field(description="the end that loses carrier; left out: both")
    ] = None

    def resolve(self, fabric: Fabric) -> CarrierDown | BrokenFibre:
        links = self.find(fabric, self.side)
        return CarrierDown(links) if self.side is None else BrokenFibre(links, self.side)
