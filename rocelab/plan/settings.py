"""The sysctls that a node of a fabric needs.

Sources: Documentation/networking/ip-sysctl.rst for each name.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocelab.plan.fabric import Fabric, Node
from rocelab.spec.model import HashField, HashPolicy
from rocelab.sysctls import HASH_FIELDS, HASH_POLICY, HASH_SEED

POLICY_NUMBER = {HashPolicy.L3: 0, HashPolicy.L4: 1, HashPolicy.CUSTOM: 3}
FIELD_BIT = {
    HashField.SOURCE_IP: 0x01,
    HashField.DESTINATION_IP: 0x02,
    HashField.PROTOCOL: 0x04,
    HashField.FLOW_LABEL: 0x08,
    HashField.SOURCE_PORT: 0x10,
    HashField.DESTINATION_PORT: 0x20,
}
"""FIB_MULTIPATH_HASH_FIELD_* of include/net/ip_fib.h."""


def node_settings(fabric: Fabric, node: Node) -> Mapping[str, str]:
    """The sysctls of `node` below /proc/sys/net, in the order of writing."""
    settings = {
        "ipv4/conf/all/rp_filter": "0",
        "ipv4/conf/default/rp_filter": "0",
    }
    if fabric.numbered or not node.is_switch:
        settings |= {"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"}
    else:
        settings |= {
            "ipv6/conf/all/forwarding": "1",
            "ipv6/conf/default/accept_dad": "0",
            "ipv6/conf/default/router_solicitations": "0",
        }
    if node.is_switch:
        settings |= {
            "ipv4/ip_forward": "1",
            # A port without carrier gets no packets even before zebra reacts, as in a real switch.
            "ipv4/conf/all/ignore_routes_with_linkdown": "1",
            "ipv4/conf/default/ignore_routes_with_linkdown": "1",
            HASH_POLICY: str(POLICY_NUMBER[fabric.hash_policy]),
            # A router must answer every expired TTL, or a probe of a thousand paths would not end.
            "ipv4/icmp_ratelimit": "0",
            "ipv4/icmp_msgs_per_sec": "1000000",
            "ipv4/icmp_msgs_burst": "100000",
        }
        if fields := fabric.spec.hashing.fields:
            settings[HASH_FIELDS] = str(sum(FIELD_BIT[field] for field in fields))
        if node.hash_seed:
            settings[HASH_SEED] = str(node.hash_seed)
    return settings
