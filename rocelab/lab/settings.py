"""Compares the kernel settings of a running lab's nodes with its plan.

What a node has of its machine, or was given by hand, may drop packets or send them elsewhere while
every route is as planned. Read are the sysctls of the node and of its ports, the ports' MTUs and
MAC addresses, and packet filters. The nodes of a lab that was adopted have no planned settings:
what is wrong there is what keeps packets from the routes of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rocelab.base.wording import listed
from rocelab.lab.management_link import PORT as MANAGEMENT_PORT
from rocelab.lab.tunnels import tunnel_settings
from rocelab.linux import links, namespaces, netlink, packetfilter
from rocelab.linux.settings import ALL, DEFAULT, port_setting, read_settings
from rocelab.planning.fabric import Fabric, Link, Node
from rocelab.planning.settings import node_settings, port_settings
from rocelab.record import LabFiles, recorded_faults

STRICT = 1
"""The reverse-path filter of RFC 3704 section 2.2; 2 is the loose one, which lets all pass that has
any route back."""
_MTU = "MTU"
_SHOWN = 3
_NAT = frozenset({"ip nat", "ip6 nat"})
"""Docker's own, with which containers on its networks reach its name server."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A setting that differs from the plan: the node, or its port; what is set, such as the sysctl
    below /proc/sys/net, of a port without the port's name; its value and the planned one."""

    place: str
    setting: str
    value: str
    planned: str


def read_deviations(fabric: Fabric, files: LabFiles) -> tuple[Deviation, ...]:
    """What differs in the nodes of a running lab, in the fabric's order, but for what the
    recorded faults set; a node that is gone has no settings.

    Raises PermissionError without the rights to enter its namespaces.
    """
    read = _adopted_deviations if fabric.is_adopted else _planned_deviations
    recorded = recorded_faults(files).values()
    excused = {item for fault in recorded for item in fault.get("settings", {}).items()}
    result: list[Deviation] = []
    netns_of = {node.name: files.netns_of(node.name) for node in fabric.nodes}
    present = {name: netns for name, netns in netns_of.items() if netns.exists()}

    def visit(name: str) -> None:
        deviations = read(fabric, fabric.node(name))
        result.extend(one for one in deviations if (one.setting, one.value) not in excused)

    with namespaces.opened(present) as descriptors:
        namespaces.inside_each(descriptors, visit)
    return tuple(result)


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
    parts = [*places[:_SHOWN], *((f"{more:,} more",) if more > 0 else ())]
    return f"at {listed(parts, 'and')}"


def _planned_deviations(fabric: Fabric, node: Node) -> Iterator[Deviation]:
    network = fabric.network_of(node.name)
    ports = port_settings(network, node)
    planned = dict(node_settings(network, node))
    for where in (ALL, DEFAULT):
        planned |= {port_setting(name, where): value for name, value in ports.items()}
    planned |= tunnel_settings(fabric, node)
    for setting, value in read_settings(planned).items():
        if value != planned[setting]:
            yield Deviation(node.name, setting, value, planned[setting])
    link_of = _links(fabric, node)
    for port in _ports(*link_of, MANAGEMENT_PORT):
        values, where = port.settings, f"{node.name}:{port.name}"
        for name, value in ports.items():
            if str(values.get(name, value)) != value:
                yield Deviation(where, port_setting(name, "*"), str(values[name]), value)
        if (link := link_of.get(port.name)) is None:
            continue
        if port.mtu != link.mtu:
            yield Deviation(where, _MTU, str(port.mtu), str(link.mtu))
        if port.mac != (mac := link.port(node.name).mac):
            yield Deviation(where, "MAC address", port.mac, mac)
    for table in packetfilter.read_tables():
        yield Deviation(node.name, "packet filter", table, "none")


def _adopted_deviations(fabric: Fabric, node: Node) -> Iterator[Deviation]:
    every = int(read_settings([filter_of := port_setting("ipv4/rp_filter", ALL)]).get(filter_of, 0))
    link_of = _links(fabric, node)
    for port in _ports(*link_of):
        values, where = port.settings, f"{node.name}:{port.name}"
        # The kernel takes the larger of both.
        if max(every, values.get("ipv4/rp_filter", 0)) == STRICT:
            yield Deviation(where, port_setting("ipv4/rp_filter", "*"), str(STRICT), "0")
        if node.is_switch and values.get("ipv4/forwarding", 1) == 0:
            yield Deviation(where, port_setting("ipv4/forwarding", "*"), "0", "1")
        # The link's is the smaller one of both ends as they were found.
        if port.mtu < (least := link_of[port.name].mtu):
            yield Deviation(where, _MTU, str(port.mtu), str(least))
    for table in packetfilter.read_tables():
        if table not in _NAT:
            yield Deviation(node.name, "packet filter", table, "none")


def _links(fabric: Fabric, node: Node) -> Mapping[str, Link]:
    """The node's links, by the names of its ports."""
    return {link.port(node.name).interface: link for link in fabric.links_of[node.name]}


def _ports(*names: str) -> Iterator[links.KernelLink]:
    """The ports of the calling thread's namespace with these names, as far as they exist."""
    with netlink.open_socket(receive_buffer_bytes=4 << 20) as channel:
        yield from (port for port in links.read_links(channel) if port.name in names)
