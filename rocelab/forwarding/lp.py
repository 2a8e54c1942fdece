"""The optimum: how low the most used link can be kept, and a placement rounded from it.

In: a network and demands. Out: the least possible maximum utilisation when flows may be split at
will (a lower bound for every placement), and a placement of whole flows. The linear programme is
solved by HiGHS through `scipy.optimize.linprog`; flows with the same choices are one commodity, so
its size follows from the fabric and not from the number of flows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import coo_array  # type: ignore[import-untyped]

from rocelab.errors import MachineError
from rocelab.forwarding.cspf import best_path
from rocelab.forwarding.demand import Demand, FlowKey
from rocelab.forwarding.network import Dag, Load, Network, Path, Placement, Step, placement
from rocelab.plan.fabric import DirectedLink

_ENOUGH = 1e-9
MOVES_PER_FLOW = 16
LONGEST_STAY = 10
MOST_MOVES = 2000


@dataclass(frozen=True, slots=True)
class Optimum:
    """`bound`: the least maximum utilisation of split flows; `placement` is of whole ones."""

    bound: float
    placement: Placement


@dataclass(slots=True)
class _Commodity:
    """Demands with the same choices, and how much the optimum sends over each of their links."""

    dag: Dag
    demands: list[Demand]
    share: dict[DirectedLink, float]


def place_lp(network: Network, demands: Sequence[Demand]) -> Optimum:
    """The optimum of split flows, each flow then put whole where most of it would go, repaired.

    Raises MachineError where the solver fails.
    """
    commodities = _commodities(network, demands)
    bound = _solve(network, commodities)
    paths: dict[FlowKey, Path] = {}
    for commodity in commodities:
        for demand in sorted(commodity.demands, key=lambda each: (-each.rate_bps, each.key)):
            paths[demand.key] = _take(network, commodity, demand)
    return Optimum(bound, _repaired(network, demands, paths, bound))


def lower_bound(network: Network, demands: Sequence[Demand]) -> float:
    """The least maximum utilisation that any placement of `demands` can have."""
    return _solve(network, _commodities(network, demands))


def _commodities(network: Network, demands: Sequence[Demand]) -> list[_Commodity]:
    found: dict[tuple[str, frozenset[DirectedLink]], _Commodity] = {}
    for demand in demands:
        ingress = network.ingress(demand)
        dag = network.dag(ingress, demand.key.destination_ip)
        if not dag:
            continue
        links = frozenset(_shared_links(dag))
        commodity = found.setdefault((ingress, links), _Commodity(dag, [], {}))
        commodity.demands.append(demand)
    return list(found.values())


def _shared_links(dag: Dag) -> list[DirectedLink]:
    return [step.link for steps in dag.values() for step in steps if step.link.is_between_switches]


def _solve(network: Network, commodities: Sequence[_Commodity]) -> float:
    """Fill in every commodity's shares; the bound. Variable 0 is the utilisation, then one each
    for what a commodity sends over a link, in units of the largest capacity."""
    columns = [
        (commodity, link) for commodity in commodities for link in _shared_links(commodity.dag)
    ]
    if not columns:
        return 0.0
    unit = max(link.link.rate_bps for _, link in columns)
    kept = _Rows()
    kept_values: list[float] = []
    used = _Rows()
    row_of_link: dict[DirectedLink, int] = {}
    column = 1
    for commodity in commodities:
        supply = sum(demand.rate_bps for demand in commodity.demands) / unit
        rows = {}
        for switch, steps in commodity.dag.items():
            if any(step.link.is_between_switches for step in steps):
                rows[switch] = len(kept_values)
                kept_values.append(0.0)
        if rows:
            kept_values[rows[next(iter(commodity.dag))]] = supply
        for steps in commodity.dag.values():
            for step in steps:
                if not step.link.is_between_switches:
                    continue
                kept.add(rows[step.switch], column, 1.0)
                if step.link.receiver in rows:
                    kept.add(rows[step.link.receiver], column, -1.0)
                row = row_of_link.setdefault(step.link, len(row_of_link))
                used.add(row, column, unit / step.link.link.rate_bps)
                column += 1
    for row in range(len(row_of_link)):
        used.add(row, 0, -1.0)
    cost = np.zeros(column)
    cost[0] = 1.0
    solved = linprog(
        cost,
        A_ub=used.matrix(len(row_of_link), column),
        b_ub=np.zeros(len(row_of_link)),
        A_eq=kept.matrix(len(kept_values), column),
        b_eq=np.array(kept_values),
        method="highs",
    )
    if solved.status != 0:
        raise MachineError(f"the solver gave up: {solved.message}")
    for (commodity, link), value in zip(columns, solved.x[1:], strict=True):
        commodity.share[link] = float(value) * unit
    return float(solved.x[0])


class _Rows:
    """A sparse matrix under construction."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []

    def add(self, row: int, column: int, value: float) -> None:
        self._rows.append(row)
        self._columns.append(column)
        self._values.append(value)

    def matrix(self, rows: int, columns: int) -> coo_array:
        return coo_array((self._values, (self._rows, self._columns)), shape=(rows, columns))


