"""Kind `fat-tree`: k pods of k/2 edge and k/2 aggregation switches under (k/2)^2 cores.

Source: Al-Fares, Loukissas and Vahdat, "A Scalable, Commodity Data Center Network Architecture",
SIGCOMM 2008, section 3.
"""

from __future__ import annotations

from rocelab.labfile.fabrics import FatTreeSpec
from rocelab.plan.addressing import ASN_BASE
from rocelab.plan.fabric import Role
from rocelab.plan.layout import Attachment, Cable, Layout, Site, cables, node_name, server_name


def layout(tree: FatTreeSpec) -> Layout:
    """Cores share one ASN, the aggregation switches of a pod one, each edge switch has its own.

    The i-th aggregation switch of a pod reaches the i-th k/2 of the cores.
    """
    half = tree.k // 2
    cores = [node_name("core", index) for index in range(1, half * half + 1)]
    sites = [Site(name, Role.CORE, None, ASN_BASE) for name in cores]
    attachments: list[Attachment] = []
    wires: list[Cable] = []
    asn = ASN_BASE + tree.k
    for pod in range(1, tree.k + 1):
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
            for server in range(1, tree.servers + 1):
                name = server_name(index, server, prefix)
                sites.append(Site(name, Role.SERVER, pod))
                attachments.append(Attachment(name, (edge,)))
    return Layout(tuple(sites), tuple(attachments), tuple(wires))
