"""The document of a `Comparison`: tables have the fields of the BMWG draft, in its order.

draft-calabria-bmwg-ai-fabric-training-bench (revision 03): load balancing as in sections 8 and 6.3
(MMR, JFI, OOO Rate, Retx Rate, Effective Goodput), BusBW as in 9.4, JCT Ratio as in 10.1, and the
parts of section 13. Nothing is measured here.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from functools import partial

from rocelab.base.quantities import Unit, formatted, rate, ratio, share
from rocelab.base.wording import counted
from rocelab.report.answers.compared import side_by_side
from rocelab.report.basis import with_basis
from rocelab.report.compare import plots
from rocelab.report.compare.answer import comparison_answer
from rocelab.report.compare.cells import (
    cells_of,
    flag,
    flags_used,
    name_of,
    queue_pairs,
    worst_tier,
)
from rocelab.report.compare.recorded import recorded
from rocelab.report.compare.text import anomalies, limits, repeatability
from rocelab.report.document import (
    Block,
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Hyperlink,
    Items,
    Note,
    Replay,
    Row,
    Section,
    Table,
    Tone,
    Toned,
    columns,
)
from rocelab.report.machine import machine_section
from rocelab.results.comparison import CellFigures, CellResult, Comparison, Status

DRAFT = "https://datatracker.ietf.org/doc/draft-calabria-bmwg-ai-fabric-training-bench/"
SCHEME = Column("Load Balancing Config")
JOB = (*columns(Unit.TEXT, "collective", "message size", "ranks", "QPs", "placement", "algorithm"),)


def comparison_document(comparison: Comparison) -> Document:
    """All of a comparison."""
    job, lab = comparison.cells[0].job, comparison.lab
    notes = anomalies(comparison)
    document = Document(
        f"Load balancing on {lab['name']}",
        (
            Replay(partial(recorded, comparison), of_cells=True),
            *_test(comparison),
            Section("5. Test results", tuple(_results(comparison))),
            Section(
                "6. Anomalies",
                tuple(Note(text, Tone.CAUTION) for text in notes) or (Note("None."),),
            ),
            Section(
                "7. Repeatability statement",
                (
                    Note(repeatability(comparison)),
                    _runs(comparison),
                    Code(comparison.command, page_only=True),
                ),
            ),
            Section(
                "Limits",
                (Items(limits(comparison)),),
                page_only=True,
            ),
            machine_section(comparison.environment),
        ),
        kind="rocelab compare",
        lead=(
            f"{job['pattern']} of {job['size']} over {counted(job['ranks'], 'rank')} under "
            f"{counted(len(comparison.kinds), 'scheme')}, in the reporting format of ",
            Hyperlink("draft-calabria-bmwg-ai-fabric-training-bench-03", DRAFT),
            ", test category 3 (load balancing efficacy). The draft sets no limits to pass, and "
            "neither does this page.",
        ),
        meta=f"{job['pattern']} of {job['size']} over {counted(job['ranks'], 'rank')}, dilation "
        f"{comparison.dilation:g} · {comparison.environment.started} · "
        f"{counted(len(comparison.cells), 'cell')}, {counted(comparison.repeats, 'run')} each",
        card=comparison_answer(comparison),
        answer=(Section("busbw, modelled, by queue pairs and placement", (_summary(comparison),)),),
    )
    return with_basis(document, comparison.basis)


def _summary(comparison: Comparison) -> Table:
    """BusBW of each scheme with the difference to the first, a column for each placement and number
    of queue pairs."""
    settings = [(place, qps) for place in comparison.placements for qps in comparison.qps]
    cells: dict[str, list[Cell]] = {kind: [] for kind in comparison.kinds}
    for placement, qps in settings:
        of_setting = cells_of(comparison, placement, qps)
        spreads = {cell.kind: cell.figures.busbw_gbs for cell in of_setting if cell.figures}
        figures = dict(zip(spreads, side_by_side(spreads.items(), Unit.GB_PER_S), strict=True))
        for cell in of_setting:
            figure = figures.get(cell.kind)
            text = figure and ", ".join(filter(None, (figure.value, figure.difference)))
            cells[cell.kind].append(f"{text}{flag(cell)}" if text else None)
    heads = (f"{queue_pairs(qps)}, {placement}" for placement, qps in settings)
    note = "*: its figures do not count, see Anomalies" if flags_used(comparison.cells) else ""
    return Table(
        "",
        (Column("scheme"), *columns(Unit.FIGURE, *heads)),
        tuple((name_of(kind), *of_kind) for kind, of_kind in cells.items()),
        caption=note,
        page_only=True,
    )


def _test(comparison: Comparison) -> list[Section]:
    """Parts 1 to 4: what was tested, and how."""
    job, lab = comparison.cells[0].job, comparison.lab
    environment, transport = comparison.environment, job["transport"]
    settings = tuple((name_of(kind), _settings(comparison, kind)) for kind in comparison.kinds)
    parts: dict[str, tuple[Block, ...]] = {
        "1. DUT identification": (
            Note(
                "Linux namespaces with the kernel's own forwarding and "
                f"{environment.routing_text} on one machine; there is no switch ASIC."
            ),
        ),
        "2. Test topology": (
            Note(
                f"Kind `{lab['fabric']['kind']}`; NICs of {rate(comparison.nic_rate_bps)}. "
                f"`rocelab graph {lab['name']}` draws it."
            ),
            Code(json.dumps(lab, indent=1), title="the lab in full"),
        ),
        "3. Test configuration": (
            Note(
                "Times and rates are those of the modelled network; the lab ran "
                f"{comparison.dilation:g} times slower."
            ),
            Table("", (Column("load balancing"), Column("settings")), settings),
        ),
        "4. Host configuration": (
            Note(
                f"RoCEv2 reliable connections, {transport['strategy']} over queue pairs, path MTU "
                f"{transport['mtu']}, DCQCN {transport['dcqcn']}, ECN {transport['ecn']}. "
                "Collectives are rocelab's own; no collective library runs."
            ),
            Code(json.dumps(job, indent=1), title="the first cell's job in full"),
        ),
    }
    return [Section(title, blocks, page_only=True) for title, blocks in parts.items()]


def _settings(comparison: Comparison, kind: str) -> str:
    scheme = next(cell.scheme for cell in comparison.cells if cell.kind == kind)
    settings = [f"{key} {value}" for key, value in scheme.items() if key != "kind"]
    return ", ".join(settings) or "-"


def _results(comparison: Comparison) -> list[Block]:
    compute = comparison.cells[0].job["compute"]
    blocks: list[Block] = [
        Note(
            "MMR and JFI are of data packets on the links of the tier and direction with the "
            "highest MMR. OOO Rate counts packets that came before an earlier one, Effective "
            "Goodput is BusBW over a NIC's rate.",
            page_only=True,
        )
    ]
    for placement in comparison.placements:
        for qps in comparison.qps:
            blocks += _block(comparison, placement, qps)
    blocks.append(Note("MMR and JFI are of the tier and direction with the highest MMR."))
    for placement in comparison.placements:
        plot = partial(plots.load_map, comparison, placement)
        figure = (Figure(f"map-{placement}", plot),)
        blocks.append(Section(f"Per-link load, {placement} placement", figure, page_only=True))
    busbw = _by_scheme(comparison, Unit.GB_PER_S, lambda figures: figures.busbw_gbs.median)
    jct = _by_scheme(comparison, Unit.RATIO, lambda figures: figures.jct_ratio.median)
    sections: dict[str, tuple[Block, ...]] = {
        "Polarization (8.1)": _polarization(comparison),
        "Jain Fairness Index (8.4)": (Figure("jfi", partial(plots.fairness_bars, comparison)),),
        "Bus bandwidth per accelerator (9.4), modelled": (busbw,),
        f"JCT Ratio (10.1), computation time {compute}": (jct,),
    }
    blocks += [Section(title, inner, page_only=True) for title, inner in sections.items()]
    if flags_used(comparison.cells):
        blocks.append(Note("*: invalid, see Anomalies.", Tone.QUIET, page_only=True))
    return blocks


def _block(comparison: Comparison, placement: str, qps: int) -> list[Block]:
    """The schemes of one placement and number of queue pairs."""
    cells = cells_of(comparison, placement, qps)
    loads = Table(
        f"{placement} placement, {queue_pairs(qps)} per pair, modelled",
        (
            SCHEME,
            *columns(Unit.RATIO, "MMR", "JFI"),
            Column("OOO Rate", Unit.FIGURE),
            Column("Retx Rate", Unit.PER_S),
            Column("Effective Goodput", Unit.SHARE),
            Column("BusBW", Unit.GB_PER_S),
            Column("JCT Ratio", Unit.RATIO),
            Column("ECN Marking Ratio", Unit.SHARE),
            Column("dropped", Unit.COUNT),
            Column("", Unit.FIGURE),
            Column("why", page_only=True),
        ),
        tuple(_load_row(cell, comparison.repeats) for cell in cells),
    )
    tiers = Table(
        "",
        (
            SCHEME,
            Column("tier"),
            Column("MMR", Unit.RATIO),
            Column("random MMR", Unit.FIGURE),
            *columns(Unit.RATIO, "JFI", "random JFI", "CoV"),
            *columns(Unit.FIGURE, "unused links", "random unused"),
            Column("busiest link", Unit.SHARE),
        ),
        tuple(row for cell in cells for row in _tier_rows(cell)),
    )
    title = "per tier, compared with uniform random hashing of the same number of flows"
    return [loads, Section(title, (tiers,), folded=True, page_only=True)]


def _load_row(cell: CellResult, repeats: int) -> Row:
    figures = cell.figures
    mark, why = _mark(cell, repeats)
    if figures is None:
        return (name_of(cell.kind), *[None] * 9, mark, why)
    worst = worst_tier(figures)
    out_of_order = f"{figures.out_of_order_pps:,.0f}/s ({share(figures.out_of_order_share)})"
    return (
        name_of(cell.kind),
        None if worst is None else worst.mmr,
        None if worst is None else worst.jfi,
        out_of_order,
        figures.retransmission_pps,
        figures.goodput_share,
        figures.busbw_gbs.median,
        figures.jct_ratio.median,
        figures.ecn_marking_share,
        figures.dropped_packets,
        mark,
        why,
    )


def _mark(cell: CellResult, repeats: int) -> tuple[Cell, str]:
    """A problem with a cell: a word, and why."""
    if cell.reason is None:
        return "", ""
    if cell.status is not Status.MEASURED:
        return Toned(cell.status, Tone.BAD), cell.reason
    valid = sum(run.valid for run in cell.runs)
    return Toned(f"{valid} of {counted(repeats, 'run')}", Tone.BAD), cell.reason


def _tier_rows(cell: CellResult) -> list[Row]:
    if cell.figures is None:
        return []
    return [
        (
            name_of(cell.kind) + flag(cell),
            f"{tier.tier} {tier.direction}",
            tier.mmr,
            f"{_ratio(tier.random_mmr)} (p99 {_ratio(tier.random_mmr_p99)})",
            tier.jfi,
            tier.random_jfi,
            tier.cov,
            f"{tier.unused:g} of {tier.links}",
            None if tier.random_unused is None else f"{tier.random_unused:.1f}",
            tier.max_utilization,
        )
        for tier in cell.figures.tiers
        if tier.mmr is not None
    ]


def _ratio(value: float | None) -> str:
    return "-" if value is None else ratio(value)


def _by_scheme(comparison: Comparison, unit: Unit, value: Callable[[CellFigures], float]) -> Table:
    """A figure of every scheme, a row for each placement and number of queue pairs."""
    rows: list[Row] = []
    for placement in comparison.placements:
        for qps in comparison.qps:
            cells = cells_of(comparison, placement, qps)
            job = cells[0].job
            is_ring = job["pattern"] == "allreduce"
            algorithm = (job.get("algorithm") or "ring") if is_ring else "direct"
            rows.append(
                (
                    job["pattern"],
                    str(job["size"]),
                    str(job["ranks"]),
                    str(qps),
                    placement,
                    algorithm,
                    *(_flagged(cell, unit, value) for cell in cells),
                )
            )
    schemes = (Column(name_of(kind), unit) for kind in comparison.kinds)
    return Table("", (*JOB, *schemes), tuple(rows), names=6)


def _flagged(cell: CellResult, unit: Unit, value: Callable[[CellFigures], float]) -> Cell:
    if cell.figures is None:
        return None
    figure = value(cell.figures)
    return f"{formatted(figure, unit)}{flag(cell)}" if flag(cell) else figure


def _polarization(comparison: Comparison) -> tuple[Block, ...]:
    rows = tuple(
        (
            name_of(cell.kind),
            str(cell.qps),
            cell.placement,
            pair.first,
            pair.second,
            pair.unused_fraction,
            pair.unused_if_random,
            pair.information,
            pair.information_if_independent,
        )
        for cell in comparison.cells
        if cell.figures is not None
        for pair in cell.figures.polarizations
    )
    if not rows:
        return ()
    head = (
        SCHEME,
        *columns(Unit.TEXT, "QPs", "placement", "first choice", "second choice"),
        *columns(Unit.SHARE, "links unused", "random"),
        *columns(Unit.RATIO, "information", "by chance"),
    )
    text = (
        "Predicted from the running kernels' tables, for schemes whose paths follow from them. "
        "Information is 0 where the second choice has nothing to do with the first and 1 where it "
        "repeats it."
    )
    return (Note(text), Table("", head, rows, names=5))


def _runs(comparison: Comparison) -> Table:
    """A row for each run, with whether its figures count and why not; medians of its iterations.
    Empty if each cell has one run that counts."""
    runs = [
        (cell, number, run) for cell in comparison.cells for number, run in enumerate(cell.runs, 1)
    ]
    plain = comparison.repeats == 1 and all(run.valid for _, _, run in runs)
    rows: list[Row] = [
        (
            name_of(cell.kind),
            str(cell.qps),
            cell.placement,
            str(number),
            "valid" if run.valid else "failed" if run.errors else "invalid",
            "; ".join(run.why),
            _median([time.modelled_ns for time in run.iterations]),
            _median(run.busbw_gbs),
            _median(run.jct_ratio),
        )
        for cell, number, run in ([] if plain else runs)
    ]
    head = (
        SCHEME,
        *columns(Unit.TEXT, "QPs", "placement", "run", "outcome", "why"),
        Column("iteration, modelled", Unit.NS),
        Column("BusBW, modelled", Unit.GB_PER_S),
        Column("JCT ratio", Unit.RATIO),
    )
    return Table("Every run, medians of iterations", head, tuple(rows), names=4, page_only=True)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
