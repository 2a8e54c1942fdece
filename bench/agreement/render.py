"""The comparison as a page: a row per job and lab, with explanations.

Writes an `Agreement` as Markdown. Every number of a row comes from the document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.agreement.document import LIMIT, SOME_LOST, Agreement, CellResult, LabResult
from rocelab.agent.headers import EXTENSION_BYTES, Extension
from rocelab.agent.nic import WIRE_OVERHEAD_BYTES
from rocelab.jobs.performance import FRAME_OVERHEAD_BYTES
from rocelab.jobs.transport import TransportSpec

DOCUMENT, PAGE = "agreement.json", "agreement.md"

READING = """\
Each job ran on a real lab and, from the same spec and job, in the simulator (exactly: eps 0). It
takes all NICs, or 16 in labs that have more. The simulator has no latency here: in a lab a packet
passes an idle port at once, out of its token bucket, and veth pairs have no length.

- **links**: data packets by link and direction, counted by the kernel of the receiving port,
  compared with the packets of the simulator's flows; and the simulator's flows per link compared
  with those of `rocelab predict` from the tables of the lab's kernels. `=` means that every link
  and direction has exactly the same packets and flows, warm-up included; otherwise how many have.
- **packets**: the packets on all links of the lab, each counted once per link.
- **load**: the load of the busiest link between switches over that of the busiest NIC, each for its
  rate. Above 1 links between switches are contended.
- **lab**, **simulated**: busbw of all measured iterations, GB/s of the modelled network; in
  brackets the slowest and the fastest. (Ranks run ahead of each other into the next iteration, in
  both, so the time of a single one is less than it seems.)
- **ratio**: simulated over lab, in bold if it differs from 1 by more than 5 %.
- **by packet**: the same program with packets instead of rates: switches that store a whole packet,
  endless queues served in order of arrival, NICs that send a packet of each queue pair in turn. No
  marks, losses, acknowledgements or CPUs. Five draws of when endpoints look, in brackets the
  slowest and the fastest. It separates what a fluid leaves out from what a machine adds. It is
  slower than a lab by up to a packet's time for each switch, since a lab's idle ports do not wait
  for a whole packet, and too slow for more than small fabrics."""

CAUSES = f"""\
The cause is the first one that applies, by a rule that proves nothing: packets were sent again;
flows meet on links, and the lab is within {LIMIT:.0%} of the range of the packet-by-packet draws
and nearer to their mean than to the fluid; there were CNPs; the lab is slower, and a NIC was idle
for {SOME_LOST:.1%} of its time or more for lack of CPU. Otherwise it is not known. Lack of CPU may
also contribute where queues are named."""

FINDINGS = """\
- **Links** agree to the packet, contended or not, because both follow the same addresses, ports,
  queue-pair numbers and hash.
- **Rings** on links that are not contended agree because every NIC sends at its rate. The lab is
  slower probably by the time for which agents gather arrivals, once a step: up to 1 us, and at most
  1 ms of the lab's clock. The lab has no latency per hop that could explain it.
- **Contended links** are where a fluid differs from queues, in either direction. The ranks of an
  AlltoAll go through rounds, each after their previous one. A fluid divides a link anew as soon as
  a flow begins; a queue serves in the order of arrival. So other ranks get ahead, other rounds meet
  on a link, and the link is idle between them for another time. The packet-by-packet simulation
  shows the same and depends as much on who got ahead: its draws differ as iterations in the lab do.
- **Acknowledgements** are not in the fluid. One of {ack} bytes for every {every} packets of {data}
  is {share:.2%} of a link's rate where data goes both ways, which does not explain the difference.
