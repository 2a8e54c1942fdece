"""Kind `clos`: RTSWs under CTSWs in each AI zone, zones under ATSWs.

Source: Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta Scale", SIGCOMM
2024, section 3.
"""

from __future__ import annotations

from rocelab.labfile.fabrics import ClosSpec
from rocelab.plan.addressing import ASN_BASE
from rocelab.plan.fabric import Role
from rocelab.plan.layout import Attachment, Cable, Layout, Site, cables, node_name, server_name


def layout(clos: ClosSpec) -> Layout:
    """ATSWs share one ASN, the CTSWs of a zone one, and each RTSW has its own (RFC 7938)."""
    zones: list[int | None] = [None] if clos.zones == 1 else list(range(1, clos.zones + 1))
    atsws = [node_name("atsw", index) for index in range(1, clos.atsws + 1)]
    sites = [Site(name, Role.ATSW, None, ASN_BASE) for name in atsws]
    attachments: list[Attachment] = []
    wires: list[Cable] = []
    rack_asn = ASN_BASE + len(zones)
    for number, zone in enumerate(zones, start=1):
        prefix = f"z{zone}" if zone else None
        ctsws = [node_name("ctsw", index, prefix) for index in range(1, clos.spines + 1)]
        for name in ctsws:
            sites.append(Site(name, Role.CTSW, number, ASN_BASE + number))
            wires += cables(name, atsws, clos.links_per_atsw)
        for rack in range(1, clos.racks + 1):
            rtsw = node_name("rtsw", rack, prefix)
            rack_asn += 1
            sites.append(Site(rtsw, Role.RTSW, number, rack_asn))
            wires += cables(rtsw, ctsws, clos.links_per_pair)
            for server in range(1, clos.servers_per_rack + 1):
                name = server_name(rack, server, prefix)
                sites.append(Site(name, Role.SERVER, number))
                attachments += [Attachment(name, (rtsw,))] * clos.nics_per_server
    return Layout(tuple(sites), tuple(attachments), tuple(wires))
