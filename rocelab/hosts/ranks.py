"""A `HostModel` on the ranks of a job: their servers, domains and rails.

    hosts = place.hosts                  # of a JobPlace; None: hosts take no time
    if hosts is not None and hosts.same_domain(source, destination): ...

Pure columns, one entry a rank. Patterns and workloads ask it which ranks reach each other without
the network, and how fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Bools, Ints, Longs
from rocelab.hosts.model import HostModel, LocalFabric

Ranks = int | npt.NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class RankHosts:
    """The servers of R ranks."""

    model: HostModel
    server: Ints
    """R. The number of each rank's server."""

    domain: Ints
    """R. The number of each rank's domain: ranks of one reach each other without the network; each
    rank its own, where GPUs have no fabric."""

    rail: Ints
    """R. The number of each rank's NIC in its server, from 0."""

    nic_bps: float
    """The rate of a NIC on the wire, its cap included."""

    def domain_of(self, rank: int) -> int:
        """The domain of a rank."""
        return int(self.domain[rank])

    def same_domain(self, one: Ranks, other: Ranks) -> Bools:
        """Whether ranks reach each other without the network, of each pair."""
        same: Bools = np.asarray(self.domain[one] == self.domain[other])
        return same

    @cached_property
    def domains(self) -> tuple[Longs, ...]:
        """The ranks of each domain, ascending, in the order of their first ranks."""
        _, first, number = np.unique(self.domain, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))[number]
        by_domain = np.argsort(order, kind="stable")
        ends = np.cumsum(np.bincount(order))[:-1]
        return tuple(np.split(by_domain, ends))

    @property
    def domain_ranks(self) -> int | None:
        """How many consecutive ranks are of one domain, if all domains have as many; else None."""
        changes = np.flatnonzero(np.diff(self.domain)) + 1
        runs = np.diff(np.concatenate(([0], changes, [len(self.domain)])))
        is_even = len(runs) == len(self.domains) and bool((runs == runs[0]).all())
        return int(runs[0]) if is_even else None

    @property
    def local(self) -> LocalFabric | None:
        """The fabric of a domain."""
        return self.model.local


def domain_numbers(server: Ints, zone: Ints, model: HostModel) -> Ints:
    """The domain of each of n GPUs, server by server: as many consecutive servers of a zone as the
    model's domains span, the last of a zone fewer; each GPU its own without a fabric. server, zone:
    of each GPU, n."""
    if model.local is None:
        return np.arange(len(server), dtype=np.int32)
    is_first = np.diff(server, prepend=-1) != 0
    number = np.cumsum(is_first) - 1
    starts = np.flatnonzero(is_first)
    zones = zone[starts]
    of_zone = np.diff(zones, prepend=zones[0] - 1) != 0 if len(zones) else np.zeros(0, np.bool_)
    begins = np.flatnonzero(of_zone)
    place = np.arange(len(zones)) - np.repeat(begins, np.diff(np.append(begins, len(zones))))
    opens = of_zone | (place % model.local.servers == 0)
    domains: Ints = (np.cumsum(opens) - 1)[number].astype(np.int32)
    return domains
