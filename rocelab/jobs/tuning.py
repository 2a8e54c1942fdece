"""How NCCL would do a collective: its algorithm and protocol by size, and what each step costs.

    tuned = tune(Pattern.ALLREDUCE, 16 * 2**20, shape, model)
    tuned.algorithm, tuned.protocol, tuned.step_ns

NCCL estimates the time of each pair of algorithm and protocol as a latency and bytes over a
bandwidth, and takes the least (NCCL 2.28, src/graph/tuning.cc: ncclTopoTuneModel and
ncclTopoGetAlgoTime). Its constants are below, in microseconds and GB/s: it chooses by them,
whatever hosts take. What a choice then costs is a host model's: that has the latencies of a ring in
the protocol Simple, and others are in proportion to those.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rocelab.base.arrays import Bools, Longs
from rocelab.base.errors import InputError
from rocelab.base.wording import listed
from rocelab.hosts.model import HostModel, LocalKind
from rocelab.hosts.ranks import RankHosts
from rocelab.jobs.collectives import Pattern, kind_of
from rocelab.jobs.job import JobSpec
from rocelab.jobs.patterns.base import IN_NVLINK, IN_SWITCH, Algorithm, Protocol
from rocelab.jobs.patterns.mesh import cycles
from rocelab.jobs.placement import Placement

WIRE_SHARE = {Protocol.LL: 0.5, Protocol.LL128: 120 / 128, Protocol.SIMPLE: 1.0}
"""The share of data in what is sent."""

NVLS_EFFICIENCY = 0.85
"""What in-switch reduction reaches of NVLink's bandwidth (nvlsEfficiency, Hopper)."""

NVLS_CHANNELS = 16
"""Channels of a collective in the switch (NCCL_NVLS_NCHANNELS, Hopper)."""

NVLS_CHUNKS = ((2**17, 64), (2**16, 8), (2**15, 2), (2**14, 0))
NVLS_TREE_CHUNKS = ((2**17, 4), (2**16, 1), (2**15, 0))
"""Bytes of a chunk, each for collectives of as many times what all channels and ranks of a domain
work on at once, or more (src/enqueue.cc, calcCollChunking)."""

FAR_CHUNK_BYTES, FAR_DOMAINS = 2**16, 4
"""The longest chunk of NVLS trees among as many domains or more."""

_Three = tuple[float, float, float]
"""Of LL, LL128, Simple."""

BASE_US: dict[Algorithm, _Three] = {
    Algorithm.TREE: (6.8, 14.0, 8.4),
    Algorithm.RING: (6.6, 14.0, 8.4),
    Algorithm.NVLS: (0.0, 0.0, 8.4),
    Algorithm.NVLS_TREE: (0.0, 0.0, 8.4),
    Algorithm.COLLNET: (0.0, 0.0, 8.4),
    Algorithm.PAT: (0.0, 0.0, 8.0),
}
"""Once a collective (baseLatencies). NCCL has that of reductions in switches in their steps: it is
taken from these below, so that a host's launch counts for them too."""

LOCAL_US: dict[Algorithm, _Three] = {
    Algorithm.TREE: (0.6, 1.25, 4.0),
    Algorithm.RING: (0.6, 1.9, 3.4),
    Algorithm.NVLS: (0.0, 0.0, 25.0 - 8.4),
    Algorithm.NVLS_TREE: (0.0, 0.0, 25.0 - 8.4),
    Algorithm.COLLNET: (0.0, 0.0, 3.7),
    Algorithm.PAT: (0.0, 0.0, 4.0),
}
"""A step over NVLink (hwLatencies)."""

PCIE_LOCAL_US = 5.7
"""A step of a ring in the protocol Simple between GPUs over PCIe (hwLatencies)."""

NETWORK_US: dict[Algorithm, _Three] = {
    Algorithm.TREE: (5.0, 8.5, 14.0),
    Algorithm.RING: (2.7, 4.0, 14.0),
    Algorithm.NVLS: (0.0, 0.0, 18.0),
    Algorithm.NVLS_TREE: (0.0, 0.0, 20.9),
    Algorithm.COLLNET: (0.0, 0.0, 31.0 - 8.4),
    Algorithm.PAT: (0.0, 0.0, 14.0 / 3.5),
}
"""A step over the network (hwLatencies)."""

