"""A fabric as containers, independent of the tool that deploys it.

A `Deployment` has a container per node, with its files, its kernel settings before the start and
the commands to run once its interfaces exist, and the links between containers. Renderers write it
for a tool.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.fabrics.roles import Role
from rocelab.labfile.stacks import DEFAULT_STACK
from rocelab.planning.document import expected_widths
from rocelab.planning.fabric import MAIN_TABLE, Fabric, Link, Nic, Node, Port
from rocelab.planning.settings import node_settings
from rocelab.render.frr_image import DEFAULT_IMAGE, IMAGE_PATHS, fitted, frr_files
from rocelab.routing.stack import stack_for

IDLE = "sleep infinity"
FRR_FOLDER = "/etc/frr"
MANY_CONTAINERS = 500
NEIGHBOUR_TABLE = 1024
"""Entries of the kernel's neighbour table, one for all namespaces of a machine: the default of
net.ipv4.neigh.default.gc_thresh3 (net/ipv4/arp.c)."""
_WITHOUT_IPV6 = "ipv6/conf/all/disable_ipv6"
_ONCE_STARTED = (
    _WITHOUT_IPV6,
    "ipv4/icmp_msgs_per_sec",
    "ipv4/icmp_msgs_burst",
)
"""Settings that a container does not start with. containerlab starts every container of kind linux
with IPv6 (nodes/linux/linux.go). The rate of ICMP, which only probes need, is per namespace only
since Linux 6.12, and a container with a setting that its kernel lacks does not start."""
_IMPLIED = "ipv6/conf/default/disable_ipv6"
"""Set by the kernel with that of `all` (net/ipv6/addrconf.c, addrconf_disable_ipv6)."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A node as a container."""

    name: str
    role: Role
    entrypoint: str | None
    """Its command, None for the image's own start-up."""

    files: Mapping[str, str]
    """Texts by path in the container."""

    sysctls: Mapping[str, str]
    """Set before anything runs."""

    commands: tuple[str, ...]
    """For its shell, in order, when all its interfaces are up. They have no single quote and no
    `$`, which containerlab expands, and are run as one command: each entry of `exec` costs a start
    of `docker exec`."""

    def source(self, path: str) -> str:
        """The file for `path`, relative to the rendered folder."""
        return f"{self.name}/{path.rpartition('/')[2]}"

    def bind(self, path: str) -> str:
        """The mount of a file, read-only, in the notation of `docker run --volume`."""
        return f"{self.source(path)}:{path}:ro"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A fabric in containers: links have their MTU, interface names and MAC addresses."""

    name: str
    image: str
    containers: tuple[ContainerSpec, ...]
    links: tuple[Link, ...]


def check_stack(fabric: Fabric) -> None:
    """Raises InputError for a fabric whose routing stack is in no image."""
    stack = stack_for(fabric)
    if stack.name != DEFAULT_STACK:
        raise InputError(
            f"{stack.title} does not run in containers: their images have FRR",
            "leave routing.stack out",
        )
    families = fabric.spec.addresses.families
    if Family.IPV6 in families and any(link.a.is_shared for link in fabric.links):
        raise InputError(
            "NICs with two ports are rendered with IPv4 addresses only: FRR sets no peer of an "
            "IPv6 address",
            "leave addresses.family out, or bring the lab up here",
        )


def deployment(fabric: Fabric, image: str = DEFAULT_IMAGE) -> Deployment:
    """Every node of a fabric as a container of that image; servers only sleep. Raises as
    `check_stack`, and InputError for a fabric with tenants."""
    check_stack(fabric)
    if fabric.tenants:
        raise InputError(
            "tenants are not rendered for containers: no topology file makes their bridges and "
            "tunnels",
            "bring the lab up here, or leave tenants out",
        )
    fitting = {part.network_name: fitted(part) for part in fabric.networks}
    containers = tuple(
        _container(fabric, fitting[fabric.network_of(node.name).network_name], node)
        for node in fabric.nodes
    )
    return Deployment(fabric.name, image, containers, fabric.links)


def warnings(fabric: Fabric) -> tuple[str, ...]:
    """Warnings about limits of one machine, or of FRR's image, that a fabric may exceed."""
    notes = []
    if len(fabric.nodes) > MANY_CONTAINERS:
        notes.append(
            f"{len(fabric.nodes):,} containers are more than one machine is likely to hold "
            f"(over {MANY_CONTAINERS}); clabernetes spreads them over a cluster"
        )
    if 2 * len(fabric.links) > NEIGHBOUR_TABLE:
        wanted = 4 * len(fabric.links)
        notes.append(
            f"{len(fabric.links):,} links need {2 * len(fabric.links):,} neighbour entries and a "
            f"kernel holds {NEIGHBOUR_TABLE:,}: on the machine that deploys it, "
            f"`sysctl -w net.ipv4.neigh.default.gc_thresh3={wanted}`"
        )
    widths = (
        width.width
        for network in fabric.networks
        for reached in expected_widths(network).values()
        for width in reached
    )
    widest = max(widths, default=0)
    if widest > IMAGE_PATHS:
        notes.append(
            f"routes of {widest:,} next hops get {IMAGE_PATHS}: FRR's image is built for no more"
        )
    return (*notes, *left_out(fabric))


