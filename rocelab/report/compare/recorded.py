"""The data of a comparison's picture: the fabric, what its links carried in each cell, and the
cell's flows."""

from __future__ import annotations

from rocelab.base.quantities import bandwidth, ratio
from rocelab.planning.fabric import Fabric
from rocelab.report.compare.cells import cell_name, shown_run, worst_tier
from rocelab.report.replay.recording import (
    MOST_SENT,
    PATHS_OF_JOBS,
    RecordedRun,
    Recording,
    loads_of,
    recording_of,
    sent_flows,
)
from rocelab.results.comparison import CellResult, Comparison, ComparisonRun


def recorded(comparison: Comparison) -> Recording | None:
    """A run for each cell that ran; None without one, and where the lab cannot be planned any
    more."""
    try:
        fabric = comparison.fabric
    except ValueError:
        return None
    ran = [(cell, run) for cell in comparison.cells if (run := shown_run(cell)) is not None]
    runs = [_cell(fabric, cell, run, comparison.dilation, 1 / len(ran)) for cell, run in ran]
    return recording_of(fabric, runs) if runs else None


def _cell(
    fabric: Fabric, cell: CellResult, run: ComparisonRun, dilation: float, share: float
) -> RecordedRun:
    """`share` of the page's room is for this cell."""
    flows, flows_are = sent_flows(fabric, [(run.nics, run.flows)], int(MOST_SENT * share))
    return RecordedRun(
        title=cell_name(cell),
        dilation=dilation,
        begin_ns=0,
        end_ns=0,
        events=[],
        loads=loads_of(fabric, {(link.link, link.direction): link.packets for link in run.links}),
        loads_are="packets of the job on links between switches, all cells by one scale",
        about=_about(cell),
        flows=flows,
        flows_are=flows_are,
        paths_are=PATHS_OF_JOBS,
    )


def _about(cell: CellResult) -> str:
    figures = cell.figures
    if figures is None:
        return cell_name(cell)
    worst = worst_tier(figures)
    mmr = "" if worst is None else f", MMR {ratio(worst.mmr or 0)} ({worst.tier} {worst.direction})"
    return (
        f"{cell_name(cell)}: busbw {bandwidth(figures.busbw_gbs.median)}, "
        f"JCT ratio {ratio(figures.jct_ratio.median)}{mmr}"
    )
