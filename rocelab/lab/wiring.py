"""The netlink messages that turn a planned fabric into interfaces, as batches of bytes.

Pure: encodes messages from a `Fabric` and open namespace descriptors. Interface indexes are
planned too, so that addresses can be set without reading the kernel's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_interface
from typing import TYPE_CHECKING

from rocelab.base.family import Family
from rocelab.linux import rtnetlink
from rocelab.linux.fib import RT_TABLE_MAIN, RTN_UNICAST, RTPROT_KERNEL
from rocelab.linux.links import IF_LINK_MODE_DORMANT, IF_OPER_DORMANT, IFF_UP, NUD_PERMANENT
from rocelab.linux.portstate import RTPROT_STATIC

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric, Link, Nic, Node, Port

LOOPBACK_INDEX = 1
LONGEST_PACKETS = 32767
"""A port's txqueuelen, the most that recent kernels take. Queues are limited in bytes; if packets
are so small that this limit comes first, the engine `bpf` drops and counts the rest."""
PREFIX_METRIC = 256
"""IP6_RT_PRIO_ADDRCONF of include/net/ip6_fib.h: of routes that come with addresses."""
RT_SCOPE_LINK = 253
IF_LINK_MODE_DEFAULT = 0
IF_OPER_UP = 6
"""include/uapi/linux/if.h."""


def create_links(
    links: Iterable[Link],
    namespaces: Mapping[str, int],
    slots: Mapping[tuple[str, str], int],
) -> list[bytes]:
    """A veth pair per link, each end made in its node's namespace, down.

    A port with queues has its slot (`rocelab.planning.queues`) as group, and no packet limit.
    """
    return [_veth(link, namespaces, slots) for link in links]


def configure_node(fabric: Fabric, node: Node) -> list[bytes]:
    """The messages that set a node's loopback up with every address."""
    messages = [set_up(LOOPBACK_INDEX, up=True)]
    for loopback in (node.loopback, node.other_loopback):
        if loopback is not None:
            length = Family.of(loopback).bits
            messages.append(_address(LOOPBACK_INDEX, f"{loopback}/{length}", loopback))
    for link in fabric.links_of[node.name]:
        port, far = link.port(node.name), link.far(node.name)
        ends = ((port.address, far.address), (port.other_address, far.other_address))
        for address, far_address in ends:
            if address is not None:
                peer = far_address if port.is_shared and far_address else address
                messages.append(_address(port.index, address, _ip(peer)))
    return messages


def server_routes(fabric: Fabric, server: str) -> list[bytes]:
    """What makes a server send by the NIC of a packet's source address, and by its first NIC what
    is bound to none, unless that is for another network: a default route for each NIC, and a rule
    for each but the first; of each family that the lab has."""
    nics = fabric.nics(server)
    routes = [message for nic in nics for message in default_routes(nic)]
    routes += [
        message
        for nic in nics
        if nic.number > 1 and fabric.tenant_of(nic) is not None
        for message in _subnet_routes(nic)
    ]
    return [
        *routes,
        *(rule for nic in nics if nic.table != RT_TABLE_MAIN for rule in _source_rules(nic)),
    ]


def default_routes(nic: Nic, *, by: Sequence[Link] | None = None) -> list[bytes]:
    """The default route of each family through a NIC, over all its ports, in the NIC's table, and
    in the main table the routes to the destinations of its network that packets bound to no
    address take. It must be up.

    Replaces existing ones. `by`: only over these ports of the NIC, if others are down.
    """
    links = nic.links if by is None else by
    gateways = (
        [(link.a.index, link.b.address) for link in links],
        [(link.a.index, link.b.other_address) for link in links],
    )
    routes = []
    for ends in gateways:
        hops = [rtnetlink.GatewayHop(index, _ip(end)) for index, end in ends if end]
        if not hops:
            continue
        family = Family.of(hops[0].gateway)
        over = ("RTA_MULTIPATH", hops)
        fields = {"family": family.number, "proto": RTPROT_STATIC, "type": RTN_UNICAST}
        routes.append(rtnetlink.put_route([over], table=nic.table, **fields))
        for prefix in nic.destinations:
            if Family.of(prefix) is family:
                address, _, length = prefix.partition("/")
                routes.append(
                    rtnetlink.put_route(
                        [("RTA_DST", address), over],
                        dst_len=int(length),
                        table=RT_TABLE_MAIN,
                        **fields,
                    )
                )
    return routes


def _subnet_routes(nic: Nic) -> Iterator[bytes]:
    """The routes to the subnet of a tenant's NIC in the NIC's own table."""
    port = nic.links[0].a
    for address in filter(None, (port.address, port.other_address)):
        network = ip_interface(address).network
        yield rtnetlink.put_route(
            [("RTA_DST", str(network.network_address)), ("RTA_OIF", port.index)],
            family=Family.of(address).number,
            dst_len=network.prefixlen,
            table=nic.table,
            proto=RTPROT_STATIC,
            scope=RT_SCOPE_LINK,
            type=RTN_UNICAST,
        )


def _source_rules(nic: Nic) -> Iterator[bytes]:
    port = nic.links[0].a
    for address in (port.address, port.other_address):
        if address is not None:
            family = Family.of(address)
            yield rtnetlink.add_rule(
                [("FRA_SRC", _ip(address)), ("FRA_PRIORITY", nic.table)],
                family=family.number,
                src_len=family.bits,
                table=nic.table,
                action=rtnetlink.FR_ACT_TO_TBL,
            )


