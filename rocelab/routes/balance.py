"""The balance of parallel links, and the polarization between tiers.

From packets per link and direction it computes max-mean ratio, Jain's index and coefficient of
variation per tier and per group of parallel links; from the uplinks that flows chose tier after
tier, how far one tier's choice repeats an earlier one's. For comparison it gives the mean and the
99th percentile of uniform random hashing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from rocelab.planning.fabric import DirectedLink, Direction, Fabric

_SEED = 20240804
_PAIRINGS = 200

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Balance:
    """Figures of the loads of parallel links; ratios are None if nothing was carried."""

    links: int
    total: float
    mmr: float | None
    """Max-mean ratio, the busiest link's load over the mean (1 is even, the number of links is the
    worst), as in Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta Scale",
    SIGCOMM 2024."""
    jfi: float | None
    """Jain's fairness index (sum x)^2 / (n sum x^2), from 1/n to 1 (Jain, Chiu and Hawe, DEC
    Research Report TR-301, 1984)."""
    cov: float | None
    """Coefficient of variation, population standard deviation over mean."""
    unused: int
    """Links that carried nothing."""


def balance(loads: Sequence[float]) -> Balance:
    """The balance of links that carried `loads`. Raises ValueError for no loads and for negative
    ones."""
    x = np.asarray(loads, dtype=np.float64)
    if x.size == 0 or np.any(x < 0):
        raise ValueError("loads must be one or more numbers, none of them negative")
    mean = float(x.mean())
    unused = int(np.count_nonzero(x == 0))
    if mean == 0:
        return Balance(x.size, 0.0, None, None, None, unused)
    jfi = float(x.sum() ** 2 / (x.size * np.square(x).sum()))
    return Balance(
        x.size, float(x.sum()), float(x.max()) / mean, jfi, float(x.std()) / mean, unused
    )


@dataclass(frozen=True, slots=True)
class RandomBalance:
    """The expectation for equal flows if each group's are hashed uniformly over its links. All
    figures are of all groups together."""

    flows: int
    """A total."""

    links: int
    """A total."""

    mmr: float
    mmr_p99: float
    jfi: float
    cov: float
    unused_fraction: float


@lru_cache(maxsize=256)
def random_groups(groups: tuple[tuple[int, int], ...]) -> RandomBalance:
    """The expectation for groups of (flows, links), by Monte Carlo from a fixed seed.

    The unused fraction is exact (`random_unused`). Raises ValueError if there is no flow, or a
    group without links.
    """
    flows, links = sum(n for n, _ in groups), sum(k for _, k in groups)
    if flows < 1 or any(n < 0 or k < 1 for n, k in groups):
        raise ValueError("at least one flow, and a link in every group")
    trials = max(200, min(4000, 4_000_000 // links))
    generator = np.random.default_rng((_SEED, flows, links))
    parts = []
    for (n, k), count in Counter(groups).items():
        drawn = generator.multinomial(n, np.full(k, 1 / k), size=(trials, count))
        parts.append(drawn.reshape(trials, count * k))
    x = np.concatenate(parts, axis=1).astype(np.float64)
    mean = flows / links
    mmr: npt.NDArray[np.float64] = x.max(axis=1) / mean
    return RandomBalance(
        flows=flows,
        links=links,
        mmr=float(mmr.mean()),
        mmr_p99=float(np.quantile(mmr, 0.99)),
        jfi=float((flows**2 / (links * np.square(x).sum(axis=1))).mean()),
        cov=float((x.std(axis=1) / mean).mean()),
        unused_fraction=random_unused(groups),
    )


def random_unused(groups: Iterable[tuple[int, int]]) -> float:
    """The share of all links that uniform hashing is expected to leave without a flow, for groups
    of (flows, links): (1 - 1/links)^flows of each group's."""
    groups = tuple(groups)
    return sum(k * (1 - 1 / k) ** n for n, k in groups) / sum(k for _, k in groups)


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """What one link carried in one direction. `tier` is `rtsw-ctsw` and the like, `group` the
    lower node: its links of a tier are the parallel choices, in both directions."""

    link: str
    tier: str
    direction: Direction
    group: str
    packets: int


@dataclass(frozen=True, slots=True)
class GroupBalance:
    """The parallel links of one node to the tier above, in one direction."""

    node: str
    balance: Balance


@dataclass(frozen=True, slots=True)
class TierBalance:
    """One tier in one direction: all its links together, and each group of parallel ones."""

    tier: str
    direction: Direction
    all_links: Balance
    groups: tuple[GroupBalance, ...]
    worst_group: str | None
    """The node whose group has the highest MMR, None if nothing was carried."""

    random: RandomBalance | None
    """The expectation for uniform hashing in each group over all links, if the number of flows that
    crossed each group is known."""


def link_loads(fabric: Fabric, packets: Mapping[DirectedLink, int]) -> tuple[LinkLoad, ...]:
    """Loads of every switch-to-switch link in both directions, in build order.

    Raises KeyError if `packets` lacks a direction: a counter that was not read is not a load of 0.
    """
    return tuple(
        LinkLoad(sent.name, sent.tier, sent.direction, sent.link.a.node, packets[sent])
        for sent in fabric.directed_links
        if sent.is_between_switches
    )


