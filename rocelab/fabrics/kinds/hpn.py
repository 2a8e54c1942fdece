"""Kind `hpn`: rails in segments, each NIC on one ToR or on two, aggregation in one plane or two.

With two planes the first ports of all NICs share one plane's ToRs and aggregation switches, so a
path is chosen once, at the ToR. Cores do not shorten paths between segments, but join the planes if
a NIC has lost a port.

Source: Qian et al., "Alibaba HPN: A Data Center Network for Large Language Model Training", SIGCOMM
2024, sections 4 to 6.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rocelab.base.wording import RefusedError
from rocelab.fabrics.addressing import ASN_BASE
from rocelab.fabrics.base import PLANE, Convergence, FabricKind, check_links
from rocelab.fabrics.homes import HomeCounts, addresses_of
from rocelab.fabrics.layout import Attachment, Cable, Layout, Site, cables, node_name, server_name
from rocelab.fabrics.roles import Role


class HpnSpec(FabricKind):
    """Alibaba HPN: rails in segments, NICs on one or two ToRs, one or two planes above them.

    With ports_per_nic 2 a NIC is on two ToRs, and links.server_rate is the rate of each port.
    """

    roles: ClassVar[tuple[Role, ...]] = (Role.TOR, Role.AGG, Role.CORE)
    zone_words: ClassVar = {Role.TOR: "segment", Role.AGG: PLANE}

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
        check_links(
            tors * sum(self.leaf_ports)
            + self.planes * self.aggs * self.cores * self.links_per_core,
            "segments x rails x ports_per_nic x (servers_per_segment + aggs x links_per_pair) + "
            "planes x aggs x cores x links_per_core",
        )
        return self

    def layout(self) -> Layout:
        """Cores share one ASN, the aggregation switches of a plane one, each ToR has its own."""
        cores = [node_name("core", index) for index in range(1, self.cores + 1)]
        sites = [Site(name, Role.CORE, None, ASN_BASE) for name in cores]
        wires: list[Cable] = []
        planes: list[list[str]] = []
        for plane in range(1, self.planes + 1):
            prefix = f"p{plane}" if self.planes > 1 else None
            aggs = [node_name("agg", index, prefix) for index in range(1, self.aggs + 1)]
            planes.append(aggs)
            for name in aggs:
                sites.append(Site(name, Role.AGG, plane, ASN_BASE + plane))
                wires += cables(name, cores, self.links_per_core)
        attachments: list[Attachment] = []
        asn = ASN_BASE + self.planes
        for segment in range(1, self.segments + 1):
            prefix = f"s{segment}" if self.segments > 1 else None
            tors: list[tuple[str, ...]] = []
            for rail in range(1, self.rails + 1):
                stem = node_name("tor", rail, prefix)
                tors.append((f"{stem}a", f"{stem}b") if self.ports_per_nic == 2 else (stem,))
                for port, name in enumerate(tors[-1]):
                    asn += 1
                    sites.append(Site(name, Role.TOR, segment, asn))
                    wires += cables(name, planes[port % self.planes], self.links_per_pair)
            for server in range(1, self.servers_per_segment + 1):
                name = server_name(segment, server)
                sites.append(Site(name, Role.SERVER, segment))
                attachments += [Attachment(name, pair) for pair in tors]
        return Layout(tuple(sites), tuple(attachments), tuple(wires))

    def counts(self) -> HomeCounts:
        """The size of the fabric."""
        rails = self.segments * self.rails
        tors, aggs = rails * self.ports_per_nic, self.planes * self.aggs
        switches = tors + aggs + self.cores
        # Two ToRs share the two-port NICs, if there are any.
        dual = self.ports_per_nic == 2 and self.servers_per_segment > 0
        homes = rails if dual else tors
        return HomeCounts(
            switches=switches,
            servers=self.segments * self.servers_per_segment,
            nics=rails * self.servers_per_segment,
            sessions=tors * self.aggs * self.links_per_pair
            + aggs * self.cores * self.links_per_core,
            addresses=addresses_of(switches, homes, self.servers_per_segment, is_dual=dual),
        )

    @property
    def convergence(self) -> Convergence:
        """HPN's own."""
        return Convergence.DUAL_TOR
