"""How evenly parallel links are used, and whether one tier's choice repeats an earlier one's.

In: packets per link and direction, and the uplinks that flows chose tier after tier. Out: max-mean
ratio, Jain's index and coefficient of variation per tier and per group of parallel links, the
polarization between tiers, and what uniform random hashing would have given for comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from labs.plan.fabric import Fabric

_SEED = 20240804


@dataclass(frozen=True, slots=True)
class Balance:
    """The loads of some parallel links in figures; ratios are None where nothing was carried.

    mmr: max-mean ratio, the busiest link's load over the mean (1 is even, the number of links is
        the worst), as in Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta
        Scale", SIGCOMM 2024.
    jfi: Jain's fairness index (sum x)^2 / (n sum x^2), from 1/n to 1 (Jain, Chiu and Hawe, DEC
        Research Report TR-301, 1984).
    cov: coefficient of variation, population standard deviation over mean.
    unused: links that carried nothing.
    """

    links: int
    total: float
    mmr: float | None
    jfi: float | None
    cov: float | None
    unused: int


def balance(loads: Sequence[float]) -> Balance:
    """The balance of links that carried `loads`. Raises ValueError on none and on negatives."""
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
    """What equal flows come to on average when each group's are hashed uniformly over its links;
    `flows` and `links` are the totals, and so is everything else."""

    flows: int
    links: int
    mmr: float
    mmr_p99: float
    jfi: float
    cov: float
    unused_fraction: float


def random_balance(flows: int, links: int) -> RandomBalance:
    """The expectation for one group: `flows` flows hashed uniformly over `links` links."""
    return random_groups(((flows, links),))


@lru_cache(maxsize=256)
def random_groups(groups: tuple[tuple[int, int], ...]) -> RandomBalance:
    """The expectation for groups of (flows, links), by Monte Carlo from a fixed seed.

    The unused fraction is exact: (1 - 1/links)^flows of each group's links. Raises ValueError where
    there is no flow at all, or a group without links.
    """
    flows, links = sum(n for n, _ in groups), sum(k for _, k in groups)
    if flows < 1 or any(n < 0 or k < 1 for n, k in groups):
        raise ValueError("at least one flow, and a link in every group")
    trials = max(200, min(4000, 4_000_000 // links))
    generator = np.random.default_rng((_SEED, flows, links))
    x = np.concatenate(
        [generator.multinomial(n, np.full(k, 1 / k), size=trials) for n, k in groups], axis=1
    ).astype(np.float64)
    mean = flows / links
    mmr: npt.NDArray[np.float64] = x.max(axis=1) / mean
    return RandomBalance(
        flows=flows,
        links=links,
        mmr=float(mmr.mean()),
        mmr_p99=float(np.quantile(mmr, 0.99)),
        jfi=float((flows**2 / (links * np.square(x).sum(axis=1))).mean()),
        cov=float((x.std(axis=1) / mean).mean()),
        unused_fraction=sum(k * (1 - 1 / k) ** n for n, k in groups) / links,
    )


class Direction(StrEnum):
    """Which way a link's packets went: towards the top of the fabric, or towards the servers."""

    UP = "up"
    DOWN = "down"


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
    """One tier in one direction: all its links together, and each group of parallel ones.

    `worst_group` is the node whose group has the highest MMR, None where nothing was carried.
    `random` is what uniform hashing in each group would give over all the links, where it is known
    how many flows crossed each group.
    """

    tier: str
    direction: Direction
    all_links: Balance
    groups: tuple[GroupBalance, ...]
    worst_group: str | None
    random: RandomBalance | None


def link_loads(fabric: Fabric, packets: Mapping[tuple[str, str], int]) -> tuple[LinkLoad, ...]:
    """Loads of every switch-to-switch link in both directions, in build order.

    `packets` counts what was sent, by (link name, sending node). Raises KeyError where a link's end
    is missing: a counter that was not read is not a load of 0.
    """
    loads = []
    for link in fabric.sessions:
        lower, upper = link.a.node, link.b.node
        tier = f"{fabric.node(lower).role.value}-{fabric.node(upper).role.value}"
        for direction, sender in ((Direction.UP, lower), (Direction.DOWN, upper)):
            count = packets[link.name, sender]
            loads.append(LinkLoad(link.name, tier, direction, lower, count))
    return tuple(loads)


