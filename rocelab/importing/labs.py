"""The lab of an imported topology: a graph, with ports and numbers as they are.

What a node is that its source does not say follows from its name, then from its place; what was
guessed is returned, to be shown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from unicodedata import normalize
from zlib import crc32

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.units import RATE
from rocelab.base.wording import KeyPath, RefusedError, printable
from rocelab.fabrics.door import roles
from rocelab.fabrics.graph import MAX_NODE_NAME
from rocelab.importing.roles import NONE, TIER_NAMES, roles_of_options
from rocelab.importing.topology import DrawnLink, DrawnNode, ImportedTopology
from rocelab.labfile.source import YamlSource, parse_source
from rocelab.planning.shape import tiers

_SERVER_WORDS = (
    "srv",
    "server",
    "host",
    "gpu",
    "client",
    "compute",
    "dgx",
    "hgx",
    "worker",
    "storage",
)
_APART_PREFIXES = ("oob", "mgmt")
_APART_WORDS = frozenset(("management", "console", "bmc", "ipmi", "pdu"))
"""Words of names and types of nodes that are not of the fabric: networks of management."""
_LETTER = re.compile(r"([hls])[-_]?\d+", re.IGNORECASE)
_OF_LETTER = {"h": "server", "l": "leaf", "s": "spine"}
"""Roles of nodes called L1, S2 and H3, where none has a telling word and some is an L: elsewhere an
S may be any switch."""
_WORD = re.compile(r"[a-z]+")
_BETWEEN = re.compile(r"[^A-Za-z0-9]+")


_USUAL_BPS, _USUAL_DILATION = 400 * 10**9, 5000
"""A link and the dilation of a lab that names none: 80 Mb/s on the lab's clock."""
_MOST_BPS = 400 * 10**6
"""What a link carries on the lab's clock, at most."""


@dataclass(frozen=True, slots=True)
class ImportedLab:
    """The keys of a lab's file, and what was decided for it."""

    body: Mapping[str, object]
    roles: Mapping[str, str]
    guessed: Mapping[str, str]
    """The nodes whose role the source does not say, with their roles."""
    left_out: tuple[str, ...]
    added: tuple[str, ...]
    """Servers that the source does not have."""
    renamed: Mapping[str, str]
    """Nodes whose names a lab cannot have, with the names that they have in it."""
    lines: tuple[int | None, ...]
    """The line of each link in the source."""
    unrated: int
    """Links without a rate, which have that of the lab."""


def graph_lab(
    name: str, imported: ImportedTopology, options: Sequence[str] = (), servers: int = 0
) -> ImportedLab:
    """The lab of a topology. options: what nodes are, `NODE=ROLE`. servers: how many are added to
    each leaf, or, without leaves, to each switch, if the topology has none.

    Raises InputError for an option that fits nothing, and for a topology without links.
    """
    fixed = roles_of_options(imported.nodes, options)
    gone = {node for node, role in fixed.items() if role == NONE}
    apart = {
        name
        for name in dict.fromkeys((*imported.nodes, *(n for pair in imported.cables for n in pair)))
        if name not in fixed and _is_apart(name, imported.nodes.get(name))
    }
    gone |= apart
    links = [link for link in imported.links if gone.isdisjoint(link.pair)]
    if not links:
        raise InputError(f"{imported.name} has no link between two nodes", "is it the right file?")
    wired = dict.fromkeys(end for link in links for end in link.pair)
    nodes = {node: imported.nodes.get(node, DrawnNode(None)) for node in wired}
    names = _safe_names(nodes)
    role_of, guessed = _roles(nodes, links, fixed)
    loose = [node for node in imported.nodes if node not in wired and node not in gone]
    links, added = _with_servers(links, role_of, servers)
    role_of |= dict.fromkeys(added, "server")
    names |= {node: node for node in added}
    body: dict[str, object] = {
        "name": name,
        "fabric": {
            "kind": "graph",
            "nodes": {
                names[node]: _node_keys(nodes.get(node, DrawnNode(None)), role)
                for node, role in role_of.items()
            },
            "links": [_link_keys(link, names) for link in links],
        },
    }
    families = {Family.of(pair[0]) for link in links for pair in link.addresses}
    families |= {Family.of(text) for node in nodes.values() for text in node.loopbacks}
    if Family.IPV6 in families:
        body["addresses"] = {"family": "dual" if Family.IPV4 in families else "ipv6"}
    dilation = _dilation(links, role_of)
    if dilation is not None:
        body["dilation"] = dilation
    notes = (
        *imported.left_out,
        *(f"{node} (--role)" for node in sorted(gone - apart)),
        *(f"{node} (of management: --role {node}=leaf takes it)" for node in sorted(apart)),
        *(f"{node} (no cable)" for node in loose),
    )
    renamed = {node: name for node, name in names.items() if node != name}
    lines = tuple(link.line for link in links)
    unrated = sum(link.rate is None for link in links)
    return ImportedLab(body, role_of, guessed, notes, tuple(added), renamed, lines, unrated)


