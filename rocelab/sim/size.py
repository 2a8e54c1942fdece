"""Checks that a simulation fits into this machine's memory, before anything large is built.

The first estimate follows from the numbers of ranks, queue pairs and links, the second from the
steps of the jobs; engines have their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocelab.base.arrays import NONE
from rocelab.base.errors import MachineError
from rocelab.jobs.collectives import kind_of
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.merged_sends import sends_in_order
from rocelab.jobs.workload import Workload
from rocelab.labfile.schemes.base import Treatment
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.routes.arrays.network import Network

BASE_BYTES = 250 * 2**20
"""An interpreter with numpy, numba and this package."""

FLOW_BYTES = 400
"""A flow, its path of six sends, its transfer and intermediate arrays: 131,072 GPUs with 16 queue
pairs each took about 380 (`python -m bench.simulator`)."""

ENTRY_BYTES = 40
"""A send that carries part of a flow."""

TRANSFER_BYTES = 150
"""A transfer of a workload's steps beyond its flow: 12.7 million of a training job over a hundred
iterations took 116 bytes each."""

LINK_BYTES = 200
SENDS_BYTES = 2000
"""A send of a schedule in its own order, besides its flow: an AllReduce of 724 ranks on 16 queue
pairs, a million sends, took 2,040 bytes a send in total."""


def check_fits(
    network: Network, scheme: SchemeSpec, jobs: Sequence[SimulatedJob], listed: int
) -> None:
    """Raises MachineError if the jobs' flows need more memory than is free. listed: how many flows
    begin at given times."""
    flows = listed + sum(_flows(job) for job in jobs)
    needed = BASE_BYTES + LINK_BYTES * network.links + flows * FLOW_BYTES
    if scheme.divides_flows:
        needed += flows * _most_entries(network, scheme) * ENTRY_BYTES
    needed += SENDS_BYTES * (listed + sum(_ordered(job) for job in jobs))
    check_memory(
        f"{flows:,} flows over {network.links:,} links",
        needed,
        "use fewer ranks or queue pairs, a collective that is not between all pairs, or a machine "
        "with more memory",
    )


def check_steps_fit(jobs: Sequence[SimulatedJob], workloads: Sequence[Workload]) -> None:
    """Raises MachineError if the transfers of the jobs' steps need more memory than is free."""
    transfers = sum(
        job.transport.qps * len(step.sends.source)
        for job, workload in zip(jobs, workloads, strict=True)
        for step in workload.steps
        if step.sends is not None
    )
    check_memory(
        f"{transfers:,} transfers",
        transfers * TRANSFER_BYTES,
        "use fewer iterations, ranks or queue pairs, or a machine with more memory",
    )


def check_memory(what: str, needed: int, hint: str) -> None:
    """Raises MachineError if `what` needs more memory, in bytes, than is free."""
    free = available_bytes()
    if needed > free:
        raise MachineError(
            f"{what} need about {needed / 2**30:,.2f} GiB of memory, and {free / 2**30:,.2f} GiB "
            "are free",
            hint=hint,
        )


def _flows(job: SimulatedJob) -> int:
    """An upper bound of the flows: queue pairs times both directions."""
    if job.collective is not None:
        ranks = job.collective.ranks
        kind = kind_of(job.collective.pattern)
        few = 2 * (job.collective.channels or 1) if kind.has_few_peers else ranks
        return ranks * min(few, ranks - 1) * job.transport.qps
    workload = job.workload
    if workload is None or workload.is_open_loop:
        return 0
    ranks, most = job.ranks or 0, workload.peers
    return ranks * (ranks - 1 if most is None else most) * job.transport.qps


def _ordered(job: SimulatedJob) -> int:
    spec = job.collective
    if spec is None or spec.size is None:
        return 0
    return sends_in_order(spec, job.iterations)


def _most_entries(network: Network, scheme: SchemeSpec) -> int:
    """Sends that a flow can be divided over, at most."""
    tier = network.tier
    widths = {}
    for level in (1, 2):
        below = (tier[network.lower] == level).nonzero()[0]
        nodes = max(1, int((tier == level).sum()))
        widths[level] = -(-len(below) // nodes)
    leaf, spine = widths[1], widths[2]
    if Treatment.KERNEL in scheme.treatments:
        return 6 * leaf
    ports = int((network.nic_links != NONE).sum(axis=1).max())
    return 2 * ports + 2 * leaf + 2 * leaf * spine


def available_bytes() -> int:
    """Memory that can be taken without swapping: MemAvailable of proc_meminfo(5)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise MachineError("/proc/meminfo has no MemAvailable line")