LL_MOST_GBS: Sequence[tuple[float, _Three]] = (
    (600.0, (282.0, 90.0, 70.0)),
    (300.0, (141.0, 45.0, 35.0)),
    (0.0, (87.7, 22.5, 19.0)),
)
"""busbw of LL in one server, two, and more (llMaxBws), by the least bandwidth of a GPU's NVLink:
Blackwell, Hopper, Ampere."""

LL_CHUNK_BYTES = 2**15
"""Data of a chunk of LL in a channel, half of a step of its buffer (src/include/device.h: 8 lines
of 16 bytes for each of 512 threads)."""

LL128_SHARE = 0.92
"""Of a ring's bandwidth that LL128 is taken to reach."""

PAT_SHARE = 0.75
"""Of a ring's bandwidth that PAT is taken to reach."""

PAT_RANK_US = 2.8
"""What each rank adds to PAT's latency, besides its steps."""

TREE_SHARE = 0.92
TREE_LL_SHARE = 1 / 3.8
RING_PLATEAU = 1.4
"""How much longer a ring's latency is between servers once a rank's part of a channel has 64 bytes
or more."""

TREE_CORRECTION: dict[Protocol, tuple[float, ...]] = {
    Protocol.LL: (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    ),
    Protocol.LL128: (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9),
    ),
    Protocol.SIMPLE: (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
"""The bandwidth of trees by powers of two from 64 bytes (treeCorrectionFactor); 1 beyond."""


_IN_WORDS = {
    Algorithm.DIRECT: "direct sends",
    Algorithm.PXN: "pxn: NVLink, then the receiver's rail",
    Algorithm.HIERARCHICAL: "two levels: servers, then rails",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The servers of a collective: as many `ranks` in each of `domains` NVLink domains."""

    domains: int
    ranks: int
    nic_gbs: float
    """Of the NICs of a domain's ranks together, one way."""

    local_gbs: float
    """Of a GPU to the others of its domain, one way; what its NIC has, without a fabric."""

    channels: int = 1
    """Parts of the buffer that go on independently."""

    @property
    def all_ranks(self) -> int:
        return self.domains * self.ranks


@dataclass(frozen=True, slots=True)
class Tuned:
    """An algorithm and a protocol, and what they cost."""

    algorithm: Algorithm
    protocol: Protocol | None
    """None: of an AlltoAll(v), whose sends are not tuned."""

    launch_ns: float
    """Once."""

    step_ns: float
    """Of each step over the network."""

    local_ns: float
    """Of each step in a domain."""

    local_share: float
    """The share of data in what passes a domain's fabric, its efficiency included."""

    network_share: float
    """The share of data in what passes the network."""

    without: str = ""
    """Of direct sends: why no GPU relays for others, where NVLink switches are."""

    fill_ns: float = 0.0
    """Until the first chunk is through the stages of a switch that reduces, or of trees in LL,
    once."""

    @property
    def words(self) -> str:
        """What results say of it."""
        if self.protocol is None:
            without = f" (no pxn: {self.without})" if self.without else ""
            return f"{_IN_WORDS[self.algorithm]}{without}"
        if self.algorithm is Algorithm.COLLNET:
            return f"{self.algorithm}, with switches taken to reduce at their links' rate"
        return f"{self.algorithm}, protocol {self.protocol}"

    def carried_bytes(self, size_bytes: Longs, is_local: Bools) -> Longs:
        """What sends of data are on the wire, headers apart. is_local: which are in a domain."""
        share = np.where(is_local, self.local_share, self.network_share)
        carried: Longs = np.rint(size_bytes / share).astype(np.int64)
        return carried


def algorithms_of(pattern: Pattern, shape: Shape, model: HostModel) -> tuple[Algorithm, ...]:
    """Those that NCCL has for a collective on such servers."""
    local = model.local
    reduces = local is not None and local.kind is LocalKind.SWITCH and local.reduces
    names = [Algorithm.RING]
    if pattern is Pattern.ALLREDUCE:
        names.append(Algorithm.TREE)
    if shape.ranks == 1 and Algorithm.PAT in kind_of(pattern).algorithms:
        names.append(Algorithm.PAT)
    kind = Algorithm.NVLS if shape.domains == 1 else Algorithm.NVLS_TREE
    if reduces and shape.ranks > 2 and kind in kind_of(pattern).algorithms:
        names.append(kind)
    return tuple(names)


def tuned_job(job: JobSpec, hosts: RankHosts, *, merges: bool) -> tuple[JobSpec, Tuned | None]:
    """A collective as NCCL does it on these hosts, with what is left out of the job: algorithm,
    protocol, the ranks of a domain as group, and as many channels. None: a collective that
    is not tuned. merges: whether sends that a switch reduces can be simulated.

    Raises InputError where the collective cannot be done as the job says.
    """
    if job.size is None or not kind_of(job.pattern).algorithms:
        return job, None
    if kind_of(job.pattern).is_exchange:
        return _exchanging(job, hosts)
    group = hosts.domain_ranks or 1
    nics = len(set(zip(hosts.server[:group].tolist(), hosts.rail[:group].tolist(), strict=True)))
    local = hosts.local
    nic_gbs = nics * hosts.nic_bps / 8e9
    shape = Shape(
        job.ranks // group,
        group,
        nic_gbs,
        nic_gbs if local is None else local.bandwidth_bps / 8e9,
        job.channels or group,
    )
    if job.algorithm in IN_SWITCH and not merges:
        raise InputError(
            f"{job.algorithm} is done by switches that reduce, which only a fluid has",
            hint="use --engine fluid, or another algorithm",
        )
    if job.algorithm is Algorithm.COLLNET:
        _check_collnet(job, hosts)
    if job.algorithm in (Algorithm.HIERARCHICAL, Algorithm.COLLNET):
        cost = tuned(job.algorithm, job.protocol or Protocol.SIMPLE, hosts.model)
    else:
        allowed = frozenset(Algorithm) if merges else frozenset(Algorithm) - IN_SWITCH
        cost = tune(job.pattern, job.size, shape, hosts.model, job.algorithm, job.protocol, allowed)
    update: dict[str, object] = {"algorithm": cost.algorithm}
    if job.group is None and group > 1:
        update["group"] = group
    is_mesh = hosts.model.is_mesh and group > 1 and job.group in (None, group)
    if job.channels is None:
        # Each leaves a domain by another GPU: together they use all NICs evenly.
        update["channels"] = len(cycles(group)) if is_mesh and group == job.ranks else group
    tuned_spec = job.model_copy(update=update)
    return tuned_spec.on_mesh() if is_mesh else tuned_spec, cost


def _check_collnet(job: JobSpec, hosts: RankHosts) -> None:
    """Raise InputError where the network's switches cannot reduce, or it is not modelled."""
    local, group = hosts.local, job.group or hosts.domain_ranks
    reason = ""
    if job.protocol not in (None, Protocol.SIMPLE):
        reason = f"it has no protocol {job.protocol}, only simple"
    elif hosts.domain_ranks is None or group != hosts.domain_ranks:
        reason = "servers have other numbers of ranks, or not consecutive ones"
    elif group == job.ranks:
        reason = "all ranks are in one NVLink domain, and nothing crosses a switch of the network"
    elif group > 1 and (local is None or local.kind is not LocalKind.SWITCH):
        reason = "between GPUs without an NVLink switch it is not modelled"
    elif job.placement not in (Placement.CONTIGUOUS, Placement.TOPOLOGY_AWARE):
        reason = "it is modelled for servers leaf by leaf, not as the placement has them"
    if reason:
        raise InputError(
            f"{job.pattern} has no collnet here: {reason}",
            hint="take another algorithm, or leave it out",
        )


def _exchanging(job: JobSpec, hosts: RankHosts) -> tuple[JobSpec, Tuned]:
    """An AlltoAll(v) as NCCL does it: with PXN where NVLink leads to each rail (NCCL_P2P_PXN_LEVEL
    is 2; RCCL has NCCL_PXN_DISABLE=1, so a mesh takes it if it is forced)."""
    model, group = hosts.model, job.group or hosts.domain_ranks or 1
    reason = _without_rails(job, hosts, group)
    algorithm, without = job.algorithm, ""
    if algorithm is None:
        has_switch = model.local is not None and model.local.kind is LocalKind.SWITCH
        algorithm = Algorithm.PXN if has_switch and not reason else Algorithm.DIRECT
        without = reason if has_switch else ""
    if algorithm is Algorithm.PXN and reason:
        raise InputError(
            f"{job.pattern} has no pxn here: {reason}",
            hint="use --algorithm direct, or leave it out",
        )
    update: dict[str, object] = {"algorithm": algorithm}
    if algorithm is not Algorithm.DIRECT and job.group is None and group > 1:
        update["group"] = group
    local_ns = 0.0 if model.local is None else model.local.latency_ns
    cost = Tuned(algorithm, None, model.launch_ns, model.step_ns, local_ns, 1.0, 1.0, without)
    return job.model_copy(update=update), cost


def _without_rails(job: JobSpec, hosts: RankHosts, group: int) -> str:
    """Why no GPU can relay for others of its server; empty: each can."""
    local = hosts.local
    if local is None or local.kind is LocalKind.PCIE:
        return "GPUs of a server have no NVLink"
    if local.servers > 1:
        return "relays of an NVLink domain of several servers are not modelled"
    if hosts.domain_ranks is None or group != hosts.domain_ranks:
        return "servers have other numbers of ranks, or not consecutive ones"
    rails = hosts.rail.reshape(-1, group)
    if group == 1 or len(rails) == 1:
        return "each server has one rank" if group == 1 else "all ranks are in one server"
    if bool((rails != rails[0]).any()):
        return "ranks of servers are not on the same rails in the same order"
    return "all ranks of a server send by one NIC" if len(set(rails[0].tolist())) == 1 else ""


def check_needs_no_hosts(job: JobSpec) -> None:
    """Raise InputError for a collective that says what only hosts of a model have."""
    for key, value in (("protocol", job.protocol), ("algorithm", job.algorithm)):
        of_hosts = IN_SWITCH | {Algorithm.PXN}
        if value is not None and (key == "protocol" or value in of_hosts):
            raise InputError(
                f"{key} {value} is of servers with GPUs, and hosts take no time here",
                hint="give their type: `rocelab simulate --host-model dgx-h100`, or host_model",
            )


def tune(
    pattern: Pattern,
    size_bytes: int,
    shape: Shape,
    model: HostModel,
    algorithm: Algorithm | None = None,
    protocol: Protocol | None = None,
    allowed: Container[Algorithm] = frozenset(Algorithm),
) -> Tuned:
    """The algorithm and protocol of the least time, among those that are not forced.

    Raises InputError where the collective has none of these on such servers.
    """
    times = {
        (name, kind): estimate_us(pattern, size_bytes, shape, model, name, kind)
        for name, kind in _pairs(pattern, shape, model)
        if name in allowed and name is (algorithm or name) and kind is (protocol or kind)
    }
    if not times:
        pairs = sorted(
            f"{name} in {kind}" for name, kind in _pairs(pattern, shape, model) if name in allowed
        )
        asked = " in ".join(str(key) for key in (algorithm, protocol) if key is not None)
        raise InputError(
            f"{pattern} has no {asked} among {shape.all_ranks:,} ranks, {shape.ranks} in each "
            f"NVLink domain of {model.name}",
            hint=f"it has {listed(pairs, 'and')}",
        )
    name, kind = min(times, key=times.__getitem__)
    cost = replace(
        tuned(name, kind, model, shape.all_ranks), fill_ns=_fill_ns(name, size_bytes, shape)
    )
    return _as_gpus_copy(cost, size_bytes, shape) if kind is Protocol.LL else cost


def tuned(algorithm: Algorithm, protocol: Protocol, model: HostModel, ranks: int = 0) -> Tuned:
    """What an algorithm in a protocol costs `ranks` ranks on servers of a model."""
    launch, step, local = (
        _of(table, algorithm, protocol) / _simple_ring(table)
        for table in (BASE_US, NETWORK_US, LOCAL_US)
    )
    share = WIRE_SHARE[protocol]
    of_ranks_ns = 0.0
    if algorithm is Algorithm.PAT:
        share *= PAT_SHARE
        of_ranks_ns = ranks * PAT_RANK_US / 14.0 * model.step_ns
    return Tuned(
        algorithm,
        protocol,
        launch * model.launch_ns + of_ranks_ns,
        step * model.step_ns,
        local * (0.0 if model.local is None else model.local.latency_ns),
        share * (NVLS_EFFICIENCY if algorithm in IN_NVLINK else 1.0),
        share,
    )


def _fill_ns(algorithm: Algorithm, size_bytes: int, shape: Shape) -> float:
    """What the pipeline of a switch that reduces takes to fill: each chunk passes all stages, and
    only the slowest counts as bytes of the collective. In one domain these are to scatter, to
    reduce and copy, and to gather; with trees to reduce, each level up and down, and to copy."""
    if algorithm not in IN_NVLINK:
        return 0.0
    slots = NVLS_CHANNELS * shape.ranks
    table = NVLS_CHUNKS if shape.domains == 1 else NVLS_TREE_CHUNKS
    chunk = next(chunk for chunk, times in table if size_bytes >= times * slots * chunk)
    if shape.domains >= FAR_DOMAINS:
        chunk = min(chunk, FAR_CHUNK_BYTES)
    chunk_bytes = min(size_bytes, slots * chunk)
    local_ns = chunk_bytes / (shape.local_gbs * NVLS_EFFICIENCY)
    if shape.domains == 1:
        return 2 * local_ns
    network_ns = chunk_bytes / shape.nic_gbs
    levels = (shape.domains - 1).bit_length()
    return 2 * local_ns + 2 * levels * network_ns - max(local_ns, network_ns)


def _as_gpus_copy(cost: Tuned, size_bytes: int, shape: Shape) -> Tuned:
    """LL as fast as GPUs write flags beside data and poll for them, which is less than links carry
    (llMaxBws, and of trees what the estimate takes of that). A channel of a tree is as fast as its
    part of that, however idle links are, and each GPU sends on a chunk that it has in whole."""
    most_gbs, fill_ns = _ll_most_gbs(shape), cost.fill_ns
    if cost.algorithm is Algorithm.TREE:
        most_gbs = _tree_gbs(_tree_bus_gbs(shape), size_bytes, shape, Protocol.LL)
        hops = 2 * (shape.ranks - 1 + (shape.domains - 1).bit_length())
        chunks_bytes = min(size_bytes, shape.channels * LL_CHUNK_BYTES)
        fill_ns += (hops - 1) * chunks_bytes / most_gbs
    network_gbs = min(shape.local_gbs, shape.nic_gbs)
    return replace(
        cost,
        fill_ns=fill_ns,
        local_share=min(cost.local_share, most_gbs / shape.local_gbs),
        network_share=min(cost.network_share, most_gbs / network_gbs),
    )


def estimate_us(
    pattern: Pattern,
    size_bytes: int,
    shape: Shape,
    model: HostModel,
    algorithm: Algorithm,
    protocol: Protocol,
) -> float:
    """NCCL's estimate of the time of a collective, in microseconds, by its own latencies."""
    cost = tuned(algorithm, protocol, _as_nccl_knows(model), shape.all_ranks)
    ranks, domains = shape.all_ranks, shape.domains
    steps = round(kind_of(pattern).busbw_factor(ranks) * ranks)
    bus_gbs = shape.local_gbs if domains == 1 else min(shape.local_gbs, shape.nic_gbs)
    local_us, network_us = cost.local_ns / 1e3, cost.step_ns / 1e3
    latency_us = cost.launch_ns / 1e3
    log = (domains - 1).bit_length()
    match algorithm:
        case Algorithm.TREE:
            bus_gbs = _tree_gbs(_tree_bus_gbs(shape), size_bytes, shape, protocol)
            latency_us += 2 * ((shape.ranks - 1) * local_us + log * network_us)
            return latency_us + size_bytes / (1e3 * bus_gbs / 2)
        case Algorithm.PAT:
            latency_us += log * network_us
            return latency_us + size_bytes * steps / ranks / (1e3 * bus_gbs * PAT_SHARE)
        case Algorithm.NVLS | Algorithm.NVLS_TREE:
            # Of two domains each sends the other the buffer once.
            share = 1.0 if domains == 2 else steps / ranks
            loads = {Pattern.ALLREDUCE: 1 + 1 / shape.ranks}.get(pattern, 1.0)
            local_gbs = shape.local_gbs * cost.local_share / loads
            gbs = local_gbs if domains == 1 else min(local_gbs, shape.nic_gbs / share)
            return latency_us + local_us + 2 * log * network_us + size_bytes / (1e3 * gbs)
        case _:
            if protocol is Protocol.LL:
                bus_gbs = min(_ll_most_gbs(shape), bus_gbs * WIRE_SHARE[protocol])
            elif protocol is Protocol.LL128:
                bus_gbs *= LL128_SHARE
            between = 0 if domains == 1 else steps * (domains - 1) // (ranks - 1)
            latency_us += (steps - between) * local_us + between * network_us
            part_bytes = 64 * ranks * shape.channels
            is_flat = protocol is Protocol.SIMPLE and domains > 1 and size_bytes >= part_bytes
            if is_flat and pattern is Pattern.ALLREDUCE:
                latency_us *= RING_PLATEAU
            return latency_us + size_bytes * steps / ranks / (1e3 * bus_gbs)


def _as_nccl_knows(model: HostModel) -> HostModel:
    """The model with the latencies of NCCL's tables."""
    local = model.local
    if local is not None:
        us = PCIE_LOCAL_US if local.kind is LocalKind.PCIE else _simple_ring(LOCAL_US)
        local = replace(local, latency_ns=1e3 * us)
    launch_us, step_us = _simple_ring(BASE_US), _simple_ring(NETWORK_US)
    return replace(model, local=local, launch_ns=1e3 * launch_us, step_ns=1e3 * step_us)


def _simple_ring(table: dict[Algorithm, _Three]) -> float:
    return _of(table, Algorithm.RING, Protocol.SIMPLE)


def _pairs(
    pattern: Pattern, shape: Shape, model: HostModel
) -> Iterator[tuple[Algorithm, Protocol]]:
    over_nvlink = model.local is not None and model.local.kind is not LocalKind.PCIE
    for algorithm in algorithms_of(pattern, shape, model):
        if algorithm in IN_SWITCH | {Algorithm.PAT}:
            yield algorithm, Protocol.SIMPLE
            continue
        yield algorithm, Protocol.LL
        if over_nvlink:
            yield algorithm, Protocol.LL128
        yield algorithm, Protocol.SIMPLE


def _of(table: dict[Algorithm, _Three], algorithm: Algorithm, protocol: Protocol) -> float:
    like = Algorithm.RING if algorithm is Algorithm.HIERARCHICAL else algorithm
    return table[like][list(Protocol).index(protocol)]


def _tree_bus_gbs(shape: Shape) -> float:
    """busbw of two trees that reach all bandwidth. Each of two domains sends the other the buffer
    once, half of it in each tree (NCCL takes the bandwidth inside for two nodes)."""
    if shape.domains == 1:
        return shape.local_gbs
    return min(shape.local_gbs, shape.nic_gbs * (2 if shape.domains == 2 else 1))


def _tree_gbs(bus_gbs: float, size_bytes: int, shape: Shape, protocol: Protocol) -> float:
    """busbw of two trees."""
    bus_gbs *= TREE_SHARE
    if protocol is Protocol.LL:
        bus_gbs = min(bus_gbs * TREE_LL_SHARE, _ll_most_gbs(shape))
    elif protocol is Protocol.LL128:
        bus_gbs *= 7 / 9 if shape.domains == 1 else 120 / 128
    factors = TREE_CORRECTION[protocol]
    log = (size_bytes >> 6).bit_length() - 1
    return bus_gbs * (factors[max(0, log)] if log < len(factors) else 1.0)


def _ll_most_gbs(shape: Shape) -> float:
    scale = 0 if shape.domains == 1 else 1 if shape.domains == 2 else 2
    return next(most[scale] for least, most in LL_MOST_GBS if shape.local_gbs >= least)
