"""The comparison as a page: a row per job and lab, with explanations.

Writes an `Agreement` as Markdown. Every number of a row comes from the document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.agreement.document import LIMIT, Agreement, CellResult, Ratio
from bench.agreement.queues_text import sections
from bench.agreement.run import DRAWS, FREE_DRAWS, FREE_RUNS, RUNS
from bench.agreement.significance import LEVEL, Verdict, holm
from bench.agreement.simulated import VETH_NS
from rocelab.base.statistics import spread

DOCUMENT, PAGE = "agreement.json", "agreement.md"
JOBS_PAGE, QUEUES_PAGE = "agreement-jobs.md", "agreement-queues.md"
READING = f"""\
Each job ran on a real lab and, from the same spec and job, in the simulator. It uses all NICs, at
most 16. A lab runs a job {RUNS} times, or {FREE_RUNS} times if the setting determines the result
and no link between switches is contended. Each further campaign repeats this; runs on another
machine are shown after a plus. Labs with undecided jobs get further campaigns, which slightly
favours verdicts beyond the confidence of the intervals.

- **links**: data packets by link and direction, counted by the kernel of the receiving port,
  compared with the packets of the simulator's flows; and the simulator's flows per link compared
  with those of `rocelab predict` from the tables of the lab's kernels. `=` means that every link
  and direction has exactly the same packets and flows, including the warm-up; otherwise the number
  of links that agree.
- **load**: the load of the busiest link between switches over that of the busiest NIC, each
  relative to its rate. Above 1, links between switches are contended.
- **lab**: busbw, GB/s of the modelled network: the median of all runs, in brackets the slowest and
  the fastest. A run's figure covers its two measured iterations together, since some ranks begin
  the next iteration earlier than others.
- **fluid**: `--engine fluid`, exactly (eps 0) and without latency, as its ratio to the lab.
- **packets**: `--engine packets --ports lab`, {DRAWS} runs with different seeds, or {FREE_DRAWS}
  for a job that the lab runs {FREE_RUNS} times. Like a lab's agents, hosts receive and send when
  they wake: once per 1 us x dilation, limited to between 50 us and 1 ms of the lab's clock, and up
  to 0.1 ms late, which is an assumption. A hop takes {VETH_NS:.0f} ns. None of these values is
  fitted to the results.
- **ratios** are of medians, simulator over lab, with the 95 % interval of a bootstrap over the runs
  of both. A job **agrees** if the interval is within {LIMIT:.0%} of 1, *differs* if it is outside,
  and is undecided otherwise. With three runs, or few valid ones of ten, the interval is too narrow,
  because a bootstrap only knows the observed values.
- **p**, for jobs whose result the setting does not determine, or whose links between switches are
  contended: the p-value of the two-sample test of Cramer and von Mises that the lab's and the
  packet engine's times have one distribution. A small p shows that location or width differ,
  however little. It does not mean that the difference matters, and a large p does not mean that
  there is none.
- **by construction**: in both engines the job needs the minimum time of its busiest link, within
  {LIMIT:.0%}, so any model with the right paths and rates agrees. All other jobs are predictions.
- **halves**: nothing is fitted to these labs. To fit a parameter, use the labs of half A and test
  it on half B; the hash of a lab's name determines its half."""

FINDINGS = """\
- **Links** agree to the packet, contended or not, because both follow the same addresses, ports,
  queue-pair numbers and hash.
- **Contended links** are where a fluid differs from queues, in either direction. Each rank of an
  AlltoAll goes through rounds, one after the other. A fluid redistributes a link's rate as soon as
  a flow begins; a queue serves packets in the order of arrival. So other ranks are ahead, other
  rounds meet on a link, and the link is idle for other periods. The result depends on the
  microsecond in which a rank wakes, so runs of the lab differ, and so do seeds of the engine.
- **What this does not show**: the lab is rocelab's own sender over kernel queues, at a dilation
  that this machine can keep up with. Agreement of two parts of rocelab does not make either of them
  a NIC or a switch."""


HALVES = "AB"
WORDS = {
    Verdict.AGREES: "agrees",
    Verdict.DIFFERS: "differs",
    Verdict.UNDECIDED: "is undecided",
}


def pages(agreement: Agreement, missing: Sequence[str] = ()) -> dict[str, str]:
    """The pages by file name; `missing` are labs that have not been run yet."""
    return {
        PAGE: page(agreement, missing),
        JOBS_PAGE: _page("Lab and simulator, job by job", _table(agreement)),
        QUEUES_PAGE: _page("Queues, losses and marks of lab and simulator", sections(agreement)),
    }


