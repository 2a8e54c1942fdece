"""Tables of when flows were over, of simulations and of a lab's jobs."""

from __future__ import annotations

from collections.abc import Iterable

from rocelab.base.quantities import Unit
from rocelab.report.document import Column, Table, Value, columns
from rocelab.results.flowtimes import Distribution, FlowTimes, SlowdownBySize


def times_table(times: FlowTimes) -> Table:
    """Completion times and slowdowns of flows."""
    return Table(
        "",
        (Column(""), *columns(Unit.FIGURE, "mean", "p50", "p99", "highest")),
        (
            ("time", *_distribution(times.time_ns, Unit.NS)),
            ("slowdown", *_distribution(times.slowdown, Unit.RATIO)),
        ),
        sortable=False,
    )


def by_size_table(jobs: Iterable[tuple[str, SlowdownBySize | None]]) -> Table:
    """The slowdown of each job's flows by their size, where they have several."""
    return Table(
        "Slowdown of flows, by size",
        (
            Column("job"),
            Column("up to", Unit.BYTES),
            Column("flows", Unit.COUNT),
            *columns(Unit.RATIO, "p50", "p95", "p99"),
        ),
        tuple(
            (name, part.largest_bytes, part.flows, part.p50, part.p95, part.p99)
            for name, slowdown in jobs
            if slowdown is not None and len(slowdown.bins) > 1
            for part in slowdown.bins
        ),
    )


def _distribution(figure: Distribution, unit: Unit) -> tuple[Value, ...]:
    values = (figure.mean, figure.p50, figure.p99, figure.maximum)
    return tuple(Value(value, unit) for value in values)
