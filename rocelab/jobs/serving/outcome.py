"""The figures of requests with one network: percentiles of their times, and their objectives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Bools, Floats
from rocelab.jobs.served import Carried, Latency, ServedBy
from rocelab.jobs.serving.decoding import Decoded
from rocelab.jobs.serving.prefill import Prefilled
from rocelab.jobs.serving.requests import Requests

NS = 1e9
SHARES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, eq=False)
class Answers:
    """The times of N requests with one network."""

    network: Carried
    prefilled: Prefilled
    moved_s: Floats
    decoded: Decoded


def served_by(
    requests: Requests,
    answers: Answers,
    *,
    arrived: Requests,
    ttft_ns: float | None,
    itl_ns: float | None,
) -> ServedBy:
    """The figures of requests with one network. arrived: these and those that are
    refused."""
    arrival, prefilled, decoded = requests.arrival_s, answers.prefilled, answers.decoded
    with np.errstate(invalid="ignore"):
        ttft = decoded.first_s - arrival
        gaps = np.maximum(1, requests.answer - 1)
        itl = (decoded.end_s - decoded.first_s) / gaps
        transfer = answers.moved_s - prefilled.end_s
        first = decoded.first_s - answers.moved_s
        whole = decoded.end_s - arrival
    several = requests.answer > 1
    meets: Bools = np.isfinite(decoded.end_s)
    answered = int(meets.sum())
    if ttft_ns is not None:
        meets = meets & (ttft <= ttft_ns / NS)
    if itl_ns is not None:
        meets = meets & (~several | (itl <= itl_ns / NS))
    share = float(meets.sum()) / len(arrived)
    rate = arrived.rate
    return ServedBy(
        answers.network,
        answered,
        share,
        None if rate is None else share * rate,
        (
            _latency("ttft", "TTFT", ttft),
            _latency("queue", "- queue", prefilled.begin_s - arrival),
            _latency("prefill", "- prefill", prefilled.end_s - prefilled.begin_s),
            _latency("transfer", "- transfer", transfer),
            _latency("first", "- first token", first),
            _latency("itl", "ITL", itl[several]),
            _latency("e2e", "end to end", whole),
        ),
        _curve(ttft),
        _curve(itl[several]),
    )


def _curve(seconds: Floats) -> tuple[float | None, ...]:
    if not len(seconds):
        return ()
    shares = np.linspace(0, 1, 101)
    return _times(np.quantile(_unanswered_last(seconds), shares, method="inverted_cdf"))


def _latency(name: str, title: str, seconds: Floats) -> Latency:
    """Figures of the requests; those that are never answered count as the longest."""
    if not len(seconds):
        return Latency(name, title, None, None, None, None, None)
    seconds = _unanswered_last(seconds)
    quantiles = np.quantile(seconds, SHARES, method="inverted_cdf")
    return Latency(name, title, *_times(np.append(seconds.mean(), quantiles)))


def _unanswered_last(seconds: Floats) -> Floats:
    return np.where(np.isnan(seconds), np.inf, seconds)


def _times(seconds: Floats) -> tuple[float | None, ...]:
    values: list[float] = seconds.tolist()
    return tuple(value * NS if np.isfinite(value) else None for value in values)
