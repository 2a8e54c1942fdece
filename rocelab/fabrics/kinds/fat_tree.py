"""Kind `fat-tree`: k pods of k/2 edge and k/2 aggregation switches under (k/2)^2 cores.

Source: Al-Fares, Loukissas and Vahdat, "A Scalable, Commodity Data Center Network Architecture",
SIGCOMM 2008, section 3.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from rocelab.base.wording import RefusedError
from rocelab.fabrics.addressing import ASN_BASE
from rocelab.fabrics.base import FabricKind
from rocelab.fabrics.homes import HomeCounts, addresses_of
from rocelab.fabrics.layout import Attachment, Cable, Layout, Site, cables, node_name, server_name
from rocelab.fabrics.roles import Role


class FatTreeSpec(FabricKind):
    """A k-ary fat-tree: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores."""

    roles: ClassVar[tuple[Role, ...]] = (Role.EDGE, Role.AGG, Role.CORE)
    zone_words: ClassVar = {Role.EDGE: "pod"}

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

    def layout(self) -> Layout:
        """Cores share one ASN, the aggregation switches of a pod one, each edge switch has its own.

        The i-th aggregation switch of a pod reaches the i-th k/2 of the cores.
        """
        half = self.k // 2
        cores = [node_name("core", index) for index in range(1, half * half + 1)]
        sites = [Site(name, Role.CORE, None, ASN_BASE) for name in cores]
        attachments: list[Attachment] = []
        wires: list[Cable] = []
        asn = ASN_BASE + self.k
        for pod in range(1, self.k + 1):
            prefix = f"p{pod}"
            aggs = [node_name("agg", index, prefix) for index in range(1, half + 1)]
            for index, name in enumerate(aggs):
                sites.append(Site(name, Role.AGG, pod, ASN_BASE + pod))
                wires += cables(name, cores[index * half : (index + 1) * half], 1)
            for index in range(1, half + 1):
                edge = node_name("edge", index, prefix)
                asn += 1
                sites.append(Site(edge, Role.EDGE, pod, asn))
                wires += cables(edge, aggs, 1)
                for server in range(1, self.servers + 1):
                    name = server_name(index, server, prefix)
                    sites.append(Site(name, Role.SERVER, pod))
                    attachments.append(Attachment(name, (edge,)))
        return Layout(tuple(sites), tuple(attachments), tuple(wires))

    def counts(self) -> HomeCounts:
        """The size of the fabric."""
        half = self.k // 2
        edges = self.k * half
        switches = 2 * edges + half * half
        return HomeCounts(
            switches=switches,
            servers=edges * self.servers,
            nics=edges * self.servers,
            sessions=2 * edges * half,
            addresses=addresses_of(switches, edges, self.servers),
        )
