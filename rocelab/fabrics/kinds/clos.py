"""Kind `clos`: RTSWs under CTSWs in each AI zone, zones under ATSWs.

Source: Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta Scale", SIGCOMM
2024, section 3.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rocelab.base.wording import RefusedError
from rocelab.fabrics.addressing import ASN_BASE
from rocelab.fabrics.base import Convergence, FabricKind, check_links
from rocelab.fabrics.homes import HomeCounts, addresses_of
from rocelab.fabrics.layout import Attachment, Cable, Layout, Site, cables, node_name, server_name
from rocelab.fabrics.roles import Role


class ClosSpec(FabricKind):
    """A Clos of RTSWs under CTSWs per AI zone, zones joined by ATSWs.

    Uplink ratio of a rack (downlink : uplink capacity) follows from servers_per_rack x
    nics_per_server x links.server_rate against spines x links_per_pair x links.rate.
    """

    roles: ClassVar[tuple[Role, ...]] = (Role.RTSW, Role.CTSW, Role.ATSW)
    zone_words: ClassVar = {Role.RTSW: "AI zone"}

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
        check_links(
            links,
            "zones x racks x (spines x links_per_pair + servers_per_rack x nics_per_server) + "
            "zones x spines x atsws x links_per_atsw",
        )
        return self

    def layout(self) -> Layout:
        """ATSWs share one ASN, the CTSWs of a zone one, and each RTSW has its own (RFC 7938)."""
        zones: list[int | None] = [None] if self.zones == 1 else list(range(1, self.zones + 1))
        atsws = [node_name("atsw", index) for index in range(1, self.atsws + 1)]
        sites = [Site(name, Role.ATSW, None, ASN_BASE) for name in atsws]
        attachments: list[Attachment] = []
        wires: list[Cable] = []
        rack_asn = ASN_BASE + len(zones)
        for number, zone in enumerate(zones, start=1):
            prefix = f"z{zone}" if zone else None
            ctsws = [node_name("ctsw", index, prefix) for index in range(1, self.spines + 1)]
            for name in ctsws:
                sites.append(Site(name, Role.CTSW, number, ASN_BASE + number))
                wires += cables(name, atsws, self.links_per_atsw)
            for rack in range(1, self.racks + 1):
                rtsw = node_name("rtsw", rack, prefix)
                rack_asn += 1
                sites.append(Site(rtsw, Role.RTSW, number, rack_asn))
                wires += cables(rtsw, ctsws, self.links_per_pair)
                for server in range(1, self.servers_per_rack + 1):
                    name = server_name(rack, server, prefix)
                    sites.append(Site(name, Role.SERVER, number))
                    attachments += [Attachment(name, (rtsw,))] * self.nics_per_server
        return Layout(tuple(sites), tuple(attachments), tuple(wires))

    def counts(self) -> HomeCounts:
        """The size of the fabric."""
        racks, spines = self.zones * self.racks, self.zones * self.spines
        servers = racks * self.servers_per_rack
        switches = racks + spines + self.atsws
        return HomeCounts(
            switches=switches,
            servers=servers,
            nics=servers * self.nics_per_server,
            sessions=racks * self.spines * self.links_per_pair
            + spines * self.atsws * self.links_per_atsw,
            addresses=addresses_of(switches, racks, self.servers_per_rack * self.nics_per_server),
        )

    @property
    def convergence(self) -> Convergence:
        """A zone alone has two tiers."""
        return Convergence.TWO_TIERS if self.zones == 1 else Convergence.THREE_TIERS
