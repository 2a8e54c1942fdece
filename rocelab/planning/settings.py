"""The sysctls of a node of a fabric: of the node as a whole, and of every port.

The kernel gives a new namespace much of what the machine has (`net.core.devconf_inherit_init_net`),
and a new port what its namespace has: a hardened machine's reverse-path filter would drop a lab's
packets. So each setting of IPv4's ports is planned, and those of IPv6's that a lab relies on.

Sources: Documentation/networking/ip-sysctl.rst for each name, net/ipv4/devinet.c and
net/ipv6/addrconf.c for what is inherited.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocelab.base.family import Family
from rocelab.base.sysctls import HASH_FIELDS, HASH_FIELDS_6, HASH_POLICY, HASH_POLICY_6, HASH_SEED
from rocelab.labfile.model import HashField, HashPolicy
from rocelab.planning.fabric import Fabric, Node

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

_FORWARDING, _FILTER = "ipv4/forwarding", "ipv4/rp_filter"
_LINKDOWN, _WITHOUT_IPV6 = "ipv4/ignore_routes_with_linkdown", "ipv6/disable_ipv6"
_ACCEPT_DAD, _SOLICITATIONS = "ipv6/accept_dad", "ipv6/router_solicitations"

SERVER_PORTS: Mapping[str, str] = {
    # The kernel sets others with it, so it is first.
    _FORWARDING: "0",
    # After a failure packets arrive by ports by which their source is not reached.
    _FILTER: "0",
    _LINKDOWN: "0",
    # No redirect changes a planned route, or is sent: routes are the daemons'.
    **{f"ipv4/{name}": "0" for name in ("accept_redirects", "send_redirects")},
    # The rest is what the kernel itself begins with.
    **{
        f"ipv4/{name}": "0"
        for name in (
            *("accept_local", "accept_source_route", "arp_accept", "arp_announce", "arp_filter"),
            *("arp_ignore", "arp_notify", "bc_forwarding", "bootp_relay", "disable_policy"),
            *("disable_xfrm", "drop_gratuitous_arp", "drop_unicast_in_l2_multicast"),
            *("force_igmp_version", "log_martians", "medium_id", "promote_secondaries"),
            *("proxy_arp", "proxy_arp_pvlan", "route_localnet", "src_valid_mark", "tag"),
        )
    },
    **{f"ipv4/{name}": "1" for name in ("arp_evict_nocarrier", "secure_redirects", "shared_media")},
    "ipv4/igmpv2_unsolicited_report_interval": "10000",
    "ipv4/igmpv3_unsolicited_report_interval": "1000",
    _WITHOUT_IPV6: "1",
}
"""The ports of a server and of a management network, by family and name."""

_IPV6_PORTS: Mapping[str, str] = {
    "ipv6/forwarding": "1",
    _ACCEPT_DAD: "0",
    _SOLICITATIONS: "0",
    # Link-local addresses are planned, from the MAC address; routers' announcements are zebra's.
    **{
        f"ipv6/{name}": "0"
        for name in (
            *("addr_gen_mode", "accept_ra", "accept_redirects", "accept_source_route"),
            *("accept_untracked_na", "disable_ipv6", "disable_policy", "optimistic_dad"),
            *("drop_unicast_in_l2_multicast", "drop_unsolicited_na", "force_tllao"),
            *("ignore_routes_with_linkdown", "keep_addr_on_down", "ndisc_notify", "proxy_ndp"),
            *("rpl_seg_enabled", "seg6_enabled", "use_oif_addrs_only", "use_optimistic"),
            "use_tempaddr",
        )
    },
    **{f"ipv6/{name}": "1" for name in ("ndisc_evict_nocarrier", "suppress_frag_ndisc")},
}
"""The ports of a switch with IPv6, whose next hops are link-local addresses."""

_IPV6_LINKDOWN = "ipv6/ignore_routes_with_linkdown"
_KEEPING, _MODE = "ipv6/keep_addr_on_down", "ipv6/addr_gen_mode"
_KEPT_ADDRESSES = {_KEEPING: "1"}
"""As IPv4's are."""
_IPV6_SERVER_PORTS: Mapping[str, str] = {
    **_IPV6_PORTS,
    **_KEPT_ADDRESSES,
    "ipv6/forwarding": "0",
    # Nobody's next hop is a server.
    _MODE: "1",
}
"""The ports of a server with IPv6 addresses."""