- **DCQCN**, which the simulator does not have, sent {cnps:,} CNPs in the {dcqcn} jobs that used
  it. If it sent none, its row repeats the AlltoAll above, and the two differ as two runs of a lab
  do."""


def page(found: Agreement, missing: Sequence[str] = ()) -> str:
    """The page; `missing` are labs that have not been run yet."""
    lines = ["# Lab and simulator compared", ""]
    lines += [
        f"`{found.command}` (as root) makes this page and [its data]({DOCUMENT}); with",
        "`--simulate` it compares earlier runs of the labs with the present simulator, as here.",
        "",
    ]
    if not found.labs:
        return "\n".join([*lines, "Nothing is measured yet."]) + "\n"
    lines += [*_machine(found), "", *_summary(found), "", "## How to read it", "", READING, ""]
    lines += ["## Table", "", *_table(found), ""]
    lines += [*_outside(found), *_differing(found), *_trouble(found)]
    lines += ["## Causes of the differences", "", _findings(found), ""]
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
    carried = _carried(found)
    equal = [cell for _, cell in carried if cell.loads is not None and cell.loads.agree]
    within = [cell for _, cell in carried if cell.agrees]
    free = [cell for _, cell in carried if cell.bottleneck <= 1]
    links = sum(cell.loads.links for _, cell in carried if cell.loads is not None)
    same = sum(cell.loads.equal for _, cell in carried if cell.loads is not None)
    packets = sum(cell.loads.packets for _, cell in carried if cell.loads is not None)
    return [
        f"{len(found.labs)} labs, {len(carried)} jobs that the machine carried. **Link loads**: "
        f"{same:,} of {links:,} link directions have the same count, {packets:,} packets in all; "
        f"{len(equal)} of {len(carried)} jobs agree on every one. **busbw**: {len(within)} of "
        f"{len(carried)} within {LIMIT:.0%}; of the {len(free)} where no link between switches is "
        f"contended, {sum(cell.agrees for cell in free)}."
    ]


def _table(found: Agreement) -> list[str]:
    lines = [
        "| lab | job | QPs | scheme | ranks | size | links | packets | load | lab | simulated | "
        "ratio | by packet |",
        "|---|---|---:|---|---:|---:|---:|---:|---:|---|---:|---:|---|",
    ]
    for lab in found.labs:
        name = f"{lab.name}, dilation {lab.dilation:,.0f}"
        for cell in lab.cells:
            lines.append(f"| {name} | {_row(cell)} |")
            name = ""
    return lines


def _row(cell: CellResult) -> str:
    job = cell.job
    qps = str(job["transport"]["qps"])
    dcqcn = job["transport"]["dcqcn"]
    title = cell.title if dcqcn == "off" else f"{cell.title}, DCQCN {dcqcn}"
    columns = [title, qps, cell.scheme, str(job["ranks"]), job["size"]]
    loads = cell.loads
    if loads is None:
        return " | ".join((*columns, "", "", f"{cell.bottleneck:.2f}", "not carried", "", "", ""))
    links = f"{loads.links} =" if loads.agree else f"**{loads.equal} of {loads.links}**"
    ratio = f"{cell.ratio:.3f}"
    columns += [
        links,
        f"{loads.packets:,}",
        f"{cell.bottleneck:.2f}",
        _band(cell.lab_gbs),
        f"{cell.simulated_gbs:.2f}",
        ratio if cell.agrees else f"**{ratio}**",
        _band(cell.packets_gbs),
    ]
    return " | ".join(columns)


def _band(values: tuple[float, float, float]) -> str:
    return f"{values[0]:.2f} [{values[1]:.2f}..{values[2]:.2f}]"


def _outside(found: Agreement) -> list[str]:
    rows = [(lab, cell) for lab, cell in _carried(found) if not cell.agrees]
    if not rows:
        return []
    causes = Counter(cell.cause for _, cell in rows)
    lines = ["## Beyond 5 %", "", CAUSES, ""]
    lines += [", ".join(f"{cause}: {count}" for cause, count in causes.most_common()) + ".", ""]
    lines += [
        "| lab | job | ratio | by packet over lab | round trips p50, p99 | marked | dropped | sent "
        "again | idle for lack of CPU | probable cause |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for lab, cell in rows:
        evidence = cell.evidence
        assert evidence is not None
        trips = " / ".join(
            "" if ns is None else f"{ns / 1000:.1f} us"
            for ns in (evidence.rtt_p50_ns, evidence.rtt_p99_ns)
        )
        lines.append(
            f"| {lab.name} | {cell.name} ({cell.scheme}) | {cell.ratio:.3f} | "
            f"{cell.packets_gbs[0] / cell.lab_gbs[0]:.3f} | {trips} | {evidence.marked:,} | "
            f"{evidence.dropped:,} | {evidence.retransmitted:,} | {evidence.lost_share:.2%} | "
            f"{cell.cause} |"
        )
    return [*lines, ""]


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
        assert cell.loads is not None and cell.evidence is not None
        unnumbered = lab.lab["routing"]["numbering"] == "unnumbered"
        why = (
            "links have no addresses, and the order of next hops follows from the daemons' start"
            if unnumbered
            else f"{cell.evidence.retransmitted:,} packets sent again"
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


def _findings(found: Agreement) -> str:
    with_dcqcn = [cell for _, cell in _carried(found) if cell.job["transport"]["dcqcn"] != "off"]
    cnps = sum(cell.evidence.cnps for cell in with_dcqcn if cell.evidence is not None)
    transport = TransportSpec()
    ack = FRAME_OVERHEAD_BYTES + EXTENSION_BYTES[Extension.AETH] + WIRE_OVERHEAD_BYTES
    data = transport.mtu + FRAME_OVERHEAD_BYTES + WIRE_OVERHEAD_BYTES
    share = ack / (transport.ack_every * data)
    return FINDINGS.format(
        ack=ack, every=transport.ack_every, data=data, share=share, cnps=cnps, dcqcn=len(with_dcqcn)
    )
