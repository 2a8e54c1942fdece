"""The cells of a comparison: every scheme with every number of queue pairs and every placement.

Parses names and numbers of a command line and the options of a job into cells in the order in which
they run, each with its job, or raises an error before anything changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocelab.base.errors import InputError
from rocelab.base.wording import counted
from rocelab.drills.compare.options import MatrixOptions
from rocelab.jobs.job import JobSpec
from rocelab.jobs.options import job_from_options
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.planning.fabric import Fabric
from rocelab.prediction.prediction_spec import read_asked

DEFAULTS: Mapping[str, str] = {
    "pattern": "allreduce",
    "size": "4MB",
    "iterations": "3",
    "strategy": "split",
}
"""The default options of a job; by default its ranks are all NICs."""


@dataclass(frozen=True, slots=True)
class ComparisonCell:
    """One scheme, number of queue pairs and placement, with its job."""

    scheme: SchemeSpec
    qps: int
    placement: str
    job: JobSpec

    @property
    def title(self) -> str:
        """`e-ecmp, 4 QPs, fragmented`."""
        return f"{self.scheme.kind}, {counted(self.qps, 'QP')}, {self.placement}"


def cells(
    fabric: Fabric, matrix: MatrixOptions, options: Mapping[str, str]
) -> tuple[ComparisonCell, ...]:
    """The cells of a matrix, scheme by scheme.

    `options` are those of a job by their names. Raises InputError for an empty or repeated item,
    SpecError for an unknown item and for a job that does not fit.
    """
    numbers = [_number(text) for text in _items("--qps", matrix.qps)]
    kinds = [_scheme(text) for text in _items("--schemes", matrix.schemes)]
    shared = dict(DEFAULTS) | {"ranks": str(_nics(fabric))}
    if "duration" in options:
        raise InputError(
            "a comparison repeats a collective; --duration makes streams, which never complete",
            hint="give a size",
        )
    chosen = []
    for scheme in kinds:
        for placement in _items("--placement", matrix.placement):
            for number in numbers:
                mine = shared | dict(options) | {"qps": str(number), "placement": placement}
                if scheme.divides_flows:
                    # Go-back-N would retransmit what comes in another order.
                    mine["out-of-order"] = "true"
                chosen.append(ComparisonCell(scheme, number, placement, job_from_options(mine)))
    return tuple(chosen)


def _items(option: str, text: str) -> Sequence[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items) or len(set(items)) < len(items):
        raise InputError(
            f"{option}: expected different items between commas, got {text!r}",
            hint="for example --schemes ecmp,e-ecmp --qps 1,4",
        )
    return items


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"--qps: expected whole numbers between commas, got {text!r}", hint="such as 1,4,16"
        ) from None


def _scheme(text: str) -> SchemeSpec:
    scheme = read_asked(text).scheme
    if scheme is None:
        raise InputError("--schemes: an empty scheme", hint="such as ecmp,e-ecmp")
    return scheme


def _nics(fabric: Fabric) -> int:
    return sum(len(fabric.nics(server.name)) for server in fabric.servers)
