"""The page's sections of queues: losses of all ports, port by port, and marks by depth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.agreement.document import Agreement, CellResult
from bench.agreement.queues import (
    LEAST_DEEP_BYTES,
    NEAR,
    Inside,
    Marking,
    Queues,
    high_water,
    inside,
    joined,
    markings,
)
from bench.agreement.significance import LEVEL, Verdict
from rocelab.base.statistics import spread
from rocelab.labfile.queues import QueuesSpec

COUNTS = {
    "marked": "marked",
    "dropped": "dropped",
    "retransmitted": "sent again",
    "cnps": "CNPs",
    "timeouts": "timeouts",
}
"""Fields of a `Run`, and their names in the table."""

LOSSES = """\
Packets that switches marked and dropped, that were sent again, CNPs and timeouts, for all
iterations of a run: median, in brackets minimum and maximum of all runs. Jobs without any of these,
in lab and engine, are omitted."""

PORTS = f"""\
For each job: the number of ports at which the median of the packet engine's runs is within the
lab's minimum and maximum, of the ports with a mark, a drop or a pause in any run. *Deepest*: the
number of ports at which the high-water marks (the median over runs of the largest queue that a
packet met) differ by at most {NEAR:.0%}, of those with {LEAST_DEEP_BYTES:,} bytes or more in lab or
engine, and the ratio farthest from 1. With three runs, minimum and maximum are close together."""

MARKINGS = f"""\
For each lab, over all jobs and runs: the markable packets that met a queue of this depth, the
marked ones, and the probability of the marking line at this depth (from one end of the bin to the
other). Only those queues of the lab count that received no packet with a mark of an earlier switch.
p is that of the exact two-sided binomial test against the nearest probability of the bin, corrected
for the number of bins (Holm); below {LEVEL} marks *differ*. *Too few* means that the packets cannot
decide: half of the line's lowest probability and twice its highest would pass as well. Bins without
packets are omitted."""

SAID = {Verdict.AGREES: "agrees", Verdict.DIFFERS: "*differs*", Verdict.UNDECIDED: "too few"}


def sections(agreement: Agreement) -> list[str]:
    """All of them; without those of which nothing was counted."""
    return [*_losses(agreement), *_ports(agreement), *_markings(agreement)]


def _name(cell: CellResult) -> str:
    return f"{cell.label}, {cell.job['transport']['qps']} QPs"


def _losses(agreement: Agreement) -> list[str]:
    lines = []
    for lab, cell in agreement.carried:
        columns = []
        for count in COUNTS:
            lab_counts, theirs = (
                [getattr(run, count) for run in runs] for runs in (cell.lab_runs, cell.packets)
            )
            is_there = any(lab_counts) or any(theirs)
            columns.append(f"{_counts(lab_counts)} / {_counts(theirs)}" if is_there else "")
        if any(columns):
            lines.append(f"| {lab.name} | {_name(cell)} | {' | '.join(columns)} |")
    if not lines:
        return []
    head = [
        "| lab | job | " + " | ".join(f"{name}, lab / packets" for name in COUNTS.values()) + " |",
        "|---|---|" + "---|" * len(COUNTS),
    ]
    return ["## Queues and losses", "", LOSSES, "", *head, *lines, ""]


def _counts(values: Sequence[int]) -> str:
    counts = spread(values)
    return f"{counts.median:,.0f} [{counts.minimum:,}..{counts.maximum:,}]"


def _ports(agreement: Agreement) -> list[str]:
    lines, sums = [], {"marks": Inside(0, 0), "drops": Inside(0, 0), "pauses": Inside(0, 0)}
    near = deep = 0
    for lab, cell in agreement.carried:
        if cell.lab_queues is None or cell.packets_queues is None:
            continue
        pair = cell.lab_queues, cell.packets_queues
        columns = []
        for count, total in sums.items():
            one = inside(*pair, count)
            sums[count] = Inside(total.inside + one.inside, total.ports + one.ports)
            columns.append(_share(one.inside, one.ports))
        water = high_water(*pair)
        near, deep = near + water.near, deep + water.ports
        deepest = _share(water.near, water.ports)
        if water.worst is not None:
            deepest += f", {water.worst:.2f}"
        if any((*columns, deepest)):
            lines.append(f"| {lab.name} | {_name(cell)} | {' | '.join((*columns, deepest))} |")
    if not lines:
        return []
    columns = [_share(total.inside, total.ports) for total in sums.values()]
    return [
        "## Port by port",
        "",
        PORTS,
        "",
        "| lab | job | marks within the lab's range | drops | pauses | deepest |",
        "|---|---|---|---|---|---|",
        *lines,
        f"| all | | {' | '.join((*columns, _share(near, deep)))} |",
        "",
    ]


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else ""


def _markings(agreement: Agreement) -> list[str]:
    lines = []
    for lab in agreement.labs:
        spec = QueuesSpec.model_validate(lab.lab["queues"])
        lab_counts, theirs = (
            {row.floor_bytes: row for row in markings(spec.ecn, spec.buffer, joined(side))}
            if side
            else {}
            for side in (
                _counted(cell.lab_queues for cell in lab.cells),
                _counted(cell.packets_queues for cell in lab.cells),
            )
        )
        for floor in sorted(lab_counts | theirs) if lab_counts else ():
            one = lab_counts.get(floor) or theirs[floor]
            line = f"{one.low:.1%} to {one.high:.1%}" if one.low < one.high else f"{one.low:.0%}"
            columns = " | ".join(_marking(side.get(floor)) for side in (lab_counts, theirs))
            lines.append(f"| {lab.name} | {floor / 1000:,.0f} | {line} | {columns} |")
    if not lines:
        return []
    return [
        "## Marks by depth",
        "",
        MARKINGS,
        "",
        "| lab | from, KB | marking line | lab: marked | p | | packets: marked | p | |",
        "|---|---:|---|---:|---:|---|---:|---:|---|",
        *lines,
        "",
    ]


def _counted(sides: Iterable[Queues | None]) -> list[Queues]:
    return [side for side in sides if side is not None]


def _marking(row: Marking | None) -> str:
    if row is None:
        return " | | "
    return f"{row.marked:,} of {row.packets:,} | {row.p:.2g} | {SAID[row.verdict]}"