def _page(title: str, lines: Sequence[str]) -> str:
    """A page of rows, which the first page explains."""
    head = [f"# {title}", "", f"[Lab and simulator compared]({PAGE}) says what is compared.", ""]
    return "\n".join([*head, *lines]).rstrip() + "\n"


def page(agreement: Agreement, missing: Sequence[str] = ()) -> str:
    """The page that sums up and explains; `missing` are labs that have not been run yet."""
    lines = ["# Lab and simulator compared", ""]
    lines += [
        f"`{agreement.command}` (as root) makes this page, and its data in",
        f"`results/agreement/{DOCUMENT}`; with `--simulate` it compares the runs of that",
        "data with the present simulator.",
        "",
    ]
    if not agreement.labs:
        return "\n".join([*lines, "Nothing is measured yet."]) + "\n"
    lines += [
        *_machines(agreement),
        "",
        *_summary(agreement),
        "",
        "## How to read it",
        "",
        READING,
        "",
    ]
    lines += [
        f"[Job by job]({JOBS_PAGE}) has a row for each job; [queues, losses and marks]"
        f"({QUEUES_PAGE}) has what was counted at ports.",
        "",
        *_differing(agreement),
        *_trouble(agreement),
    ]
    lines += ["## What is seen", "", FINDINGS, ""]
    lines += ["## Shipped labs that are left out", ""]
    lines += [f"- `{name}`: not run yet" for name in missing]
    lines += [f"- `{name}`: {why}" for name, why in sorted(agreement.not_run.items())]
    return "\n".join(lines).rstrip() + "\n"


def _machines(agreement: Agreement) -> list[str]:
    machines: dict[str, int] = {}
    for machine in (machine for lab in agreement.labs for machine in lab.machines):
        name = (
            f"{machine.cpu_count} CPUs ({machine.cpu_model}), {machine.memory_bytes / 2**30:.0f} "
            f"GiB, {machine.kernel}, FRR {machine.frr_version}, Python {machine.python}"
        )
        machines[name] = machines.get(name, 0) + 1
    started = min(machine.started for lab in agreement.labs for machine in lab.machines)
    loads = [lab.load_average[0] for lab in agreement.labs]
    return [
        *(f"- {name}: {labs} of {len(agreement.labs)} labs" for name, labs in machines.items()),
        f"- rocelab {agreement.labs[0].machines[0].tool_version}, from {started} on; "
        f"{sum(lab.took_s for lab in agreement.labs) / 60:.0f} minutes in all; load average "
        f"(1 minute) before a lab up to {max(loads):.1f}",
    ]


