"""Compares the kernel settings of a running lab's nodes with its plan.

What a node has of its machine, or was given by hand, may drop packets or send them elsewhere while
every route is as planned. Read are the sysctls of the node and of its ports, and its packet
filters. The nodes of a lab that was adopted have no planned settings: what is wrong there is what
keeps packets from the routes of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rocelab.kernel import links, namespaces, netlink, packetfilter
from rocelab.kernel.settings import ALL, DEFAULT, port_setting, read_settings
from rocelab.plan.fabric import Fabric, Node
from rocelab.plan.settings import node_settings, port_settings
from rocelab.runtime.management_link import PORT as MANAGEMENT_PORT
from rocelab.runtime.record import LabFiles
from rocelab.wording import listed

STRICT = 1
"""The reverse-path filter of RFC 3704 section 2.2; 2 is the loose one, which lets all pass that has
any route back."""
_SHOWN = 3
_NAT = frozenset({"ip nat", "ip6 nat"})
"""Docker's own, with which containers on its networks reach its name server."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A setting that differs from the plan: the node, or its port; the sysctl below /proc/sys/net,
    of a port without the port's name; its value and the planned one."""

    place: str
    setting: str
    value: str
    planned: str


def read_deviations(fabric: Fabric, files: LabFiles) -> tuple[Deviation, ...]:
    """What differs in the nodes of a running lab, in the fabric's order; a node that is gone has no
    settings.

    Raises PermissionError without the rights to enter its namespaces.
    """
    read = _of_planned if fabric.observed is None else _of_adopted
    found: list[Deviation] = []
    netns_of = {node.name: files.netns_of(node.name) for node in fabric.nodes}
    present = {name: netns for name, netns in netns_of.items() if netns.exists()}

    def visit(name: str) -> None:
        found.extend(read(fabric, fabric.node(name)))

    with namespaces.opened(present) as descriptors:
        namespaces.inside_each(descriptors, visit)
    return tuple(found)


def sentences(deviations: Sequence[Deviation]) -> tuple[str, ...]:
    """The deviations in words, those that are alike in one."""

    def alike(one: Deviation) -> tuple[str, str, str]:
        return one.setting, one.value, one.planned

    return tuple(
        f"{setting} is {value} (planned: {planned}) {_places([one.place for one in group])}"
        for (setting, value, planned), group in groupby(sorted(deviations, key=alike), alike)
    )


def problems(fabric: Fabric, files: LabFiles) -> tuple[str, ...]:
    """Why a run on a lab with the settings that it has now is not valid. Raises as
    `read_deviations` does."""
    deviations = read_deviations(fabric, files)
    return tuple(f"not valid because {sentence}" for sentence in sentences(deviations))


def _places(places: Sequence[str]) -> str:
    more = len(places) - _SHOWN
    shown = [*places[:_SHOWN], *((f"{more:,} more",) if more > 0 else ())]
    return f"at {listed(shown, 'and')}"


def _of_planned(fabric: Fabric, node: Node) -> Iterator[Deviation]:
    ports = port_settings(fabric, node)
    planned = dict(node_settings(fabric, node))
    for where in (ALL, DEFAULT):
        planned |= {port_setting(name, where): value for name, value in ports.items()}
    for setting, value in read_settings(planned).items():
        if value != planned[setting]:
            yield Deviation(node.name, setting, value, planned[setting])
    for port in _ports(fabric, node, MANAGEMENT_PORT):
        values = port.settings
        for name, value in ports.items():
            if str(values.get(name, value)) != value:
                where = f"{node.name}:{port.name}"
                yield Deviation(where, port_setting(name, "*"), str(values[name]), value)
    for table in packetfilter.read_tables():
        yield Deviation(node.name, "packet filter", table, "none")


def _of_adopted(fabric: Fabric, node: Node) -> Iterator[Deviation]:
    every = int(read_settings([filter_of := port_setting("ipv4/rp_filter", ALL)]).get(filter_of, 0))
    for port in _ports(fabric, node):
        values, where = port.settings, f"{node.name}:{port.name}"
        # The kernel takes the larger of both.
        if max(every, values.get("ipv4/rp_filter", 0)) == STRICT:
            yield Deviation(where, port_setting("ipv4/rp_filter", "*"), str(STRICT), "0")
        if node.is_switch and values.get("ipv4/forwarding", 1) == 0:
            yield Deviation(where, port_setting("ipv4/forwarding", "*"), "0", "1")
    for table in packetfilter.read_tables():
        if table not in _NAT:
            yield Deviation(node.name, "packet filter", table, "none")


def _ports(fabric: Fabric, node: Node, *others: str) -> Iterator[links.Link]:
    """The ports of the node's links, and others by name, as far as they exist."""
    names = {link.port(node.name).interface for link in fabric.links_of[node.name]} | {*others}
    with netlink.open_socket(receive_buffer_bytes=4 << 20) as channel:
        yield from (port for port in links.read_links(channel) if port.name in names)
