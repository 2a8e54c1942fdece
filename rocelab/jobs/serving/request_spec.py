"""The requests of a job as a user writes them: those of a trace, or drawn."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from rocelab.base.arrays import Floats, Longs
from rocelab.base.errors import InputError
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.base.units import DurationNs
from rocelab.base.wording import RefusedError, counted
from rocelab.jobs.flow_list import MOST_FLOWS
from rocelab.jobs.serving.request_columns import Meaning, TimeUnit
from rocelab.jobs.serving.request_files import RequestTrace, read_trace
from rocelab.jobs.serving.requests import MOST_TOKENS, Requests, in_order
from rocelab.labfile.base import SpecModel, short_form

LONGEST = 30 * 24 * 3600 * 10**9
MOST_REQUESTS = MOST_FLOWS
NS = 1e9

Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class ArrivalProcess(StrEnum):
    """When requests arrive."""

    TRACE = "trace"
    POISSON = "poisson"
    GAMMA = "gamma"


class LengthSpec(SpecModel):
    """Tokens whose logarithm is normal, by their median and 99th percentile; whole, at least 1."""

    p50: Annotated[Tokens, Field(description="median")]
    p99: Annotated[Tokens, Field(description="99th percentile")]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.p99 < self.p50:
            raise RefusedError("the 99th percentile is below the median", keys=("p99", "p50"))
        return self

    def drawn(self, rng: np.random.Generator, count: int) -> Longs:
        sigma = np.log(self.p99 / self.p50) / NormalDist().inv_cdf(0.99)
        values = np.rint(self.p50 * np.exp(sigma * rng.standard_normal(count)))
        lengths: Longs = np.clip(values, 1, MOST_TOKENS).astype(np.int64)
        return lengths


def _one_length(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"p50": value, "p99": value}
    return value


Length = Annotated[
    LengthSpec, BeforeValidator(_one_length), short_form({"type": "integer", "minimum": 1})
]


class ColumnsSpec(SpecModel):
    """The columns of a trace that are not called as usual."""

    time: Annotated[str | None, Field(description="of arrivals")] = None
    prompt: Annotated[str | None, Field(description="of the tokens of prompts")] = None
    output: Annotated[str | None, Field(description="of the tokens of answers")] = None
    blocks: Annotated[str | None, Field(description="of the hashes of a prompt's blocks")] = None
    reused: Annotated[
        str | None, Field(description="of the number of leading blocks that are reused")
    ] = None

    @property
    def asked(self) -> Mapping[Meaning, str]:
        return {
            meaning: name for meaning in Meaning if (name := getattr(self, meaning)) is not None
        }


class RequestsSpec(SpecModel):
    """Requests of a trace, or with drawn arrivals and lengths."""

    trace: Annotated[
        str | None,
        Field(
            min_length=1,
            description="a file of requests, CSV or JSON lines, also with gzip: Azure's, "
            "Mooncake's, BurstGPT's, vLLM's or any with columns for tokens; from the job file",
        ),
    ] = None
    columns: Annotated[
        ColumnsSpec, Field(description="names of the trace's columns, where they are not usual")
    ] = ColumnsSpec()
    time_unit: Annotated[
        TimeUnit | None,
        Field(strict=False, description="of the trace's times, where its column does not say it"),
    ] = None
    first: Annotated[
        int | None, Field(ge=1, le=MOST_REQUESTS, description="requests of the trace to take")
    ] = None
    after: Annotated[
        DurationNs, Field(ge=0, le=LONGEST, description="time of the trace to leave out")
    ] = 0
    duration: Annotated[
        DurationNs | None,
        Field(gt=0, le=LONGEST, description="time in which requests arrive; a trace's own time"),
    ] = None
    arrivals: Annotated[
        ArrivalProcess | None,
        Field(
            strict=False,
            description="trace: at the trace's times; poisson; gamma: bursty, with the cv of gaps; "
            "left out: trace where it has times, else poisson",
        ),
    ] = None
    cv: Annotated[
        float | None,
        Field(ge=0.01, le=100, description="of gaps with gamma: their deviation over their mean"),
    ] = None
    rate: Annotated[
        float | None,
        Field(
            gt=0,
            le=1e7,
            description="requests a second: what is drawn, or the mean that a trace's times are "
            "stretched or compressed to",
        ),
    ] = None
    prompt: Annotated[Length | None, Field(description="tokens of prompts, instead of a trace")] = (
        None
    )
    output: Annotated[Length | None, Field(description="tokens of answers, instead of a trace")] = (
        None
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        refusals = (
            (
                self.trace is None and (self.prompt is None or self.output is None),
                "expected a trace, or prompt and output",
                "trace: FILE, or prompt: 2000 and output: {p50: 100, p99: 800}",
                ("trace", "prompt", "output"),
            ),
            (
                self.trace is not None and (self.prompt is not None or self.output is not None),
                "a trace has its own lengths",
                "remove prompt and output, or the trace",
                ("prompt", "output", "trace"),
            ),
            (
                self.trace is None and self.arrivals is ArrivalProcess.TRACE,
                "arrivals of a trace, and there is none",
                "give trace: FILE, or arrivals: poisson",
                ("arrivals",),
            ),
            (
                (self.arrivals is ArrivalProcess.GAMMA) != (self.cv is not None),
                "gamma and cv belong together",
                "arrivals: gamma with cv: 3, for example",
                ("cv", "arrivals"),
            ),
            (
                self.rate is None and self.draws,
                "expected rate: how many requests arrive a second",
                "such as rate: 20",
                ("rate", "arrivals"),
            ),
            (
                self.trace is None and (self.duration is None) == (self.first is None),
                "expected duration or first: how many requests are drawn",
                "such as duration: 60s, or first: 1000",
                ("duration", "first"),
            ),
            (
                self.trace is None and self.after > 0,
                "there is no trace to leave a part out of",
                "remove after",
                ("after",),
            ),
        )
        for refused, message, hint, keys in refusals:
            if refused:
                raise RefusedError(message, hint, keys=keys)
        return self

    @property
    def draws(self) -> bool:
        """Whether arrivals are drawn in any case."""
        return self.trace is None or self.arrivals in (ArrivalProcess.POISSON, ArrivalProcess.GAMMA)

    @cached_property
    def _trace(self) -> RequestTrace:
        return self._read(no_progress)

    def _read(self, progress: ProgressSink) -> RequestTrace:
        assert self.trace is not None
        # A part of the time of a trace may begin behind the first requests.
        first = None if self.after or self.duration else self.first
        return read_trace(
            Path(self.trace),
            columns=self.columns.asked,
            unit=self.time_unit,
            first=first,
            progress=progress,
        )

    def read(self, progress: ProgressSink) -> None:
        """Read the trace once. Raises InputError."""
        if self.trace is not None and "_trace" not in self.__dict__:
            self.__dict__["_trace"] = self._read(progress)

    def requests(self, seed: int, job: str = "requests") -> Requests:
        """All requests, by arrival; those without a prompt or an answer are left out. Raises
        InputError for too many, or none."""
        requests = self._drawn(seed, job) if self.trace is None else self._of_trace(seed, job)
        if not len(requests):
            raise InputError(
                f"{job}: no request arrives in the time that is asked for",
                hint="take a longer duration, an earlier after, or a higher rate",
            )
        if len(requests) > MOST_REQUESTS:
            raise InputError(
                f"{job}: {len(requests):,} requests; at most {MOST_REQUESTS:,} are simulated",
                hint="take some: first: 100000, or a shorter duration",
            )
        return requests

    def listed(self) -> Requests:
        """The requests of the trace that are chosen, at its own times, or all at once."""
        trace = self._trace
        warnings = list(trace.warnings)
        time_s = np.zeros(len(trace.prompt)) if trace.time_s is None else trace.time_s
        unsorted = int((np.diff(time_s) < 0).sum())
        if unsorted:
            warnings.append(
                f"{self.trace}: {counted(unsorted, 'request')} behind later ones: all are sorted "
                "by time" + ("; what is reused is by the file's order" if trace.has_blocks else "")
            )
        lacks = (trace.prompt == 0) | (trace.answer == 0)
        if lacks.any():
            warnings.append(
                f"{self.trace}: {counted(int(lacks.sum()), 'request')} without tokens of a prompt "
                f"or an answer {'is' if lacks.sum() == 1 else 'are'} left out"
            )
        ordered = in_order(time_s, trace.prompt, trace.answer, trace.reused, tuple(warnings))
        kept = (ordered.prompt > 0) & (ordered.answer > 0)
        kept &= ordered.arrival_s >= self.after / NS
        if self.duration is not None:
            kept &= ordered.arrival_s < (self.after + self.duration) / NS
        if self.first is not None:
            kept &= np.cumsum(kept) <= self.first
        return ordered.chosen(kept)

    def _of_trace(self, seed: int, job: str) -> Requests:
        if self._trace.time_s is None:
            if self.rate is None:
                raise InputError(
                    f"{job}: {self.trace} has no column with times",
                    hint="name it: columns: {time: NAME}; or give rate: 20 to draw arrivals",
                )
            if self.after or self.duration:
                raise InputError(
                    f"{job}: {self.trace} has no times to take a part of",
                    hint="give first instead",
                )
        listed = self.listed()
        if len(listed) and (self.draws or self._trace.time_s is None):
            arrival_s = self._gaps(np.random.default_rng(seed), len(listed)).cumsum()
            return in_order(arrival_s, listed.prompt, listed.answer, listed.reused, listed.warnings)
        return listed if self.rate is None else listed.at_rate(self.rate)

    def _drawn(self, seed: int, job: str) -> Requests:
        assert self.prompt is not None and self.output is not None and self.rate is not None
        rng = np.random.default_rng(seed)
        count = self.first
        if self.duration is not None:
            expected = self.rate * self.duration / NS
            if expected > MOST_REQUESTS:
                raise InputError(
                    f"{job}: about {expected:,.0f} requests; at most {MOST_REQUESTS:,} are "
                    "simulated",
                    hint="take a shorter duration, or a lower rate",
                )
            count = int(expected + 10 * expected**0.5 * max(1.0, self.cv or 1.0) + 10)
        assert count is not None
        arrival_s = self._gaps(rng, count).cumsum()
        prompt, answer = self.prompt.drawn(rng, count), self.output.drawn(rng, count)
        if self.duration is not None:
            kept = arrival_s < self.duration / NS
            arrival_s, prompt, answer = arrival_s[kept], prompt[kept], answer[kept]
        return in_order(arrival_s, prompt, answer, np.zeros(len(prompt), np.int64))

    def _gaps(self, rng: np.random.Generator, count: int) -> Floats:
        """Seconds between arrivals: of a gamma process with this coefficient of variation, which is
        Poisson's at 1."""
        assert self.rate is not None
        shape = 1 / (self.cv or 1.0) ** 2
        gaps: Floats = rng.gamma(shape, 1 / (shape * self.rate), count)
        return gaps
