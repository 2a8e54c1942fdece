"""What simulated jobs ask for, before anything is sent: their network, hosts, NICs and ranks. Pure
but for the files that jobs name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rocelab.base.arrays import Ints
from rocelab.base.errors import InputError
from rocelab.base.progress import ProgressSink
from rocelab.hosts.model import HostModel
from rocelab.jobs.flow_list import FlowList
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.placement import Placement
from rocelab.jobs.workload import Workload
from rocelab.labfile.model import LabSpec
from rocelab.routes.arrays.network import Network
from rocelab.sim.endpoints import places_beside
from rocelab.sim.options import Options
from rocelab.sim.placement import place_ranks

KnownWork = Mapping[str, Workload | FlowList]
"""What jobs do that is known without their steps, by their names."""


def network_of_jobs(spec: LabSpec, jobs: Sequence[SimulatedJob]) -> LabSpec:
    """The network of the lab that the jobs are in. Raises InputError if they are in several."""
    names = dict.fromkeys(job.network for job in jobs)
    networks = {id(network): network for network in map(spec.network, names)}
    if len(networks) > 1:
        raise InputError(
            f"the jobs are in several networks of lab {spec.name}",
            "simulate those of each network by themselves, as nothing that one sends meets the "
            "other's: `rocelab.simulate_networks`, or `rocelab simulate`",
        )
    return next(iter(networks.values()), spec.network())


def host_model_of(
    spec: LabSpec, jobs: Sequence[SimulatedJob], options: Options
) -> HostModel | None:
    """The type of all servers: that of the options, else of the jobs, else of the lab; None: hosts
    take no time. Raises InputError for jobs of several types."""
    if options.host_model is not None:
        return options.host_model
    named = {job.name: job.host_model.model for job in jobs if job.host_model is not None}
    models = list(dict.fromkeys(named.values()))
    if len(models) > 1 or 0 < len(named) < len(jobs):
        raise InputError(
            "the jobs' host_model differs, and servers of a lab are of one type",
            hint="give all jobs the same, or write host_model once, in the lab's file",
        )
    if models:
        return models[0]
    return None if spec.host_model is None else spec.host_model.model


def read_work(jobs: Sequence[SimulatedJob], progress: ProgressSink) -> KnownWork:
    """What files say of the jobs."""
    blocks = {job.name: job.workload for job in jobs if job.workload is not None}
    read = {name: block.read(progress) for name, block in blocks.items()}
    return {name: known for name, known in read.items() if known is not None}


def placed(
    network: Network,
    jobs: Sequence[SimulatedJob],
    endpoints: Sequence[Sequence[Ints]],
    known: Mapping[str, int],
) -> tuple[Ints, ...]:
    """The NICs of each job, those of its endpoints last. known: the ranks of traces and files
    of flows; random flows and storage have the NICs that are listed, or all that others leave.
    Raises InputError for a job beside one that is not there, or has other ranks."""
    taken = np.zeros(network.nics, np.bool_)
    for groups in endpoints:
        for group in groups:
            taken[group] = True
    nics: dict[str, Ints] = {}
    for job in jobs:
        if job.workload is not None and job.workload.beside is not None:
            continue
        ranks = known.get(job.name, job.ranks)
        if ranks is None:
            is_list = not isinstance(job.placement, Placement)
            ranks = len(job.placement) if is_list else int(np.count_nonzero(~taken))
        nics[job.name] = place_ranks(network, ranks, job.placement, job.seed, taken)
        taken[nics[job.name]] = True
    rows = []
    for job, groups in zip(jobs, endpoints, strict=True):
        rows.append(np.concatenate([places_beside(job, nics), *groups]).astype(np.int32))
    return tuple(rows)


def with_ranks(job: SimulatedJob, places: Ints, groups: Sequence[Ints]) -> SimulatedJob:
    """The job with the number of its own ranks, where its workload leaves that open."""
    if job.workload is None or job.ranks is not None or not groups:
        return job
    block = job.workload.placed(len(places) - sum(map(len, groups)))
    return job.model_copy(update={job.kind: block})


def check_sends(jobs: Sequence[SimulatedJob], workloads: Sequence[Workload]) -> None:
    """Raises InputError for a job none of whose steps sends a byte: it loads no link, and no engine
    has a time of the network for it. A model that fits one server takes its time to compute."""
    for job, workload in zip(jobs, workloads, strict=True):
        kind = job.workload
        if kind is not None and kind.may_send_nothing:
            continue
        if any(step.sends is not None and len(step.sends.source) for step in workload.steps):
            continue
        source = f" ({kind.source})" if kind is not None and kind.source else ""
        raise InputError(
            f"job {job.name}{source} sends no byte from one rank to another",
            hint="a simulation needs a communication with bytes; of a trace, barriers and "
            "collectives of 0 bytes or of one rank send none",
        )


def is_merged(workload: Workload) -> bool:
    """Whether some of its sends are many of a lab, one after the other."""
    return any(
        step.sends is not None
        and (np.max(step.sends.rounds, initial=1) > 1 or step.sends.tokens > 0)
        for step in workload.steps
    )


def steps_of(known: Workload | FlowList) -> Workload:
    """A workload of steps; flows that are listed have one each."""
    return known.workload() if isinstance(known, FlowList) else known
