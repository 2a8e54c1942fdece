"""Flows that begin at given times, whatever the network does: an open loop.

A `FlowList` is read from a file (`rocelab.jobs.flow_files`) or drawn
(`rocelab.jobs.poisson`), and becomes a `Workload` of one send per flow.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.base.arrays import Floats, Ints, Longs
from rocelab.jobs.workload import Sends, Step, Workload

MOST_FLOWS = 2**20


@dataclass(frozen=True, eq=False)
class FlowList:
    """X flows between ranks 0 to `ranks` - 1, by column: source, destination (never the same),
    size_bytes of payload (> 0), start_s from the job's start."""

    ranks: int
    source: Ints
    destination: Ints
    size_bytes: Longs
    start_s: Floats
    warnings: tuple[str, ...] = ()
    """The parts of a file that were ignored."""

    def __len__(self) -> int:
        return len(self.source)

    def workload(self) -> Workload:
        """A step for each flow, numbered from 1, each on queue pairs of its own."""
        rows = (
            column.reshape(-1, 1) for column in (self.source, self.destination, self.size_bytes)
        )
        columns = zip(self.start_s.tolist(), map(Sends, *rows), strict=True)
        steps = tuple(
            Step(f"flow {number}", (), start_s, sends, launches=False)
            for number, (start_s, sends) in enumerate(columns, start=1)
        )
        return Workload(
            self.ranks, steps, ordered=True, own_queue_pairs=True, warnings=self.warnings
        )
