"""Kind `super-spine`: pods of leaves and spines; the n-th spine of a pod is in plane n.

Source: Andreyev, "Introducing data center fabric, the next-generation Facebook data center
network", 2014.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rocelab.fabrics.addressing import ASN_BASE
from rocelab.fabrics.base import FabricKind
from rocelab.fabrics.layout import Attachment, Cable, Layout, Site, cables, node_name, server_name
from rocelab.fabrics.roles import Role

SUPER_SPINE = Role("superspine", 3, "Super", "super-spines")


class SuperSpineSpec(FabricKind):
    """Pods of leaves under spines, which planes of super-spines join."""

    roles: ClassVar = (Role.LEAF, Role.SPINE, SUPER_SPINE)
    zone_words: ClassVar = {Role.LEAF: "pod"}

    kind: Annotated[Literal["super-spine"], Field(description="the kind of fabric")]
    pods: Annotated[int, Field(ge=1, le=16, description="pods")] = 2
    leaves: Annotated[int, Field(ge=1, le=48, description="leaves of a pod")] = 2
    servers: Annotated[int, Field(ge=1, le=16, description="servers of a leaf")] = 1
    planes: Annotated[int, Field(ge=1, le=8, description="spines of a pod, and planes")] = 2
    per_plane: Annotated[int, Field(ge=1, le=16, description="super-spines of a plane")] = 1

    def layout(self) -> Layout:
        """Super-spines share one ASN, the spines of a pod one, each leaf has its own."""
        tops = [
            [
                node_name("superspine", plane * self.per_plane + index + 1)
                for index in range(self.per_plane)
            ]
            for plane in range(self.planes)
        ]
        sites = [Site(name, SUPER_SPINE, None, ASN_BASE) for plane in tops for name in plane]
        wires: list[Cable] = []
        nics: list[Attachment] = []
        for pod in range(1, self.pods + 1):
            spines = [node_name("spine", index, f"p{pod}") for index in range(1, self.planes + 1)]
            for spine, plane in zip(spines, tops, strict=True):
                sites.append(Site(spine, Role.SPINE, pod, ASN_BASE + pod))
                wires += cables(spine, plane, 1)
            for index in range(1, self.leaves + 1):
                leaf = node_name("leaf", index, f"p{pod}")
                asn = ASN_BASE + self.pods + (pod - 1) * self.leaves + index
                sites.append(Site(leaf, Role.LEAF, pod, asn))
                wires += cables(leaf, spines, 1)
                for number in range(1, self.servers + 1):
                    server = server_name(index, number, f"p{pod}")
                    sites.append(Site(server, Role.SERVER, pod))
                    nics.append(Attachment(server, (leaf,)))
        return Layout(tuple(sites), tuple(nics), tuple(wires))
