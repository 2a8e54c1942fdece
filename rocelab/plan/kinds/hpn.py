"""Kind `hpn`: rails in segments, each NIC on one ToR or on two, aggregation in one plane or two.

With two planes the first ports of all NICs share one plane's ToRs and aggregation switches, so a
path is chosen once, at the ToR. Cores do not shorten paths between segments, but join the planes if
a NIC has lost a port.

Source: Qian et al., "Alibaba HPN: A Data Center Network for Large Language Model Training", SIGCOMM
2024, sections 4 to 6.
"""

from __future__ import annotations

from rocelab.labfile.fabrics import HpnSpec
from rocelab.plan.addressing import ASN_BASE
from rocelab.plan.fabric import Role
from rocelab.plan.layout import Attachment, Cable, Layout, Site, cables, node_name, server_name


def layout(hpn: HpnSpec) -> Layout:
    """Cores share one ASN, the aggregation switches of a plane one, each ToR has its own."""
    cores = [node_name("core", index) for index in range(1, hpn.cores + 1)]
    sites = [Site(name, Role.CORE, None, ASN_BASE) for name in cores]
    wires: list[Cable] = []
    planes: list[list[str]] = []
    for plane in range(1, hpn.planes + 1):
        prefix = f"p{plane}" if hpn.planes > 1 else None
        aggs = [node_name("agg", index, prefix) for index in range(1, hpn.aggs + 1)]
        planes.append(aggs)
        for name in aggs:
            sites.append(Site(name, Role.AGG, plane, ASN_BASE + plane))
            wires += cables(name, cores, hpn.links_per_core)
    attachments: list[Attachment] = []
    asn = ASN_BASE + hpn.planes
    for segment in range(1, hpn.segments + 1):
        prefix = f"s{segment}" if hpn.segments > 1 else None
        tors: list[tuple[str, ...]] = []
        for rail in range(1, hpn.rails + 1):
            stem = node_name("tor", rail, prefix)
            tors.append((f"{stem}a", f"{stem}b") if hpn.ports_per_nic == 2 else (stem,))
            for port, name in enumerate(tors[-1]):
                asn += 1
                sites.append(Site(name, Role.TOR, segment, asn))
                wires += cables(name, planes[port % hpn.planes], hpn.links_per_pair)
        for server in range(1, hpn.servers_per_segment + 1):
            name = server_name(segment, server)
            sites.append(Site(name, Role.SERVER, segment))
            attachments += [Attachment(name, pair) for pair in tors]
    return Layout(tuple(sites), tuple(attachments), tuple(wires))
