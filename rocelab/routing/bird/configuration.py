"""BIRD's configuration of a switch: eBGP to RFC 7938 over every numbered link between switches.

One file, bird.conf. The policy is that of FRR's (`rocelab.routing.frr.configuration`): a switch of
the lowest tier announces its own prefixes only, and those above accept nothing else from it, unless
the lab has `routing.valley_free: false`. A session has the name of its port.

Source: BIRD User's Guide, chapters "Configuration" and "Protocols".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.templates import template
from rocelab.labfile.base import MS, SECOND
from rocelab.labfile.model import HashWeights
from rocelab.planning.fabric import Fabric, Link, Node

MOST_PATHS = 255
"""The largest limit of `merge paths` (nest/config.Y)."""


@dataclass(frozen=True, slots=True)
class _Channel:
    """A family, and what is announced of it or accepted."""

    family: str
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Session:
    interface: str
    address: str
    asn: int
    accepted: tuple[_Channel, ...]


@dataclass(frozen=True, slots=True)
class _Timers:
    keepalive_s: int
    hold_s: int
    connect_s: int


@dataclass(frozen=True, slots=True)
class _Bfd:
    interval_ms: int
    multiplier: int


@dataclass(frozen=True, slots=True)
class _Interface:
    name: str
    address: str


def check(fabric: Fabric) -> None:
    """Raises InputError for what rocelab does not configure in BIRD."""
    routing = fabric.spec.routing
    lacks = (
        (not fabric.numbered, "unnumbered links", "set routing.numbering: numbered"),
        (
            any(prefix.per_port for prefix in fabric.prefixes),
            "NICs with two ports",
            "choose a fabric whose NICs have one",
        ),
        (routing.graceful_restart, "routing.graceful_restart", "remove it"),
        (routing.policy, "routing.policy", "remove it"),
        (not routing.is_rendered, "a configuration of its own", "remove it"),
        (routing.daemons, "routing.daemons", "remove it"),
        (
            fabric.spec.hashing.weights is HashWeights.PATHS,
            "hashing.weights: paths",
            "remove it",
        ),
    )
    for is_asked, what, remedy in lacks:
        if is_asked:
            raise InputError(
                f"lab {fabric.name} has {what}, which rocelab does not run with BIRD",
                f"{remedy}, or leave routing.stack out: FRR does it",
            )


def bird_configuration(
    fabric: Fabric, node: Node, log_folder: Path | None, *, interfaces: bool
) -> str:
    """The text of bird.conf, with its log in that folder, in syslog without one. `interfaces`: with
    the addresses of ports as comments. Raises ValueError for a server."""
    if node.asn is None or node.loopback is None:
        raise ValueError(f"{node.name} is a {node.role.name} and runs no routing daemon")
    routing = fabric.spec.routing
    announced = [prefix.prefix for prefix in fabric.prefixes_of[node.name]]
    links = [link for link in fabric.links_of[node.name] if link.is_between_switches]
    return template("bird/bird.conf.j2").render(
        node=node,
        log="syslog" if log_folder is None else f'"{log_folder}/bird.log"',
        interfaces=_interfaces(fabric, node) if interfaces else [],
        max_paths=min(routing.max_paths, MOST_PATHS),
        channels=[_Channel(family.value, _of(family, announced)) for family in _families(fabric)],
        bfd=routing.bfd and _Bfd(routing.bfd.interval // MS, routing.bfd.multiplier),
        timers=_Timers(
            routing.keepalive // SECOND, routing.hold // SECOND, routing.connect_retry // SECOND
        ),
        announces_own=node.is_leaf and fabric.valley_free,
        sessions=[_session(fabric, node, link) for link in links],
    )


def _session(fabric: Fabric, node: Node, link: Link) -> _Session:
    far = link.far(node.name)
    peer = fabric.node(far.node)
    assert peer.asn is not None
    accept = [f"{prefix}+" for prefix in fabric.space]
    if peer.is_leaf and fabric.valley_free:
        accept = [prefix.prefix for prefix in fabric.prefixes_of[peer.name]]
    channels = [_Channel(family.value, _of(family, accept)) for family in _families(fabric)]
    return _Session(link.port(node.name).interface, far.ip, peer.asn, tuple(channels))


def _families(fabric: Fabric) -> tuple[Family, ...]:
    return fabric.spec.addresses.families


def _of(family: Family, prefixes: Sequence[str]) -> tuple[str, ...]:
    return tuple(prefix for prefix in prefixes if Family.of(prefix) is family)


def _interfaces(fabric: Fabric, node: Node) -> list[_Interface]:
    ports = [link.port(node.name) for link in fabric.links_of[node.name]]
    loopbacks = [ip for ip in (node.loopback, node.other_loopback) if ip is not None]
    return [
        *(_Interface("lo", f"{ip}/{Family.of(ip).bits}") for ip in loopbacks),
        *(
            _Interface(port.interface, address)
            for port in ports
            for address in (port.address, port.other_address)
            if address is not None
        ),
    ]