def tier_balances(
    loads: Iterable[LinkLoad], flows: Mapping[tuple[str, Direction, str], int] | None = None
) -> tuple[TierBalance, ...]:
    """The balance of each tier and direction, in order of appearance.

    `flows` counts the flows that crossed each (tier, direction, group), for comparison with random
    hashing; a group that is not in it was crossed by none.
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


@dataclass(frozen=True, slots=True)
class Choice:
    """What one hop of a flow's path chose: option `option` (from 0) of `options` next hops."""

    node: str
    stage: str
    option: int
    options: int


@dataclass(frozen=True, slots=True)
class Polarization:
    """How far the choices at `second` repeat those at `first`, over `flows` flows.

    used_fraction: links used at `second`, of those offered by the nodes the flows came to.
    information: mutual information of the two choices over the smaller of their entropies: 0 when
        independent, 1 when one fixes the other; None where a choice was always the same.
    information_if_independent: what that comes to for so few flows if the choices had nothing to
        do with each other (the mean over random pairings), since few flows look related by chance.
    """

    first: str
    second: str
    flows: int
    used_links: int
    offered_links: int
    used_fraction: float
    information: float | None
    information_if_independent: float | None


def polarizations(paths: Iterable[Sequence[Choice]]) -> tuple[Polarization, ...]:
    """Polarization between each two consecutive stages at which flows had a choice.

    Hops without an alternative are no choice. Empty where no flow had two choices in a row, as in a
    two-tier fabric with single links: there is then no second choice to be polarized.
    """
    pairs: dict[tuple[str, str], list[tuple[Choice, Choice]]] = {}
    for path in paths:
        choices = [choice for choice in path if choice.options > 1]
        for first, second in pairwise(choices):
            pairs.setdefault((first.stage, second.stage), []).append((first, second))
    return tuple(_polarization(*stages, found) for stages, found in pairs.items())


def _polarization(first: str, second: str, pairs: Sequence[tuple[Choice, Choice]]) -> Polarization:
    offered = {choice.node: choice.options for _, choice in pairs}
    used = {(choice.node, choice.option) for _, choice in pairs}
    x = [choice.option for choice, _ in pairs]
    y = [choice.option for _, choice in pairs]
    return Polarization(
        first=first,
        second=second,
        flows=len(pairs),
        used_links=len(used),
        offered_links=sum(offered.values()),
        used_fraction=len(used) / sum(offered.values()),
        information=normalized_information(x, y),
        information_if_independent=_information_by_chance(x, y),
    )


def normalized_information(x: Sequence[int], y: Sequence[int]) -> float | None:
    """Mutual information I(x; y) / min(H(x), H(y)); None where either never varies.

    Plug-in estimate (Cover and Thomas, Elements of Information Theory, section 2.4).
    """
    h_x, h_y = _entropy(Counter(x)), _entropy(Counter(y))
    if min(h_x, h_y) == 0:
        return None
    information = h_x + h_y - _entropy(Counter(zip(x, y, strict=True)))
    return min(1.0, max(0.0, information / min(h_x, h_y)))


def _entropy(counts: Mapping[object, int]) -> float:
    p = np.fromiter(counts.values(), dtype=np.float64)
    p /= p.sum()
    return abs(float(-(p * np.log2(p)).sum()))


def _information_by_chance(x: Sequence[int], y: Sequence[int], trials: int = 200) -> float | None:
    generator = np.random.default_rng(_SEED)
    shuffled = [normalized_information(x, generator.permutation(y).tolist()) for _ in range(trials)]
    known = [value for value in shuffled if value is not None]
    return float(np.mean(known)) if known else None
