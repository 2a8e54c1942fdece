"""The netlink messages that give a leaf the bridge and the tunnel of each of its tenants, and the
sysctls of these.

Pure. A tunnel copies DSCP, ECN bits (RFC 6040) and TTL of a packet into its outer header, so that
queues between switches see what they would see without it, and a probe's TTL expires there too.
What a leaf knows of other leaves comes from EVPN: the tunnel learns nothing by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocelab.linux import rtnetlink
from rocelab.linux.links import IFF_UP
from rocelab.linux.settings import port_setting
from rocelab.planning.fabric import Fabric, Node
from rocelab.planning.tenancy import tenant_links
from rocelab.planning.tenant import Tenant
from rocelab.wire.vxlan import FIRST_SOURCE_PORT, LAST_SOURCE_PORT, VXLAN_PORT

INHERIT = 1
"""As TOS: that of the packet inside (drivers/net/vxlan/vxlan_core.c, vxlan_xmit_one)."""
AGEING_CENTISECONDS = 86400 * 100
"""A leaf forgets a MAC when its port loses carrier, and not because a NIC is silent."""
ARP_IGNORE_ALL = "8"


def tunnel_messages(fabric: Fabric, node: Node) -> list[bytes]:
    """The messages that make a leaf's bridges and tunnels, and their ports; its ports must be
    there."""
    messages = []
    for tenant, links in tenant_links(fabric, node.name).items():
        assert node.loopback is not None
        mtu = min(link.mtu for link in links)
        messages += [
            rtnetlink.new_link(
                [
                    ("IFLA_IFNAME", tenant.bridge),
                    rtnetlink.bridge(
                        [
                            ("IFLA_BR_AGEING_TIME", AGEING_CENTISECONDS),
                            ("IFLA_BR_STP_STATE", 0),
                            ("IFLA_BR_MCAST_SNOOPING", 0),
                        ]
                    ),
                ],
                index=tenant.bridge_index,
            ),
            rtnetlink.new_link(
                [("IFLA_IFNAME", tenant.tunnel), ("IFLA_MTU", mtu), _tunnel(tenant, node.loopback)],
                index=tenant.tunnel_index,
            ),
            _join(tenant.tunnel_index, tenant),
            rtnetlink.change_link(
                [
                    rtnetlink.bridge_port(
                        [
                            ("IFLA_BRPORT_LEARNING", 0),
                            ("IFLA_BRPORT_NEIGH_SUPPRESS", int(tenant.arp_suppression)),
                        ]
                    )
                ],
                index=tenant.tunnel_index,
            ),
            *(_join(link.b.index, tenant) for link in links),
            *(
                rtnetlink.change_link(index=index, flags=IFF_UP, change=IFF_UP)
                for index in (tenant.tunnel_index, tenant.bridge_index)
            ),
        ]
    return messages


def _tunnel(tenant: Tenant, loopback: str) -> rtnetlink.Attribute:
    return rtnetlink.vxlan(
        [
            ("IFLA_VXLAN_ID", tenant.vni),
            ("IFLA_VXLAN_LOCAL", loopback),
            ("IFLA_VXLAN_PORT", VXLAN_PORT),
            ("IFLA_VXLAN_PORT_RANGE", (FIRST_SOURCE_PORT, LAST_SOURCE_PORT)),
            ("IFLA_VXLAN_LEARNING", 0),
            ("IFLA_VXLAN_TOS", INHERIT),
            ("IFLA_VXLAN_TTL_INHERIT", b""),
            # RFC 7348, section 5: it should be sent as zero.
            ("IFLA_VXLAN_UDP_CSUM", 0),
        ]
    )


def _join(index: int, tenant: Tenant) -> bytes:
    return rtnetlink.change_link([("IFLA_MASTER", tenant.bridge_index)], index=index)


def tunnel_settings(fabric: Fabric, node: Node) -> Mapping[str, str]:
    """The sysctls of a leaf's bridges and tunnels below /proc/sys/net: it bridges tenants' packets
    and routes none, and answers no ARP of theirs with an address of its own."""
    settings: dict[str, str] = {}
    for tenant in tenant_links(fabric, node.name):
        for device in (tenant.bridge, tenant.tunnel):
            settings |= {
                port_setting("ipv6/disable_ipv6", device): "1",
                port_setting("ipv4/forwarding", device): "0",
                port_setting("ipv4/arp_ignore", device): ARP_IGNORE_ALL,
            }
        if tenant.arp_suppression:
            # What neighbours announce of themselves zebra reads here, and EVPN announces it.
            settings[port_setting("ipv4/arp_accept", tenant.bridge)] = "1"
    return settings
