"""Reads a topology of containerlab as a graph: what its nodes are, and its cables.

Node, group, kind and defaults are resolved as containerlab 0.79 does (types/topology.go), links as
in its links/link.go. What containerlab refuses is refused here, by line, and so is what would make
another fabric of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from rocelab.base.errors import InputError
from rocelab.base.wording import counted, name_hint, shown
from rocelab.importing.policy import configurations, statements
from rocelab.importing.roles import group_tier
from rocelab.importing.topology import DrawnLink, DrawnNode, ImportedTopology
from rocelab.labfile.topology import TopologyFile, is_null
from rocelab.labfile.variables import UNSET

ROUTES = re.compile(
    r"frr|bird|quagga|gobgp|openbgpd|sonic|cumulus|vyos|srlinux|ceos", re.IGNORECASE
)
"""Matches the image or a bound file of a node that routes."""
_ROUTING_COMMAND = re.compile(r"\b(?:vtysh|birdc?|gobgp|frrinit|watchfrr|bgpd|ospfd|zebra)\b")
_IDLE = re.compile(r"\b(?:sleep|tail|sh|bash|ash|iperf3?|nginx|cat)\b")
"""Matches a command that stands in place of an image's own, and starts no routing."""
_SWITCH_KIND = re.compile(
    r"(?:vr-)?(?:6wind_vsr|(?:arrcus_)?arcos|c8000|cisco_(?:c8000v?|cat9kv|csr1000v|iol|n9kv|sdwan"
    r"|vios|xrd(?:_vrouter)?|xrv9?k?)|(?:arista_)?[cv]eos|ciena_saos|(?:juniper_)?(?:c?junosevolved"
    r"|crpd|vjunosevolved|vjunosrouter|vjunosswitch|vmx|vqfx)|cvx|cumulus_cvx|dell_(?:ftosv|sonic)"
    r"|frr(?:outing_frr)?"
    r"|ftosv|fdio_vpp|huawei_vrp|ipinfusion_ocnos|nvidia_cumulusvx|plvision_sonic|rare|sonic-v[sm]"
    r"|srl|nokia_(?:srlinux|sros|srsim)|sros|(?:aruba_)?aoscx|(?:mikrotik_)?ros|csr|n9kv|xrv9?k?|xrd"
    r"|vyosnetworks_vyos|veesix_osvbng)"
)
"""Matches the kinds of containerlab 0.79 that are routers or switches."""
_DECIDES = frozenset({"kind", "group", "image", "network-mode"})
"""What says what a node is; elsewhere a $ may be part of a password."""
_ROUTER_GROUPS = frozenset({"router", "routers", "switch", "switches"})
_SEGMENTS = frozenset({"bridge", "ovs-bridge", "host"})
_TWO_ENDS, _BRIEF = frozenset({"veth", "veth-stitch"}), frozenset({"", "brief"})
_ONE_END = frozenset({"host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy"})
_OUTSIDE = frozenset({"host", "mgmt-net", "macvlan"})
"""What stands for a node in a brief endpoint and is none."""
_NETLABS = frozenset({"module", "provider", "plugin", "addressing", "fabric", "validate"})
"""Keys at the top of netlab's topologies that containerlab's do not have."""
_PORT_HINT = "an end is NODE:PORT"


@dataclass(frozen=True, slots=True)
class _Settings:
    """What is set for a node, by the node itself, its group, its kind, or the defaults."""

    kind: str
    group: str
    image: str
    command: str
    network_mode: str
    startup_config: str
    binds: tuple[str, ...]
    exec: tuple[str, ...]


def read_containerlab(path: Path, environment: Mapping[str, str]) -> ImportedTopology:
    """The graph in a topology file. Raises SpecError with every problem, InputError for a file of
    another kind."""
    file = TopologyFile(path, environment)
    top = file.fields(file.root, "the file")
    if _is_of_netlab(top):
        raise InputError(
            f"{file.file} is a topology of netlab, which only netlab expands",
            "write it as JSON with `netlab create -o json`, and import that file",
        )
    for misplaced in top.keys() & {"nodes", "links", "kinds", "groups", "defaults"}:
        file.note(top[misplaced], f"{misplaced} stands at the top", "it belongs under topology")
    topology = file.fields(top.get("topology"), "topology")
    drawn = file.fields(topology.get("nodes"), "topology.nodes")
    file.check()
    if not drawn:
        raise InputError(
            f"{file.file} is no topology of containerlab: it has no topology.nodes",
            "name a file such as mine.clab.yml",
        )
    settings = {name: _settings(file, topology, name, node) for name, node in drawn.items()}
    for name in filter(_is_outside, drawn):
        file.note(drawn[name], f"a node is called {name}, which stands for the machine in links")
    links = _Links(file, drawn)
    for link in file.items(topology.get("links"), "topology.links"):
        links.read(link)
    name = file.text(top.get("name"), "name")
    _check_set(file, top.get("name"), name, "name")
    file.check()
    sharing = {name for name, node in settings.items() if _is_sidecar(node)} - links.wired
    routed = any(_is_configured(node) for node in settings.values())
    return ImportedTopology(
        name or path.name.partition(".")[0],
        {
            name: _drawn(node, routed=routed)
            for name, node in settings.items()
            if name not in sharing and not (_is_segment(node) and name not in links.wired)
        },
        links.cables,
        (*links.left_out, *(f"{name} (in the network of another container)" for name in sharing)),
        {
            name: tuple(dict.fromkeys(_configured(path.parent, name, node)))
            for name, node in settings.items()
        },
    )