def _take(network: Network, commodity: _Commodity, demand: Demand) -> Path:
    """The path over the largest shares that are left, which the flow uses up.

    The steps are those of the flow's own route: routes of like choices may order them otherwise.
    """
    switch = network.ingress(demand)
    dag = network.dag(switch, demand.key.destination_ip)
    path: list[Step] = []
    while switch in dag:
        step = max(dag[switch], key=lambda each: (commodity.share.get(each.link, 0.0), -each.index))
        path.append(step)
        if step.link in commodity.share:
            commodity.share[step.link] -= demand.rate_bps
        switch = step.link.receiver
    return tuple(path)


def _repaired(
    network: Network, demands: Sequence[Demand], paths: dict[FlowKey, Path], bound: float
) -> Placement:
    """Move flows off the most used link, one at a time, and keep the best placement seen.

    A flow that has just moved stays for a while (tabu search, Glover 1989), so that the flow which
    it now crowds moves next: on a two-tier Clos such a chain is the alternating path by which
    permutations are routed without conflict (Koenig's edge colouring).
    """
    by_key = {demand.key: demand for demand in demands if demand.key in paths}
    load = Load()
    on_link: dict[DirectedLink, dict[FlowKey, None]] = {}

    def put(key: FlowKey, path: Path) -> None:
        load.add(path, by_key[key].rate_bps)
        paths[key] = path
        for step in path:
            on_link.setdefault(step.link, {})[key] = None

    def take_off(key: FlowKey) -> Path:
        path = paths[key]
        load.add(path, -by_key[key].rate_bps)
        for step in path:
            del on_link[step.link][key]
        return path

    for key in by_key:
        put(key, paths[key])
    best, best_cost = dict(paths), _cost(load)
    moved_at: dict[FlowKey, int] = {}
    draw = random.Random(0)  # noqa: S311 - repeatable draws, not secrets
    for move in range(min(MOST_MOVES, MOVES_PER_FLOW * len(by_key))):
        if best_cost[0] <= bound + _ENOUGH:
            break
        used = load.shared()
        most = max(used.values()) - _ENOUGH
        crowded_links = [link for link, each in used.items() if each >= most]
        worst = draw.choice(sorted(crowded_links, key=lambda each: (each.sender, each.name)))
        tenure = draw.randint(1, LONGEST_STAY)
        choices = []
        for key in sorted(on_link[worst]):
            if move - moved_at.get(key, -tenure) < tenure:
                continue
            path = take_off(key)
            other = best_path(network, load, by_key[key], avoid=path)
            put(key, path)
            if other is not None:
                rate_bps = by_key[key].rate_bps
                crowded = max(
                    (load.utilisation(s.link, rate_bps) for s in other if s not in path),
                    default=0.0,
                )
                choices.append((crowded, draw.random(), key, other))
        if not choices:
            continue
        _, _, key, other = min(choices, key=lambda choice: choice[:2])
        take_off(key)
        put(key, other)
        moved_at[key] = move
        cost = _cost(load)
        if cost < best_cost:
            best, best_cost = dict(paths), cost
    return placement(demands, best)


def _cost(load: Load) -> tuple[float, float]:
    """The greatest utilisation, then how unequal they are."""
    used = load.shared().values()
    return round(max(used, default=0.0), 9), round(sum(each * each for each in used), 9)
