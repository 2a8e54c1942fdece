"""Kind `rail`: NIC i of every server of a scalable unit on leaf i, all leaves under all spines.

Source: NVIDIA, "DGX SuperPOD: Next Generation Scalable Infrastructure for AI Leadership, Reference
Architecture" (compute fabric, rail-optimised fat tree).
"""

from __future__ import annotations

from rocelab.labfile.fabrics import RailSpec
from rocelab.plan.addressing import ASN_BASE
from rocelab.plan.fabric import Role
from rocelab.plan.layout import Attachment, Cable, Layout, Site, cables, node_name, server_name


def layout(rail: RailSpec) -> Layout:
    """Spines share one ASN, each leaf has its own."""
    spines = [node_name("spine", index) for index in range(1, rail.spines + 1)]
    sites = [Site(name, Role.SPINE, None, ASN_BASE) for name in spines]
    attachments: list[Attachment] = []
    wires: list[Cable] = []
    asn = ASN_BASE
    for unit in range(1, rail.units + 1):
        prefix = f"su{unit}" if rail.units > 1 else None
        leaves = [node_name("leaf", index, prefix) for index in range(1, rail.rails + 1)]
        for name in leaves:
            asn += 1
            sites.append(Site(name, Role.LEAF, unit, asn))
            wires += cables(name, spines, rail.links_per_pair)
        for server in range(1, rail.servers_per_unit + 1):
            name = server_name(unit, server)
            sites.append(Site(name, Role.SERVER, unit))
            attachments += [Attachment(name, (leaf,)) for leaf in leaves]
    return Layout(tuple(sites), tuple(attachments), tuple(wires))
