"""Targets of events, as users name them, and the links of a network that they stand for.

Parses text such as `link rtsw40:ctsw3`, `2 links of rack 40` or `switch ctsw7` to a `Target` and
finds its links on a network. Errors name what is there instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rocelab.base.arrays import NONE, Ints
from rocelab.base.errors import InputError
from rocelab.base.wording import RefusedError, listed, name_hint, shown
from rocelab.fabrics.base import PLANE
from rocelab.fabrics.door import KINDS
from rocelab.fabrics.roles import Role
from rocelab.labfile.networks import NetworkSpec
from rocelab.routes.arrays.network import Network

FORMS = (
    "link NODE:NODE, N links of rack R, N links of NODE, N random links of NODE, switch NODE, "
    "plane N, nic SERVER:NIC or port SERVER:NIC:PORT"
)


class TargetKind(StrEnum):
    """What kind of thing a target is."""

    LINK = "link"
    LINKS = "links"
    SWITCH = "switch"
    PLANE = "plane"
    NIC = "nic"
    PORT = "port"


@dataclass(frozen=True, slots=True)
class EventTarget:
    """A thing and its name."""

    thing: TargetKind
    name: str
    count: int = 0
    """How many links."""
    drawn: bool = False
    """At random by a seed, not the first ones."""
    rack: bool = False
    """The name is a rack's number."""
    nic: int = 0
    """From 1."""
    port: int = 0
    """From 1."""

    def __str__(self) -> str:
        match self.thing:
            case TargetKind.LINKS:
                of = f"rack {self.name}" if self.rack else self.name
                random = "random " if self.drawn else ""
                return f"{self.count} {random}link{'s' * (self.count > 1)} of {of}"
            case TargetKind.NIC:
                return f"nic {self.name}:{self.nic}"
            case TargetKind.PORT:
                return f"port {self.name}:{self.nic}:{self.port}"
            case _:
                return f"{self.thing} {self.name}"


_NODE = r"[A-Za-z][A-Za-z0-9._-]*"
_PORT = r"[^\s:]+(?::[0-9]+)?"
_COUNT = r"[1-9][0-9]{0,5}"
_PATTERNS: tuple[tuple[str, Callable[[re.Match[str]], EventTarget]], ...] = (
    (rf"(?:link )?({_NODE}:{_PORT})", lambda match: EventTarget(TargetKind.LINK, match[1])),
    (
        rf"({_COUNT}) (random )?links? of rack ({_COUNT})",
        lambda match: EventTarget(
            TargetKind.LINKS, match[3], count=int(match[1]), drawn=bool(match[2]), rack=True
        ),
    ),
    (
        rf"({_COUNT}) (random )?links? of ({_NODE})",
        lambda match: EventTarget(
            TargetKind.LINKS, match[3], count=int(match[1]), drawn=bool(match[2])
        ),
    ),
    (rf"plane ({_COUNT})", lambda match: EventTarget(TargetKind.PLANE, match[1])),
    (
        rf"nic ({_NODE}):({_COUNT})",
        lambda match: EventTarget(TargetKind.NIC, match[1], nic=int(match[2])),
    ),
    (
        rf"port ({_NODE}):({_COUNT}):({_COUNT})",
        lambda match: EventTarget(TargetKind.PORT, match[1], nic=int(match[2]), port=int(match[3])),
    ),
    (rf"(?:switch )?({_NODE})", lambda match: EventTarget(TargetKind.SWITCH, match[1])),
)


def parse_target(text: object) -> EventTarget:
    """Parse a target. Raises RefusedError, a ValueError, for any other text."""
    if isinstance(text, str):
        words = " ".join(text.split())
        for pattern, made in _PATTERNS:
            match = re.fullmatch(pattern, words)
            if match:
                return made(match)
    raise RefusedError(f"expected what it happens to, got {shown(text)}", f"write {FORMS}")


def links_of(network: Network, target: EventTarget, draw: np.random.Generator) -> Ints:
    """The links of a target, in build order; for a switch all its links.

    Raises InputError with similar or existing names if the network has no such target.
    """
    match target.thing:
        case TargetKind.LINK:
            return np.array([_link(network, target.name)], np.int32)
        case TargetKind.LINKS:
            return _some_links(network, target, draw)
        case TargetKind.SWITCH:
            return _links_at(network, [_switch(network, target.name)])
        case TargetKind.PLANE:
            return _plane(network, int(target.name))
        case TargetKind.NIC | TargetKind.PORT:
            return _nic(network, target)


def node_number(network: Network, name: str) -> int:
    """The number of the node of that name. Raises InputError with similar names."""
    try:
        return network.node_number(name)
    except KeyError:
        spec = network.spec
        if not isinstance(spec, NetworkSpec):
            message = f"{spec.name} has no node {name}"
            raise _unknown(message, name, network.node_names) from None
        raise InputError(
            f"network {spec.place.network} of {spec.name} has no node {name}",
            "events are in the network of the jobs, and those of another do not disturb them: "
            "name the jobs' network with --network",
        ) from None


