"""Hosts in simulations: what a `HostModel` makes of a network, of paths and of latencies.

`with_hosts` returns the network as GPUs see it: an entry for each GPU instead of each NIC, and
links of NICs no faster than hosts let them be. `LocalPaths` are the paths of flows that do not use
the network: rows of capacity behind the sends of the network, for what a GPU sends and what it
gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from rocelab.base.arrays import NONE, Bools, Floats, Ints, Longs
from rocelab.base.errors import InputError
from rocelab.base.wording import counted
from rocelab.hosts.model import HostModel, LocalFabric, LocalKind
from rocelab.hosts.ranks import RankHosts, domain_numbers
from rocelab.jobs.tuning import Tuned
from rocelab.routes.arrays.flows import (
    Flows,
    Paths,
    Ways,
    joined_paths,
    paths_taken,
    selected_flows,
)
from rocelab.routes.arrays.network import Network

NS = 1e9
PathsOf = Callable[[Flows], Paths]


SUPERPOD_NICS = 8
"""Of a server of rail-superpod, which ships."""


def with_hosts(network: Network, model: HostModel) -> Network:
    """The network with an entry for each GPU in place of each NIC, and the caps of NICs. A NIC of
    several ports is capped in all of them together, each by the same part. Raises InputError if
    servers have other numbers of NICs than the model."""
    counts = np.unique(np.bincount(network.nic_server)[np.unique(network.nic_server)])
    if counts.tolist() != [model.nics]:
        several = " or ".join(map(str, counts.tolist()))
        example = ", such as rail-superpod" if model.nics == SUPERPOD_NICS else ""
        raise InputError(
            f"host model {model.name} has {counted(model.nics, 'NIC')} a server, and servers of "
            f"{network.spec.name} have {several}",
            hint=f"use a lab whose servers have {model.nics}{example}, or a host model with as "
            "many: `nics` of a file of your own",
        )
    first = np.flatnonzero(np.diff(network.nic_server, prepend=-1) != 0)
    nic_of_gpu = np.array(model.nic_of_gpu)
    chosen = (np.repeat(first, model.gpus) + np.tile(nic_of_gpu, len(first))).astype(np.intp)
    links = network.nic_links
    total_bps = np.where(links == NONE, 0.0, network.rate_bps[links]).sum(axis=1)
    part = np.minimum(1.0, model.nic_limit_bps / total_bps)
    rate_bps = network.rate_bps.copy()
    is_port = links != NONE
    rate_bps[links[is_port]] *= np.broadcast_to(part[:, None], links.shape)[is_port]
    return replace(
        network,
        rate_bps=rate_bps,
        nic_server=network.nic_server[chosen],
        nic_number=network.nic_number[chosen],
        nic_address=network.nic_address[chosen],
        nic_links=links[chosen],
        nic_home=network.nic_home[chosen],
    )


def domains_of(network: Network, model: HostModel) -> Ints:
    """The domain of each GPU of a network with hosts, n."""
    zone = network.zone[network.home_leaves[network.nic_home, 0]]
    return domain_numbers(network.nic_server, zone, model)


def rank_hosts(network: Network, model: HostModel, domain: Ints, places: Ints) -> RankHosts:
    """The hosts of ranks on these GPUs. domain: of each GPU, n."""
    links = network.nic_links[places]
    rates = np.where(links == NONE, 0.0, network.rate_bps[links]).sum(axis=1)
    return RankHosts(
        model,
        network.nic_server[places],
        domain[places],
        network.nic_number[places] - 1,
        float(rates.min()),
    )


class LocalPaths:
    """The rows of capacity behind the sends of a network with hosts, and the paths over them.

    A GPU has a row for what it sends to others of its domain and one for what it gets; in a mesh
    each two that send to each other have one. GPUs whose PCIe links carry both what goes to NICs
    and what goes to GPUs, or are slower than a NIC that they share, have two rows for these.
    """

    def __init__(
        self,
        network: Network,
        model: HostModel,
        domain: Ints,
        flows: Sequence[Flows],
        bits_a_message: Floats,
    ) -> None:
        """domain: of each GPU, n. flows: all that will have paths; those of data first, F.
        bits_a_message: of these on the wire, on average, F."""
        self.model = model
        self._network, self._domain = network, domain
        self._keys = np.empty(0, np.int64)
        rows = [np.empty(0, np.int64)]
        self._posting = self._posting_shares(flows[0], bits_a_message)
        if self._posting is not None:
            rows.append(self._posting_keys(flows[0].source))
        for some in flows:
            local = self.is_local(some)
            source, destination = some.source[local], some.destination[local]
            rows += [*self._local_keys(source, destination).T]
            if self._links_always:
                rows += [*self._link_keys(some.source[~local], some.destination[~local]).T]
        keys = np.unique(np.concatenate(rows))
        keys = keys[keys >= 0]
        # Engines pair sends: the number of rows is even, with one that nothing takes.
        self._keys = np.append(keys, keys[-1] + 1) if len(keys) % 2 else keys

    def _posting_shares(self, flows: Flows, bits_a_message: Floats) -> Floats | None:
        """What a bit of each flow takes of its sender's time to post messages, over what it takes
        of the NIC's, F; None where no sender needs longer to post than its NIC to send."""
        if not self.model.message_ns:
            return None
        post_s = np.where(self.is_local(flows), 0.0, self.model.message_ns / NS / bits_a_message)
        shares: Floats = post_s * self._nic_bps[flows.source]
        return shares if shares.max(initial=0.0) > 1 else None

    def _posting_keys(self, source: Ints) -> Longs:
        """The keys of the rows for messages that GPUs post."""
        return (self._link_family + 2) * self._gpus + source.astype(np.int64)

    @cached_property
    def _nic_bps(self) -> Floats:
        """The rate of each GPU's NIC, n."""
        links = self._network.nic_links
        rates: Floats = np.where(links == NONE, 0.0, self._network.rate_bps[links]).sum(axis=1)
        return rates

    def is_local(self, flows: Flows) -> Bools:
        """Whether each flow stays in a domain."""
        local: Bools = self._domain[flows.source] == self._domain[flows.destination]
        return local

    def latency_s(self, flows: Flows, costs: Sequence[Tuned | None], job: Longs) -> Floats:
        """What hosts add to each flow's sends: the step of one over the network, the whole of a
        local one. costs: of each job, None for what the model says; job: of each flow, F."""
        fabric = self.model.local
        local_ns = 0.0 if fabric is None else fabric.latency_ns
        of_job = np.array(
            [
                (local_ns, self.model.step_ns) if cost is None else (cost.local_ns, cost.step_ns)
                for cost in costs
            ]
        )
        local_s, step_s = of_job[job].T / NS
        times: Floats = np.where(self.is_local(flows), local_s, step_s)
        return times

    @cached_property
    def capacity_bps(self) -> Floats:
        """Of each row."""
        family, gpu = np.divmod(self._keys, self._gpus)
        fixed_bps = np.where(
            family >= self._link_family, self.model.gpu_cap_bps, self.model.local_row_bps
        )
        rates: Floats = np.where(family == self._link_family + 2, self._nic_bps[gpu], fixed_bps)
        return rates

    def extended(self, of_sends: Floats) -> Floats:
        """The capacities of sends, 2L, with those of the rows."""
        return np.concatenate((of_sends, self.capacity_bps))

    def padded(self, of_sends: Floats) -> Floats:
        """A value of each send, 2L, and 0 of each row."""
        return np.concatenate((of_sends, np.zeros(len(self._keys))))

    def paths(self, flows: Flows, over_network: PathsOf) -> Paths:
        """The paths of flows: local ones over rows, others as `over_network` has them."""
        local = self.is_local(flows)
        return self._joined(flows, local, over_network(selected_flows(flows, ~local)))

    def network_part(self, flows: Flows, paths: Paths) -> Paths:
        """The paths of the flows that are not local, without rows."""
        taken = paths_taken(paths, np.flatnonzero(~self.is_local(flows)))
        is_send = taken.sends < self._network.sends
        flow = np.repeat(np.arange(len(taken)), np.diff(taken.start))[is_send]
        counts = np.bincount(flow, minlength=len(taken))
        share = None if taken.share is None else taken.share[is_send]
        return Paths(np.concatenate(([0], np.cumsum(counts))), taken.sends[is_send], share)

    def ways(self, flows: Flows, over_network: Ways) -> Ways:
        """The ways of all flows, if `over_network` are those of the flows that are not local."""
        local = self.is_local(flows)
        (numbers,) = np.nonzero(local)
        rows = self._local_rows(selected_flows(flows, local))
        counts = np.ones(len(flows), np.int64)
        counts[~local] = np.diff(over_network.first)
        first = np.concatenate(([0], np.cumsum(counts)))
        way = np.empty(first[-1], np.int64)
        is_local = np.repeat(local, counts)
        way[~is_local] = over_network.way
        way[is_local] = len(over_network.paths) + np.arange(len(numbers))
        return Ways(first, way, joined_paths(over_network.paths, rows), over_network.gap_s)

    def name(self, send: int) -> str:
        """What the row of this number, counted behind the sends, is."""
        family, number = divmod(int(self._keys[send - self._network.sends]), self._gpus)
        if self.model.is_mesh and family < self._link_family:
            return f"{self._gpu(number)}:to-{self._gpu(family)}"
        if family == self._link_family + 2:
            return f"{self._gpu(number)}:posting"
        kind = "pcie" if family >= self._link_family else self._kind_name
        return f"{self._gpu(number)}:{kind}-{'in' if family % 2 else 'out'}"

    def _gpu(self, number: int) -> str:
        network, gpus = self._network, self.model.gpus
        server = network.node_names[network.nic_server[number]]
        return f"{server}:gpu{number % gpus + 1}"

    @property
    def _fabric(self) -> LocalFabric:
        assert self.model.local is not None
        return self.model.local

    @property
    def _gpus(self) -> int:
        return self._network.nics

    @property
    def _kind_name(self) -> str:
        return "fabric" if self.model.local is None else self.model.local.kind.value

    @property
    def _link_family(self) -> int:
        """The first of the two families of keys of PCIe links; a key is a family times GPUs, plus a
        GPU. In a mesh the other end is the family."""
        return self._gpus if self.model.is_mesh else 2

    @property
    def _links_always(self) -> bool:
        """Whether a GPU's PCIe link is slower than the NIC that it shares."""
        most_bps = self._nic_bps.max(initial=0)
        return bool(self.model.gpus_of_nic > 1 and self.model.gpu_cap_bps < most_bps)

    def _local_keys(self, source: Ints, destination: Ints) -> Longs:
        """The keys of the rows of local flows, NONE for none: flows x 4."""
        keys = np.full((len(source), 4), NONE, np.int64)
        if self.model.local is None or not len(source):
            return keys
        is_shared = self._fabric.kind is LocalKind.PCIE and np.isfinite(self.model.gpu_cap_bps)
        if is_shared:
            keys[:, [0, 3]] = self._link_keys(source, destination)
        if self.model.is_mesh:
            keys[:, 1] = destination.astype(np.int64) * self._gpus + source
        elif not (is_shared and self._fabric.bandwidth_bps >= self.model.gpu_cap_bps):
            keys[:, 1] = source
            keys[:, 2] = self._gpus + destination.astype(np.int64)
        return keys

    def _link_keys(self, source: Ints, destination: Ints) -> Longs:
        """The keys of the PCIe links of both ends: flows x 2."""
        begin = self._link_family * self._gpus
        ends = source.astype(np.int64), destination.astype(np.int64) + self._gpus
        return begin + np.stack(ends, axis=1)

    def _rows(self, keys: Longs) -> Ints:
        """The numbers of rows by their keys, NONE for keys without one."""
        if not len(self._keys):
            return np.full(keys.shape, NONE, np.int32)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_row = self._keys[place] == keys
        return np.where(is_row, self._network.sends + place, NONE).astype(np.int32)

    def _local_rows(self, flows: Flows) -> Paths:
        rows = self._rows(self._local_keys(flows.source, flows.destination))
        is_row = rows != NONE
        start = np.concatenate(([0], np.cumsum(is_row.sum(axis=1))))
        return Paths(start, rows[is_row])

    def _joined(self, flows: Flows, local: Bools, others: Paths) -> Paths:
        rows = self._rows(self._link_keys(flows.source[~local], flows.destination[~local]))
        if (rows != NONE).any():
            others = _between(rows, others)
        if self._posting is not None and len(flows) == len(self._posting):
            row = self._rows(self._posting_keys(flows.source[~local]))
            others = _behind(row, self._posting[~local], others)
        if not local.any():
            return others
        both = joined_paths(others, self._local_rows(selected_flows(flows, local)))
        order = np.empty(len(flows), np.int64)
        order[~local] = np.arange(len(others))
        order[local] = len(others) + np.arange(int(local.sum()))
        return paths_taken(both, order)


