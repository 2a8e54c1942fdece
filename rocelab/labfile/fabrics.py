"""The kinds of fabric in a lab's file.

There is one model per kind; the module of the same name in `rocelab.plan.kinds` plans it. The
limits keep interface names within Linux's 15 characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from rocelab.base.wording import RefusedError
from rocelab.labfile.base import SpecModel

MAX_LINKS = 2**20
"""The most links of a fabric, NICs included: several times a cluster of 131,072 GPUs."""


def _check_links(links: int, formula: str) -> None:
    if links > MAX_LINKS:
        raise RefusedError(
            f"expected a fabric of at most {MAX_LINKS:,} links, got {links:,}",
            f"links are {formula}",
        )


class ClosSpec(SpecModel):
    """A Clos of RTSWs under CTSWs per AI zone, zones joined by ATSWs.

    Uplink ratio of a rack (downlink : uplink capacity) follows from servers_per_rack x
    nics_per_server x links.server_rate against spines x links_per_pair x links.rate.
    """

    kind: Annotated[Literal["clos"], Field(description="the kind of fabric")] = "clos"
    zones: Annotated[int, Field(ge=1, le=64, description="AI zones; more than one needs ATSWs")] = 1
    racks: Annotated[int, Field(ge=1, le=999, description="racks (RTSWs) per zone")] = 4
    spines: Annotated[int, Field(ge=1, le=128, description="spines (CTSWs) per zone")] = 2
    links_per_pair: Annotated[
        int, Field(ge=1, le=16, description="parallel links between an RTSW and a CTSW")
    ] = 1
    servers_per_rack: Annotated[int, Field(ge=0, le=16, description="servers under an RTSW")] = 1
    nics_per_server: Annotated[
        int, Field(ge=1, le=8, description="NICs per server, each with a link to its RTSW")
    ] = 1
    atsws: Annotated[
        int, Field(ge=0, le=128, description="aggregators (ATSWs) joining the zones")
    ] = 0
    links_per_atsw: Annotated[
        int, Field(ge=1, le=16, description="parallel links between a CTSW and an ATSW")
    ] = 1

    @property
    def leaf_ports(self) -> tuple[int, int]:
        """Ports of an RTSW: to NICs, and up."""
        return self.servers_per_rack * self.nics_per_server, self.spines * self.links_per_pair

    @model_validator(mode="after")
    def _zones_are_joined(self) -> Self:
        if self.zones > 1 and self.atsws == 0:
            raise RefusedError(
                f"{self.zones} zones need at least one ATSW to join them",
                "set fabric.atsws",
                keys=("atsws", "zones"),
            )
        return self

    @model_validator(mode="after")
    def _a_size_that_can_be_planned(self) -> Self:
        trunks = self.spines * self.atsws * self.links_per_atsw
        links = self.zones * (self.racks * sum(self.leaf_ports) + trunks)
        _check_links(
            links,
            "zones x racks x (spines x links_per_pair + servers_per_rack x nics_per_server) + "
            "zones x spines x atsws x links_per_atsw",
        )
        return self


class RailSpec(SpecModel):
    """Rail-optimised: NIC i of every server of a scalable unit is on the unit's leaf i.

    Uplink ratio of a leaf follows from servers_per_unit x links.server_rate against spines x
    links_per_pair x links.rate.
    """

    kind: Annotated[Literal["rail"], Field(description="the kind of fabric")]
    units: Annotated[int, Field(ge=1, le=64, description="scalable units")] = 2
    servers_per_unit: Annotated[int, Field(ge=0, le=256, description="servers of a unit")] = 2
    rails: Annotated[
        int, Field(ge=1, le=16, description="NICs of a server, and leaves of a unit")
    ] = 4
    spines: Annotated[int, Field(ge=1, le=128, description="spines above all leaves")] = 2
    links_per_pair: Annotated[
        int, Field(ge=1, le=32, description="parallel links between a leaf and a spine")
    ] = 1

    @property
    def leaf_ports(self) -> tuple[int, int]:
        """Ports of a leaf: to NICs, and up."""
        return self.servers_per_unit, self.spines * self.links_per_pair

    @model_validator(mode="after")
    def _a_size_that_can_be_planned(self) -> Self:
        _check_links(
            self.units * self.rails * sum(self.leaf_ports),
            "units x rails x (servers_per_unit + spines x links_per_pair)",
        )
        return self


class HpnSpec(SpecModel):
    """Alibaba HPN: rails in segments, NICs on one or two ToRs, one or two planes above them.

    With ports_per_nic 2 a NIC is on two ToRs, and links.server_rate is the rate of each port.
    """

    kind: Annotated[Literal["hpn"], Field(description="the kind of fabric")]
    segments: Annotated[int, Field(ge=1, le=32, description="segments of the pod")] = 2
    servers_per_segment: Annotated[int, Field(ge=0, le=256, description="servers of a segment")] = 2
    rails: Annotated[
        int, Field(ge=1, le=16, description="NICs of a server; each rail has its own ToRs")
    ] = 1
    ports_per_nic: Annotated[
        int, Field(ge=1, le=2, description="2: dual-ToR, a NIC survives the loss of one ToR")
    ] = 2
    planes: Annotated[
        int,
        Field(
            ge=1, le=2, description="2: the first ports' ToRs and the second ports' share no spine"
        ),
    ] = 2
    aggs: Annotated[int, Field(ge=1, le=128, description="aggregation switches of a plane")] = 2
    links_per_pair: Annotated[
        int, Field(ge=1, le=16, description="parallel links between a ToR and its aggregation")
    ] = 1
    cores: Annotated[
        int,
        Field(
            ge=0,
            le=512,
            description="cores above all planes; without them two planes never meet",
        ),
    ] = 0
    links_per_core: Annotated[
        int,
        Field(ge=1, le=16, description="parallel links between an agg and a core"),
    ] = 1

    @property
    def leaf_ports(self) -> tuple[int, int]:
        """Ports of a ToR: to NICs, and up."""
        return self.servers_per_segment, self.aggs * self.links_per_pair

    @model_validator(mode="after")
    def _planes_need_ports(self) -> Self:
        if self.planes > self.ports_per_nic:
            raise RefusedError(
                "two planes need NICs with two ports",
                "set fabric.ports_per_nic: 2, or planes: 1",
                keys=("planes", "ports_per_nic"),
            )
        return self

    @model_validator(mode="after")
    def _a_size_that_can_be_planned(self) -> Self:
        tors = self.segments * self.rails * self.ports_per_nic
        _check_links(
            tors * sum(self.leaf_ports)
            + self.planes * self.aggs * self.cores * self.links_per_core,
            "segments x rails x ports_per_nic x (servers_per_segment + aggs x links_per_pair) + "
            "planes x aggs x cores x links_per_core",
        )
        return self


class FatTreeSpec(SpecModel):
    """A k-ary fat-tree: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores."""

    kind: Annotated[Literal["fat-tree"], Field(description="the kind of fabric")]
    k: Annotated[
        int, Field(ge=2, le=64, description="ports of a switch, an even number; pods of the tree")
    ] = 4
    servers_per_edge: Annotated[
        int | None, Field(ge=0, le=256, description="servers of an edge switch; k/2 if left out")
    ] = None

    @field_validator("k")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise RefusedError(
                f"expected an even number, got {value}", f"{value - 1} or {value + 1}"
            )
        return value

    @property
    def servers(self) -> int:
        """Servers of each edge switch."""
        return self.k // 2 if self.servers_per_edge is None else self.servers_per_edge

    @property
    def leaf_ports(self) -> tuple[int, int]:
        """Ports of an edge switch: to NICs, and up."""
        return self.servers, self.k // 2


def _clos_unless_said(value: object) -> object:
    if isinstance(value, Mapping) and "kind" not in value:
        return {"kind": "clos", **value}
    return value


FabricSpec = Annotated[
    ClosSpec | RailSpec | HpnSpec | FatTreeSpec,
    Field(discriminator="kind"),
    BeforeValidator(_clos_unless_said),
]
