"""The optimum: the least possible utilisation of the most used link, and a placement rounded from
it.

Computes the least maximum utilisation if flows may be split (a lower bound for every placement),
and a placement of whole flows. The linear programme is solved by HiGHS through
`scipy.optimize.linprog`; flows with the same choices are one commodity, so its size depends on the
fabric and not on the number of flows.
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
from rocelab.forwarding.network import Dag, Edge, Load, Network, Path, Placement, Step, placement

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
    """Demands with the same choices, and the optimum's rate over each of their edges."""

    dag: Dag
    demands: list[Demand]
    share: dict[Edge, float]


def place_lp(network: Network, demands: Sequence[Demand]) -> Optimum:
    """The optimum of split flows; each whole flow is then placed where most of it would go, and
    repaired.

    Raises MachineError if the solver fails.
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
    found: dict[tuple[str, frozenset[Edge]], _Commodity] = {}
    for demand in demands:
        ingress = network.ingress(demand)
        dag = network.dag(ingress, demand.key.destination_ip)
        if not dag:
            continue
        edges = frozenset(_shared_edges(network, dag))
        commodity = found.setdefault((ingress, edges), _Commodity(dag, [], {}))
        commodity.demands.append(demand)
    return list(found.values())


def _shared_edges(network: Network, dag: Dag) -> list[Edge]:
    return [step.edge for steps in dag.values() for step in steps if step.edge in network.shared]


def _solve(network: Network, commodities: Sequence[_Commodity]) -> float:
    """Fill in every commodity's shares and return the bound. Variable 0 is the utilisation; then
    there is one per commodity and edge for its rate, in units of the largest capacity."""
    columns = [
        (commodity, edge)
        for commodity in commodities
        for edge in _shared_edges(network, commodity.dag)
    ]
    if not columns:
        return 0.0
    unit = max(network.capacity_bps[edge] for _, edge in columns)
    kept = _Rows()
    kept_values: list[float] = []
    used = _Rows()
    row_of_edge: dict[Edge, int] = {}
    column = 1
    for commodity in commodities:
        supply = sum(demand.rate_bps for demand in commodity.demands) / unit
        rows = {}
        for switch, steps in commodity.dag.items():
            if any(step.edge in network.shared for step in steps):
                rows[switch] = len(kept_values)
                kept_values.append(0.0)
        if rows:
            kept_values[rows[next(iter(commodity.dag))]] = supply
        for steps in commodity.dag.values():
            for step in steps:
                if step.edge not in network.shared:
                    continue
                kept.add(rows[step.switch], column, 1.0)
                if step.to in rows:
                    kept.add(rows[step.to], column, -1.0)
                row = row_of_edge.setdefault(step.edge, len(row_of_edge))
                used.add(row, column, unit / network.capacity_bps[step.edge])
                column += 1
    for row in range(len(row_of_edge)):
        used.add(row, 0, -1.0)
    cost = np.zeros(column)
    cost[0] = 1.0
    solved = linprog(
        cost,
        A_ub=used.matrix(len(row_of_edge), column),
        b_ub=np.zeros(len(row_of_edge)),
        A_eq=kept.matrix(len(kept_values), column),
        b_eq=np.array(kept_values),
        method="highs",
    )
    if solved.status != 0:
        raise MachineError(f"the solver gave up: {solved.message}")
    for (commodity, edge), value in zip(columns, solved.x[1:], strict=True):
        commodity.share[edge] = float(value) * unit
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
    """The path over the largest remaining shares, from which the flow is subtracted.

    The steps are those of the flow's own route: routes with the same choices may order them
    differently.
    """
    switch = network.ingress(demand)
    dag = network.dag(switch, demand.key.destination_ip)
    path: list[Step] = []
    while switch in dag:
        step = max(dag[switch], key=lambda each: (commodity.share.get(each.edge, 0.0), -each.index))
        path.append(step)
        if step.edge in commodity.share:
            commodity.share[step.edge] -= demand.rate_bps
        switch = step.to
    return tuple(path)


def _repaired(
    network: Network, demands: Sequence[Demand], paths: dict[FlowKey, Path], bound: float
) -> Placement:
    """Move flows off the most used edge, one at a time, and keep the best placement seen.

    A flow that has just moved stays for a while (tabu search, Glover 1989), so that the flow that
    it now conflicts with moves next: on a two-tier Clos such a chain is the alternating path that
    routes permutations without conflict (Koenig's edge colouring).
    """
    by_key = {demand.key: demand for demand in demands if demand.key in paths}
    load = Load(network)
    on_edge: dict[Edge, dict[FlowKey, None]] = {}

    def put(key: FlowKey, path: Path) -> None:
        load.add(path, by_key[key].rate_bps)
        paths[key] = path
        for step in path:
            on_edge.setdefault(step.edge, {})[key] = None

    def take_off(key: FlowKey) -> Path:
        path = paths[key]
        load.add(path, -by_key[key].rate_bps)
        for step in path:
            del on_edge[step.edge][key]
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
        worst = draw.choice(sorted(edge for edge, each in used.items() if each >= most))
        tenure = draw.randint(1, LONGEST_STAY)
        choices = []
        for key in sorted(on_edge[worst]):
            if move - moved_at.get(key, -tenure) < tenure:
                continue
            path = take_off(key)
            other = best_path(network, load, by_key[key], avoid=path)
            put(key, path)
            if other is not None:
                rate_bps = by_key[key].rate_bps
                crowded = max(
                    (load.utilisation(s.edge, rate_bps) for s in other if s not in path),
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
    return placement(network, demands, best)


def _cost(load: Load) -> tuple[float, float]:
    """The greatest utilisation, then the inequality of all."""
    used = load.shared().values()
    return round(max(used, default=0.0), 9), round(sum(each * each for each in used), 9)
