"""A table of nccl-tests for a collective on a fabric: each of its sizes, simulated alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocelab.base.errors import InputError
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.base.units import SIZE, parse_size_bytes
from rocelab.base.wording import RefusedError, counted
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.performance import PerformanceRow
from rocelab.labfile.model import LabSpec
from rocelab.results.busbw import SizeRow, SizeTable
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation

JobOf = Callable[[int], SimulatedJob]
"""The job of a size in bytes."""


def sizes_of(text: str) -> tuple[int, ...]:
    """The sizes of `8B:1GiB` (each twice the one before) or `8B:1GiB:4`, in bytes.

    Raises InputError for other text.
    """
    least, _, rest = text.partition(":")
    most, _, step = rest.partition(":")
    try:
        low, high, factor = parse_size_bytes(least), parse_size_bytes(most), int(step or 2)
    except (RefusedError, ValueError):
        low, high, factor = 0, 0, 0
    if not 0 < low <= high or factor < 2:
        raise InputError(
            f"--sizes {text} is no range of sizes",
            hint="give the first and the last, and a factor if it is not 2: `--sizes 8B:1GiB`, "
            "`--sizes 1MB:1GB:10`",
        )
    sizes = [low]
    while sizes[-1] * factor <= high:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def size_table(
    spec: LabSpec,
    job_of: JobOf,
    sizes: Sequence[int],
    options: Options,
    progress: ProgressSink = no_progress,
) -> SizeTable:
    """A collective of each of these sizes, on a network of its own.

    Sizes of less than a byte for each rank are left out. Raises as `Simulation` does, and
    InputError where no size is left or links change.
    """
    collective = job_of(sizes[-1]).collective
    assert collective is not None
    if options.timeline.events:
        raise InputError("--sizes with --event", hint="take one size: --size 1GB")
    taken = [size for size in sizes if size >= collective.ranks]
    if not taken:
        raise InputError(
            f"all sizes are of less than a byte for each of {collective.ranks:,} ranks",
            hint="give larger sizes",
        )
    warnings: dict[str, None] = {}
    if left := len(sizes) - len(taken):
        text = f"{counted(left, 'size')} below {SIZE.written(taken[0])} left out: less than a byte"
        warnings[f"{text} for each rank"] = None
    rows: list[SizeRow] = []
    hosts = ""
    for size in taken:
        simulation = Simulation(spec, (job_of(size),), options, progress)
        report = simulation.report()
        (outcome,), (cost,) = report.jobs, simulation.costs
        hosts = simulation.hosts_in_words
        warnings.update(dict.fromkeys(report.warnings))
        named = collective.algorithm or ("direct" if cost is None else "")
        way = cost.words if cost is not None else str(named)
        method = "each send by itself" if outcome.ordered else "sends of two ranks together"
        time_ns = outcome.headline("iteration_time").modelled.median
        row = PerformanceRow(collective.pattern, collective.ranks, size, time_ns)
        rows.append(SizeRow(size, time_ns, row.algbw_gbs, row.busbw_gbs, way, method))
    pattern = str(collective.pattern)
    return SizeTable(spec.name, hosts, pattern, collective.ranks, tuple(rows), tuple(warnings))
