"""Measures containerlab: rocelab's runtime beside a plain `containerlab deploy`, and one drill on
three runtimes.

`python -m bench.containerlab` as root, with containerlab and a running Docker engine; `make
bench-containerlab` brings both where they are missing. Writes bench/containerlab.json and
bench/containerlab.md.

The drill is `link-flap`, without tracing of daemons and without its comparison of hash seeds, which
an adopted lab leaves out. Its lab is up three times: in namespaces, on rocelab's runtime for
containerlab, and as rendered, deployed by `containerlab deploy` and adopted. Repeats take turns, so
that all see the same machine; invalid ones are counted and run again.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
import yaml
from rich.console import Console
from scipy.stats import bootstrap  # type: ignore[import-untyped]

from bench.fabrics import (
    Up,
    deployed_by_containerlab,
    measure_adopted,
    measure_rocelab,
    spread,
)
from bench.runtimes import COLUMNS, cells
from bench.written import write
from rocelab import Lab, RunningLab, kept, run_drill
from rocelab.base.interruption import ending
from rocelab.faults.running import release
from rocelab.lab.adoption.adopt import adopt
from rocelab.lab.providers import provider_of
from rocelab.labfile.catalog import DRILLS, find, find_lab
from rocelab.observe.environment import read_environment
from rocelab.results.probes import ProbeRun

LAB = "bench-16x4"
DRILL = "link-flap"
LIMIT = 0.1
"""The greatest difference of two runtimes' medians, of that in namespaces, that is called the same:
written down before the first measurement. The drill's own spread is about as large (README.md)."""
MOST_INVALID = 3
"""Times the number of repeats, in all: then the machine is too busy to measure on."""
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


def main(
    runs: Annotated[int, typer.Option(min=1, help="of each way to bring a lab up, in turn")] = 5,
    repeats: Annotated[int, typer.Option(min=3, help="valid ones of the drill, on each")] = 30,
) -> None:
    """Measure both, and write the tables."""
    console = Console(stderr=True)
    ups = _ups(runs, console)
    repeats_of, invalid = _drills(repeats, console)
    text = _text(ups, repeats_of, invalid)
    document = {
        "environment": asdict(read_environment()),
        "load_average": os.getloadavg(),
        "lab": LAB,
        "ups": {way: [asdict(up) for up in runs] for way, runs in ups.items()},
        "drill": DRILL,
        "limit": LIMIT,
        "repeats": repeats_of,
        "invalid": invalid,
    }
    write("containerlab", document, text)
    Console().print(text, markup=False, soft_wrap=True)


def _ups(runs: int, console: Console) -> dict[str, list[Up]]:
    ways: dict[str, Callable[[], Up]] = {
        f"rocelab up {LAB} --runtime containerlab": lambda: measure_rocelab(LAB, "containerlab"),
        "containerlab deploy": lambda: measure_adopted(LAB),
    }
    for measure in ways.values():
        measure()  # makes what is kept from one lab to the next, as an image is
    ups: dict[str, list[Up]] = {way: [] for way in ways}
    for run in range(1, runs + 1):
        for way, measure in ways.items():
            console.print(f"{LAB}, {way}: run {run} of {runs}")
            ups[way].append(measure())
    return ups


def _drills(
    repeats: int, console: Console
) -> tuple[dict[str, dict[str, list[float]]], dict[str, int]]:
    """Each figure's values by runtime, and how many repeats were invalid there."""
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
        values: dict[str, dict[str, list[float]]] = {
            name: {figure: [] for figure in FIGURES} for name in labs
        }
        invalid = dict.fromkeys(labs, 0)
        while any(len(of[figure]) < repeats for of in values.values() for figure in of):
            if sum(invalid.values()) > MOST_INVALID * repeats:
                raise SystemExit(f"too many invalid repeats: {invalid}")
            for name, lab in labs.items():
                run = _repeat(file, lab)
                if run is None:
                    invalid[name] += 1
                    continue
                for figure, read in FIGURES.items():
                    values[name][figure].append(read(run))
            counts = {name: len(next(iter(of.values()))) for name, of in values.items()}
            console.print(f"valid repeats: {counts}, invalid: {invalid}")
    # A runtime that was never invalid has more.
    return {
        name: {figure: runs[:repeats] for figure, runs in of.items()} for name, of in values.items()
    }, invalid


def _repeat(file: Path, lab: RunningLab) -> ProbeRun | None:
    """A repeat of the drill on a lab that is up; None if it was invalid."""
    result = run_drill(file, retries=0, use=kept(lambda _: None), lab=lab)
    ((phase,),) = result.repeats
    run = phase.probes
    return None if run is None or run.problems else run


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


def _text(
    ups: Mapping[str, Sequence[Up]],
    repeats_of: Mapping[str, Mapping[str, Sequence[float]]],
    invalid: Mapping[str, int],
) -> str:
    lines = ["# containerlab, measured by `make bench-containerlab`", ""]
    lines += [
        f"- {key.replace('_', ' ')}: {value}" for key, value in asdict(read_environment()).items()
    ]
    count = len(next(iter(ups.values())))
    lines += ["", f"## {LAB}, up and down, n={count} in turn", ""]
    lines += ["| median (min to max) | " + " | ".join(name for name, *_ in COLUMNS) + " |"]
    lines += ["|---" * (len(COLUMNS) + 1) + "|"]
    lines += ["| " + " | ".join([f"`{way}`", *cells(runs)]) + " |" for way, runs in ups.items()]
    lines += ["", *_drill_lines(repeats_of, invalid)]
    return "\n".join(lines) + "\n"


def _drill_lines(
    repeats_of: Mapping[str, Mapping[str, Sequence[float]]], invalid: Mapping[str, int]
) -> list[str]:
    first, *others = repeats_of
    count = len(next(iter(repeats_of[first].values())))
    lines = [
        f"## {DRILL} on three runtimes, {count} valid repeats on each, in turn",
        "",
        f"Called the same: the 95% interval of the difference of medians lies within "
        f"{LIMIT:.0%} of the median in namespaces.",
        "",
        "| figure | runtime | median (min to max) | difference (95% interval) | |",
        "|---|---|---|---|---|",
    ]
    for figure in FIGURES:
        base = repeats_of[first][figure]
        lines.append(f"| {figure} | {first} | {spread(base, '.1f')} | | |")
        for name in others:
            diff = difference(base, repeats_of[name][figure])
            said = f"{diff.middle:+.1%} ({diff.low:+.1%} to {diff.high:+.1%})"
            same = "same" if diff.is_small else "not shown to be the same"
            lines.append(
                f"| | {name} | {spread(repeats_of[name][figure], '.1f')} | {said} | {same} |"
            )
    counts = ", ".join(f"{number} on {name}" for name, number in invalid.items())
    return [*lines, "", f"Invalid, and run again: {counts}."]


if __name__ == "__main__":
    with ending():
        typer.run(main)
