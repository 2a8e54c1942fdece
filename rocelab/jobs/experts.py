"""Where a mixture of experts sends its tokens: what reaches each GPU and server, and what is read.

`ExpertRouting` is what a user writes; `TokenRouting` has the chance that a token goes to each
expert, and from it the bytes between GPUs that divide the experts, the busiest GPU's load and the
experts that a batch meets. A token's experts differ; each set of `top_k` in `top_groups` groups has
a chance in proportion to its experts' odds: equal experts give the hypergeometric chances exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from rocelab.base import quantities
from rocelab.base.arrays import Bools, Floats, Ints
from rocelab.base.wording import RefusedError
from rocelab.jobs.gpus import Precision
from rocelab.jobs.model_shape import BF16_BYTES, ModelShape
from rocelab.labfile.base import SpecModel

SCALED_VALUES, SCALE_BYTES = 128, 4
"""In fp8 so many values share a scale of so many bytes (DeepSeek-AI 2024 (DeepSeek-V3), section
3.3)."""
MOST_CERTAIN = 1 - 1e-6
"""The highest chance that odds are computed from."""
MOST_TOKENS = 2**20
"""Numbers of a token matrix."""


TokenRow = Annotated[
    tuple[Annotated[float, Field(ge=0, le=1e15)], ...], Field(strict=False, max_length=MOST_TOKENS)
]


class Exchange(StrEnum):
    """How tokens travel to experts."""

    ALLTOALL = "alltoall"
    PER_SERVER = "per-server"


class Overlap(StrEnum):
    """What expert traffic hides behind."""

    NONE = "none"
    MICRO_BATCHES = "micro-batches"


class ExpertRouting(SpecModel):
    """How tokens travel to experts and back."""

    exchange: Annotated[
        Exchange,
        Field(
            strict=False,
            description="alltoall: a token is sent once for each of its experts; per-server: once "
            "to each server that has one of them, to the GPU of the sender's place there, which "
            "passes it on over NVLink, and comes back summed",
        ),
    ] = Exchange.ALLTOALL
    dispatch: Annotated[
        Precision, Field(strict=False, description="of tokens on their way to experts")
    ] = Precision.BF16
    combine: Annotated[Precision, Field(strict=False, description="of what experts send back")] = (
        Precision.BF16
    )
    skew: Annotated[
        float,
        Field(
            ge=0,
            le=4,
            description="experts' popularity falls as 1 / rank^skew; 0: all alike",
        ),
    ] = 0.0
    tokens: Annotated[
        tuple[TokenRow, ...] | None,
        Field(
            strict=False,
            description="instead of skew, how many tokens go to each expert: a row for all "
            "senders, or one for each GPU that divides the experts; in a file of jobs the name of "
            "a CSV file",
        ),
    ] = None
    overlap: Annotated[
        Overlap,
        Field(
            strict=False,
            description="micro-batches: one computes while the other's tokens travel",
        ),
    ] = Overlap.NONE

    @model_validator(mode="after")
    def _one_imbalance(self) -> Self:
        if self.tokens is None:
            return self
        if self.skew:
            raise RefusedError(
                "skew and tokens both say how popular experts are",
                "remove one of them",
                keys=("skew", "tokens"),
            )
        widths = {len(row) for row in self.tokens}
        if len(widths) != 1 or not min(widths):
            raise RefusedError(
                "expected rows of one length, a number for each expert",
                "write a row for all senders, or one for each",
                keys=("tokens",),
            )
        if not all(sum(row) > 0 for row in self.tokens):
            raise RefusedError(
                "a sender that sends no token has no shares",
                "give each row a number above 0",
                keys=("tokens",),
            )
        return self

    def check(self, model: ModelShape, expert: int, key: str = "routing") -> None:
        """Raise RefusedError if a matrix of tokens does not fit a model and its division. key: that
        the routing stands at."""
        if self.tokens is None:
            return
        rows, width = len(self.tokens), len(self.tokens[0])
        if rows not in (1, expert) or width != model.experts:
            raise RefusedError(
                f"{rows} rows of {width} tokens are not 1 or {expert} rows of {model.experts}",
                "a column for each expert, and a row for all senders or for each of the GPUs that "
                "divide the experts",
                keys=(key,),
            )
        for number, row in enumerate(self.tokens, start=1):
            share = max(row) / sum(row) * model.top_k
            if share > 1 + 1e-9:
                raise RefusedError(
                    f"row {number} sends an expert {quantities.share(max(row) / sum(row))} of its "
                    "tokens: with "
                    f"{model.top_k} different experts for each token at most "
                    f"{quantities.share(1 / model.top_k)} can go to one",
                    "a token's experts differ: check the counts",
                    keys=(key,),
                )


def token_bytes(hidden: int, precision: Precision) -> float:
    """Bytes of a token as it travels: 2 h, or h and its scales in fp8."""
    if precision is Precision.FP8:
        return hidden * (1 + SCALE_BYTES / SCALED_VALUES)
    return BF16_BYTES * hidden


@dataclass(frozen=True, eq=False)
class TokenRouting:
    """S copies of experts on `ranks` GPUs, the same number on each, and R kinds of senders."""

    chance: Floats
    """R x S. That a token goes to each copy."""
    group: Ints
    """S. The group of experts that each belongs to."""
    top_k: int
    top_groups: int
    ranks: int

    @cached_property
    def rank_of(self) -> Ints:
        """S. The GPU of each copy: neighbours share one."""
        copies = self.chance.shape[1]
        rank: Ints = (np.arange(copies) * self.ranks // copies).astype(np.int32)
        return rank

    @cached_property
    def copies(self) -> Floats:
        """R x ranks. How often a token of each sender goes to each GPU."""
        sums = np.zeros((len(self.chance), self.ranks))
        np.add.at(sums.T, self.rank_of, self.chance.T)
        return sums

    @property
    def busiest(self) -> float:
        """Tokens of the busiest GPU over the mean."""
        received = self.copies.mean(axis=0)
        return float(received.max() / received.mean())

    @property
    def met(self) -> Floats:
        """R x ranks. The chance that a token goes to some expert of each GPU, as if experts were
        independent."""
        missed = np.ones((self.ranks, len(self.chance)))
        np.multiply.at(missed, self.rank_of, 1 - self.chance.T)
        met: Floats = 1 - missed.T
        return met

    def experts_read(self, tokens: float) -> float:
        """Copies of experts that so many tokens of each of the GPUs meet, on the GPU with most: of
        E equal experts E (1 - (1 - k / E)^n) in all, n the tokens of all of them."""
        senders = self.ranks / len(self.chance)
        missed = np.exp(
            senders * tokens * np.log1p(-np.minimum(self.chance, 1 - 1e-15)).sum(axis=0)
        )
        return float(np.bincount(self.rank_of, 1 - missed, minlength=self.ranks).max())

    def reached(self, ranks: Ints) -> Floats:
        """R. The chance that a token has an expert on one of these GPUs."""
        outside = ~np.isin(self.rank_of, ranks)
        missed = self._weight(outside) / self._whole
        reached: Floats = np.clip(1 - missed, 0, 1)
        return reached

    @cached_property
    def _odds(self) -> Floats:
        chance = np.minimum(self.chance, MOST_CERTAIN)
        odds: Floats = chance / (1 - chance)
        # Odds count in proportion only, and the product of top_k of them stays finite.
        odds /= odds.max(axis=1, keepdims=True)
        return odds

    @cached_property
    def _whole(self) -> Floats:
        return self._weight(np.ones(self.chance.shape[1], np.bool_))

    def _weight(self, kept: Bools) -> Floats:
        """R. The sum over all sets of top_k kept experts in top_groups groups of the products of
        their odds: the coefficient of x^k y^t in the product of 1 + y times each group's
        polynomial."""
        rows, degree = len(self.chance), self.top_k
        limit = self.top_groups
        whole = np.zeros((limit + 1, degree + 1, rows))
        whole[0, 0] = 1
        for group in range(int(self.group.max()) + 1):
            inside = np.zeros((degree + 1, rows))
            inside[0] = 1
            for copy in np.flatnonzero((self.group == group) & kept):
                inside[1:] += inside[:-1] * self._odds[:, copy]
            for chosen in range(limit - 1, -1, -1):
                for first in range(degree + 1):
                    for second in range(degree + 1 - first):
                        whole[chosen + 1, first + second] += whole[chosen, first] * inside[second]
        weight: Floats = whole[limit, degree]
        return weight


def routing_of(
    model: ModelShape, spec: ExpertRouting, ranks: int, *, copies: int = 0, seed: int = 1
) -> TokenRouting:
    """The routing over `ranks` GPUs. copies: further copies of the most popular experts, which
    share their tokens. seed: draws which experts are popular, where they are not alike."""
    if spec.tokens is not None:
        chance = np.array(spec.tokens, np.float64)
        chance *= model.top_k / chance.sum(axis=1, keepdims=True)
    else:
        rank = np.arange(1, model.experts + 1, dtype=np.float64)
        chance = _capped(rank**-spec.skew, model.top_k)
        if spec.skew:
            chance = np.random.default_rng(seed).permutation(chance)
        chance = chance[None]
    group = np.arange(model.experts) * model.expert_groups // model.experts
    if copies:
        popular = np.argsort(-chance.mean(axis=0), kind="stable")
        of_expert = np.resize(popular, copies)
        order = np.sort(np.append(np.arange(model.experts), of_expert))
        sharing = np.bincount(order, minlength=model.experts)
        chance, group = (chance / sharing)[:, order], group[order]
    return TokenRouting(chance, group.astype(np.int32), model.top_k, model.routed_groups, ranks)


def _capped(weight: Floats, top_k: int) -> Floats:
    """Chances in proportion to weights that sum to top_k, none above 1."""
    chance: Floats = weight * top_k / weight.sum()
    while chance.max() > 1 + 1e-12:
        sure = chance >= 1
        rest = np.where(sure, 0.0, weight)
        chance = np.where(sure, 1.0, rest * (top_k - sure.sum()) / max(rest.sum(), 1e-300))
    return chance


@dataclass(frozen=True, eq=False)
class Exchanged:
    """What the GPUs of a group that divides the experts send in a dispatch, in tokens for each
    token of a GPU: network: [source][destination] over NICs; inside: what the busiest gets over
    NVLink. A combine sends the same the other way."""

    network: Floats
    inside: float


def exchanged(routing: TokenRouting, exchange: Exchange, servers: Ints) -> Exchanged:
    """The traffic among `ranks` GPUs on these servers."""
    ranks = routing.ranks
    together = servers[:, None] == servers[None]
    if exchange is Exchange.ALLTOALL:
        copies = np.broadcast_to(routing.copies, (ranks, ranks)).copy()
        np.fill_diagonal(copies, 0)
        inside = float(np.where(together, copies, 0).sum(axis=0).max())
        return Exchanged(np.where(together, 0, copies), inside)
    network = np.zeros((ranks, ranks))
    met = np.broadcast_to(routing.met, (ranks, ranks))
    over_nvlink = np.where(np.eye(ranks, dtype=np.bool_), 0, met)
    for members in _members(servers):
        reached = np.broadcast_to(routing.reached(members), ranks)
        away = np.flatnonzero(~together[members[0]])
        place = _place(servers)[away] % len(members)
        proxy = members[place]
        network[away, proxy] = reached[away]
        over_nvlink[away, proxy] = 0
    return Exchanged(network, float(over_nvlink.sum(axis=0).max()))


def _members(servers: Ints) -> Iterator[Ints]:
    for server in np.unique(servers):
        yield np.flatnonzero(servers == server).astype(np.int32)


def _place(servers: Ints) -> Ints:
    """Of each GPU, how many of the group come before it on its server."""
    place = np.zeros(len(servers), np.int32)
    for members in _members(servers):
        place[members] = np.arange(len(members))
    return place
