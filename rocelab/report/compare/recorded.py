"""The data of a comparison's picture: the fabric, and what its links carried in each cell."""

from __future__ import annotations

from rocelab.plan.build import plan
from rocelab.report.compare.view import cell_name, shown_run, worst_tier
from rocelab.report.replay.recording import RecordedRun, Recording, loads_of, recording_of
from rocelab.results.comparison import CellResult, Comparison
from rocelab.spec.adopted import recorded_spec


def recorded(found: Comparison) -> Recording | None:
    """A run for each cell that ran; None without one, and where the lab cannot be planned any
    more."""
    try:
        fabric = plan(recorded_spec(found.lab))
    except ValueError:
        return None
    runs = [
        RecordedRun(
            title=cell_name(cell),
            dilation=found.dilation,
            begin_ns=0,
            end_ns=0,
            events=[],
            loads=loads_of(
                fabric, {(link.link, link.direction): link.packets for link in run.links}
            ),
            loads_are="packets of the job on links between switches, all cells by one scale",
            about=_about(cell),
        )
        for cell in found.cells
        if (run := shown_run(cell)) is not None
    ]
    return recording_of(fabric, runs) if runs else None


def _about(cell: CellResult) -> str:
    figures = cell.figures
    if figures is None:
        return cell_name(cell)
    worst = worst_tier(figures)
    mmr = "" if worst is None else f", MMR {worst.mmr:.2f} ({worst.tier} {worst.direction})"
    return (
        f"{cell_name(cell)}: BusBW {figures.busbw_gbs.median * 8:.0f} Gb/s, "
        f"JCT ratio {figures.jct_ratio.median:.2f}{mmr}"
    )
