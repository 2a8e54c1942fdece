"""How long a replica computes a batch of prompts, and an iteration of its answers.

Both are looked up: the kernels of a layer take the same time for each batch of so many tokens, and
attention's grows in proportion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rocelab.jobs.experts import TokenRouting
from rocelab.jobs.serving.exchanges import ExchangeTimes
from rocelab.jobs.serving.serving_spec import RequestServingSpec
from rocelab.jobs.serving_times import iteration_s, prompts_s, routing, tensor_s

TILE = 128
"""Tokens of a batch are filled up to a multiple of it, as the tiles of products are; at a constant
speed there are none."""
FAR = 2**20


@dataclass(eq=False)
class PrefillTimes:
    """Of a replica."""

    spec: RequestServingSpec
    exchange: ExchangeTimes
    seed: int
    _tiles: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.spec
        self._routed: TokenRouting | None = None
        if spec.model.has_experts:
            self._routed = routing(spec, decodes=False, seed=self.seed)
        far, near = (self._computed_s(TILE, sequence) for sequence in (FAR, 0))
        self.pair_s = (far - near) / (TILE * FAR)

    def _computed_s(self, tokens: int, sequence: int) -> float:
        spec = self.spec
        return spec.pipeline * prompts_s(spec, self._routed, tokens, sequence, 1)

    def seconds(self, tokens: int, pairs: float) -> float:
        """From the first stage's begin to the last one's end, for a batch of so many tokens.
        pairs: the sum over its tokens of twice those before each in its prompt."""
        tile = TILE if self.spec.speed.constant_flops is None else 1
        tiles = -(-tokens // tile)
        if tiles not in self._tiles:
            padded = tiles * tile
            waits_s = self.spec.pipeline * tensor_s(self.spec, 1, padded)
            self._tiles[tiles] = self._computed_s(padded, 0) + waits_s
        computed_s = self._tiles[tiles] + pairs * self.pair_s
        exchanged_s = self.exchange.seconds(tokens)
        return max(computed_s, exchanged_s) if self.exchange.hides else computed_s + exchanged_s


@dataclass(eq=False)
class DecodeTimes:
    """Of a replica."""

    spec: RequestServingSpec
    exchange: ExchangeTimes
    seed: int
    _bases: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.spec
        self._routed: TokenRouting | None = None
        if spec.model.has_experts:
            self._routed = routing(spec, decodes=True, seed=self.seed)
        far, near = (iteration_s(spec, self._routed, 1, known) for known in (FAR, 0))
        self.known_s = spec.pipeline * (far - near) / FAR
        """For each cached token of all requests."""

    def pace(self, requests: int, known: float) -> tuple[float, float]:
        """Seconds of an iteration of so many requests with `known` cached tokens in all, and by how
        much each further cached token makes the next one longer."""
        spec = self.spec
        if requests not in self._bases:
            computed_s = iteration_s(spec, self._routed, requests, 0) + tensor_s(spec, requests, 1)
            self._bases[requests] = spec.pipeline * computed_s
        computed_s = self._bases[requests] + self.known_s * known
        exchanged_s = self.exchange.seconds(requests)
        if not self.exchange.hides:
            return computed_s + exchanged_s, self.known_s
        if exchanged_s > computed_s:
            return exchanged_s, 0.0
        return computed_s, self.known_s

    def hidden_steps(self, requests: int, known: float) -> float:
        """Iterations until the computation, which grows with the cache, takes longer than the
        exchange beside it; inf where it does already, or hides none."""
        step_s, more_s = self.pace(requests, known)
        if more_s:
            return math.inf
        computed_s = self._bases[requests] + self.known_s * known
        return max(1, math.ceil((step_s - computed_s) / (self.known_s * requests)))