def tier_balances(
    loads: Iterable[LinkLoad], flows: Mapping[tuple[str, Direction, str], int] | None = None
) -> tuple[TierBalance, ...]:
    """The balance of each tier and direction, in order of appearance.

    `flows` counts the flows that crossed each (tier, direction, group), for comparison with random
    hashing; a missing group was crossed by none.
    """
    by_tier: dict[tuple[str, Direction], dict[str, list[int]]] = {}
    for load in loads:
        groups = by_tier.setdefault((load.tier, load.direction), {})
        groups.setdefault(load.group, []).append(load.packets)
    result = []
    for key, groups in by_tier.items():
        balances = tuple(GroupBalance(node, balance(x)) for node, x in groups.items())
        used = [(group.balance.mmr, group.node) for group in balances if group.balance.mmr]
        everything = balance([packets for x in groups.values() for packets in x])
        crossing = [((flows or {}).get((*key, node), 0), len(x)) for node, x in groups.items()]
        result.append(
            TierBalance(
                tier=key[0],
                direction=key[1],
                all_links=everything,
                groups=balances,
                worst_group=max(used, key=lambda pair: pair[0])[1] if used else None,
                random=random_groups(tuple(crossing)) if any(n for n, _ in crossing) else None,
            )
        )
    return tuple(result)


def leaf_uplinks(tiers: Iterable[TierBalance]) -> Balance | None:
    """The balance of the leaves' uplinks in any kind of fabric, of those of the rate that is
    balanced worst; None if no tier has them."""
    rising = [
        (*tier.tier.partition(" ")[0].partition("-")[::2], tier.all_links)
        for tier in tiers
        if tier.direction is Direction.UP
    ]
    above = {upper for _, upper, _ in rising}
    lowest = [(lower, upper, links) for lower, upper, links in rising if lower not in above]
    alike = [links for lower, upper, links in lowest if (lower, upper) == lowest[0][:2]]
    return max(alike, key=lambda links: links.mmr or 0, default=None)


@dataclass(frozen=True, slots=True, eq=False)
class PairedChoices:
    """Two choices in a row of some flows."""

    first: str
    """The stage of the first choice."""

    second: str
    """The stage of the second choice."""

    x: Ints
    """The option of the first choice."""

    y: Ints
    """The option of the second choice."""

    group: Ints
    """The number of the group of links of the second choice."""

    options: Ints
    """How many options the second choice has."""


@dataclass(frozen=True, slots=True)
class Polarization:
    """How far the choices at `second` repeat those at `first`, over `flows` flows."""

    first: str
    second: str
    flows: int
    used_links: int
    offered_links: int
    used_fraction: float
    """The fraction used of the links at `second` that the flows' nodes offered."""
    information: float | None
    """Mutual information of the two choices over the smaller of their entropies: 0 when
    independent, 1 when one fixes the other; None if a choice was always the same."""
    information_if_independent: float | None
    """Its value if the choices were independent (the mean over random pairings), because few flows
    look related by chance."""
    unused_if_random: float | None = None
    """The share of the offered links that would be unused if every flow chose at random; None in
    results from before it was measured."""

    @property
    def unused_fraction(self) -> float:
        """The fraction of the offered links at `second` that no flow used."""
        return 1 - self.used_fraction


def polarization(pairs: PairedChoices) -> Polarization:
    """How far one stage's choices repeat another's. Raises ValueError without any flow."""
    if not len(pairs.x):
        raise ValueError("no flow made both choices")
    used = np.unique(np.stack([pairs.group, pairs.y]), axis=1).shape[1]
    _, at, flows = np.unique(pairs.group, return_index=True, return_counts=True)
    arrivals = list(zip(flows.tolist(), pairs.options[at].tolist(), strict=True))
    offered = sum(links for _, links in arrivals)
    table = _Contingency(pairs.x, pairs.y)
    return Polarization(
        first=pairs.first,
        second=pairs.second,
        flows=len(pairs.x),
        used_links=used,
        offered_links=offered,
        used_fraction=used / offered,
        information=table.information(),
        information_if_independent=table.information_by_chance(),
        unused_if_random=random_unused(arrivals),
    )


class _Contingency:
    """How often each pair of choices occurred."""

    def __init__(self, x: Ints, y: Ints) -> None:
        self._values_x, self._x = np.unique(x, return_inverse=True)
        self._values_y, self._y = np.unique(y, return_inverse=True)

    @cached_property
    def _entropies(self) -> tuple[float, float]:
        return _entropy(np.bincount(self._x)), _entropy(np.bincount(self._y))

    def information(self) -> float | None:
        return self._with(self._y)

    def information_by_chance(self) -> float | None:
        """The mean over random pairings of the same choices."""
        generator = np.random.default_rng(_SEED)
        samples = [self._with(generator.permutation(self._y)) for _ in range(_PAIRINGS)]
        known = [value for value in samples if value is not None]
        return float(np.mean(known)) if known else None

    def _with(self, y: Ints) -> float | None:
        least = min(self._entropies)
        if least == 0:
            return None
        joint = _entropy(np.bincount(self._x * len(self._values_y) + y))
        return min(1.0, max(0.0, (sum(self._entropies) - joint) / least))


def _entropy(counts: Ints) -> float:
    p = counts[counts > 0] / counts.sum()
    return abs(float(-(p * np.log2(p)).sum()))
