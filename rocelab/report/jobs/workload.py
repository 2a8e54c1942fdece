"""The flows or the steps of a lab's job that is a workload."""

from __future__ import annotations

from functools import partial

from rocelab.base.quantities import Unit
from rocelab.base.wording import counted
from rocelab.report.document import Block, Column, Figure, Note, Section, Table, columns
from rocelab.report.flowplots import slowdown_plot, timeline_plot
from rocelab.report.flowtimes import by_size_table, times_table
from rocelab.report.served import served_blocks
from rocelab.results.job import JobReport


def workload_blocks(report: JobReport) -> tuple[Block, ...]:
    """What a job's document has of its workload; none of a collective."""
    figures = report.workload
    if figures is None:
        return ()
    blocks: list[Block] = []
    if figures.served is not None:
        blocks.append(Section("Requests", served_blocks(figures.served, "")))
    if figures.flow_times is not None and figures.slowdown is not None:
        flows = counted(figures.flow_times.transfers, "flow")
        text = (
            f"{flows}, each from the time at which it is to begin until its sender has the last "
            "ACK; slowdown: over the least time, alone on the path."
        )
        blocks.append(
            Section(
                "Flow completion",
                (
                    Note(text, page_only=True),
                    times_table(figures.flow_times),
                    Figure("slowdown", partial(slowdown_plot, [(report.title, figures.slowdown)])),
                    by_size_table([(report.title, figures.slowdown)]),
                ),
            )
        )
    if figures.steps:
        rows = [(step.name, step) for step in figures.steps]
        blocks += [
            Figure("steps", partial(timeline_plot, rows)),
            Table(
                "Steps that send, of the last iteration",
                (Column("step"), *columns(Unit.NS, "began", "over")),
                tuple((step.name, step.start_ns, step.end_ns) for step in figures.steps),
                page_only=len(rows) > 2,
            ),
        ]
    return tuple(blocks)
