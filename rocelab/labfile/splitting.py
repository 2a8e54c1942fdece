"""A graph whose nodes or links name their network becomes a graph for each of the networks.

In: a lab's file with a graph at its top and the block `networks`. Out: the same with the graph of
each network in its block, and the lines of all values. A switch has one network, which is that of
its links; servers may have links in several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from rocelab.base.errors import Problem
from rocelab.base.wording import KeyPath, dotted, name_hint, shown
from rocelab.labfile.source import MAX_PROBLEMS, Data, YamlSource, raise_problems

_KEY = "network"


def split_graph(source: YamlSource) -> YamlSource:
    """The file with a graph in each of its networks; as it is without a graph at its top. Raises
    SpecError for links without a network, or in two."""
    fabric, networks = source.data.get("fabric"), source.data.get("networks")
    if not isinstance(fabric, dict) or not isinstance(networks, dict):
        return source
    if fabric.get("kind") != "graph":
        return source
    return _Split(source, fabric, networks).made()


class _Split:
    """A graph while it is split."""

    def __init__(
        self, source: YamlSource, fabric: dict[str, Data], networks: dict[str, Data]
    ) -> None:
        self._source, self._fabric, self._networks = source, fabric, networks
        nodes, links = fabric.get("nodes"), fabric.get("links")
        self._nodes = nodes if isinstance(nodes, dict) else {}
        self._links = links if isinstance(links, list) else []
        self._lines = dict(source.lines)
        self._files = dict(source.files)
        self._problems: list[Problem] = []
        self._below: dict[int | str, list[KeyPath]] = {}
        for path in source.lines:
            if path[:2] in (("fabric", "nodes"), ("fabric", "links")) and len(path) > 2:
                self._below.setdefault(path[2], []).append(path)

    def made(self) -> YamlSource:
        """The file. Raises SpecError."""
        links: dict[str, list[Data]] = {name: [] for name in self._networks}
        nodes: dict[str, dict[str, Data]] = {name: {} for name in self._networks}
        placed: set[str] = set()
        for index, link in enumerate(self._links):
            network = self._network_of(index, link)
            if network is None:
                continue
            self._move(("fabric", "links", index), (network, "links", len(links[network])))
            links[network].append(_without_key(link))
            for end in _ends(link):
                if end in self._nodes:
                    placed.add(end)
                    self._add_node(nodes, network, end)
        if self._problems:
            raise_problems(self._problems[:MAX_PROBLEMS], untold=len(self._problems[MAX_PROBLEMS:]))
        first = next(iter(self._networks), None)
        for name in self._nodes:
            if any(mark in name for mark in "*?["):
                for network in self._networks:
                    self._add_node(nodes, network, name)
            elif name not in placed and first is not None:
                self._add_node(nodes, first, name)
        rest = {key: value for key, value in self._fabric.items() if key not in ("nodes", "links")}
        blocks: dict[str, Data] = {}
        for name, block in self._networks.items():
            graph: dict[str, Data] = {**rest, "nodes": nodes[name], "links": links[name]}
            self._lines.setdefault(("networks", name, "fabric"), self._line(("fabric",)))
            blocks[name] = {**block, "fabric": graph} if isinstance(block, dict) else block
        data = {key: value for key, value in self._source.data.items() if key != "fabric"}
        return YamlSource(self._source.file, {**data, "networks": blocks}, self._lines, self._files)

    def _line(self, path: KeyPath) -> int:
        return self._source.line(path) or 1

    def _add_node(self, nodes: dict[str, dict[str, Data]], network: str, name: str) -> None:
        nodes[network][name] = _without_key(self._nodes[name])
        self._move(("fabric", "nodes", name), (network, "nodes", name))

    def _move(self, path: KeyPath, to: tuple[str, str, str | int]) -> None:
        """Give what is in a network's graph the lines that it had."""
        network, *below = to
        here: KeyPath = ("networks", network, "fabric", *below)
        self._lines[here] = self._line(path)
        for other in self._below.get(path[2], ()):
            if other[: len(path)] == path:
                self._lines[(*here, *other[len(path) :])] = self._source.lines[other]
        file = self._source.file_of(path)
        if file != self._source.file:
            self._files[here] = file

    def _network_of(self, index: int, link: Data) -> str | None:
        """The network of a link. Notes a problem where there is none, or more than one."""
        path: KeyPath = ("fabric", "links", index)
        named = link.get(_KEY) if isinstance(link, dict) else None
        by_node = {end: self._network_of_node(end) for end in _ends(link)}
        if any(isinstance(network, list | dict) for network in (named, *by_node.values())):
            self._note(
                path,
                "a link, and so a NIC, is in one network",
                "draw one in each network, at its share of the rate",
            )
            return None
        networks = dict.fromkeys(
            network for network in (named, *by_node.values()) if network is not None
        )
        if len(networks) == 1:
            (network,) = networks
            if network in self._networks:
                return str(network)
            hint = name_hint(str(network), [*self._networks]) or "name it in networks"
            self._note(path, f"there is no network {shown(network)}", hint)
        elif not networks:
            self._note(
                path,
                "no network is known of the link",
                "give the link or one of its switches a network: leaf*: {role: leaf, network: "
                "backend}",
            )
        else:
            text = " and ".join(f"{end} in {network}" for end, network in by_node.items())
            self._note(
                path, f"the link joins two networks: {text}", "nothing routes between networks"
            )
        return None

    def _network_of_node(self, name: str) -> object:
        """What the graph says of a node's network, by its name or the first pattern."""
        node = self._nodes.get(name)
        if node is None:
            node = next(
                (block for text, block in self._nodes.items() if fnmatchcase(name, text)), None
            )
        return node.get(_KEY) if isinstance(node, dict) else None

    def _note(self, path: KeyPath, message: str, hint: str) -> None:
        source = self._source
        self._problems.append(
            Problem(source.file_of(path), source.line(path), dotted(path), message, hint)
        )


def _without_key(block: Data) -> Data:
    if not isinstance(block, dict):
        return block
    return {key: value for key, value in block.items() if key != _KEY}


def _ends(link: Data) -> Iterator[str]:
    """The nodes of a link, as far as they can be read: its own validation shows what is wrong."""
    ends: list[object] = []
    if isinstance(link, str):
        ends += [end.strip() for end in link.split("--")]
    elif isinstance(link, dict):
        ends += [link.get("a"), link.get("b")]
    for end in ends:
        if isinstance(end, Mapping):
            yield str(end.get("node"))
        elif isinstance(end, str):
            yield end.partition(":")[0]
