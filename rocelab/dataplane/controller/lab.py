"""What the controller of a scheme sees of its lab, and what it may do: set entries.

A scheme's `controller` names a class that takes a `ControlledLab`; an object of it is called for
each round, with the `Report` of the round. A controller is killed and started again at any time:
each round reads what is, and changes what differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rocelab.dataplane.controller.collector import Collector
from rocelab.labfile.schemes.base import Scheme
from rocelab.linux.fibtable import Fib
from rocelab.planning.fabric import Fabric
from rocelab.routes.demand import Demand, read_demands
from rocelab.routes.entries import Entries, EntryTable, program


@dataclass(slots=True)
class Report:
    """A round in progress. fields: what `Round` has besides, such as `demands`. problems: what
    could not be read or written."""

    started_unix_s: float
    seconds: dict[str, float] = field(default_factory=dict)
    fields: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure the time that a part of the round takes: `collect`, `engine` or `program`."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - started


OneRound = Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class ControlledLab:
    """A lab and its scheme, as the lab's file describes them."""

    fabric: Fabric
    scheme: Scheme
    collector: Collector
    """Of the kernels' tables."""

    demands: Path
    """The folder in which running traffic publishes its flows."""

    table: EntryTable
    """The entries of the switches."""

    def collect(self, report: Report) -> tuple[Mapping[str, Fib], Sequence[Demand]]:
        """Every switch's table, and the flows of running traffic, largest first."""
        with report.part("collect"):
            fibs = self.collector.fibs()
            demands, problems = read_demands(self.fabric, self.demands)
        report.problems += problems
        return fibs, demands

    def program(self, wanted: Entries, report: Report) -> None:
        """Make the switches have exactly these entries. Raises OSError."""
        with report.part("program"):
            diff = program(self.table, wanted)
        report.fields |= {
            "changed": len(diff.changed),
            "removed": len(diff.removed),
            "total": len(wanted),
        }
