"""A type of server as a user writes it: a file of `servers/`, a `host_model` block, or an option.

    name: dgx-h100
    gpus: 8
    nics: 8
    nic: {pcie: {generation: 5, lanes: 16}}
    fabric: {kind: switch, bandwidth: 370.8GB/s, latency: 3400ns}
    costs: {launch: 8400ns, step: 14us}

Every figure may have its source in `sources`, by its key; one that begins with `assumed` marks a
figure that nobody has published.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from rocelab.base.models import SpecModel
from rocelab.base.units import BytesPerSecond, DurationNs, RateBps
from rocelab.base.wording import RefusedError, counted, did_you_mean, listed, shown
from rocelab.hosts.model import HostModel, LocalFabric, LocalKind

LANE_BPS = {1: 1.5e9, 2: 3e9, 3: 6e9, 4: 12e9, 5: 24e9, 6: 48e9}
"""What a lane of each generation of PCIe carries of data, by NCCL's table (src/graph/topo.cc,
kvDictPciGen): three quarters of its transfers per second."""

MAX_LATENCY = 10**9
ASSUMED = "assumed"

Sources = Mapping[str, str]


class PcieSpec(SpecModel):
    """A PCIe link."""

    generation: Annotated[int, Field(ge=1, le=6, description="1 to 6")]
    lanes: Annotated[int, Field(ge=1, le=32, description="width")] = 16

    @property
    def bps(self) -> float:
        """What it carries one way."""
        return LANE_BPS[self.generation] * self.lanes


class PortSpec(SpecModel):
    """A NIC or a GPU: how fast it gets data through its PCIe link."""

    title: Annotated[str, Field(max_length=80, description="its model")] = ""
    pcie: Annotated[
        PcieSpec | None, Field(description="its PCIe link; left out: no limit but cap")
    ] = None
    cap: Annotated[
        RateBps | None,
        Field(
            gt=0,
            description="the most that it carries one way, headers included; left out: what its "
            "PCIe link carries",
        ),
    ] = None

    @property
    def cap_bps(self) -> float:
        """The lower of both, inf without."""
        limits = [self.cap, None if self.pcie is None else self.pcie.bps]
        return float(min([limit for limit in limits if limit is not None], default=math.inf))


class LocalFabricSpec(SpecModel):
    """How GPUs of a domain reach each other without the network."""

    kind: Annotated[
        LocalKind,
        Field(
            strict=False,
            description="switch: each has its bandwidth to any other; mesh: an equal part of it to "
            "each other; pcie: the links that also lead to NICs",
        ),
    ]
    bandwidth: Annotated[
        BytesPerSecond,
        Field(gt=0, description="of a GPU to all others together, one way, of data"),
    ]
    latency: Annotated[
        DurationNs,
        Field(ge=0, le=MAX_LATENCY, description="of a send, what its GPUs take included"),
    ] = 0
    servers: Annotated[
        int, Field(ge=1, le=1024, description="servers that a domain spans, such as 18 of a rack")
    ] = 1
    reduces: Annotated[
        bool,
        Field(description="whether its switch reduces and copies (NVLink SHARP: from Hopper on)"),
    ] = True

    @model_validator(mode="after")
    def _only_switches_join_servers(self) -> Self:
        if self.servers > 1 and self.kind is not LocalKind.SWITCH:
            raise RefusedError(
                f"a domain of kind {self.kind} spans {self.servers} servers",
                "only a switch joins servers: use kind: switch, or servers: 1",
                keys=("servers",),
            )
        return self


class CostsSpec(SpecModel):
    """The time that hosts take."""

    launch: Annotated[
        DurationNs, Field(ge=0, le=MAX_LATENCY, description="once a collective, before it sends")
    ] = 0
    step: Annotated[
        DurationNs,
        Field(ge=0, le=MAX_LATENCY, description="of each send over the network, before it leaves"),
    ] = 0
    message: Annotated[
        DurationNs,
        Field(
            ge=0,
            le=MAX_LATENCY,
            description="of the sender for each message of a send, one after the other",
        ),
    ] = 0


class HostModelSpec(SpecModel):
    """A type of server: its GPUs and NICs, how they reach each other, and what time it takes."""

    name: Annotated[
        str,
        Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$", max_length=40, description="its name"),
    ]
    title: Annotated[str, Field(max_length=120, description="what it is")] = ""
    gpus: Annotated[int, Field(ge=1, le=1024, description="GPUs of a server")]
    nics: Annotated[int, Field(ge=1, le=1024, description="NICs of a server that GPUs send by")]
    affinity: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...] | None,
        Field(
            strict=False,
            description="of each GPU, the number of its NIC from 0; left out: in order, as many "
            "GPUs to each NIC",
        ),
    ] = None
    nic: Annotated[PortSpec, Field(description="what limits a NIC below its line rate")] = (
        PortSpec()
    )
    gpu: Annotated[PortSpec, Field(description="what limits a GPU's way to its NIC")] = PortSpec()
    fabric: Annotated[
        LocalFabricSpec | None,
        Field(description="between GPUs; left out: they send over the network"),
    ] = None
    costs: Annotated[CostsSpec, Field(description="time that hosts take")] = CostsSpec()
    sources: Annotated[
        Sources,
        Field(description="of each key, such as fabric.bandwidth, where its value is from"),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _as_many_gpus_a_nic(self) -> Self:
        if self.gpus % self.nics:
            raise RefusedError(
                f"{counted(self.gpus, 'GPU')} do not share {counted(self.nics, 'NIC')} evenly",
                "as many GPUs to each NIC are modelled; where a GPU has several NICs, write one of "
                "their rates together, and give the lab's server_rate the same",
                keys=("nics", "gpus"),
            )
        if self.affinity is None:
            return self
        share = self.gpus // self.nics
        counts = [self.affinity.count(nic) for nic in range(self.nics)]
        if len(self.affinity) != self.gpus or counts != [share] * self.nics:
            raise RefusedError(
                f"expected the NIC of each of {self.gpus} GPUs, {share} to each of "
                f"{counted(self.nics, 'NIC')}, got {shown(list(self.affinity))}",
                f"NICs are 0 to {self.nics - 1}; left out, they follow in order",
                keys=("affinity",),
            )
        return self

    @model_validator(mode="after")
    def _sources_of_its_keys(self) -> Self:
        keys = [*_keys(type(self))]
        for key in self.sources:
            if key not in keys:
                raise RefusedError(
                    f"{shown(key)} is no key with a value",
                    did_you_mean(key, keys) or f"these are: {listed(keys)}",
                    keys=(("sources", key), "sources"),
                )
        return self

    @cached_property
    def model(self) -> HostModel:
        """The model that engines use."""
        share = self.gpus // self.nics
        local = self.fabric
        return HostModel(
            name=self.name,
            title=self.title or self.name,
            gpus=self.gpus,
            nics=self.nics,
            nic_of_gpu=self.affinity or tuple(gpu // share for gpu in range(self.gpus)),
            nic_cap_bps=self.nic.cap_bps,
            gpu_cap_bps=self.gpu.cap_bps,
            local=None
            if local is None
            else LocalFabric(
                local.kind,
                8.0 * local.bandwidth,
                float(local.latency),
                local.servers,
                reduces=local.reduces and local.kind is LocalKind.SWITCH,
            ),
            launch_ns=float(self.costs.launch),
            step_ns=float(self.costs.step),
            message_ns=float(self.costs.message),
            assumed=tuple(
                key for key, source in self.sources.items() if source.startswith(ASSUMED)
            ),
        )


def _keys(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """The keys whose values have a source, dotted."""
    for name, info in model.model_fields.items():
        if name in ("name", "title", "sources"):
            continue
        inner = _BLOCKS.get(name)
        if inner is None:
            yield f"{before}{name}"
        elif info is not None:
            yield from _keys(inner, f"{before}{name}.")


_BLOCKS: Mapping[str, type[BaseModel]] = {
    "nic": PortSpec,
    "gpu": PortSpec,
    "fabric": LocalFabricSpec,
    "costs": CostsSpec,
}
