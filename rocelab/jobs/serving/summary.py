"""What a trace of requests asks of a model and of a network, before anything is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Longs
from rocelab.jobs.model_shape import ModelShape
from rocelab.jobs.serving.requests import Requests

SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Lengths of prompts or answers."""

    mean: float
    p50: int
    p90: int
    p99: int
    highest: int


@dataclass(frozen=True, slots=True)
class CacheLoad:
    """Keys and values of all prompts, in bf16, if each travelled once."""

    model: str
    token_bytes: int
    bytes_per_s: float | None
    """On average, None if all requests arrive at once."""
    without_reused_bytes_per_s: float | None
    """The same of what earlier prompts did not begin with."""
    peak_bytes_per_s: float | None
    """In the second with most, from the first arrival on; None if all arrive in less than one."""


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """The requests of a trace."""

    requests: int
    lasts_s: float
    rate: float | None
    """Requests a second, None if all arrive at once."""
    peak_rate: int | None
    """Requests in the second with most; None if all arrive in less than one."""
    gap_cv: float | None
    """The deviation of gaps between arrivals over their mean, 1 of a Poisson process."""
    prompt: Tokens
    answer: Tokens
    reused: float
    """The share of tokens of prompts that earlier ones began with; 0 where the trace does not say
    it."""
    caches: tuple[CacheLoad, ...]
    warnings: tuple[str, ...]


def request_summary(requests: Requests, models: Mapping[str, ModelShape]) -> RequestSummary:
    """The figures of one or more requests."""
    arrival_s = requests.arrival_s
    gaps = np.diff(arrival_s)
    mean_s = float(gaps.mean()) if len(gaps) else 0.0
    second = arrival_s.astype(np.int64)
    return RequestSummary(
        requests=len(requests),
        lasts_s=requests.lasts_s,
        rate=requests.rate,
        peak_rate=int(np.unique(second, return_counts=True)[1].max())
        if requests.lasts_s >= 1
        else None,
        gap_cv=float(gaps.std()) / mean_s if mean_s else None,
        prompt=_tokens(requests.prompt),
        answer=_tokens(requests.answer),
        reused=float(requests.reused.sum()) / float(requests.prompt.sum()),
        caches=tuple(
            _cache(name, model.cache_bytes, requests, second) for name, model in models.items()
        ),
        warnings=requests.warnings,
    )


def _tokens(values: Longs) -> Tokens:
    p50, p90, p99 = np.quantile(values, SHARES, method="inverted_cdf").tolist()
    return Tokens(float(values.mean()), p50, p90, p99, int(values.max()))


def _cache(name: str, token_bytes: int, requests: Requests, second: Longs) -> CacheLoad:
    tokens, new = requests.prompt.sum(), (requests.prompt - requests.reused).sum()
    period_s = requests.period_s
    _, place = np.unique(second, return_inverse=True)
    return CacheLoad(
        name,
        token_bytes,
        float(tokens) * token_bytes / period_s if period_s else None,
        float(new) * token_bytes / period_s if period_s else None,
        float(np.bincount(place, requests.prompt).max()) * token_bytes
        if requests.lasts_s >= 1
        else None,
    )
