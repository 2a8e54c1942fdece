"""Reads the nodes of a lab that others made: interfaces, addresses, routes, settings, daemons.

Everything is read from outside, in the nodes' namespaces and over the sockets of their daemons:
their images need nothing, and nothing in them runs for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.family import Family
from rocelab.base.sysctls import HASH_POLICY, HASH_SEED
from rocelab.lab.adoption.containers import RunningContainer
from rocelab.linux import fib, links, namespaces, netlink, processes
from rocelab.linux.settings import SETTINGS

DAEMONS = frozenset(
    {
        *("mgmtd", "zebra", "bgpd", "bfdd", "ospfd", "ospf6d", "isisd", "ripd", "eigrpd", "ldpd"),
        *("staticd", "bird", "gobgpd", "fabricd", "babeld", "pimd", "openbgpd"),
    }
)
"""Routing daemons, by the name of their process."""
_MOST_COMMAND = 1 << 16


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface: `peer` is the node and the interface index at the other end of its cable, None
    for an interface that leads to no node of the lab. `addresses` are global ones of IPv4, with
    their lengths."""

    name: str
    index: int
    mac: str
    mtu: int
    addresses: tuple[str, ...]
    peer: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class NodeSurvey:
    """What was read of a node."""

    name: str
    kind: str
    group: str
    interfaces: tuple[Interface, ...]
    loopback: str | None
    routes: Mapping[str, tuple[str, ...]]
    """By prefix, the interfaces of its next hops."""
    settings: Mapping[str, int]
    """The ECMP hash's policy and seed."""
    daemons: Mapping[str, tuple[str, ...]]
    """The command of each routing daemon."""
    asn: int | None = None
    """That of bgpd, if one answers."""
    neighbours: tuple[str, ...] = ()
    """Addresses or interfaces of bgpd's neighbours, if one answers."""


def survey(nodes: Sequence[RunningContainer]) -> tuple[NodeSurvey, ...]:
    """Read every node. Raises OSError if one is gone."""
    with namespaces.opened({node.name: node.netns for node in nodes}) as descriptors:
        surveys: dict[str, NodeSurvey] = {}

        def visit(name: str) -> None:
            node = next(node for node in nodes if node.name == name)
            surveys[name] = _surveyed(node, descriptors)

        namespaces.inside_each(descriptors, visit)
    return tuple(surveys.values())


def _surveyed(node: RunningContainer, descriptors: Mapping[str, int]) -> NodeSurvey:
    """Survey a node; runs in its namespace."""
    with netlink.open_socket(receive_buffer_bytes=4 << 20) as channel:
        # A container chooses names: the kernel takes control characters and what is no UTF-8.
        ports = links.read_links(channel)
        here = [port for port in ports if port.name.isprintable() and "\ufffd" not in port.name]
        addresses = [address for address in links.read_addresses(channel) if address.is_global]
        routes = fib.read_routes(channel)
        known = {
            links.read_namespace_number(channel, descriptor): name
            for name, descriptor in descriptors.items()
        }
    name_of = {link.index: link.name for link in here}
    of = {
        link.index: tuple(
            f"{address.ip}/{address.length}"
            for address in addresses
            if address.interface == link.index and address.ip.version == 4
        )
        for link in here
    }

    def peer(link: links.KernelLink) -> tuple[str, int] | None:
        index, number = link.peer
        if link.kind != "veth" or number is None or known.get(number) is None:
            return None
        return known[number], index

    return NodeSurvey(
        name=node.name,
        kind=node.kind,
        group=node.group,
        interfaces=tuple(
            Interface(link.name, link.index, link.mac, link.mtu, of[link.index], peer(link))
            for link in here
        ),
        loopback=next((_ip(text) for link in here for text in _host_addresses(link, of)), None),
        routes=fib.routed((route for route in routes if route.family is Family.IPV4), name_of),
        settings=dict(_settings()),
        daemons=_daemons(node),
    )


def _host_addresses(link: links.KernelLink, of: Mapping[int, tuple[str, ...]]) -> Iterator[str]:
    """The addresses of an interface that belong to the node as a whole."""
    if link.name == "lo" or link.kind == "dummy":
        yield from (text for text in of[link.index] if text.endswith("/32"))


def _ip(text: str) -> str:
    return text.partition("/")[0]


def _settings() -> Iterator[tuple[str, int]]:
    for name in (HASH_POLICY, HASH_SEED):
        with suppress(OSError, ValueError):
            yield name, int((SETTINGS / name).read_text())


def _daemons(node: RunningContainer) -> dict[str, tuple[str, ...]]:
    """The routing daemons among the processes in the node, each with its command, in the order in
    which they were started."""
    daemons = {}
    for pid in sorted(namespaces.processes_in([node.netns.stat().st_ino])):
        name = processes.name_of(pid)
        if name in DAEMONS:
            with suppress(OSError):
                # A process can have this file show any part of its memory.
                with Path(f"/proc/{pid}/cmdline").open("rb") as file:
                    command = file.read(_MOST_COMMAND).rstrip(b"\0").split(b"\0")
                daemons[name] = tuple(word.decode(errors="replace") for word in command)
    return daemons
