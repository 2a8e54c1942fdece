"""The document of a prediction: loads of links, their balance, polarization, worst links.

`prediction` makes a frozen `Prediction` from the loads of a traffic matrix
(`rocelab.predict.loads`), which `rocelab.documents.to_json` writes. docs/documents.md is generated
from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocelab.forwarding.balance import (
    Balance,
    LinkLoad,
    Polarization,
    TierBalance,
    balance,
    polarization,
    tier_balances,
)
from rocelab.plan.fabric import Direction
from rocelab.predict.choice import Model
from rocelab.predict.loads import LinkLoads
from rocelab.predict.matrix import Matrix
from rocelab.predict.wires import Ints, Wires

SCHEMA_VERSION = 1
WORST = 10


@dataclass(frozen=True, slots=True)
class LinkPrediction:
    """The load that `sender` puts on a link. `bytes` (payload) and `packets` (of data) are None if
    unknown."""

    link: str
    sender: str
    tier: str
    direction: Direction
    flows: int
    bytes: int | None
    packets: int | None


@dataclass(frozen=True, slots=True)
class TierPrediction:
    """A tier of links between switches in one direction. `flows` has the balance of flow counts,
    compared with uniform random hashing of as many flows; `bytes` has that of payload over all its
    links."""

    tier: str
    direction: Direction
    flows: TierBalance
    bytes: Balance | None


@dataclass(frozen=True, slots=True)
class WorstLink:
    """A link between switches with the highest load for its rate; `of_mean` is its load over the
    mean of its tier and direction, in bytes if known, else in flows."""

    link: str
    sender: str
    flows: int
    bytes: int | None
    of_mean: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """A traffic matrix on a lab.

    tables: `kernel` for those of the running switches, else `planned`. notes: the inexact parts.
    bytes, packets: None if unknown. worst: the links with the highest load for their
    rate.
    """

    schema_version: int
    lab: str
    tables: str
    model: str
    scheme: dict[str, Any]
    hashing: dict[str, Any]
    notes: tuple[str, ...]
    flows: int
    bytes: int | None
    packets: int | None
    links: tuple[LinkPrediction, ...]
    tiers: tuple[TierPrediction, ...]
    polarizations: tuple[Polarization, ...]
    worst: tuple[WorstLink, ...]


def prediction(
    wires: Wires,
    matrix: Matrix,
    loads: LinkLoads,
    *,
    tables: str,
    model: Model,
    notes: Sequence[str] = (),
) -> Prediction:
    """The document of a matrix's loads."""
    spec = wires.fabric.spec
    links = _links(wires, loads)
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
        tiers=_tiers(wires, loads),
        polarizations=tuple(polarization(pairs) for pairs in loads.choices),
        worst=_worst(wires, links),
    )


def switch_loads(wires: Wires, values: Ints) -> list[LinkLoad]:
    """Values of sends as the loads of links between switches, in both directions."""
    fabric = wires.fabric
    return [
        LinkLoad.of(directed, int(values[send]))
        for send, directed in enumerate(fabric.directed_links)
        if fabric.carries_session(directed)
    ]


def _total(values: Ints | None) -> int | None:
    return None if values is None else int(values.sum())


def _at(values: Ints | None, send: int) -> int | None:
    return None if values is None else int(values[send])


def _links(wires: Wires, loads: LinkLoads) -> tuple[LinkPrediction, ...]:
    return tuple(
        LinkPrediction(
            link=directed.link.name,
            sender=directed.sender,
            tier=directed.tier,
            direction=directed.direction,
            flows=int(loads.flows[send]),
            bytes=_at(loads.bytes, send),
            packets=_at(loads.packets, send),
        )
        for send, directed in enumerate(wires.fabric.directed_links)
    )


def _tiers(wires: Wires, loads: LinkLoads) -> tuple[TierPrediction, ...]:
    by_flows = tier_balances(switch_loads(wires, loads.flows), loads.crossing)
    size: dict[tuple[str, Direction], list[int]] = {}
    if loads.bytes is not None:
        for load in switch_loads(wires, loads.bytes):
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


def _worst(wires: Wires, links: Sequence[LinkPrediction]) -> tuple[WorstLink, ...]:
    fabric = wires.fabric
    between = [each for each in links if fabric.node(each.link.partition(":")[0]).is_switch]
    loads: dict[tuple[str, Direction], list[int]] = {}
    for each in between:
        loads.setdefault((each.tier, each.direction), []).append(_load(each))
    ordered = sorted(
        (each for each in between if each.flows),
        key=lambda each: _load(each) / fabric.link_by_name[each.link].rate_bps,
        reverse=True,
    )
    return tuple(
        WorstLink(
            each.link,
            each.sender,
            each.flows,
            each.bytes,
            _load(each) * len(tier) / max(1, sum(tier)),
        )
        for each in ordered[:WORST]
        for tier in (loads[each.tier, each.direction],)
    )


def _load(link: LinkPrediction) -> int:
    return link.flows if link.bytes is None else link.bytes
