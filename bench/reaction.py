"""`python -m bench.reaction`, in a checkout: makes reaction.json from docs/convergence-table.json.

The package ships the rows of the page that `make convergence-table` measured.
"""

from __future__ import annotations

from pathlib import Path

from bench.convergence.document import TABLE, CellResult, ConvergenceTable, summarise
from bench.convergence.plan import Cell, all_cells
from rocelab.base.documents import to_json
from rocelab.sim.events.reaction import (
    SCHEMA_VERSION,
    TABLE_FILE,
    ReactionRow,
    ReactionTable,
)

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "docs" / "convergence-table.json"


def reaction_table(measured: ConvergenceTable) -> ReactionTable:
    """The rows of a convergence table in which every flow recovered."""
    cells = {cell.name: cell for cell in all_cells()}
    rows = [_row(cells[result.name], result) for result in measured.cells]
    environment = measured.cells[0].environment
    return ReactionTable(
        schema_version=SCHEMA_VERSION,
        measured_on=f"{environment.kernel}, FRR {environment.frr_version}, "
        f"{environment.cpu_count} CPUs",
        rows=tuple(row for row in rows if row is not None),
    )


def _row(cell: Cell, result: CellResult) -> ReactionRow | None:
    summary = summarise([failure.failure for failure in result.failures])
    if summary.median_ns is None or summary.p95_ns is None or summary.unrestored:
        return None
    return ReactionRow(
        name=result.name,
        title=cell.fault.title,
        breakage=cell.fault.breakage,
        fabric=cell.site.fabric_title,
        place=cell.site.place,
        place_title=cell.site.place_title,
        fan_out=cell.site.fan_out,
        n=summary.n,
        median_ns=summary.median_ns,
        p95_ns=summary.p95_ns,
        noticed_ns=cell.fault.theory_ns,
        bfd=cell.fault.timers.bfd_interval_ns is not None,
    )


def main() -> None:
    """Write the table next to the module that reads it."""
    measured = TABLE.read(MEASURED.read_text(encoding="utf-8"))
    made = to_json(reaction_table(measured))
    Path(ROOT, "rocelab", "sim", "events", TABLE_FILE).write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
