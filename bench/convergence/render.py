"""The convergence table as a page: tables by fault class, with explanations.

Writes a `ConvergenceTable` and the plan as Markdown. Every number comes from the document.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from bench.convergence.document import (
    CellResult,
    ConvergenceTable,
    Failure,
    LinkFailureTest,
    Summary,
    percentile,
    summarise,
)
from bench.convergence.plan import PLAN, Cell, FaultClass, Site
from rocelab.base import quantities
from rocelab.report.stages import CAUSES

PLOT = "convergence-table.svg"
DOCUMENT = "convergence-table.json"
PAGE, RELEASES_PAGE = "convergence-table.md", "frr-releases.md"

READING = """\
A row is one fault class at one place of one fabric. Each of its n failures is injected into the
same running lab once every FIB is complete, and undone once every FIB has reacted and the Sustained
Convergence Validation Time has passed. **Convergence** is Full Convergence Time (RFC 6412 section
3.6.1): from the failure until packets of the last flow that lost some arrive again; 0 if no packet
was lost. p95 is the time that 95 % of the failures do not exceed (nearest rank). **Lost** counts
packets of all flows, **touched** the flows that lost packets. In every row the same number of flows
cross the failing part, selected by predicted path, half in each direction of a link, so that rows
with different fan-outs are comparable: a convergence time is that of the worst flow. `fan-out` is
the number of equal links of the switch next to the failure."""

FIGURES = (
    "| n | convergence: median | p95 | max | lost: median | max | touched: median | max | of |"
)
RULE = "|--:" * 9 + "|"
STAGES = "| failures | noticed by | noticed | best path | zebra | kernel | all recovered |"
STAGES_RULE = "|--:|---" + "|--:" * 5 + "|"
"""Column heads of several tables."""

LIMITS = """\
- All switches are namespaces of one kernel on the CPUs named above. FRR's daemons compete for them,
  and a larger fan-out means more daemons. Each real switch has its own CPU.
- Links are veth pairs: both ends lose carrier in the same instant. An optic needs milliseconds to
  report it, and may delay the report on purpose (debounce).
- Real switches program an ASIC after the kernel, which can take longer than everything measured
  here. Here the kernel's table is the forwarding table.
- Tables are small: a prefix per rack or NIC. Effects that grow with the number of prefixes are not
  visible.
- A silent failure loses every packet in both directions. Loss in one direction, or of some packets,
  is a different fault.
