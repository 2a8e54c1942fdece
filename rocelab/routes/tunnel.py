"""The outer header of a tenant's packets between leaves, as a function of the flow inside.

Switches choose among equal paths by it. The kernel makes the outer source port of a packet's hash
(udp_flow_src_port, include/net/udp.h), which rocelab/dataplane/bpf/tunnel.bpf.c sets: `entropy` is
the model of both. `rocelab.routes.path` walks with the outer flow.
"""

from __future__ import annotations

from rocelab.labfile.schemes.base import ALL_FIELDS, Hashed
from rocelab.planning.fabric import Fabric, Nic
from rocelab.planning.tenancy import check_reached, leaf_of
from rocelab.routes.multipath import Flow5, udp_flow
from rocelab.routes.steering import field_hash
from rocelab.wire.vxlan import FIRST_SOURCE_PORT, LAST_SOURCE_PORT, VXLAN_PORT

FIELDS = ALL_FIELDS & ~Hashed.DESTINATION_QP
"""Of the flow inside: addresses, protocol and ports."""
_WORD = 2**32 - 1


def outer_flow(fabric: Fabric, flow: Flow5, source: Nic, destination: Nic) -> Flow5 | None:
    """The flow that switches see of a UDP flow from a NIC to another: None where it is the flow
    itself, because the NICs are in no tenant or at one leaf. Raises InputError for NICs that do not
    reach each other."""
    check_reached(fabric, source, destination)
    ends = leaf_of(source), leaf_of(destination)
    if fabric.tenant_of(source) is None or ends[0] == ends[1]:
        return None
    from_, to = (fabric.node(leaf).loopback for leaf in ends)
    assert from_ is not None and to is not None
    return udp_flow(from_, to, entropy(flow), VXLAN_PORT)


def entropy(flow: Flow5) -> int:
    """The outer UDP source port of a UDP flow's packets."""
    digest = field_hash(flow, 0, 0, FIELDS) or 1
    digest ^= digest << 16 & _WORD
    return (digest * (LAST_SOURCE_PORT - FIRST_SOURCE_PORT) >> 32) + FIRST_SOURCE_PORT
