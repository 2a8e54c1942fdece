"""Measures containerlab: rocelab's runtime beside a plain `containerlab deploy`, and one drill on
three runtimes.

`python -m bench.containerlab` as root, with containerlab and a running Docker engine; `make
bench-containerlab` brings both where they are missing.

The drill is `link-flap`, without tracing of daemons and without its comparison of hash seeds, which
an adopted lab leaves out. Its lab is up three times: in namespaces, on rocelab's runtime for
containerlab, and as rendered, deployed by `containerlab deploy` and adopted. Repeats take turns, so
that all see the same machine; invalid ones are counted and run again.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.stats import bootstrap  # type: ignore[import-untyped]

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.pages import spread
from bench.campaign.study import Measure, RejectedSampleError, Series, Study
from bench.runtimes import COLUMNS, cells
from bench.ups import Up, deployed_by_containerlab, measure_adopted, measure_rocelab
from rocelab import Lab, RunningLab, kept, run_drill
from rocelab.faults.running import release
from rocelab.lab.adoption.adopt import adopt
from rocelab.lab.providers import provider_of
from rocelab.labfile.catalog import DRILLS, find, find_lab
from rocelab.results.probes import ProbeRun

LAB = "bench-16x4"
DRILL = "link-flap"
LIMIT = 0.1
"""The greatest difference of two runtimes' medians, of that in namespaces, that is called the same:
written down before the first measurement. The drill's own spread is about as large (README.md)."""
UPS, REPEATS = 5, 30
"""Turns of each way to bring a lab up, and valid repeats of the drill on each."""

NANOSECONDS_PER_MS = 1e6

FIGURES: Mapping[str, Callable[[ProbeRun], float]] = {
    "full convergence, ms": lambda run: (run.overall.full_convergence_ns or 0) / NANOSECONDS_PER_MS,
    "longest loss of connectivity, ms": lambda run: (
        (run.overall.loss_of_connectivity_ns or 0) / NANOSECONDS_PER_MS
    ),
    "packets lost": lambda run: float(run.overall.lost),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two medians, as part of the first, with its 95% interval."""

    low: float
    middle: float
    high: float

    @property
    def is_small(self) -> bool:
        """Whether the whole interval is within the limit."""
        return self.low >= -LIMIT and self.high <= LIMIT


WAYS: Mapping[str, Callable[[], Up]] = {
    f"rocelab up {LAB} --runtime containerlab": lambda: measure_rocelab(LAB, "containerlab"),
    "containerlab deploy": lambda: measure_adopted(LAB),
}
LABS = ("netns", "containerlab", "adopted")


def series() -> list[Series]:
    """The ways to bring a lab up in turn, then the drill on all labs in turn."""
    return [
        Series(WAYS, _prepared, UPS),
        Series({name: name for name in LABS}, _labs, REPEATS),
    ]


@contextmanager
def _prepared(ways: Sequence[str]) -> Iterator[Measure]:
    for way in ways:
        WAYS[way]()  # makes what is kept from one lab to the next, as an image is
    yield lambda measure: asdict(measure())


@contextmanager
def _labs(_: Sequence[str]) -> Iterator[Measure]:
    """The drill's labs; a sample has each figure of a repeat."""
    with tempfile.TemporaryDirectory(prefix="rocelab-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        labs = {
            "netns": stack.enter_context(_up(folder, "same-netns", "netns")),
            "containerlab": stack.enter_context(_up(folder, "same-clab", "containerlab")),
            "adopted": stack.enter_context(_adopted(folder, "same-plain")),
        }
        drill = yaml.safe_load(find(DRILL, DRILLS).read_text())
        del drill["compare_hashing"]
        drill["measure"]["stages"] = False
        file = folder / "link-flap.yaml"
        file.write_text(yaml.safe_dump(drill))
        yield lambda name: _repeat(file, labs[name])


def _repeat(file: Path, lab: RunningLab) -> dict[str, float]:
    """A repeat of the drill on a lab that is up. Raises RejectedSampleError if it is invalid."""
    result = run_drill(file, retries=0, use=kept(lambda _: None), lab=lab)
    ((phase,),) = result.repeats
    run = phase.probes
    if run is None or run.problems:
        raise RejectedSampleError("; ".join(run.problems) if run else "no probes")
    return {figure: read(run) for figure, read in FIGURES.items()}


@contextmanager
def _up(folder: Path, name: str, kind: str) -> Iterator[RunningLab]:
    with Lab.planned(_lab_file(folder, name), provider_of(kind)).brought_up():
        yield RunningLab.open(name)


@contextmanager
def _adopted(folder: Path, name: str) -> Iterator[RunningLab]:
    with deployed_by_containerlab(_lab_file(folder, name)):
        yield RunningLab.open(adopt(name).name)
        release(name)


def _lab_file(folder: Path, name: str) -> Path:
    """The drill's lab under another name."""
    lab = yaml.safe_load(find_lab("zone-small").read_text())
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(lab | {"name": name}))
    return file


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """That of the second's median from the first's, as part of the first's; the interval is the
    bootstrap's, by percentiles (Efron and Tibshirani, 1993, chapter 13)."""
    middle = statistics.median(first)

    def relative(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray((np.median(b, axis=axis) - np.median(a, axis=axis)) / middle)

    test = bootstrap((first, second), relative, method="percentile", rng=1)
    low, high = map(float, test.confidence_interval)
    return Difference(low, float((statistics.median(second) - middle) / middle), high)


def figures(document: Document) -> dict[str, Any]:
    """The rows of starts, and of each figure of the drill: its base, then the others with their
    difference from it."""
    measured = document.measured
    repeats = {name: measured[name] for name in LABS if name in measured}
    drills = []
    for figure in FIGURES:
        values = {name: [one[figure] for one in samples] for name, samples in repeats.items()}
        base = next(iter(values.values()), [])
        drills.append(
            [
                (name, spread(runs, ".1f"), None if runs is base else difference(base, runs))
                for name, runs in values.items()
            ]
        )
    return {
        "lab": LAB,
        "headings": [name for name, *_ in COLUMNS],
        "ups": {way: cells(Up.of(measured[way])) for way in WAYS if way in measured},
        "turns": len(next((measured[way] for way in WAYS if way in measured), ())),
        "drill": DRILL,
        "limit": LIMIT,
        "drills": dict(zip(FIGURES, drills, strict=True)) if repeats else {},
        "repeats": len(next(iter(repeats.values()), ())),
        "rejected": {one.name: one.rejected for one in document.points if one.name in LABS},
    }


STUDY = Study(
    name="containerlab",
    about="the runtime `containerlab` beside a plain deploy, and a drill on three runtimes",
    series=series,
    figures=figures,
)

if __name__ == "__main__":
    command.run(STUDY.name)
