"""What a running lab has that its plan has not, or the other way round: routes of the switches'
kernels, and the configuration of their routing daemons.

`rocelab.lab.status` says whether a lab works, `rocelab.lab.settings` compares the kernels'
settings. A lab that was adopted has no planned configuration.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rocelab.base.workers import workers
from rocelab.lab.lab import RunningLab
from rocelab.linux import fib, namespaces, netlink
from rocelab.linux.fib import RTPROT_KERNEL, KernelRoute
from rocelab.planning.fabric import Fabric, Node
from rocelab.planning.routes import NextHops, expected_routes, expected_width
from rocelab.routes.planned import connected_prefix

_SHOWN = 3


class DifferenceKind(StrEnum):
    """How a switch differs."""

    MISSING = "missing routes"
    EXTRA = "routes that are not planned"
    PORTS = "routes by ports that are not planned"
    CONFIGURATION = "changed configuration"


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs at a switch. `subjects`: prefixes and what is wrong with them, or lines of a
    daemon's configuration, with `+` what it runs and `-` what was rendered."""

    node: str
    kind: DifferenceKind
    subjects: tuple[str, ...]

    def __str__(self) -> str:
        more = len(self.subjects) - _SHOWN
        rest = f"; and {more:,} more" if more > 0 else ""
        return f"{self.node}: {self.kind}: {'; '.join(self.subjects[:_SHOWN])}{rest}"


def read_differences(lab: RunningLab) -> tuple[Difference, ...]:
    """The differences of a running lab, in the fabric's order; none of a switch that is gone, or of
    a daemon that does not answer. Raises PermissionError without the rights to enter namespaces."""
    fabric, expected = lab.fabric, expected_routes(lab.fabric)

    def read(node: Node) -> Sequence[Difference]:
        routes = read_main_table(lab, node)
        parts = (
            {} if routes is None else route_differences(fabric, node, expected[node.name], routes)
        )
        if not fabric.is_adopted:
            parts[DifferenceKind.CONFIGURATION] = tuple(_configuration(lab, node))
        return [
            Difference(node.name, kind, subjects) for kind, subjects in parts.items() if subjects
        ]

    with workers(4 * (os.cpu_count() or 1)) as pool:
        return tuple(part for parts in pool.map(read, fabric.switches) for part in parts)


def read_main_table(lab: RunningLab, node: Node) -> tuple[KernelRoute, ...] | None:
    """The routes that a switch's kernel forwards by, None of a switch that is gone."""
    netns = lab.node(node.name).netns
    if not netns.exists():
        return None

    def read() -> tuple[KernelRoute, ...]:
        with netlink.open_socket(receive_buffer_bytes=4 << 20) as channel:
            return tuple(fib.used(fib.read_routes(channel)))

    return namespaces.inside(netns, read)


def route_differences(
    fabric: Fabric, node: Node, expected: Mapping[str, NextHops], routes: Iterable[KernelRoute]
) -> dict[DifferenceKind, tuple[str, ...]]:
    """How a switch's table differs from what it must hold. A lab that was adopted may have any
    route besides."""
    by_prefix = {route.prefix: route for route in routes}
    missing, elsewhere = [], []
    for prefix, links in expected.items():
        route, width = by_prefix.get(prefix), expected_width(fabric, links)
        hops = () if route is None else route.hops
        live = sum(hop.carrier for hop in hops)
        if live < width:
            missing.append(f"{prefix} ({live} of {width} next hops)")
        indexes = {link.port(node.name).index for link in links}
        if any(hop.interface not in indexes for hop in hops):
            elsewhere.append(prefix)
    known = {*expected, *_own(fabric, node)}
    extra = [
        prefix
        for prefix, route in by_prefix.items()
        if prefix not in known and route.protocol != RTPROT_KERNEL
    ]
    return {
        DifferenceKind.MISSING: tuple(missing),
        DifferenceKind.EXTRA: () if fabric.is_adopted else tuple(extra),
        DifferenceKind.PORTS: () if fabric.is_adopted else tuple(elsewhere),
    }


def _own(fabric: Fabric, node: Node) -> Iterator[str]:
    """The prefixes that a switch originates, and those of its ports."""
    yield from (prefix.prefix for prefix in fabric.prefixes_of[node.name])
    for link in fabric.links_of[node.name]:
        if link.port(node.name).address is not None:
            yield connected_prefix(link, node.name)


def _configuration(lab: RunningLab, node: Node) -> Iterator[str]:
    handle, names = lab.node(node.name), lab.daemons_of(node.name)
    logs = handle.daemon_files.daemon_folder
    network = lab.fabric.network_of(node.name)
    planned = handle.stack.configuration(network, node, names, logs, interfaces=False)
    for daemon in names:
        whole = handle.daemon_files.whole(daemon)
        text = whole.read_text() if whole.exists() else planned[daemon]
        try:
            changes = handle.stack.configuration_changes(handle.daemon_files, daemon, text)
        except OSError:
            continue  # `rocelab.lab.status` names a daemon that does not answer
        yield from (f"{daemon}: {line}" for line in changes)
