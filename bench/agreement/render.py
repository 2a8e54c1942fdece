"""The comparison as a page: a row per job and lab, with explanations.

Writes an `Agreement` as Markdown. Every number of a row comes from the document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.agreement.document import LIMIT, Agreement, CellResult, LabResult, Ratio, Verdict
from bench.agreement.run import DRAWS, FREE_RUNS, RUNS
from bench.agreement.simulated import VETH_NS
from rocelab.statistics import spread

DOCUMENT, PAGE = "agreement.json", "agreement.md"
COUNTS = {
    "marked": "marked",
    "dropped": "dropped",
    "retransmitted": "sent again",
    "cnps": "CNPs",
    "timeouts": "timeouts",
}
"""Fields of a `Run`, and their names in the table."""

READING = f"""\
Each job ran on a real lab and, from the same spec and job, in the simulator. It takes all NICs, or
16 in labs that have more. A lab runs a job {RUNS} times, or {FREE_RUNS} where the setting decides.

- **links**: data packets by link and direction, counted by the kernel of the receiving port,
  compared with the packets of the simulator's flows; and the simulator's flows per link compared
  with those of `rocelab predict` from the tables of the lab's kernels. `=` means that every link
  and direction has exactly the same packets and flows, warm-up included; otherwise how many have.
- **load**: the load of the busiest link between switches over that of the busiest NIC, each for its
  rate. Above 1 links between switches are contended.
- **lab**: busbw, GB/s of the modelled network: the median of all runs, in brackets the slowest and
  the fastest. A run's is that of its two measured iterations together: ranks run ahead of each
  other into the next one.
- **fluid**: `--engine fluid`, exactly (eps 0) and without latency, as its ratio to the lab.
- **packets**: `--engine packets --ports lab`, {DRAWS} runs with different seeds. Hosts
  take arrivals and send when they wake, as a lab's agents do: once in 1 us, and in at most 1 ms of
  the lab's clock, taken to be up to 0.1 ms late. A hop takes {VETH_NS:.0f} ns. Nothing of it is
  fitted to these results.
- **ratios** are of medians, simulator over lab, with the 95 % interval of a bootstrap over the
  runs of both. A job **agrees** where the interval is within {LIMIT:.0%} of 1, *differs* where it
  is outside, else it is undecided. Of three runs, or where few of ten were valid, the interval is
  too narrow: a bootstrap knows only what was seen.
- **by construction**: in both engines the job takes the least time that its busiest link allows,
  within {LIMIT:.0%}: any model with the right paths and rates agrees. The others are
  predictions."""

QUEUES = """\
Packets that switches marked and dropped, that were sent again, CNPs and timeouts, of all iterations
of a run: median, in brackets the least and the most of all runs. Jobs without any in both are left
out."""

FINDINGS = """\
- **Links** agree to the packet, contended or not, because both follow the same addresses, ports,
  queue-pair numbers and hash.
- **Contended links** are where a fluid differs from queues, in either direction. The ranks of an
  AlltoAll go through rounds, each after their previous one. A fluid divides a link anew as soon as
  a flow begins; a queue serves in the order of arrival. So other ranks get ahead, other rounds meet
  on a link, and the link is idle between them for another time. How it goes on depends on the
  microsecond in which a rank looks: runs of the lab differ, and so do runs with other seeds.
