"""The hosts of a lab's job: what its agents wait before they send, and what needs no network.

A lab has the network; a host model's launch, step and latencies are pauses of the agents, its caps
the rates at which they send, and sends between GPUs of a server take modelled time without packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rocelab.base.errors import InputError
from rocelab.base.units import DURATION, RATE
from rocelab.base.wording import counted
from rocelab.hosts.host_spec import HostModelSpec
from rocelab.hosts.model import HostModel, LocalKind
from rocelab.hosts.ranks import RankHosts
from rocelab.jobs.job import JobSpec
from rocelab.jobs.placement import NicRef, nic_of
from rocelab.jobs.tuning import Tuned, check_needs_no_hosts, tuned_job
from rocelab.planning.fabric import Fabric, Nic

SIMULATED = "take `rocelab simulate --engine packets --host-model`, which has it"


@dataclass(frozen=True)
class LabHosts:
    """The servers of a job's ranks; times are modelled."""

    ranks: RankHosts
    cost: Tuned | None
    """What a collective costs as NCCL does it; None for what the model says."""

    @property
    def model(self) -> HostModel:
        return self.ranks.model

    @property
    def launch_ns(self) -> float:
        """Of each iteration, before its first sends."""
        return self.model.launch_ns if self.cost is None else self.cost.launch_ns

    def before_ns(self, *, is_local: bool) -> float:
        """What a send takes before it leaves."""
        if self.cost is not None:
            return self.cost.local_ns if is_local else self.cost.step_ns
        if not is_local:
            return self.model.step_ns
        return 0.0 if self.model.local is None else self.model.local.latency_ns

    def share_of(self, nic: Nic) -> float:
        """The part of the rate of a NIC's links at which it sends."""
        total_bps = sum(link.rate_bps for link in nic.links)
        return min(1.0, self.model.nic_limit_bps / total_bps)

    def is_local(self, source: int, destination: int) -> bool:
        """Whether two ranks reach each other without the network."""
        return bool(self.ranks.same_domain(source, destination))

    def carried_bytes(self, size_bytes: int, *, is_local: bool) -> int:
        """What a send of data is on its way, headers apart."""
        if self.cost is None:
            return size_bytes
        return int(self.cost.carried_bytes(np.array([size_bytes]), np.array([is_local]))[0])

    @property
    def words(self) -> str:
        """What a report says of its hosts."""
        model = self.model
        parts = [
            f"launch {_time(self.launch_ns)} an iteration",
            f"{_time(self.before_ns(is_local=False))} before a send",
        ]
        if model.local is not None:
            latency = _time(self.before_ns(is_local=True))
            parts.append(
                f"{latency} and {model.local.bandwidth_bps / 8e9:,.4g} GB/s between GPUs of a "
                "server, without packets"
            )
        if np.isfinite(model.nic_limit_bps):
            cap = RATE.written(round(model.nic_limit_bps))
            parts.append(f"NICs send {cap} at most and receive at their line's rate")
        if model.message_ns:
            parts.append("costs.message left out")
        way = "" if self.cost is None else f" in {self.cost.words}"
        return f"{model.words}{way}; modelled by agents: {', '.join(parts)}"


def lab_hosts(
    fabric: Fabric, job: JobSpec, places: Sequence[NicRef]
) -> tuple[JobSpec, LabHosts | None]:
    """The hosts of a job on these NICs, and the job as NCCL would do it on them; None without a
    host model. Raises InputError for what agents do not model."""
    spec = job.host_model or fabric.spec.host_model
    if spec is None:
        if job.protocol is not None:
            raise InputError(
                "protocol: the hosts of a lab are agents, which have none of NCCL's",
                hint="leave it out, or give the lab's or the job's file a host_model, such as "
                "dgx-h100",
            )
        check_needs_no_hosts(job)
        return job, None
    model = spec.model
    if job.size is None:
        raise InputError(
            "host_model: streams of a duration have no steps that hosts take time for",
            hint="give the job a size instead of a duration, or leave host_model out",
        )
    ranks = _rank_hosts(fabric, model, places)
    job, cost = tuned_job(job, ranks, merges=False)
    return job, LabHosts(ranks, cost)


def workload_hosts(
    fabric: Fabric, block: HostModelSpec | None, places: Sequence[NicRef]
) -> LabHosts | None:
    """The hosts of a workload on these NICs; None without a host model. Raises InputError for what
    agents do not model."""
    spec = block or fabric.spec.host_model
    return None if spec is None else LabHosts(_rank_hosts(fabric, spec.model, places), None)


def _rank_hosts(fabric: Fabric, model: HostModel, places: Sequence[NicRef]) -> RankHosts:
    _check(fabric, model, places)
    servers = {name: number for number, name in enumerate(dict.fromkeys(p.server for p in places))}
    server = np.array([servers[place.server] for place in places], np.int32)
    alone = np.arange(len(places), dtype=np.int32)
    rates = [sum(link.rate_bps for link in nic_of(fabric, place).links) for place in places]
    return RankHosts(
        model,
        server,
        alone if model.local is None else server,
        np.array([place.nic - 1 for place in places], np.int32),
        float(min(model.nic_limit_bps, *rates)),
    )


def _check(fabric: Fabric, model: HostModel, places: Sequence[NicRef]) -> None:
    for place in places:
        nics = len(fabric.nics(place.server))
        if nics != model.nics:
            raise InputError(
                f"host model {model.name} has {counted(model.nics, 'NIC')} a server, and "
                f"{place.server} has {nics}",
                hint="use a lab whose servers have as many, or a host model with as many: `nics` "
                "of a file of your own",
            )
    local = model.local
    what = None
    if model.gpus_of_nic > 1:
        what = f"{model.gpus_of_nic} GPUs to a NIC, and in a lab each rank has a NIC of its own"
    elif local is not None and local.kind is LocalKind.PCIE:
        what = "GPUs that reach each other over the PCIe links of their NICs"
    elif local is not None and local.servers > 1 and len({p.server for p in places}) > 1:
        what = f"NVLink domains of {local.servers} servers, and agents model one in one server"
    if what is not None:
        raise InputError(f"host model {model.name} has {what}", hint=SIMULATED)


def _time(ns: float) -> str:
    return DURATION.written(round(ns))