def left_out(fabric: Fabric) -> tuple[str, ...]:
    """Warnings about what a fabric has and containers elsewhere do not."""
    if all(network.spec.queues.pfc is None for network in fabric.networks):
        return ()
    return ("queues.pfc is left out: no class is lossless in these containers, nothing pauses",)


def _container(fabric: Fabric, network: Fabric, node: Node) -> ContainerSpec:
    settings = node_settings(network, node)
    commands = [
        f"echo {settings[name]} > /proc/sys/net/{name}"
        for name in _ONCE_STARTED
        if name in settings
    ]
    if not node.is_switch:
        commands += _server_commands(fabric, node)
    elif _WITHOUT_IPV6 not in settings:
        # zebra misses the link-local address of an interface that comes and gets its name while
        # zebra starts (seen with 8.4.4), and its session never begins: addresses come anew.
        commands += [f"echo {value} > /proc/sys/net/{_WITHOUT_IPV6}" for value in (1, 0)]
        commands += _ipv6_addresses(fabric, node)
    files = frr_files(network, node) if node.is_switch else {}
    return ContainerSpec(
        name=node.name,
        role=node.role,
        entrypoint=None if node.is_switch else IDLE,
        files={f"{FRR_FOLDER}/{name}": text for name, text in files.items()},
        sysctls={
            f"net.{name.replace('/', '.')}": value
            for name, value in settings.items()
            if name not in (*_ONCE_STARTED, _IMPLIED)
        },
        commands=tuple(commands),
    )


def _ipv6_addresses(fabric: Fabric, node: Node) -> list[str]:
    """What gives a switch its IPv6 addresses, which go while IPv6 is off."""
    loopbacks = ((ip, "lo") for ip in (node.loopback, node.other_loopback) if ip is not None)
    ports = [link.port(node.name) for link in fabric.links_of[node.name]]
    places = [(f"{ip}/{Family.of(ip).bits}", name) for ip, name in loopbacks]
    places += [
        (address, port.interface)
        for port in ports
        for address in (port.address, port.other_address)
        if address is not None
    ]
    return [
        shlex.join(["ip", "address", "replace", address, "dev", interface])
        for address, interface in places
        if Family.of(address) is Family.IPV6
    ]


def _server_commands(fabric: Fabric, node: Node) -> list[str]:
    """A server's addresses, its default routes and its rules, as in `rocelab.lab.wiring`."""
    commands = []
    for link in fabric.links_of[node.name]:
        near, far = link.port(node.name), link.far(node.name)
        address = [near.ip, "peer", f"{far.ip}/32"] if near.is_shared else [str(near.address)]
        commands.append(shlex.join(["ip", "address", "add", *address, "dev", near.interface]))
        if near.other_address is not None:
            other = ["ip", "address", "add", near.other_address, "dev", near.interface]
            commands.append(shlex.join(other))
    for nic in fabric.nics(node.name):
        commands += _nic_routes(nic, nic.ip, [(link.a, link.b.ip) for link in nic.links])
        others = [(link.a, _ip(link.b.other_address)) for link in nic.links if link.b.other_address]
        if others:
            commands += _nic_routes(nic, _ip(str(nic.links[0].a.other_address)), others)
    return commands


def _nic_routes(nic: Nic, ip: str, gateways: Sequence[tuple[Port, str]]) -> list[str]:
    """The default route of a NIC, of the family of its address, and its rule."""
    tool = ["ip", "-6"] if Family.of(ip) is Family.IPV6 else ["ip"]
    hops = [["via", gateway, "dev", port.interface] for port, gateway in gateways]
    several = len(hops) > 1
    words = [word for hop in hops for word in (["nexthop", *hop] if several else hop)]
    options = [] if nic.table == MAIN_TABLE else ["table", str(nic.table)]
    commands = [shlex.join([*tool, "route", "replace", "default", *options, *words])]
    commands += [
        shlex.join([*tool, "route", "replace", prefix, *words])
        for prefix in nic.destinations
        if Family.of(prefix) is Family.of(ip)
    ]
    if options:
        rule = ["from", ip, "lookup", str(nic.table), "priority", str(nic.table)]
        commands.append(shlex.join([*tool, "rule", "add", *rule]))
    return commands


def _ip(address: str) -> str:
    """An address without its length."""
    return address.partition("/")[0]
