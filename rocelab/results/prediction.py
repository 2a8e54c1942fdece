"""The document of a prediction: loads of links, their balance, polarization, worst links.

`rocelab.prediction.document` makes it, `rocelab.base.documents.to_json` writes it, and
docs/documents/ is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocelab.planning.fabric import Direction
from rocelab.routes.balance import Balance, Polarization, TierBalance

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class LinkPrediction:
    """What `sender` puts on a link. `bytes` (payload) and `packets` (of data) are None if
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
    beside uniform random hashing of as many flows; `bytes` that of payload over all its links."""

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
    """A traffic matrix on a lab."""

    schema_version: int
    lab: str
    tables: str
    """`kernel` for those of the running switches, `assumed` for shortest paths where the user's
    configuration decides, else `planned`."""
    model: str
    scheme: dict[str, Any]
    hashing: dict[str, Any]
    notes: tuple[str, ...]
    """The inexact parts."""
    flows: int
    bytes: int | None
    """None if unknown."""
    packets: int | None
    """None if unknown."""
    links: tuple[LinkPrediction, ...]
    tiers: tuple[TierPrediction, ...]
    polarizations: tuple[Polarization, ...]
    worst: tuple[WorstLink, ...]
    """The links with the highest load for their rate."""