- **What this does not tell**: the lab is this kit's own sender over kernel queues, at a dilation
  that this machine carries. That two of its parts agree does not make either of them a NIC or a
  switch."""


def page(found: Agreement, missing: Sequence[str] = ()) -> str:
    """The page; `missing` are labs that have not been run yet."""
    lines = ["# Lab and simulator compared", ""]
    lines += [
        f"`{found.command}` (as root) makes this page and [its data]({DOCUMENT}); with",
        "`--simulate` it compares earlier runs of the labs with the present simulator.",
        "",
    ]
    if not found.labs:
        return "\n".join([*lines, "Nothing is measured yet."]) + "\n"
    lines += [*_machine(found), "", *_summary(found), "", "## How to read it", "", READING, ""]
    lines += ["## Table", "", *_table(found), ""]
    lines += [*_queues(found), *_differing(found), *_trouble(found)]
    lines += ["## What is seen", "", FINDINGS, ""]
    lines += ["## Shipped labs that are left out", ""]
    lines += [f"- `{name}`: not run yet" for name in missing]
    lines += [f"- `{name}`: {why}" for name, why in sorted(found.not_run.items())]
    return "\n".join(lines).rstrip() + "\n"


def _machine(found: Agreement) -> list[str]:
    first = found.labs[0].environment
    loads = [lab.load_average[0] for lab in found.labs]
    return [
        f"- {first.cpu_count} CPUs ({first.cpu_model}), {first.memory_bytes / 2**30:.0f} GiB",
        f"- {first.kernel}, FRR {first.frr_version}, Python {first.python}",
        f"- rocelab {first.tool_version}, from {min(lab.environment.started for lab in found.labs)}"
        f" on; {sum(lab.took_s for lab in found.labs) / 60:.0f} minutes in all; load average "
        f"(1 minute) before a lab up to {max(loads):.1f}",
    ]


def _carried(found: Agreement) -> list[tuple[LabResult, CellResult]]:
    return [(lab, cell) for lab in found.labs for cell in lab.cells if cell.is_carried]


def _summary(found: Agreement) -> list[str]:
    carried = [cell for _, cell in _carried(found)]
    equal = [cell for cell in carried if cell.loads is not None and cell.loads.agree]
    links = sum(cell.loads.links for cell in carried if cell.loads is not None)
    same = sum(cell.loads.equal for cell in carried if cell.loads is not None)
    packets = sum(cell.loads.packets for cell in carried if cell.loads is not None)
    lines = [
        f"{len(found.labs)} labs, {len(carried)} jobs that the machine carried. **Link loads**: "
        f"{same:,} of {links:,} link directions have the same count, {packets:,} packets in all; "
        f"{len(equal)} of {len(carried)} jobs agree on every one. **busbw** within {LIMIT:.0%}:",
        "",
        "| | jobs | fluid agrees | differs | undecided | packets agree | differ | undecided |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for title, cells in (
        ("by construction", [cell for cell in carried if cell.is_set]),
        ("predicted", [cell for cell in carried if not cell.is_set]),
    ):
        counts = [
            Counter(ratio.verdict for ratio in ratios)
            for ratios in (
                [cell.fluid_ratio for cell in cells],
                [cell.packets_ratio for cell in cells],
            )
        ]
        figures = [str(count[verdict]) for count in counts for verdict in Verdict]
        lines.append(f"| {title} | {len(cells)} | {' | '.join(figures)} |")
    return lines


def _table(found: Agreement) -> list[str]:
    lines = [
        "| lab | job | QPs | scheme | ranks | size | links | load | lab | runs | fluid | packets |",
        "|---|---|---:|---|---:|---:|---:|---:|---|---:|---|---|",
    ]
    for lab in found.labs:
        name = f"{lab.name}, dilation {lab.dilation:,.0f}"
        for cell in lab.cells:
            lines.append(f"| {name} | {_row(cell)} |")
            name = ""
    return lines


def _row(cell: CellResult) -> str:
    job = cell.job
    columns = [_title(cell), str(job["transport"]["qps"]), cell.scheme, str(job["ranks"])]
    columns.append(job["size"])
    loads = cell.loads
    if loads is None:
        return " | ".join((*columns, "", f"{cell.bottleneck:.2f}", "not carried", "0", "", ""))
    links = f"{loads.links} =" if loads.agree else f"**{loads.equal} of {loads.links}**"
    lab = spread([cell.busbw_gbs(time_ns) for time_ns in cell.lab_ns])
    columns += [
        links,
        f"{cell.bottleneck:.2f}",
        f"{lab.median:.2f} [{lab.minimum:.2f}..{lab.maximum:.2f}]",
        str(lab.n),
        _ratio(cell.fluid_ratio),
        _ratio(cell.packets_ratio) + (", by construction" if cell.is_set else ""),
    ]
    return " | ".join(columns)


def _title(cell: CellResult) -> str:
    dcqcn = cell.job["transport"]["dcqcn"]
    return cell.title if dcqcn == "off" else f"{cell.title}, DCQCN {dcqcn}"


def _ratio(ratio: Ratio) -> str:
    said = {
        Verdict.AGREES: "**agrees**",
        Verdict.DIFFERS: "*differs*",
        Verdict.UNDECIDED: "undecided",
    }
    return f"{ratio.value:.3f} [{ratio.low:.3f}..{ratio.high:.3f}] {said[ratio.verdict]}"


def _queues(found: Agreement) -> list[str]:
    lines = []
    for lab, cell in _carried(found):
        columns = []
        for count in COUNTS:
            ours, theirs = (
                [getattr(run, count) for run in runs] for runs in (cell.lab, cell.packets)
            )
            is_there = any(ours) or any(theirs)
            columns.append(f"{_counts(ours)} / {_counts(theirs)}" if is_there else "")
        if any(columns):
            qps = cell.job["transport"]["qps"]
            lines.append(f"| {lab.name} | {_title(cell)}, {qps} QPs | {' | '.join(columns)} |")
    if not lines:
        return []
    head = [
        "| lab | job | " + " | ".join(f"{name}, lab / packets" for name in COUNTS.values()) + " |",
        "|---|---|" + "---|" * len(COUNTS),
    ]
    return ["## Queues and losses", "", QUEUES, "", *head, *lines, ""]


def _counts(values: Sequence[int]) -> str:
    found = spread(values)
    return f"{found.median:,.0f} [{found.minimum:,}..{found.maximum:,}]"


def _differing(found: Agreement) -> list[str]:
    rows = [
        (lab, cell)
        for lab, cell in _carried(found)
        if cell.loads is not None and not cell.loads.agree
    ]
    if not rows:
        return []
    lines = ["## Links that differ", ""]
    for lab, cell in rows:
        assert cell.loads is not None
        unnumbered = lab.lab["routing"]["numbering"] == "unnumbered"
        why = (
            "links have no addresses, and the order of next hops follows from the daemons' start"
            if unnumbered
            else "packets were sent again"
        )
        lines.append(
            f"- `{lab.name}`, {cell.name}: {why}; {cell.loads.packets:,} packets counted and "
            f"{cell.loads.simulated:,} simulated over all links. {'; '.join(cell.loads.differing)}."
        )
    return [*lines, ""]


def _trouble(found: Agreement) -> list[str]:
    lines = [
        f"- `{lab.name}`, {cell.name}: {cell.attempts} runs, {'; '.join(cell.problems)}"
        for lab in found.labs
        for cell in lab.cells
        if not cell.is_carried
    ]
    lines += [f"- `{lab.name}`: {lab.failed}" for lab in found.labs if lab.failed is not None]
    return ["## Not carried", "", *lines, ""] if lines else []
