"""What a server does to a message besides the network: a frozen `HostModel`.

    model = read_host_model(find_servers("dgx-h100")).model
    model.local.bandwidth_bps        # of a GPU to the others of its domain, one way
    model.step_ns                    # of a send over the network: proxy, post, completion

A message over the network costs `step_ns` before it leaves, and the NIC sends it no faster than
`nic_cap_bps`. Ranks of one domain do not use the network: they send over the domain's fabric, which
costs its latency and has its bandwidth. A collective costs `launch_ns` once. `RankHosts`
(`rocelab.hosts.ranks`) has the model on the ranks of a job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

TIMELESS = "hosts take no time"
"""What results say that were computed without a model."""


class LocalKind(StrEnum):
    """How the GPUs of a domain reach each other."""

    SWITCH = "switch"
    """Each has a port of the whole bandwidth to a switch without limits: NVSwitch."""

    MESH = "mesh"
    """Each has a link to each other one, of an equal part of its bandwidth: xGMI."""

    PCIE = "pcie"
    """They share their PCIe links with what goes to NICs."""


@dataclass(frozen=True, slots=True)
class LocalFabric:
    """The fabric of a domain: GPUs that reach each other without the network."""

    kind: LocalKind
    bandwidth_bps: float
    """What a GPU sends to, and at once receives from, all others together: bits of data."""

    latency_ns: float
    """From when a GPU may send until another can go on, for a message without length."""

    servers: int = 1
    """How many servers a domain spans."""

    reduces: bool = True
    """Whether its switch reduces and copies."""


@dataclass(frozen=True, slots=True)
class HostModel:
    """A type of server. Rates are inf where nothing limits them."""

    name: str
    title: str
    gpus: int
    nics: int
    nic_of_gpu: tuple[int, ...]
    """The NIC (from 0) that each GPU sends by."""

    nic_cap_bps: float
    """The most that a NIC sends and at once receives on the wire, headers included."""

    gpu_cap_bps: float
    """The most that a GPU sends to its NIC, and at once receives, headers included."""

    local: LocalFabric | None
    """None: GPUs of a server reach each other over the network."""

    launch_ns: float
    """Once a collective, before its first send."""

    step_ns: float
    """Of a send over the network, before it leaves: what proxy, NIC and GPU take."""

    message_ns: float
    """Of a sender, for each message of a send: it posts one after the other."""

    assumed: tuple[str, ...] = ()
    """The figures without a source."""

    @property
    def words(self) -> str:
        """What results say of their hosts."""
        return f"hosts as {self.name}"

    @property
    def is_mesh(self) -> bool:
        """Whether each two GPUs of a domain have a link of their own."""
        return self.local is not None and self.local.kind is LocalKind.MESH

    @property
    def local_row_bps(self) -> float:
        """What a GPU sends, and at once receives, in its domain, or in a mesh what the link of two
        GPUs carries each way; 0 without a fabric."""
        if self.local is None:
            return 0.0
        return self.local.bandwidth_bps / (max(1, self.domain_gpus - 1) if self.is_mesh else 1)

    @property
    def nic_limit_bps(self) -> float:
        """What a NIC carries at most: what its only GPU gets through its own PCIe link, too."""
        alone_bps = self.gpu_cap_bps if self.gpus_of_nic == 1 else math.inf
        return min(self.nic_cap_bps, alone_bps)

    @property
    def gpus_of_nic(self) -> int:
        """How many GPUs share a NIC."""
        return self.gpus // self.nics

    @property
    def domain_gpus(self) -> int:
        """The GPUs of a domain, 1 where GPUs reach each other over the network."""
        return 1 if self.local is None else self.local.servers * self.gpus
