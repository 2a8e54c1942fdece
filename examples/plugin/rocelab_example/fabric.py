"""Fabric `hall`: rows of servers, each under a row switch, which every hall switch joins."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rocelab.fabrics.addressing import ASN_BASE
from rocelab.fabrics.base import FabricKind
from rocelab.fabrics.layout import Attachment, Layout, Site, cables, node_name, server_name
from rocelab.fabrics.roles import Role

ROW = Role("row", 1, "Row", "row switches")
HALL = Role("hall", 2, "Hall", "hall switches")


class HallSpec(FabricKind):
    """Row switches under hall switches, every pair joined by one cable."""

    roles: ClassVar = (ROW, HALL)

    kind: Annotated[Literal["hall"], Field(description="the kind of fabric")]
    rows: Annotated[int, Field(ge=2, le=64, description="rows of servers")] = 2
    halls: Annotated[int, Field(ge=1, le=16, description="hall switches")] = 2
    servers: Annotated[int, Field(ge=1, le=16, description="servers of a row")] = 1

    def layout(self) -> Layout:
        """Hall switches share one ASN: none takes a path through another."""
        tops = [node_name("hall", number) for number in range(1, self.halls + 1)]
        sites = [Site(name, HALL, None, ASN_BASE) for name in tops]
        nics: list[Attachment] = []
        wires = []
        for number in range(1, self.rows + 1):
            row = node_name("row", number)
            sites.append(Site(row, ROW, None, ASN_BASE + number))
            wires += cables(row, tops, 1)
            for index in range(1, self.servers + 1):
                server = server_name(number, index)
                sites.append(Site(server, Role.SERVER, None))
                nics.append(Attachment(server, (row,)))
        return Layout(tuple(sites), tuple(nics), tuple(wires))
