"""Links between switches that are alike: a symmetry of the fabric maps one to the other.

What holds after the failure of a link then holds after that of each link like it, with other names.
In a fabric of shortest paths (`routes`), a symmetry is a permutation of the switches that keeps how
many links join each two, which of them have servers, and which sets of them announce a prefix of
servers. It is found by guessing and is checked before it counts, so links are never called alike
that are not; links that are alike may be missed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rocelab.planning.fabric import Fabric, Link

Vertex = str | tuple[str, ...]
"""A switch, or the switches that announce a prefix, in a graph where these have edges to it."""

Graph = Mapping[Vertex, Mapping[Vertex, int]]
"""The neighbours of each vertex, in build order, with the number of edges to each."""

Colours = Mapping[Vertex, int]


def alike(
    fabric: Fabric, racks: Collection[str], destinations: Sequence[tuple[str, ...]]
) -> list[tuple[Link, ...]]:
    """The links between switches in sets of links that are alike, in build order by their first.

    racks: the switches with servers. destinations: the sets of switches that announce a prefix of
    servers, each once.
    """
    graph = _graph(fabric, destinations)
    kinds = {
        vertex: 1 + len(vertex) if isinstance(vertex, tuple) else int(vertex in racks)
        for vertex in graph
    }
    numbers: dict[tuple[object, ...], int] = {}
    colours = _refined(graph, kinds, numbers)
    pairs = dict.fromkeys((link.a.node, link.b.node) for link in fabric.trunks)
    of_colours: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for a, b in pairs:
        of_colours.setdefault((colours[a], colours[b]), []).append((a, b))
    orbits = {frozenset(pair): [frozenset(pair)] for pair in pairs}

    def order(ends: tuple[str, str]) -> list[Vertex]:
        return _order(graph, _refined(graph, {**kinds, ends[0]: -1, ends[1]: -2}, numbers), ends)

    for first, *others in of_colours.values():
        # The last first: the ones before it then move up by one each, which joins them all.
        for other in reversed(others):
            if orbits[frozenset(first)] is orbits[frozenset(other)]:
                continue
            image: dict[Vertex, Vertex] = {vertex: vertex for vertex in graph}
            image.update(zip(order(first), order(other), strict=False))
            if not _is_symmetry(graph, kinds, image):
                break
            _join(orbits, image)
    by_orbit: dict[int, list[Link]] = {}
    for link in fabric.trunks:
        orbit = orbits[frozenset((link.a.node, link.b.node))]
        by_orbit.setdefault(id(orbit), []).append(link)
    return [tuple(links) for links in by_orbit.values()]


def _graph(fabric: Fabric, destinations: Sequence[tuple[str, ...]]) -> Graph:
    graph: dict[Vertex, dict[Vertex, int]] = {node.name: {} for node in fabric.switches}
    edges: list[tuple[Vertex, Vertex]] = [(link.a.node, link.b.node) for link in fabric.trunks]
    for origins in destinations:
        graph[origins] = {}
        edges += [(origins, origin) for origin in origins]
    for one, other in edges:
        graph[one][other] = graph[other][one] = graph[one].get(other, 0) + 1
    return graph


def _refined(graph: Graph, colours: Colours, numbers: dict[tuple[object, ...], int]) -> Colours:
    """Colours that also tell apart vertices whose neighbours' colours differ (Weisfeiler and Leman,
    1968). `numbers` gives the same colour the same number in each call."""
    before = 0
    while (now := len(set(colours.values()))) > before:
        before = now
        seen = {
            vertex: (
                colours[vertex],
                *sorted((colours[neighbour], edges) for neighbour, edges in near.items()),
            )
            for vertex, near in graph.items()
        }
        colours = {vertex: numbers.setdefault(key, len(numbers)) for vertex, key in seen.items()}
    return colours


def _order(graph: Graph, colours: Colours, ends: tuple[str, str]) -> list[Vertex]:
    """The vertices by their distance from two, neighbours by colour and then in build order."""
    order: dict[Vertex, None] = dict.fromkeys(ends)
    queue: list[Vertex] = list(ends)
    for vertex in queue:
        for neighbour in sorted(graph[vertex], key=colours.__getitem__):
            if neighbour not in order:
                order[neighbour] = None
                queue.append(neighbour)
    return queue


def _is_symmetry(graph: Graph, kinds: Colours, image: Mapping[Vertex, Vertex]) -> bool:
    return len(set(image.values())) == len(graph) and all(
        kinds[vertex] == kinds[image[vertex]]
        and {image[neighbour]: edges for neighbour, edges in near.items()} == graph[image[vertex]]
        for vertex, near in graph.items()
    )


def _join(
    orbits: dict[frozenset[str], list[frozenset[str]]], image: Mapping[Vertex, Vertex]
) -> None:
    """Put each pair of switches into one set with its image."""
    for pair in orbits:
        other = frozenset(str(image[switch]) for switch in pair)
        small, large = sorted((orbits[pair], orbits[other]), key=len)
        if small is not large:
            large += small
            orbits.update(dict.fromkeys(small, large))