def _is_of_netlab(top: Mapping[str, yaml.Node]) -> bool:
    """Whether a file with these keys is netlab's own YAML: nodes and links stand at its top, and
    links name no endpoints."""
    nodes, links = top.get("nodes"), top.get("links")
    if nodes is None or "topology" in top:
        return False
    if any(key in _NETLABS or key.startswith("defaults.") for key in top):
        return True
    written = links.value if isinstance(links, yaml.SequenceNode) else []
    return isinstance(nodes, yaml.SequenceNode) or any(
        not isinstance(link, yaml.MappingNode)
        or all(key.value != "endpoints" for key, _ in link.value)
        for link in written
    )


def _check_set(file: TopologyFile, node: yaml.Node | None, text: str, what: str) -> None:
    if unset := UNSET.search(text):
        message = f"{what} has the variable {unset[1]}, which is not set"
        file.note(node, message, f"set it, or give it a default: ${{{unset[1]}:=...}}")


def _settings(
    file: TopologyFile, topology: Mapping[str, yaml.Node], name: str, written: yaml.Node
) -> _Settings:
    fields = file.fields(written, f"node {shown(name)}")
    defaults = file.fields(topology.get("defaults"), "topology.defaults")
    groups = file.fields(topology.get("groups"), "topology.groups")
    kinds = file.fields(topology.get("kinds"), "topology.kinds")

    def level(of: Mapping[str, yaml.Node], key: str, what: str) -> dict[str, yaml.Node]:
        return file.fields(of.get(key), f"{what} {shown(key)}")

    def first(key: str, *levels: Mapping[str, yaml.Node]) -> str:
        node = next((of[key] for of in levels if not is_null(of.get(key)) and of[key].value), None)
        text = file.text(node, f"{key} of {shown(name)}")
        if key in _DECIDES:
            _check_set(file, node, text, f"{key} of {shown(name)}")
        return text

    group_of_own = level(groups, first("group", fields), "group")
    group_of_all = level(groups, first("group", defaults), "group")
    kind = first("kind", fields, group_of_own, group_of_all, defaults)
    of_kind = level(kinds, kind, "kind")
    group = first("group", fields, of_kind, defaults)
    levels = (fields, level(groups, group, "group"), of_kind, defaults)

    def every(key: str) -> Iterator[str]:
        """Items of a list, of which each level adds its own, the most general first."""
        for of in reversed(levels):
            value = of.get(key)
            what = f"{key} of {shown(name)}"
            if isinstance(value, yaml.ScalarNode):
                yield file.text(value, what)
            else:
                yield from (file.text(item, what) for item in file.items(value, what))

    if not kind:
        file.note(written, f"node {shown(name)} has no kind", "`kind: linux` is a plain container")
    return _Settings(
        kind=kind.lower(),
        group=group,
        image=first("image", *levels),
        command=" ".join(filter(None, (first("entrypoint", *levels), first("cmd", *levels)))),
        network_mode=first("network-mode", *levels),
        startup_config=first("startup-config", *levels),
        binds=tuple(every("binds")),
        exec=tuple(every("exec")),
    )