def set_up(index: int, *, up: bool) -> bytes:
    """The message that sets an interface up or down."""
    return rtnetlink.change_link(index=index, flags=IFF_UP if up else 0, change=IFF_UP)


def set_mtu(index: int, mtu: int) -> bytes:
    """The message that sets an interface's MTU, in bytes of an IP packet."""
    return rtnetlink.change_link([("IFLA_MTU", mtu)], index=index)


def set_dormant(index: int, *, dormant: bool) -> bytes:
    """The message that clears an interface's flag IFF_RUNNING, or sets it again.

    The peer does not see it. Programs that read flags, such as zebra, see the carrier gone; the
    kernel itself continues to send and receive (Documentation/networking/operstates.rst).
    """
    state = IF_OPER_DORMANT if dormant else IF_OPER_UP
    mode = IF_LINK_MODE_DORMANT if dormant else IF_LINK_MODE_DEFAULT
    return rtnetlink.change_link([("IFLA_OPERSTATE", state), ("IFLA_LINKMODE", mode)], index=index)


def bring_up(link: Link, node: str) -> list[bytes]:
    """The messages that set a node's end of a link up, with a permanent neighbour entry for each
    address of the far end.

    Within a tenant neighbours are found by ARP.

    The kernel's neighbour table is one for all namespaces and holds 1,024 entries (gc_thresh3);
    permanent entries do not count. Taking an interface down flushes them, so they are set whenever
    it goes up.
    """
    index, far = link.port(node).index, link.far(node)
    if is_bridged(link):
        return [set_up(index, up=True)]
    neighbours = [
        rtnetlink.put_neighbour(
            [("NDA_DST", address), ("NDA_LLADDR", far.mac)],
            family=Family.of(address).number,
            ifindex=index,
            state=NUD_PERMANENT,
        )
        for address in _addresses(link, far)
    ]
    return [set_up(index, up=True), *neighbours, *_peer_routes(link, node)]


def is_bridged(link: Link) -> bool:
    """Whether the upper end of a link is a port of a bridge: it has no address, and the lower end
    has one."""
    return link.a.address is not None and link.b.address is None


def _peer_routes(link: Link, node: str) -> Iterator[bytes]:
    """The routes over a node's end of a link to IPv6 addresses of the far end that are not of one
    network with its own. With an address the kernel sets such a route too, but only where the
    interface is up, and no more when it goes up (net/ipv6/addrconf.c, fixup_permanent_addr)."""
    port, far = link.port(node), link.far(node)
    for address, peer in (
        (port.address, far.address),
        (port.other_address, far.other_address),
    ):
        if address and peer and address.endswith("/128"):
            yield rtnetlink.put_route(
                [("RTA_DST", _ip(peer)), ("RTA_OIF", port.index), ("RTA_PRIORITY", PREFIX_METRIC)],
                family=Family.IPV6.number,
                dst_len=Family.IPV6.bits,
                table=RT_TABLE_MAIN,
                proto=RTPROT_KERNEL,
                type=RTN_UNICAST,
            )


def _addresses(link: Link, port: Port) -> list[str]:
    """The addresses of a port of the link at which others reach it."""
    addresses = [_ip(address) for address in (port.address, port.other_address) if address]
    has_ipv6 = any(Family.of(address) is Family.IPV6 for address in addresses)
    if not addresses or (has_ipv6 and link.is_between_switches):
        addresses.append(port.link_local)  # next hops of IPv6 are these
    return addresses


def _veth(
    link: Link,
    namespaces: Mapping[str, int],
    slots: Mapping[tuple[str, str], int],
) -> bytes:
    def attributes(port: Port) -> list[tuple[str, object]]:
        slot = slots.get((port.node, port.interface))
        queued = [("IFLA_GROUP", slot), ("IFLA_TXQLEN", LONGEST_PACKETS)] if slot else []
        # Queues are of packets as on a wire: the kernel sends none as one, and merges none.
        whole = [("IFLA_GSO_MAX_SEGS", 1), ("IFLA_GRO_MAX_SIZE", 1)] if slots else []
        return [
            *queued,
            *whole,
            ("IFLA_IFNAME", port.interface),
            ("IFLA_MTU", link.mtu),
            ("IFLA_ADDRESS", port.mac),
            ("IFLA_NUM_TX_QUEUES", 1),
            ("IFLA_NUM_RX_QUEUES", 1),
            ("IFLA_NET_NS_FD", namespaces[port.node]),
        ]

    peer = rtnetlink.veth_to(attributes(link.b), index=link.b.index)
    return rtnetlink.new_link([*attributes(link.a), peer], index=link.a.index)


def _address(index: int, address: str, peer: str) -> bytes:
    """`peer` is the far end's address on a point-to-point link."""
    ip, _, length = address.partition("/")
    return rtnetlink.new_address(
        [("IFA_LOCAL", ip), ("IFA_ADDRESS", peer)],
        family=Family.of(ip).number,
        prefixlen=int(length),
        index=index,
    )


def _ip(address: str) -> str:
    """An address without its length."""
    return address.partition("/")[0]
