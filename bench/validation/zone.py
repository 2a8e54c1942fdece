"""AI zones full of jobs: the fragmentation by schedulers, and the duration of collectives.

Computes each job's completion over its roofline, for a zone, its jobs' servers and a scheme. A
server has eight GPUs, NVLink within it and a NIC for each; ranks are NICs, and NIC i of a server
sends to NIC i of the next, as NCCL's rings do. All jobs begin at once and send the same number of
bytes per NIC, so that they share links to the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rocelab import LabSpec, Pattern
from rocelab.base.arrays import NONE, Bools, Floats, Ints
from rocelab.jobs.merged_sends import sends_of
from rocelab.jobs.parallelism import over_groups
from rocelab.jobs.sport import SourcePort
from rocelab.jobs.transport import Strategy, TransportSpec
from rocelab.jobs.workload import Sends, Step, Workload
from rocelab.labfile.schemes.scheme_spec import SchemeSpec, scheme_of
from rocelab.labfile.schemes.te import TeScheme
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.routes.arrays.te import place_te
from rocelab.sim.compile import Compiled, PlacedJob, compile_jobs
from rocelab.sim.engine.program import Outcome
from rocelab.sim.engine.run import run
from rocelab.sim.simulate import PACKET_OVERHEAD_BYTES

GPUS = 8
"""GPUs, and NICs, of a server."""

SERVERS_PER_RACK = 2
NIC_BYTES = 2**28
"""Bytes that each NIC of a job sends: a quarter of a gigabyte, so that there are many messages."""

MOST_IN_ALLTOALL = 4
"""The most servers of a job with an AlltoAll, whose flows grow with the square of its GPUs."""


ECMP, E_ECMP = scheme_of("ecmp"), scheme_of("e-ecmp")
PINNED = scheme_of("path-pinning")
CSPF = scheme_of("te", engine="cspf")
LP = scheme_of("te", engine="lp")


def zone(
    racks: int, uplinks: int, *, nic: str = "400G", uplink: str = "400G", name: str = "zone"
) -> Network:
    """A zone of racks of 16 NICs, one link to each of its spines."""
    fabric = {
        "kind": "clos",
        "racks": racks,
        "spines": uplinks,
        "servers_per_rack": SERVERS_PER_RACK,
        "nics_per_server": GPUS,
    }
    links = {"rate": uplink, "server_rate": nic}
    return network_of(LabSpec.model_validate({"name": name, "fabric": fabric, "links": links}))


@dataclass(frozen=True)
class Group:
    """A job: its servers in the order of its ranks, and what they do together."""

    servers: tuple[int, ...]
    pattern: Pattern

    @property
    def gpus(self) -> int:
        return GPUS * len(self.servers)


def churned(
    servers: int, draw: np.random.Generator, *, events: int = 300, alltoall: bool = True
) -> list[Group]:
    """The jobs that run after `events` arrivals: each takes the first free servers, in order; a
    random job ends if there is no room. 16 to 256 GPUs, multiples of 8, the logarithm of their
    number uniform."""
    free = np.ones(servers, np.bool_)
    running: list[tuple[int, ...]] = []
    for _ in range(events):
        size = _size(draw, servers)
        while np.count_nonzero(free) < size:
            free[list(running.pop(int(draw.integers(len(running)))))] = True
        taken = tuple(np.flatnonzero(free)[:size].tolist())
        free[list(taken)] = False
        running.append(taken)
    return [Group(taken, _pattern(len(taken), draw, alltoall)) for taken in running]


def scattered(servers: int, draw: np.random.Generator, *, alltoall: bool = True) -> list[Group]:
    """Jobs of the same sizes on random servers, ranks in that order, until all are taken."""
    left = draw.permutation(servers).tolist()
    groups = []
    while len(left) >= SERVERS_PER_RACK:
        size = min(_size(draw, servers), len(left))
        taken, left = tuple(left[:size]), left[size:]
        groups.append(Group(taken, _pattern(size, draw, alltoall)))
    return groups


def whole_racks(servers: int, draw: np.random.Generator) -> list[Group]:
    """Jobs of the same sizes, each on whole racks, one after the other."""
    groups, first = [], 0
    while first < servers:
        size = min(-(-_size(draw, servers) // SERVERS_PER_RACK) * SERVERS_PER_RACK, servers - first)
        groups.append(Group(tuple(range(first, first + size)), Pattern.ALLREDUCE))
        first += size
    return groups


def _size(draw: np.random.Generator, servers: int) -> int:
    return min(servers, int(np.exp2(draw.uniform(1, 5))))


def _pattern(servers: int, draw: np.random.Generator, alltoall: bool) -> Pattern:
    if alltoall and servers <= MOST_IN_ALLTOALL and draw.random() < 0.5:
        return Pattern.ALLTOALL
    return Pattern.ALLREDUCE


def transport(qps: int, *, fixed_port: bool = False) -> TransportSpec:
    """Every message goes over all queue pairs, each with an equal part."""
    source_port = SourcePort.FIXED if fixed_port else SourcePort.PER_QP
    return TransportSpec(qps=qps, strategy=Strategy.SPLIT, source_port=source_port)


def placed(
    groups: Sequence[Group], spec: TransportSpec, seed: int, *, rings: int = 1
) -> list[PlacedJob]:
    """Jobs on the NICs of their servers. rings: those of an AllReduce, each in a different
    order."""
    draw = np.random.default_rng((seed, rings))
    return [
        PlacedJob(
            Workload(group.gpus, (Step(group.pattern.value, sends=_sends(group, rings, draw)),)),
            nics_of(group.servers),
            spec,
            seed * 1000 + number,
        )
        for number, group in enumerate(groups)
    ]


def nics_of(servers: Sequence[int]) -> Ints:
    """The NICs of servers, server by server."""
    first = GPUS * np.asarray(servers, np.int32)[:, None]
    return (first + np.arange(GPUS)).reshape(-1).astype(np.int32)


def _sends(group: Group, rings: int, draw: np.random.Generator) -> Sends:
    if group.pattern is Pattern.ALLTOALL:
        return _between_servers(len(group.servers))
    servers = len(group.servers)
    # All but the last of 2 (n - 1) / n: what each edge of a ring carries is NIC_BYTES.
    size = NIC_BYTES * servers // (2 * (servers - 1)) // rings
    one = sends_of(Pattern.ALLREDUCE, servers, size)
    orders = [np.arange(servers), *(draw.permutation(servers) for _ in range(rings - 1))]
    rails = np.arange(GPUS)
    members = np.concatenate([GPUS * order + rails[:, None] for order in orders])
    sends = over_groups(one, members.astype(np.int32))
    if rings == 1:
        return sends
    pairs = sends.source.astype(np.int64) * group.gpus + sends.destination
    pair, of_send = np.unique(pairs, return_inverse=True)
    total = np.bincount(of_send, sends.size_bytes).astype(np.int64)
    return Sends((pair // group.gpus).astype(np.int32), (pair % group.gpus).astype(np.int32), total)


def _between_servers(servers: int) -> Sends:
    """Every GPU to every GPU of other servers."""
    ranks = np.arange(GPUS * servers)
    source, destination = (axis.reshape(-1) for axis in np.meshgrid(ranks, ranks, indexing="ij"))
    kept = source // GPUS != destination // GPUS
    peers = GPUS * (servers - 1)
    return Sends(
        source[kept].astype(np.int32),
        destination[kept].astype(np.int32),
        np.full(int(kept.sum()), NIC_BYTES // peers, np.int64),
    )


@dataclass(frozen=True)
class Traffic:
    """Jobs on a network, ready for routing and simulation."""

    network: Network
    compiled: Compiled

    @classmethod
    def of(cls, network: Network, jobs: Sequence[PlacedJob]) -> Traffic:
        return cls(network, compile_jobs(network, jobs, overhead_bytes=PACKET_OVERHEAD_BYTES))

    @property
    def flows(self) -> Flows:
        return self.compiled.flows

    def led(self, scheme: SchemeSpec, up: Bools | None = None) -> Paths:
        """The paths of all flows while these links are up, TE after its round."""
        routes = Routes(self.network, up)
        hashed = E_ECMP if isinstance(scheme, TeScheme) else scheme
        paths = paths_of(self.network, routes, self.flows, scheme=hashed)
        if not isinstance(scheme, TeScheme):
            return paths
        demands = self.nic_bps * self.flow_bits / self.nic_bits
        return place_te(self.network, routes, self.flows, demands, scheme.engine, fallback=paths)

    @property
    def flow_bits(self) -> Floats:
        """Bits on the wire of each flow."""
        program = self.compiled.program
        return np.bincount(program.flow, program.size_bits, len(self.flows)).astype(np.float64)

    @property
    def nic_bits(self) -> Floats:
        """For each flow, the bits of all flows on its port."""
        return np.bincount(self._ports, self.flow_bits)[self._ports].astype(np.float64)

    @property
    def nic_bps(self) -> Floats:
        """For each flow, the rate of its port."""
        return self.network.rate_bps[self._ports]

    @property
    def _ports(self) -> Ints:
        ports: Ints = self.network.nic_links[self.flows.source, self.flows.port]
        return ports

    def roofline_s(self) -> Floats:
        """The least time of each job: its busiest NIC at its rate, sending or receiving."""
        jobs = len(self.compiled.first_flow) - 1
        of_flow = np.repeat(np.arange(jobs), np.diff(self.compiled.first_flow))
        seconds = np.zeros(jobs)
        for nic in (self.flows.source, self.flows.destination):
            key = of_flow * self.network.nics + nic
            bits = np.bincount(key, self.flow_bits, jobs * self.network.nics)
            seconds = np.maximum(
                seconds, (bits.reshape(jobs, -1) / _nic_bps(self.network)).max(axis=1)
            )
        return seconds

    def run(self, paths: Paths) -> Outcome:
        """Simulate all jobs to their ends, exactly."""
        return run(self.compiled.program, paths, self.network.capacity_bps)

    def over_roofline(self, paths: Paths) -> Floats:
        """Completion over roofline of each job."""
        ratios: Floats = self.run(paths).end_s / self.roofline_s()
        return ratios


def _nic_bps(network: Network) -> Floats:
    """The rate of each NIC, all its ports together."""
    links = network.nic_links
    rates: Floats = np.where(links == NONE, 0.0, network.rate_bps[links]).sum(axis=1)
    return rates


def failed_uplinks(network: Network, racks: int, count: int, draw: np.random.Generator) -> Bools:
    """The links that are up after `each` random uplinks of `racks` random racks have failed. The
    same draw with larger numbers fails the same links and more."""
    up = np.ones(network.links, np.bool_)
    leaves = np.flatnonzero(network.tier == 1)
    for leaf in draw.choice(leaves, racks, replace=False):
        uplinks = np.flatnonzero(network.lower == leaf)
        up[draw.permutation(uplinks)[:count]] = False
    return up
