"""Kind `rail`: NIC i of every server of a scalable unit on leaf i, all leaves under all spines.

Source: NVIDIA, "DGX SuperPOD: Next Generation Scalable Infrastructure for AI Leadership, Reference
Architecture" (compute fabric, rail-optimised fat tree).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rocelab.fabrics.addressing import ASN_BASE
from rocelab.fabrics.base import FabricKind, check_links
from rocelab.fabrics.homes import HomeCounts, addresses_of
from rocelab.fabrics.layout import Attachment, Cable, Layout, Site, cables, node_name, server_name
from rocelab.fabrics.roles import Role


class RailSpec(FabricKind):
    """Rail-optimised: NIC i of every server of a scalable unit is on the unit's leaf i.

    Uplink ratio of a leaf follows from servers_per_unit x links.server_rate against spines x
    links_per_pair x links.rate.
    """

    roles: ClassVar[tuple[Role, ...]] = (Role.LEAF, Role.SPINE)
    zone_words: ClassVar = {Role.LEAF: "unit"}

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
        check_links(
            self.units * self.rails * sum(self.leaf_ports),
            "units x rails x (servers_per_unit + spines x links_per_pair)",
        )
        return self

    def layout(self) -> Layout:
        """Spines share one ASN, each leaf has its own."""
        spines = [node_name("spine", index) for index in range(1, self.spines + 1)]
        sites = [Site(name, Role.SPINE, None, ASN_BASE) for name in spines]
        attachments: list[Attachment] = []
        wires: list[Cable] = []
        asn = ASN_BASE
        for unit in range(1, self.units + 1):
            prefix = f"su{unit}" if self.units > 1 else None
            leaves = [node_name("leaf", index, prefix) for index in range(1, self.rails + 1)]
            for name in leaves:
                asn += 1
                sites.append(Site(name, Role.LEAF, unit, asn))
                wires += cables(name, spines, self.links_per_pair)
            for server in range(1, self.servers_per_unit + 1):
                name = server_name(unit, server)
                sites.append(Site(name, Role.SERVER, unit))
                attachments += [Attachment(name, (leaf,)) for leaf in leaves]
        return Layout(tuple(sites), tuple(attachments), tuple(wires))

    def counts(self) -> HomeCounts:
        """The size of the fabric."""
        leaves = self.units * self.rails
        return HomeCounts(
            switches=leaves + self.spines,
            servers=self.units * self.servers_per_unit,
            nics=leaves * self.servers_per_unit,
            sessions=leaves * self.spines * self.links_per_pair,
            addresses=addresses_of(leaves + self.spines, leaves, self.servers_per_unit),
        )