def _link(network: Network, name: str) -> int:
    """A link by either of its ends, a node and its port, or by its two nodes if it is the only
    one."""
    near, _, interface = name.partition(":")
    node = node_number(network, near)
    links: list[int] = _links_at(network, [node]).tolist()
    sends = (2 * link + int(network.lower[link] != node) for link in links)
    names = [network.send_name(send).partition(":")[2] for send in sends]
    far = [network.node_names[network.lower[k] + network.upper[k] - node] for k in links]
    if interface not in names and far.count(interface) == 1:
        return links[far.index(interface)]
    if interface not in names:
        raise _unknown(f"{near} has no link to {interface}", interface, names)
    return links[names.index(interface)]


def _some_links(network: Network, target: EventTarget, draw: np.random.Generator) -> Ints:
    node = _rack(network, target.name) if target.rack else node_number(network, target.name)
    links = _links_at(network, [node])
    if network.tier[node] == 1:
        links = links[network.lower[links] == node]
    if target.count > len(links):
        raise InputError(
            f"{network.node_names[node]} has no {target.count} "
            f"{'uplinks' if network.tier[node] == 1 else 'links'}",
            f"it has {len(links)}",
        )
    if target.drawn:
        return np.sort(draw.choice(links, target.count, replace=False))
    return links[: target.count]


def _rack(network: Network, number: str) -> int:
    """The leaf of a rack by its number, which several zones may use."""
    ending = re.compile(rf"(.*-)?[a-z]+{number}[ab]?")
    racks = [
        node
        for node in np.nonzero(network.tier == 1)[0].tolist()
        if ending.fullmatch(network.node_names[node])
    ]
    if len(racks) == 1:
        return int(racks[0])
    if not racks:
        leaves = [network.node_names[node] for node in np.nonzero(network.tier == 1)[0]]
        raise InputError(
            f"{network.spec.name} has no rack {number}",
            f"it has {len(leaves):,}, from {leaves[0]} to {leaves[-1]}",
        )
    names = [network.node_names[node] for node in racks[:3]]
    raise InputError(
        f"{len(racks)} switches of {network.spec.name} have the rack number {number}",
        f"name one of them: {', '.join(names)}{', ...' if len(racks) > len(names) else ''}",
    )


def _switch(network: Network, name: str) -> int:
    node = node_number(network, name)
    if network.roles[node] is Role.SERVER:
        raise InputError(f"{name} is a server", f"name a switch, or a NIC: nic {name}:1")
    return node


def _plane(network: Network, number: int) -> Ints:
    """A plane's aggregation switches, and the ToRs that are wired to them."""
    words = network.spec.fabric.zone_words
    role = next((role for role, word in words.items() if word == PLANE), None)
    aggs = np.array([node is role for node in network.roles])
    planes = int(network.zone[aggs].max(initial=0))
    if planes < 2:
        kinds = [name for name, kind in KINDS.all().items() if PLANE in kind.zone_words.values()]
        raise InputError(
            f"{network.spec.name} has no planes",
            f"name a switch; fabrics of kind {listed(kinds, 'or')} have planes",
        )
    if number > planes:
        raise InputError(f"{network.spec.name} has no plane {number}", f"it has {planes}")
    aggs &= network.zone == number
    tors = np.unique(network.lower[aggs[network.upper]])
    return _links_at(network, [*np.nonzero(aggs)[0].tolist(), *tors.tolist()])


def _nic(network: Network, target: EventTarget) -> Ints:
    server = node_number(network, target.name)
    if network.roles[server] is not Role.SERVER:
        raise InputError(f"{target.name} is a switch", f"name it so: switch {target.name}")
    nics = np.nonzero(network.nic_server == server)[0]
    chosen = nics[network.nic_number[nics] == target.nic]
    if not len(chosen):
        raise InputError(f"{target.name} has no NIC {target.nic}", f"it has {len(nics)}")
    links = network.nic_links[chosen[0]]
    links = links[links != NONE]
    if target.thing is TargetKind.NIC:
        return np.asarray(links)
    if target.port > len(links):
        raise InputError(
            f"NIC {target.nic} of {target.name} has no port {target.port}", f"it has {len(links)}"
        )
    return np.asarray(links[target.port - 1 : target.port])


def _links_at(network: Network, nodes: list[int]) -> Ints:
    inside = np.zeros(network.nodes, bool)
    inside[nodes] = True
    return np.nonzero(inside[network.lower] | inside[network.upper])[0].astype(np.int32)


def _unknown(message: str, name: str, known: Iterable[str]) -> InputError:
    return InputError(message, name_hint(name, list(known)))
