"""Where the ranks of a workload are on a lab: on NICs of their own, or of servers that it names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from rocelab.base.errors import InputError
from rocelab.base.wording import name_hint, shown
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import LabJob, SimulatedJob
from rocelab.jobs.labhosts import LabHosts
from rocelab.jobs.labschedule import SIMULATED
from rocelab.jobs.placement import NicRef, Placement, nic_of, nics_of_servers, place
from rocelab.jobs.workloads import JobPlace
from rocelab.planning.fabric import Fabric


def endpoints_of(fabric: Fabric, job: LabJob) -> tuple[tuple[NicRef, ...], ...]:
    """The NICs of the servers that a job's workload names. Raises InputError."""
    if isinstance(job, JobSpec) or job.workload is None:
        return ()
    if job.workload.endpoint_rate is not None:
        raise InputError(
            f"job {job.name}: storage_rate: a lab's NICs receive at the rate of their links",
            hint="leave it out, or give the links of storage servers that rate",
        )
    return tuple(nics_of_servers(fabric, names) for names in job.workload.endpoints)


def own_places(
    fabric: Fabric,
    job: SimulatedJob,
    ranks: int | None,
    taken: Collection[NicRef],
    of_job: Mapping[str, tuple[NicRef, ...]],
) -> tuple[NicRef, ...]:
    """The NICs of a job's own ranks: those of the job that it is beside, those that are listed, or
    what other jobs leave."""
    other = None if job.workload is None else job.workload.beside
    if other is not None:
        if other not in of_job:
            raise InputError(
                f"it is of job {shown(other)}, and no job of that name stands before it",
                hint=name_hint(other, of_job),
            )
        return of_job[other]
    if ranks is None:
        nics = (NicRef(s.name, nic.number) for s in fabric.servers for nic in fabric.nics(s.name))
        free = sum(nic not in taken for nic in nics)
        ranks = free if isinstance(job.placement, Placement) else len(job.placement)
    room = sum(len(fabric.nics(server.name)) for server in fabric.servers)
    if ranks > room:
        raise InputError(
            f"{ranks:,} ranks do not fit the {room:,} NICs of {fabric.name}",
            hint=f"each rank needs its own NIC: use fewer ranks, or a larger lab; {SIMULATED}",
        )
    return place(fabric, ranks, job.placement, job.seed, taken)


def job_place(
    fabric: Fabric,
    job: SimulatedJob,
    places: Sequence[NicRef],
    groups: Sequence[int],
    hosts: LabHosts | None,
) -> JobPlace:
    """groups: how many of the last places are each group of endpoints."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(p.server for p in places))}
    rates = [sum(link.rate_bps for link in nic_of(fabric, place).links) for place in places]
    ranks = np.arange(len(places) - sum(groups), len(places), dtype=np.int32)
    return JobPlace(
        job.name,
        np.array([numbers[place.server] for place in places], np.int32),
        np.array(rates, np.float64),
        job.iterations,
        job.seed,
        None if hosts is None else hosts.ranks,
        tuple(np.split(ranks, np.cumsum(groups)[:-1])) if groups else (),
    )
