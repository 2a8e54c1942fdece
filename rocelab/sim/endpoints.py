"""The NICs that jobs share with others: those of storage and reader hosts, and of another job.

Endpoints are servers that jobs name in their workloads; their NICs belong to no job alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rocelab.base.arrays import NONE, Ints
from rocelab.base.errors import InputError
from rocelab.base.wording import counted, name_hint, shown
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.performance import wire_overhead_bytes
from rocelab.jobs.workloads import WORKLOADS, Elsewhere
from rocelab.labfile.model import LabSpec
from rocelab.routes.arrays.network import Network

Endpoints = tuple[tuple[Ints, ...], ...]


def endpoints_of(network: Network, jobs: Sequence[SimulatedJob]) -> Endpoints:
    """The NICs of each job's groups of endpoints. Raises InputError for servers that the network
    lacks, and for a NIC in two groups of a job."""
    rows = []
    for job in jobs:
        groups: list[Ints] = []
        for names in () if job.workload is None else job.workload.endpoints:
            try:
                group = np.array(network.nic_columns.of_servers(names), np.int32)
            except InputError as error:
                raise InputError(f"job {job.name}: {error.message}", hint=error.hint) from error
            groups.append(group)
        nics, times = np.unique(
            np.concatenate([np.empty(0, np.int32), *groups]), return_counts=True
        )
        if times.max(initial=1) > 1:
            raise InputError(
                f"job {job.name}: {network.nic_name(int(nics[times.argmax()]))} is storage and a "
                "reader",
                "take other servers for one of the two",
            )
        rows.append(tuple(groups))
    return tuple(rows)


def places_beside(job: SimulatedJob, of_job: Mapping[str, Ints]) -> Ints:
    """The NICs of a job's own ranks, or those of the job that it is beside. of_job: by job, of all
    with NICs of their own. Raises InputError."""
    other = None if job.workload is None else job.workload.beside
    if other is None:
        return of_job[job.name]
    if other not in of_job:
        raise InputError(
            f"job {job.name} is of job {shown(other)}, and no job of that name has NICs of its own "
            "in this network",
            hint=name_hint(other, of_job)
            if of_job
            else "simulate that job beside it, or give ranks",
        )
    if job.ranks not in (None, len(of_job[other])):
        raise InputError(
            f"job {job.name} has {counted(job.ranks or 0, 'rank')}, and job {other}, whose NICs it "
            f"takes, {len(of_job[other]):,}",
            "leave ranks out",
        )
    return of_job[other]


def with_endpoint_rates(
    network: Network, jobs: Sequence[SimulatedJob], endpoints: Endpoints
) -> Network:
    """The network in which the links of each job's first endpoints carry no more payload than
    these move, in packets of the job's transport.

    Raises InputError for two jobs that say so of the same NIC and differ.
    """
    limit_bps = np.full(network.links, np.inf)
    by_nic: dict[int, tuple[str, float, int]] = {}
    for job, groups in zip(jobs, endpoints, strict=True):
        rate = None if job.workload is None else job.workload.endpoint_rate
        if rate is None:
            continue
        mtu = job.transport.mtu
        on_wire = (mtu + wire_overhead_bytes(network.family)) / mtu
        each_bps = 8 * rate / len(groups[0])
        nic_bps = each_bps * on_wire
        for nic in groups[0].tolist():
            other, known_bps, known_mtu = by_nic.setdefault(nic, (job.name, each_bps, mtu))
            if known_bps != each_bps:
                raise InputError(
                    f"jobs {other} and {job.name} have other rates of storage for "
                    f"{network.nic_name(nic)}: {known_bps / 8e9:.3g} and {each_bps / 8e9:.3g} GB/s",
                    "give both the same storage and storage_rate",
                )
            if known_mtu != mtu:
                raise InputError(
                    f"jobs {other} and {job.name} have a rate of storage for "
                    f"{network.nic_name(nic)}, and packets of {known_mtu:,} and {mtu:,} bytes",
                    "give both the same transport.mtu, or only one of them storage_rate",
                )
            links = network.nic_links[nic]
            links = links[links != NONE]
            total_bps = float(network.rate_bps[links].sum())
            limit_bps[links] = network.rate_bps[links] * min(1.0, nic_bps / total_bps)
    return replace(network, rate_bps=np.minimum(network.rate_bps, limit_bps))


def job_elsewhere(
    job: SimulatedJob, apart: Elsewhere, network: Network, spec: LabSpec, lab: LabSpec
) -> SimulatedJob:
    """What a job sends in another network of its lab, as a job there. network, spec: the job's own.

    Raises InputError for a network that is not another one, and servers that have no NICs there or
    not as many.
    """
    other = lab.network(apart.network)
    if other is spec:
        raise InputError(
            f"job {job.name}: network {apart.network} is its own",
            "leave checkpoint.network out: storage in the job's network shares its links",
        )
    nics = Counter(nic.server for nic in other.layout().attachments)
    names = [network.node_names[server] for server in apart.servers.tolist()]
    counts = {name: nics[name] for name in names}
    if len(set(counts.values())) > 1 or not min(counts.values()):
        least = min(counts, key=counts.__getitem__)
        raise InputError(
            f"job {job.name}: {least} has {counted(counts[least], 'NIC')} in network "
            f"{apart.network}, and {names[0]} {counts[names[0]]}",
            "give each of the job's servers as many there, one or more",
        )
    per_server = counts[names[0]]
    block = apart.workload(per_server)
    kind = next(name for name, known in WORKLOADS.all().items() if known is type(block))
    places = [f"{name}:{number}" for name in names for number in range(1, per_server + 1)]
    return SimulatedJob.model_validate(
        {
            "name": job.name,
            "network": apart.network,
            "placement": places,
            "seed": job.seed,
            "transport": job.transport,
            kind: block,
        }
    )