_BRIDGED_PORTS = {"ipv4/arp_ignore": "1", "ipv4/arp_announce": "2", "ipv4/arp_notify": "1"}
"""The ports of servers in a lab of tenants, where several may be in one subnet: each speaks for its
own address only, and announces it when it comes up."""


def port_settings(fabric: Fabric, node: Node) -> Mapping[str, str]:
    """The settings of every port of `node`, by family and name such as `ipv4/rp_filter`, in the
    order of writing. conf/all, which the kernel combines with a port's, and conf/default have the
    same values."""
    has_ipv6 = Family.IPV6 in fabric.spec.addresses.families
    if not node.is_switch:
        ports = {**SERVER_PORTS, **_IPV6_SERVER_PORTS} if has_ipv6 else {**SERVER_PORTS}
        if _has_ports_of_one_address(fabric, node):
            # What it sends by the kernel leaves by those of its ports that have carrier.
            ports[_LINKDOWN] = "1"
        return ports | _BRIDGED_PORTS if fabric.tenants else ports
    # A port without carrier gets no packets even before zebra reacts, as in a real switch.
    ports = {**SERVER_PORTS, _FORWARDING: "1", _LINKDOWN: "1"}
    if has_ipv6 or not fabric.numbered:
        ports |= _IPV6_PORTS
    if has_ipv6:
        ports |= {_IPV6_LINKDOWN: "1", **_KEPT_ADDRESSES}
    return ports


def node_settings(fabric: Fabric, node: Node) -> Mapping[str, str]:
    """The sysctls of `node` as a whole below /proc/sys/net, in the order of writing, with those of
    its ports that containers of another machine need at their start."""
    ports = port_settings(fabric, node)
    settings = _conf(ports, _FILTER, "all", "default")
    if ports[_WITHOUT_IPV6] == "1":
        settings |= _conf(ports, _WITHOUT_IPV6, "all", "default")
    else:
        settings |= _conf(ports, "ipv6/forwarding", "all")
        if Family.IPV6 in fabric.spec.addresses.families:
            settings |= _conf(ports, _KEEPING, "default") | _conf(ports, _MODE, "default")
            settings |= _conf(ports, _IPV6_LINKDOWN, "all", "default")
        settings |= _conf(ports, _ACCEPT_DAD, "default") | _conf(ports, _SOLICITATIONS, "default")
    if not node.is_switch:
        # What a connection learned about a path is not for the next one: runs do not differ by it.
        settings["ipv4/tcp_no_metrics_save"] = "1"
        if _has_ports_of_one_address(fabric, node):
            settings |= {HASH_POLICY: str(POLICY_NUMBER[HashPolicy.L4])}
            settings |= _conf(ports, _LINKDOWN, "all", "default")
    if node.is_switch:
        settings |= {
            "ipv4/ip_forward": "1",
            **_conf(ports, _LINKDOWN, "all", "default"),
            HASH_POLICY: str(POLICY_NUMBER[fabric.hash_policy]),
            # A router must answer every expired TTL, or a probe of a thousand paths would not end.
            "ipv4/icmp_ratelimit": "0",
            "ipv4/icmp_msgs_per_sec": "1000000",
            "ipv4/icmp_msgs_burst": "100000",
        }
        if Family.IPV6 in fabric.spec.addresses.families:
            # The limit of all messages together is IPv4's.
            settings |= {
                HASH_POLICY_6: str(POLICY_NUMBER[fabric.hash_policy]),
                "ipv6/icmp/ratelimit": "0",
            }
        if fields := fabric.spec.hashing.fields:
            settings[HASH_FIELDS] = str(sum(FIELD_BIT[field] for field in fields))
            if HASH_POLICY_6 in settings:
                settings[HASH_FIELDS_6] = settings[HASH_FIELDS]
        if node.hash_seed:
            settings[HASH_SEED] = str(node.hash_seed)
    return settings


def _has_ports_of_one_address(fabric: Fabric, node: Node) -> bool:
    return any(len(nic.links) > 1 for nic in fabric.nics(node.name))


def _conf(ports: Mapping[str, str], setting: str, *where: str) -> dict[str, str]:
    """A setting of ports as sysctls of `where`, all or default."""
    family, name = setting.split("/")
    return {f"{family}/conf/{interface}/{name}": ports[setting] for interface in where}