def _is_apart(name: str, node: DrawnNode | None) -> bool:
    """Whether a node is of a network of management, by its name or by its type or group."""
    text = name if node is None else f"{name} {node.group}"
    words = _WORD.findall(text.lower())
    return any(word.startswith(_APART_PREFIXES) or word in _APART_WORDS for word in words)


def _dilation(links: Iterable[DrawnLink], role_of: Mapping[str, str]) -> int | None:
    """A dilation at which the slowest NIC carries the probes of drills, and the fastest link is
    still slow enough for a machine; None for the usual one. Rates that cannot be read are refused
    with their line later."""
    servers: list[int] = []
    fastest = _USUAL_BPS
    for link in links:
        with suppress(RefusedError):
            rate_bps = _USUAL_BPS if link.rate is None else RATE.parse(link.rate)
            fastest = max(fastest, rate_bps)
            if "server" in (role_of[link.a[0]], role_of[link.b[0]]):
                servers.append(rate_bps)
    slowest = min(servers, default=_USUAL_BPS)
    if slowest >= _USUAL_BPS:
        return None
    return max(_USUAL_DILATION * slowest // _USUAL_BPS, fastest // _MOST_BPS)


def located(lab: ImportedLab, text: str, file: str) -> YamlSource:
    """The text of a lab, in which every link has its line in the file that it comes from, and all
    else has that file. Raises SpecError."""
    links: KeyPath = ("fabric", "links")
    lines = {(*links, index): line for index, line in enumerate(lab.lines) if line is not None}
    return YamlSource(file, parse_source(text, file).data, lines)


def _roles(
    nodes: Mapping[str, DrawnNode], links: Sequence[DrawnLink], fixed: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The role of every node, and those that were guessed."""
    role_of: dict[str, str] = {}
    guessed: dict[str, str] = {}
    for name, node in nodes.items():
        if name in fixed:
            role_of[name] = fixed[name]
        elif node.tier is not None:
            role_of[name] = TIER_NAMES[node.tier]
        elif node.is_switch is False:
            role_of[name] = "server"
        elif word := _role_in(name, may_be_server=node.is_switch is None):
            role_of[name] = guessed[name] = word
    open_nodes = [name for name in nodes if name not in role_of]
    letters = {name: _LETTER.fullmatch(name) for name in open_nodes}
    if all(letters.values()) and any(match and match[1] in "lL" for match in letters.values()):
        guessed |= {name: _OF_LETTER[match[1].lower()] for name, match in letters.items() if match}
        role_of |= {name: guessed[name] for name in open_nodes}
        open_nodes = []
    if open_nodes:
        hosts = {name for name, role in role_of.items() if role == "server"}
        tier = tiers([link.pair for link in links], hosts, nodes.keys() - hosts)
        guessed |= {name: TIER_NAMES[max(1, tier.get(name, 1))] for name in open_nodes}
        role_of |= {name: guessed[name] for name in open_nodes}
    return {name: role_of[name] for name in nodes}, guessed


def _role_in(name: str, *, may_be_server: bool) -> str | None:
    """The role that the last telling word of a name says: gpu-leaf1 is a leaf, leaf1-gpu2 a server.
    None without one, and for two roles of switches."""
    switches = {role.name for role in roles().values() if role.is_switch}
    words = _WORD.findall(name.lower())
    said = [_role_of_word(word, switches) for word in words]
    telling = [role for role in said if role is not None and (may_be_server or role != "server")]
    is_clear = bool(telling) and (telling[-1] == "server" or len({*telling} - {"server"}) == 1)
    return telling[-1] if is_clear else None


def _role_of_word(word: str, switches: Collection[str]) -> str | None:
    if word in switches:
        return word
    if word.startswith(_SERVER_WORDS) and not word.endswith(tuple(switches)):
        return "server"
    return None


def _safe_names(nodes: Iterable[str]) -> dict[str, str]:
    """Names that nodes of a lab can have. Raises InputError if two become one."""
    names: dict[str, str] = {}
    node_of: dict[str, str] = {}
    for node in nodes:
        name = names[node] = _safe_name(node)
        if node_of.setdefault(name, node) != node:
            raise InputError(
                f"{printable(node_of[name])} and {printable(node)} would both be {name} in a lab",
                "a node's name has letters, digits and single . _ - between them",
            )
    return names


def _safe_name(node: str) -> str:
    ascii_text = normalize("NFKD", node).encode("ascii", "ignore").decode()
    single = _BETWEEN.sub(lambda match: match[0][0] if match[0][0] in "._-" else "-", ascii_text)
    name = single.strip("-._")
    name = name if name[:1].isalpha() else f"n{name}"
    if len(name) > MAX_NODE_NAME:
        name = name.partition(".")[0]
    if len(name) > MAX_NODE_NAME:
        mark = f"{crc32(node.encode()):08x}"
        name = f"{name[: MAX_NODE_NAME - len(mark) - 1].rstrip('-._')}-{mark}"
    return name


def _with_servers(
    links: list[DrawnLink], role_of: Mapping[str, str], count: int
) -> tuple[list[DrawnLink], list[str]]:
    if not count or "server" in role_of.values():
        return links, []
    known = roles()
    switches = [name for name, role in role_of.items() if known[role].tier == 1] or list(role_of)
    added = [
        (f"srv{number}-{place}", switch)
        for number, switch in enumerate(switches, start=1)
        for place in range(1, count + 1)
    ]
    rate_of = {end[0]: link.rate for link in reversed(links) for end in (link.a, link.b)}
    wires = (DrawnLink((server, "eth0"), (at, None), rate_of.get(at)) for server, at in added)
    return [*links, *wires], [server for server, _ in added]


def _node_keys(node: DrawnNode, role: str) -> dict[str, object]:
    keys: dict[str, object] = {"role": role}
    if role != "server":
        if node.asn is not None:
            keys["asn"] = node.asn
        if node.loopbacks:
            keys["loopback"] = (
                list(node.loopbacks) if len(node.loopbacks) > 1 else node.loopbacks[0]
            )
        if node.router_id is not None:
            keys["router_id"] = node.router_id
    return keys


def _link_keys(link: DrawnLink, names: Mapping[str, str]) -> dict[str, object]:
    a, b = (
        names[node] if port is None else f"{names[node]}:{port}" for node, port in (link.a, link.b)
    )
    keys = {
        "rate": link.rate,
        "mtu": link.mtu,
        "delay": link.delay,
        "addresses": [list(pair) for pair in link.addresses] or None,
    }
    present = {key: value for key, value in keys.items() if value is not None}
    return {"a": a, "b": b, **present}


def guesses(lab: ImportedLab) -> Iterator[tuple[str, list[str]]]:
    """Each role that was guessed, with its nodes."""
    by_role: dict[str, list[str]] = {}
    for node, role in lab.guessed.items():
        by_role.setdefault(role, []).append(node)
    yield from by_role.items()
