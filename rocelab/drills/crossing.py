"""Flows that cross the links that a phase's faults break.

Which links a flow takes follows from its addresses and its source port, and can be predicted from
the tables of the running switches. So a phase that asks for flows across its broken links gets
them: of the flows that the seed gives it, some of those that do not cross give way to others that
do. Pure, but for the tables.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice, zip_longest

from rocelab.base.errors import InputError
from rocelab.base.wording import listed
from rocelab.drills.plan import ProbePhase
from rocelab.faults.base import LinksFault, Timed
from rocelab.jobs.flow import FIRST_QP, ProbeStream, permutation
from rocelab.jobs.sport import FIRST_SPORT, QPN_LIMIT, SPORTS
from rocelab.linux.fibtable import FibOf
from rocelab.planning.fabric import DirectedLink, Direction, Fabric
from rocelab.prediction.matrix import row_of_probe
from rocelab.prediction.predictor import Setting, paths_on
from rocelab.traffic.demand import probe_demands

Path = tuple[DirectedLink, ...]

_DRAWN = 4096
"""Flows that are drawn to find some that cross."""


def crossing_flows(lab: Fabric, phase: ProbePhase, fib_of: FibOf) -> tuple[ProbeStream, ...]:
    """The phase's flows, of which `spec.crossing` or more take a link that its faults break, by
    these tables.

    They are the planned ones if enough of these cross. Otherwise others take the places of the last
    ones that do not cross; no link on a path gets more than it carries. Raises InputError if fewer
    of the drawn flows cross, NoPathError if a flow has no path.
    """
    wanted, fabric = phase.spec.crossing, phase.fabric
    broken = _broken(lab, phase.faults)
    flows, paths = list(phase.flows), _paths(fabric, phase.flows, fib_of)
    crosses = [_crossed(path, broken) is not None for path in paths]
    if sum(crosses) >= wanted:
        return phase.flows
    loads = Counter[DirectedLink]()
    bps = probe_demands(fabric, flows[:1])[0].bits_per_second
    for path in paths:
        loads.update(path)
    queue_pairs = {flow.dest_qp for flow in flows}
    others = _others(lab, phase, broken, fib_of)
    for place in reversed([place for place, across in enumerate(crosses) if not across]):
        loads.subtract(paths[place])
        for flow, path in others:
            fits = all((loads[link] + 1) * bps <= link.link.rate_bps for link in path)
            if fits and flow.dest_qp not in queue_pairs:
                break
        else:
            raise InputError(
                f"{sum(crosses)} of {len(flows)} flows cross {_named(broken)}, and crossing asks "
                f"for {wanted}: no other of {2 * _DRAWN:,} drawn flows does that links can carry",
                hint="break a link between servers of two racks, or lower crossing, "
                "traffic.rate_pps or traffic.payload in a copy of the drill",
            )
        flows[place], crosses[place] = replace(flow, id=place), True
        queue_pairs.add(flow.dest_qp)
        loads.update(path)
        if sum(crosses) == wanted:
            break
    return tuple(flows)


def _others(
    lab: Fabric, phase: ProbePhase, broken: frozenset[str], fib_of: FibOf
) -> Iterator[tuple[ProbeStream, Path]]:
    """Flows that cross, with their paths: first of any pairs of servers, then, with further source
    ports, of those of which one hangs on a switch with a broken link."""
    fabric, traffic = phase.fabric, phase.traffic
    drawn = permutation(fabric, _DRAWN, traffic.rate_pps, traffic.payload, traffic.seed + 1)
    yield from _alternating(zip(drawn, _paths(fabric, drawn, fib_of), strict=True), broken)
    broken_links = [lab.link_by_name[name] for name in broken]
    ends = {node for link in broken_links for node in (link.a.node, link.b.node)}

    def is_near(flow: ProbeStream) -> bool:
        nics = ((flow.source, flow.source_nic), (flow.destination, flow.destination_nic))
        links = (link for name, number in nics for link in fabric.nics(name)[number - 1].links)
        return any(link.b.node in ends for link in links)

    near = list(filter(is_near, drawn))
    rng = random.Random(traffic.seed)  # noqa: S311 - repeatable draws, not secrets
    more = [
        replace(
            flow,
            sport=FIRST_SPORT + rng.randrange(SPORTS),
            dest_qp=rng.randrange(FIRST_QP, QPN_LIMIT),
        )
        for flow in islice(cycle(near), _DRAWN)
    ]
    yield from _alternating(zip(more, _paths(fabric, more, fib_of), strict=True), broken)


def _broken(lab: Fabric, faults: Iterable[Timed]) -> frozenset[str]:
    """The names of the links that faults change: their own, or all of their nodes."""
    names: set[str] = set()
    for timed in faults:
        fault = timed.spec.resolve(lab)
        if isinstance(fault, LinksFault):
            links = fault.links
        else:
            links = tuple(link for node in fault.nodes for link in lab.links_of[node])
        names |= {link.name for link in links}
    return frozenset(names)


def _crossed(path: Path, broken: frozenset[str]) -> DirectedLink | None:
    """The first broken link of a path, None if it has none."""
    return next((link for link in path if link.name in broken), None)


def _alternating(
    drawn: Iterable[tuple[ProbeStream, Path]], broken: frozenset[str]
) -> Iterator[tuple[ProbeStream, Path]]:
    """Those that cross, one up and one down in turn: which routers have to learn of a loss, and
    how long that takes, differs by direction."""
    ways: dict[Direction, list[tuple[ProbeStream, Path]]] = {way: [] for way in Direction}
    for flow, path in drawn:
        if link := _crossed(path, broken):
            ways[link.direction].append((flow, path))
    for turn in zip_longest(*ways.values()):
        yield from (one for one in turn if one is not None)


def _paths(fabric: Fabric, flows: Sequence[ProbeStream], fib_of: FibOf) -> list[Path]:
    rows = [row_of_probe(flow) for flow in flows]
    return paths_on(fabric, rows, Setting(fib_of))


def _named(links: frozenset[str]) -> str:
    return listed(sorted(links)) if len(links) <= 4 else f"the {len(links)} broken links"