- BFD at 50 ms is measured on fabrics with few sessions: with 48 of them at that interval bfdd
  leaves too little of two CPUs for traffic."""


def pages(table: ConvergenceTable, missing: Sequence[str]) -> dict[str, str]:
    """The pages by file name; `missing` are the cells of the plan that were not measured."""
    return {PAGE: page(table, missing), RELEASES_PAGE: releases_page(table.releases)}


def page(table: ConvergenceTable, missing: Sequence[str]) -> str:
    """The page of one release; `missing` are the cells of the plan that were not measured."""
    by_name = {cell.name: cell for cell in table.cells}
    measured = [cell for cell in table.cells if cell.failures]
    lines = ["# How long FRR on Linux takes to converge", ""]
    lines += [f"`{table.command}` makes this page, [its data]({DOCUMENT}) and the plot.", ""]
    lines += _machine(table.cells) or ["Nothing is measured yet."]
    if len({cell.environment.frr_version for cell in table.cells}) > 1:
        lines.append("- **rows are of different releases of FRR**: `--again` measures all of them")
    if measured:
        lines += ["", "## How to read it", "", READING, "", _traffic(measured[0]), ""]
        lines += ["## Limits", "", LIMITS, "", f"![every failure]({PLOT})", ""]
    for fault, sites in PLAN:
        lines += _class_section(fault, sites, by_name)
    if table.releases:
        lines += [f"[FRR releases side by side]({RELEASES_PAGE}) has rows of two releases.", ""]
    lines += _stages_section(by_name)
    lines += _repairs_section(by_name)
    lines += _job_section(table.job)
    lines += _trouble_section(table, missing)
    return "\n".join(lines).rstrip() + "\n"


def _machine(cells: Sequence[CellResult]) -> list[str]:
    if not cells:
        return []
    first = cells[0].environment
    releases = dict.fromkeys(cell.environment.frr_version for cell in cells)
    lines = [
        f"- {first.cpu_count} CPUs ({first.cpu_model}), {first.memory_bytes / 2**30:.0f} GiB",
        f"- {first.kernel}, FRR {' and '.join(releases)}, Python {first.python}",
        f"- rocelab {first.tool_version}, from {first.started} on; "
        f"{sum(cell.took_s for cell in cells) / 60:.0f} minutes in all",
        "- load average (1 minute) before a cell: "
        f"{statistics.median(cell.load_average[0] for cell in cells):.2f} (median), "
        f"{max(cell.load_average[0] for cell in cells):.2f} (maximum)",
    ]
    machines = {
        (one.kernel, one.cpu_model, one.cpu_count, one.memory_bytes)
        for one in (cell.environment for cell in cells)
    }
    if len(machines) > 1:
        lines.append(f"- **{len(machines)} different machines**: cells do not compare")
    return lines


def _traffic(cell: CellResult) -> str:
    return (
        f"Traffic: {cell.flows} flows of {cell.rate_pps:,} packets/s, {cell.crossing} of them over "
        f"what fails; no time is finer than their packet interval, "
        f"{quantities.duration(10**9 / cell.rate_pps)}. Validation time: "
        f"{quantities.duration(cell.method.sustained_ns)}."
    )


def _heading(fault: FaultClass) -> str:
    title = fault.title
    return title if title.startswith("bgpd") else f"{title[0].upper()}{title[1:]}"


def _class_section(
    fault: FaultClass, sites: Sequence[Site], by_name: Mapping[str, CellResult]
) -> list[str]:
    rows = []
    for site in sites:
        cell = by_name.get(Cell(fault, site).name)
        if cell is None:
            continue
        rows.append(_row(_place(site), cell))
    if not rows:
        return []
    lines = [f"## {_heading(fault)}", ""]
    if fault.theory_ns is not None:
        earliest, latest = map(quantities.duration, fault.theory_ns)
        lines += [
            f"By protocol a session detects the failure after {earliest} to {latest}; each end "
            "detects it independently, and routing follows.",
            "",
        ]
    return [*lines, f"| fabric | what fails | fan-out {FIGURES}", f"|---|---|--:{RULE}", *rows, ""]


def releases_page(cells: Sequence[CellResult]) -> str:
    """The page of releases of FRR that were measured in turn."""
    lines = ["# FRR releases side by side", ""]
    lines += _releases(cells) if cells else ["Nothing is measured yet."]
    return "\n".join(lines).rstrip() + "\n"


def _releases(cells: Sequence[CellResult]) -> list[str]:
    rows, stage_rows = [], []
    for fault, site in ((fault, site) for fault, sites in PLAN for site in sites):
        for cell in cells:
            if cell.name != Cell(fault, site).name:
                continue
            release = cell.environment.frr_version
            place = _place(site)
            rows.append(_row(f"| {fault.title} {place}| {release} ", cell))
            if row := _stage_row(f"{fault.title} {place}| {release}", cell.traced):
                stage_rows.append(row)
    lines = [
        "A row is a cell with one release of FRR, measured again for this comparison: the other "
        "release was measured right after it, on the same machine. `make convergence-table "
        "FRR=PREFIX` measures this machine's FRR and the one in the folder PREFIX "
        f"([setup.md](setup.md#another-frr)). [The table]({PAGE}) explains the columns.",
        "",
        *_machine(cells),
        "",
        f"| fault | fabric | what fails | fan-out | FRR {FIGURES}",
        f"|---|---|---|--:|--:{RULE}",
        *rows,
        "",
    ]
    if not stage_rows:
        return lines
    return [
        *lines,
        "Where the time went, in further failures for which FRR traced each step, as in "
        f"[the table]({PAGE}#where-the-time-went):",
        "",
        f"| fault | fabric | what fails | fan-out | FRR {STAGES}",
        f"|---|---|---|--:|--:{STAGES_RULE}",
        *stage_rows,
        "",
    ]


def _place(site: Site) -> str:
    return f"| {site.fabric_title} | {site.place_title} | {site.fan_out} "


def _row(place: str, cell: CellResult) -> str:
    if not cell.failures:
        return f"{place}| 0 | not measured | | | | | | | |"
    one = summarise([failure.failure for failure in cell.failures])
    partly = "" if cell.is_whole else " of " + str(cell.wanted)
    return (
        f"{place}| {one.n}{partly} | {_time(one.median_ns, one)} | {_time(one.p95_ns, one)} "
        f"| {_time(one.max_ns, one)} | {one.lost_median:,} | {one.lost_max:,} "
        f"| {one.touched_median} | {one.touched_max} | {cell.crossing} |"
    )


def _time(time_ns: int | None, summary: Summary) -> str:
    if time_ns is None:
        return "never"
    text = quantities.duration(time_ns) if time_ns else "0"
    return f"{text} ({summary.unrestored} never)" if summary.unrestored else text


def _stages_section(by_name: Mapping[str, CellResult]) -> list[str]:
    rows = []
    for fault, sites in PLAN:
        cells = [by_name.get(Cell(fault, site).name) for site in sites]
        traced = [one for cell in cells if cell is not None for one in cell.traced]
        if row := _stage_row(fault.title, traced):
            rows.append(row)
    if not rows:
        return []
    return [
        "## Where the time went",
        "",
        "Additional failures of every row, with FRR tracing each step. Tracing costs time, so "
        "they are in no table above. Each counts the switch whose FIB changed last before the "
        "last flow recovered; times are after the failure, medians over a class.",
        "",
        f"| fault {STAGES}",
        f"|---{STAGES_RULE}",
        *rows,
        "",
    ]


def _stage_row(title: str, traced: Sequence[Failure]) -> str | None:
    known = [(one.decisive, one.failure.full_ns) for one in traced if one.decisive is not None]
    if not known:
        return None
    causes = [switch.detected_by for switch, _ in known if switch.detected_by is not None]
    times = (
        [switch.detected_ns for switch, _ in known],
        [switch.best_path_ns for switch, _ in known],
        [switch.zebra_ns for switch, _ in known],
        [switch.kernel_ns for switch, _ in known],
        [full_ns for _, full_ns in known],
    )
    cells = [_median(column) for column in times]
    by = CAUSES[statistics.mode(causes)] if causes else "-"
    return f"| {title} | {len(known)} | {by} | " + " | ".join(cells) + " |"


def _median(times_ns: Sequence[int | None]) -> str:
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return quantities.duration(percentile(known, 0.5)) if known else "-"


def _repairs_section(by_name: Mapping[str, CellResult]) -> list[str]:
    rows = []
    for fault, sites in PLAN:
        for site in sites:
            cell = by_name.get(Cell(fault, site).name)
            repairs = [] if cell is None else [one.repair for one in cell.failures if one.repair]
            if cell is None or not repairs:
                continue
            one = summarise(repairs)
            rows.append(
                f"| {fault.title} {_place(site)}| {one.n} "
                f"| {sum(bool(repair.lost) for repair in repairs)} | {one.lost_median:,} "
                f"| {one.lost_max:,} | {_time(one.max_ns, one)} |"
            )
    if not rows:
        return []
    return [
        "## Repairs",
        "",
        "The same failures' repairs: the link, daemon or switch returns, and the routes with it.",
        "",
        "| fault | fabric | what returns | fan-out | n | repairs that lost packets "
        "| lost: median | max | convergence: max |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
        *rows,
        "",
    ]


def _job_section(job: LinkFailureTest | None) -> list[str]:
    if job is None or not job.impacts:
        return []
    overheads = [impact.overhead for impact in job.impacts]
    within = sum(impact.failed_ns <= impact.steady_p99_ns for impact in job.impacts)
    steady_ns = percentile([round(impact.steady_ns) for impact in job.impacts], 0.5)
    p95 = sorted(overheads)[math.ceil(0.95 * len(overheads)) - 1]
    return [
        "## What a failed link costs a job",
        "",
        "The link-failure test of draft-calabria-bmwg-ai-fabric-training-bench, as the drill "
        f"`{job.drill}` has it: an AllReduce runs, both links between a rack and a spine fail "
        "permanently, and the current iteration is compared with the earlier ones. Within p99: it "
        "was not longer than their 99th percentile, which is the slowest of so few.",
        "",
        "| jobs | steady iteration, median | JCT overhead of the failed one: median | p95 | max "
        "| within p99 | packets sent again: median | max |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
        f"| {len(overheads)} | {quantities.duration(steady_ns)} | "
        f"{statistics.median(overheads):.1%} | {p95:.1%} | {max(overheads):.1%} | {within} of "
        f"{len(overheads)} | {statistics.median(job.retransmitted):.0f} | {max(job.retransmitted)} "
        "|",
        "",
        f"Times are in the lab's clock, {job.dilation:,.0f} times slower than the network that is "
        "modelled; BGP is not slowed down, so an outage of 100 ms is "
        f"{quantities.duration(1e8 / job.dilation)} of the model: this is the cost in a fabric "
        f"that converges as fast. {job.rejected} further jobs were not valid.",
        "",
    ]


def _trouble_section(table: ConvergenceTable, missing: Sequence[str]) -> list[str]:
    named = [
        *((cell.name, cell) for cell in table.cells),
        *((f"{cell.name} (FRR {cell.environment.frr_version})", cell) for cell in table.releases),
    ]
    lines = []
    for name, cell in named:
        if cell.failed is not None:
            lines.append(f"- {name} failed: {' '.join(cell.failed.split())}")
    for name, cell in named:
        if cell.rejected:
            reasons = "; ".join(cell.reasons)
            lines.append(f"- {name}: {cell.rejected} failures measured again: {reasons}")
    if missing:
        lines.append(f"- not measured yet: {', '.join(missing)}")
    if not lines:
        lines = ["None: every failure counts, and every row of the plan is there."]
    return ["## Failed and rejected", "", *lines]
