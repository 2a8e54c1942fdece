"""A prediction as a document: links, tiers, polarization, worst links.

`prediction` makes a `rocelab.results.prediction.Prediction` from the loads of a traffic matrix
(`rocelab.prediction.loads`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.base.arrays import Longs
from rocelab.planning.fabric import Direction, Fabric
from rocelab.prediction.loads import LinkLoads, by_link
from rocelab.prediction.matrix import Matrix
from rocelab.results.prediction import (
    SCHEMA_VERSION,
    LinkPrediction,
    Prediction,
    TierPrediction,
    WorstLink,
)
from rocelab.routes.balance import balance, link_loads, polarization, tier_balances
from rocelab.routes.models import Model

WORST = 10


def prediction(
    fabric: Fabric,
    matrix: Matrix,
    loads: LinkLoads,
    *,
    tables: str,
    model: Model,
    notes: Sequence[str] = (),
) -> Prediction:
    """The document of a matrix's loads."""
    spec = fabric.spec
    links = _links(fabric, loads)
    return Prediction(
        schema_version=SCHEMA_VERSION,
        lab=spec.name,
        tables=tables,
        model=model.value,
        scheme=spec.scheme.model_dump(mode="json"),
        hashing=spec.hashing.model_dump(mode="json"),
        notes=tuple(notes),
        flows=len(matrix),
        bytes=_total(matrix.bytes),
        packets=_total(matrix.packets),
        links=links,
        tiers=_tiers(fabric, loads),
        polarizations=tuple(polarization(pairs) for pairs in loads.choices),
        worst=_worst(fabric, links),
    )


def _total(values: Longs | None) -> int | None:
    return None if values is None else int(values.sum())


def _links(fabric: Fabric, loads: LinkLoads) -> tuple[LinkPrediction, ...]:
    values = [
        [None] * len(fabric.directed_links) if counts is None else counts.tolist()
        for counts in (loads.bytes, loads.packets)
    ]
    return tuple(
        LinkPrediction(link.name, link.sender, link.tier, link.direction, *carried)
        for link, *carried in zip(fabric.directed_links, loads.flows.tolist(), *values, strict=True)
    )


def _tiers(fabric: Fabric, loads: LinkLoads) -> tuple[TierPrediction, ...]:
    by_flows = tier_balances(link_loads(fabric, by_link(fabric, loads.flows)), loads.crossing)
    size: dict[tuple[str, Direction], list[int]] = {}
    if loads.bytes is not None:
        for load in link_loads(fabric, by_link(fabric, loads.bytes)):
            size.setdefault((load.tier, load.direction), []).append(load.packets)
    return tuple(
        TierPrediction(
            tier.tier,
            tier.direction,
            tier,
            balance(size[tier.tier, tier.direction]) if size else None,
        )
        for tier in by_flows
    )


def _worst(fabric: Fabric, links: Sequence[LinkPrediction]) -> tuple[WorstLink, ...]:
    between = [
        link
        for link, directed in zip(links, fabric.directed_links, strict=True)
        if directed.link.is_between_switches
    ]
    loads: dict[tuple[str, Direction], list[int]] = {}
    for link in between:
        loads.setdefault((link.tier, link.direction), []).append(_load(link))
    ordered = sorted(
        (link for link in between if link.flows),
        key=lambda link: _load(link) / fabric.link_by_name[link.link].rate_bps,
        reverse=True,
    )
    return tuple(
        WorstLink(
            link.link,
            link.sender,
            link.flows,
            link.bytes,
            _load(link) * len(tier) / max(1, sum(tier)),
        )
        for link in ordered[:WORST]
        for tier in (loads[link.tier, link.direction],)
    )


def _load(link: LinkPrediction) -> int:
    return link.flows if link.bytes is None else link.bytes