def _summary(agreement: Agreement) -> list[str]:
    carried = [cell for _, cell in agreement.carried]
    equal = [cell for cell in carried if cell.loads is not None and cell.loads.agree]
    links = sum(cell.loads.links for cell in carried if cell.loads is not None)
    same = sum(cell.loads.equal for cell in carried if cell.loads is not None)
    packets = sum(cell.loads.packets for cell in carried if cell.loads is not None)
    lines = [
        f"{len(agreement.labs)} labs, {len(carried)} jobs that the machine carried. **Link "
        f"loads**: {same:,} of {links:,} link directions have the same count, "
        f"{packets:,} packets in all; {len(equal)} of {len(carried)} jobs agree on every one. "
        f"**busbw** within {LIMIT:.0%}:",
        "",
        "| | jobs | fluid agrees | differs | undecided | packets agree | differ | undecided |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    predicted = [(lab.half, cell) for lab, cell in agreement.carried if not cell.is_set]
    for title, cells in (
        ("by construction", [cell for cell in carried if cell.is_set]),
        ("predicted", [cell for _, cell in predicted]),
        *(
            (f"predicted, half {name} of the labs", [cell for half, cell in predicted if half == n])
            for n, name in enumerate(HALVES)
        ),
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
    return [
        *lines,
        "",
        *_beside_the_fluid(carried),
        "",
        *_beside_itself(carried),
        *_between_machines(carried),
        *_distributions(carried),
    ]


def _beside_the_fluid(cells: Sequence[CellResult]) -> list[str]:
    """How the packet engine does where the fluid agrees, and where it does not."""
    counts = Counter((cell.fluid_ratio.verdict, cell.packets_ratio.verdict) for cell in cells)
    return [
        "| of jobs in which the fluid | jobs | packets agree | differ | undecided |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {WORDS[fluid]} | {sum(row)} | {' | '.join(map(str, row))} |"
            for fluid in Verdict
            for row in [[counts[fluid, packets] for packets in Verdict]]
        ),
    ]


def _beside_itself(cells: Sequence[CellResult]) -> list[str]:
    """How the lab does beside itself where the setting does not decide."""
    predicted = [cell for cell in cells if not cell.is_set]
    counts = Counter((cell.lab_verdict, cell.packets_ratio.verdict) for cell in predicted)
    agrees, differs, undecided = (
        sum(counts[lab, packets] for packets in Verdict) for lab in Verdict
    )
    return [
        f"**The lab beside itself**, every second run over the others, by the same rule: of "
        f"{len(predicted)} predicted jobs {agrees} agree, {differs} differ, {undecided} are "
        f"undecided, among them {counts[Verdict.UNDECIDED, Verdict.UNDECIDED]} of the "
        f"{sum(counts[lab, Verdict.UNDECIDED] for lab in Verdict)} that the packet engine leaves "
        "undecided.",
        "",
    ]


def _between_machines(cells: Sequence[CellResult]) -> list[str]:
    """Whether a lab's times depend on the machine, where several ran a job."""
    p_values = [p for cell in cells if cell.is_repeated and (p := cell.machines_p) is not None]
    if not p_values:
        return []
    differing = sum(p < LEVEL for p in holm(p_values))
    return [
        f"**Machines**: of {len(p_values)} jobs that the setting does not decide or that are "
        f"contended and that several machines ran, the times of the first and of the others differ "
        f"in {differing} (p below {LEVEL}, corrected after Holm).",
        "",
    ]


def _distributions(cells: Sequence[CellResult]) -> list[str]:
    """The two-sample tests in a sentence."""
    p_values = [cell.distribution_p for cell in cells if cell.is_repeated]
    differing = sum(p < LEVEL for p in holm(p_values))
    return [
        f"**Distributions** of the lab's and the packet engine's times: {differing} of "
        f"{len(p_values)} jobs that the setting does not decide or that are contended differ (p "
        f"below {LEVEL}, corrected for their number after Holm)."
    ]


def _table(agreement: Agreement) -> list[str]:
    lines = [
        "| lab | job | QPs | scheme | ranks | size | links | load | lab | runs | fluid | packets "
        "| p |",
        "|---|---|---:|---|---:|---:|---:|---:|---|---:|---|---|---:|",
    ]
    for lab in agreement.labs:
        name = f"{lab.name}, dilation {lab.dilation:,.0f}"
        for cell in lab.cells:
            lines.append(f"| {name} | {_row(cell)} |")
            name = ""
    return lines


def _row(cell: CellResult) -> str:
    job = cell.job
    columns = [cell.label, str(job["transport"]["qps"]), cell.scheme, str(job["ranks"])]
    columns.append(job["size"])
    loads = cell.loads
    if loads is None:
        return " | ".join((*columns, "", f"{cell.bottleneck:.2f}", "not carried", "0", "", "", ""))
    links = f"{loads.links} =" if loads.agree else f"**{loads.equal} of {loads.links}**"
    lab = spread([cell.busbw_gbs(time_ns) for time_ns in cell.lab_ns])
    columns += [
        links,
        f"{cell.bottleneck:.2f}",
        f"{lab.median:.2f} [{lab.minimum:.2f}..{lab.maximum:.2f}]",
        " + ".join(str(len(runs)) for runs in cell.lab if runs),
        _ratio(cell.fluid_ratio),
        _ratio(cell.packets_ratio) + (", by construction" if cell.is_set else ""),
        f"{cell.distribution_p:.2g}" if cell.is_repeated else "",
    ]
    return " | ".join(columns)


def _ratio(ratio: Ratio) -> str:
    said = {
        Verdict.AGREES: "**agrees**",
        Verdict.DIFFERS: "*differs*",
        Verdict.UNDECIDED: "undecided",
    }
    return f"{ratio.value:.3f} [{ratio.low:.3f}..{ratio.high:.3f}] {said[ratio.verdict]}"


def _differing(agreement: Agreement) -> list[str]:
    rows = [
        (lab, cell)
        for lab, cell in agreement.carried
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


def _trouble(agreement: Agreement) -> list[str]:
    lines = [
        f"- `{lab.name}`, {cell.name}: {cell.attempts} runs, {'; '.join(cell.problems)}"
        for lab in agreement.labs
        for cell in lab.cells
        if not cell.is_carried
    ]
    lines += [f"- `{lab.name}`: {lab.failed}" for lab in agreement.labs if lab.failed is not None]
    return ["## Not carried", "", *lines, ""] if lines else []