class _Links:
    """The links of a file: cables between its nodes, and what is left out."""

    def __init__(self, file: TopologyFile, nodes: Mapping[str, object]) -> None:
        self._file, self._nodes = file, nodes
        self._used: dict[tuple[str, str], yaml.Node] = {}
        self.cables: list[DrawnLink] = []
        self.left_out: list[str] = []
        self.wired: set[str] = set()

    def read(self, link: yaml.Node) -> None:
        """Add a link, in the brief or the extended notation."""
        fields = self._file.fields(link, "a link")
        kind = self._file.text(fields.get("type"), "the type of a link").strip().lower()
        if kind in _ONE_END:
            end = self._extended(fields.get("endpoint"), link)
            if end is not None:
                self._use(*end, link)
                self.left_out.append(f"{end[0]}:{end[1]} ({kind})")
        elif kind in _TWO_ENDS or kind in _BRIEF:
            read: Callable[..., tuple[str, str] | None] = (
                self._brief if kind in _BRIEF else self._extended
            )
            self._cable(fields.get("endpoints"), link, read)
        else:
            hint = name_hint(kind, _TWO_ENDS | _ONE_END)
            self._file.note(link, f"{shown(kind)} is no type of a link", hint)

    def _cable(
        self,
        node: yaml.Node | None,
        link: yaml.Node,
        read: Callable[..., tuple[str, str] | None],
    ) -> None:
        items = self._file.items(node, "endpoints")
        if len(items) != 2:
            if isinstance(node, yaml.SequenceNode) or is_null(node):
                self._file.note(link, f"a link has {counted(len(items), 'end')}, expected 2")
            return
        one, other = (read(item, link) for item in items)
        if one is None or other is None:
            return
        inside = [end for end in (one, other) if not _is_outside(end[0])]
        for end in inside:
            self._use(*end, link)
        if len(inside) == 2:
            self.cables.append(DrawnLink(one, other))
        else:
            kind = next(end[0] for end in (one, other) if _is_outside(end[0])).strip().lower()
            self.left_out += [f"{node}:{port} ({kind})" for node, port in inside]

    def _brief(self, item: yaml.Node, link: yaml.Node) -> tuple[str, str] | None:
        if isinstance(item, yaml.MappingNode):
            self._file.note(item, "an end of a link without type is a block", "add `type: veth`")
            return None
        text = self._file.text(item, "an end of a link")
        node, _, port = text.partition(":")
        if not port:
            self._file.note(item, f"the end {shown(text)} of a link has no port", _PORT_HINT)
            return None
        return node, port

    def _extended(self, item: yaml.Node | None, link: yaml.Node) -> tuple[str, str] | None:
        if isinstance(item, yaml.ScalarNode) and not is_null(item):
            return self._brief(item, link)
        fields = self._file.fields(item, "an end of a link")
        node = self._file.text(fields.get("node"), "the node of a link")
        port = self._file.text(fields.get("interface"), "the interface of a link")
        if not node or not port:
            lacks = "node" if not node else "interface"
            self._file.note(item if fields else link, f"an end of a link has no {lacks}")
            return None
        return node, port

    def _use(self, node: str, port: str, link: yaml.Node) -> None:
        self.wired.add(node)
        if node not in self._nodes:
            hint = name_hint(node, self._nodes.keys())
            unset = UNSET.search(node)
            if unset:
                hint = f"the variable {unset[1]} is not set"
            self._file.note(link, f"a link ends at {shown(node)}, which is no node", hint)
        elif (node, port) in self._used:
            first = self._used[node, port].start_mark
            at = f", first on line {first.line + 1}" if first else ""
            self._file.note(link, f"{shown(f'{node}:{port}')} is the end of two links{at}")
        else:
            self._used[node, port] = link


def _is_outside(node: str) -> bool:
    return node.strip().lower() in _OUTSIDE


def _is_segment(node: _Settings) -> bool:
    return node.kind in _SEGMENTS


def _is_sidecar(node: _Settings) -> bool:
    return node.network_mode.startswith("container:") and not _is_segment(node)


def _is_configured(node: _Settings) -> bool:
    """Whether a plain container is given the configuration of a router."""
    binds = any(ROUTES.search(bind) for bind in node.binds)
    return binds or any(_ROUTING_COMMAND.search(command) for command in node.exec)


def _drawn(node: _Settings, *, routed: bool) -> DrawnNode:
    """`routed`: whether any plain container is given the configuration of a router."""
    is_switch: bool | None = None
    doubt = ""
    if _is_segment(node):
        doubt = f"is no switch of a Clos: its kind is {node.kind}"
    elif node.kind == "linux":
        routes, idles = bool(ROUTES.search(node.image)), bool(_IDLE.search(node.command))
        if _is_configured(node) or node.group.lower() in _ROUTER_GROUPS:
            is_switch = True
        elif routes and routed and not idles:
            doubt = "runs the image of a router, and has no configuration as others have"
        else:
            is_switch = routes and not idles
    elif _SWITCH_KIND.fullmatch(node.kind):
        is_switch = True
    else:
        doubt = f"is of kind {shown(node.kind)}, which may be a switch or a server"
    tier = None if _is_segment(node) else group_tier(node.group)
    return DrawnNode(is_switch, doubt, tier, node.group)


def _configured(folder: Path, name: str, node: _Settings) -> Iterator[str]:
    """What the configuration of a node says that the shape does not, or why it is not known."""
    files: list[Path] = []
    sources = {bind.split(":")[1]: bind.split(":")[0] for bind in node.binds if ":" in bind}
    for source in sources.values():
        # Not Path.expanduser, which raises for a user who does not exist.
        source = os.path.expanduser(_with_names(source, name))  # noqa: PTH111
        files += configurations(folder / source)
    if startup := node.startup_config.strip():
        first = startup.splitlines()[0]  # it may be the text itself
        yield f"startup-config {shown(first)}, which is not read"
    for file in dict.fromkeys(files):
        yield from statements(file)
    yield from (f"exec: {' '.join(command.split())}" for command in node.exec)


def _with_names(source: str, node: str) -> str:
    return source.replace("__clabNodeName__", node)