def _behind(row: Ints, share: Floats, paths: Paths) -> Paths:
    """Paths with a row before each, of which it takes a share; empty ones stay so."""
    lengths = np.diff(paths.start)
    start = np.concatenate(([0], np.cumsum(lengths + (lengths > 0))))
    inner = np.arange(len(paths.sends)) + np.repeat(start[:-1] + 1 - paths.start[:-1], lengths)
    sends, shares = np.empty(start[-1], np.int32), np.ones(start[-1])
    sends[inner] = paths.sends
    if paths.share is not None:
        shares[inner] = paths.share
    begins = start[:-1][lengths > 0]
    sends[begins], shares[begins] = row[lengths > 0], share[lengths > 0]
    return Paths(start, sends, shares)


def _between(rows: Ints, paths: Paths) -> Paths:
    """Paths with the rows of both their ends, flows x 2, NONE for none; empty ones stay so."""
    lengths = np.diff(paths.start)
    rows = np.where((lengths > 0)[:, None], rows, NONE)
    has = rows != NONE
    start = np.concatenate(([0], np.cumsum(lengths + has.sum(axis=1))))
    sends = np.empty(start[-1], np.int32)
    shift = start[:-1] + has[:, 0] - paths.start[:-1]
    inner = np.arange(len(paths.sends)) + np.repeat(shift, lengths)
    sends[inner] = paths.sends
    sends[start[:-1][has[:, 0]]] = rows[has[:, 0], 0]
    sends[start[1:][has[:, 1]] - 1] = rows[has[:, 1], 1]
    if paths.share is None:
        return Paths(start, sends)
    share = np.ones(len(sends))
    share[inner] = paths.share
    return Paths(start, sends, share)
