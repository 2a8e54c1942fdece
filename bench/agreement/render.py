"""What the pages of the comparison print: counts of verdicts, and a row per job and lab.

Every number comes from the document; the pages are templates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.agreement import run
from bench.agreement.document import LIMIT, Agreement, CellResult, LabResult
from bench.agreement.queues import (
    LEAST_DEEP_BYTES,
    NEAR,
    Marking,
    Queues,
    high_water,
    inside,
    joined,
    markings,
)
from bench.agreement.significance import LEVEL, Verdict, holm
from bench.agreement.simulated import VETH_NS
from bench.campaign.pages import filled
from rocelab.base.statistics import spread
from rocelab.labfile.queues import QueuesSpec

DOCUMENT, PAGE = "agreement.json", "agreement.md"
JOBS_PAGE, QUEUES_PAGE = "agreement-jobs.md", "agreement-queues.md"
HALVES = "AB"
WORDS = {
    Verdict.AGREES: "agrees",
    Verdict.DIFFERS: "differs",
    Verdict.UNDECIDED: "is undecided",
}
COUNTS = {
    "marked": "marked",
    "dropped": "dropped",
    "retransmitted": "sent again",
    "cnps": "CNPs",
    "timeouts": "timeouts",
}
"""Fields of a `Run`, and their names in the table."""

PORT_COUNTS = ("marks", "drops", "pauses")
Share = tuple[int, int]
"""A part, and of how many."""


def pages(agreement: Agreement, missing: Sequence[str] = ()) -> dict[str, str]:
    """The pages by file name; `missing` are labs that have not been run yet."""
    summary = _summary(agreement) if agreement.labs else {}
    return {
        PAGE: filled("agreement", {"agreement": agreement, "missing": missing, **summary}),
        JOBS_PAGE: filled("agreement-jobs", {"agreement": agreement}),
        QUEUES_PAGE: filled("agreement-queues", _queues(agreement)),
    }


def _summary(agreement: Agreement) -> dict[str, Any]:
    carried = [cell for _, cell in agreement.carried]
    machines = [machine for lab in agreement.labs for machine in lab.machines]
    return {
        "run": run,
        "veth_ns": VETH_NS,
        "limit": LIMIT,
        "level": LEVEL,
        "machines": Counter(
            f"{machine.cpu_count} CPUs ({machine.cpu_model}), {machine.memory_bytes / 2**30:.0f} "
            f"GiB, {machine.kernel}, FRR {machine.frr_version}, Python {machine.python}"
            for machine in machines
        ),
        "started": min(machine.started for machine in machines),
        "loads": [lab.load_average[0] for lab in agreement.labs],
        "carried": carried,
        "counted": [cell.loads for cell in carried if cell.loads is not None],
        "verdicts": list(_verdicts(agreement)),
        "beside_fluid": list(_beside_the_fluid(carried)),
        "beside_itself": _beside_itself(carried),
        "between_machines": _differing(
            [p for cell in carried if cell.is_repeated and (p := cell.machines_p) is not None]
        ),
        "distributions": _differing([cell.distribution_p for cell in carried if cell.is_repeated]),
        "differing": [
            (lab, cell)
            for lab, cell in agreement.carried
            if cell.loads is not None and not cell.loads.agree
        ],
        "troubles": list(_troubles(agreement.labs)),
    }


def _verdicts(agreement: Agreement) -> Iterator[tuple[str, int, list[int]]]:
    """Jobs of a kind, and how many of each verdict the fluid and the packet engine have."""
    carried = agreement.carried
    predicted = [(lab.half, cell) for lab, cell in carried if not cell.is_set]
    kinds = {
        "by construction": [cell for _, cell in carried if cell.is_set],
        "predicted": [cell for _, cell in predicted],
        **{
            f"predicted, half {name} of the labs": [cell for half, cell in predicted if half == n]
            for n, name in enumerate(HALVES)
        },
    }
    for title, cells in kinds.items():
        fluid = Counter(cell.fluid_ratio.verdict for cell in cells)
        packets = Counter(cell.packets_ratio.verdict for cell in cells)
        yield (
            title,
            len(cells),
            [count[verdict] for count in (fluid, packets) for verdict in Verdict],
        )


def _beside_the_fluid(cells: Sequence[CellResult]) -> Iterator[tuple[str, list[int]]]:
    """How the packet engine does where the fluid agrees, and where it does not."""
    counts = Counter((cell.fluid_ratio.verdict, cell.packets_ratio.verdict) for cell in cells)
    for fluid in Verdict:
        yield WORDS[fluid], [counts[fluid, packets] for packets in Verdict]


def _beside_itself(cells: Sequence[CellResult]) -> dict[str, int]:
    """How the lab does beside itself where the setting does not decide."""
    pairs = [(cell.lab_verdict, cell.packets_ratio.verdict) for cell in cells if not cell.is_set]
    lab = Counter(verdict for verdict, _ in pairs)
    return {
        "jobs": len(pairs),
        **{verdict.value: lab[verdict] for verdict in Verdict},
        "packets_undecided": sum(packets is Verdict.UNDECIDED for _, packets in pairs),
        "both_undecided": pairs.count((Verdict.UNDECIDED, Verdict.UNDECIDED)),
    }


def _differing(p_values: Sequence[float]) -> dict[str, int]:
    """Of how many tests how many find a difference."""
    return {"jobs": len(p_values), "differing": sum(p < LEVEL for p in holm(p_values))}


def _troubles(labs: Sequence[LabResult]) -> Iterator[str]:
    for lab in labs:
        for cell in lab.cells:
            if not cell.is_carried:
                problems = "; ".join(cell.problems)
                yield f"`{lab.name}`, {cell.name}: {cell.attempts} runs, {problems}"
    for lab in labs:
        if lab.failed is not None:
            yield f"`{lab.name}`: {lab.failed}"


def _queues(agreement: Agreement) -> dict[str, Any]:
    """The rows of queues, without those of which nothing was counted."""
    ports = list(_ports(agreement))
    shares = [[*row[2], row[3]] for row in ports]
    return {
        "near": NEAR,
        "least_deep_bytes": LEAST_DEEP_BYTES,
        "level": LEVEL,
        "counts": list(COUNTS.values()),
        "losses": list(_losses(agreement)),
        "ports": ports,
        "sums": [
            (sum(part for part, _ in column), sum(whole for _, whole in column))
            for column in zip(*shares, strict=True)
        ],
        "markings": list(_markings(agreement)),
    }


def _name(cell: CellResult) -> str:
    return f"{cell.label}, {cell.job['transport']['qps']} QPs"


def _losses(agreement: Agreement) -> Iterator[list[str]]:
    for lab, cell in agreement.carried:
        columns = []
        for count in COUNTS:
            lab_counts, theirs = (
                [getattr(one, count) for one in runs] for runs in (cell.lab_runs, cell.packets)
            )
            is_there = any(lab_counts) or any(theirs)
            columns.append(f"{_counts(lab_counts)} / {_counts(theirs)}" if is_there else "")
        if any(columns):
            yield [lab.name, _name(cell), *columns]


def _counts(values: Sequence[int]) -> str:
    counts = spread(values)
    return f"{counts.median:,.0f} [{counts.minimum:,}..{counts.maximum:,}]"


def _ports(
    agreement: Agreement,
) -> Iterator[tuple[str, str, list[Share], Share, float | None]]:
    """Of each job its ports within the lab's range by count, those as deep, and the worst ratio."""
    for lab, cell in agreement.carried:
        if cell.lab_queues is None or cell.packets_queues is None:
            continue
        pair = cell.lab_queues, cell.packets_queues
        shares = [(one.inside, one.ports) for one in (inside(*pair, name) for name in PORT_COUNTS)]
        water = high_water(*pair)
        if any(ports for _, ports in shares) or water.ports:
            yield lab.name, _name(cell), shares, (water.near, water.ports), water.worst


def _markings(
    agreement: Agreement,
) -> Iterator[tuple[str, Marking, tuple[Marking | None, Marking | None]]]:
    """Of each lab and depth that either counted: the bin, and the marks of both."""
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
            yield lab.name, one, (lab_counts.get(floor), theirs.get(floor))


def _counted(sides: Iterable[Queues | None]) -> list[Queues]:
    return [side for side in sides if side is not None]
