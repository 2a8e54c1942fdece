"""A router in a namespace whose ECMP choices tests read by netlink lookups or by packets.

For groups of next hops with weights and sysctls it gives the kernel's output interface for each
flow. `in` is the router's input interface, `out0` to `out17` its outputs, and `far...` the other
ends of their cables, in the same namespace.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path

from rocelab.linux.namespaces import inside
from rocelab.routes.multipath import UDP, Flow5
from tests.helpers.waiting import LIMIT_S

NETNS = Path("/run/netns/t-path-hash")
PREFIX = "198.19.0.0/16"
PREFIX6 = "2001:db8:ffff::/48"
OUTPUTS = 18
TCP = 6

_INPUT_MAC = "02:00:00:00:00:01"
_GATEWAY_MAC = "02:00:00:00:00:02"
_ETH_P_IPV6 = 0x86DD
_PACKET_OUTGOING = 4
_SO_RCVBUFFORCE = 33
_BATCH = 200
NEXT_HOPS_IN_ROUTE, NEXTHOP_OBJECTS = "next hops in the route", "nexthop objects"
KINDS = (NEXT_HOPS_IN_ROUTE, NEXTHOP_OBJECTS)


def run_ip(lines: Iterable[str], netns: str | None = None) -> None:
    words = ["ip", *(["-n", netns] if netns else []), "-batch", "-"]
    subprocess.run(words, input="\n".join(lines) + "\n", text=True, check=True)


def running_router() -> Iterator[Path]:
    """The namespace, until the generator is closed."""
    run_ip([f"netns add {NETNS.name}"])
    try:
        set_sysctls({"ipv6/conf/default/accept_dad": 0, "ipv6/conf/all/forwarding": 1})
        run_ip(_configuration(), NETNS.name)
        set_sysctls(
            {"ipv4/ip_forward": 1, "ipv4/conf/all/rp_filter": 0, "ipv4/conf/in/rp_filter": 0}
        )
        yield NETNS
    finally:
        run_ip([f"netns del {NETNS.name}"])


def _configuration() -> Iterator[str]:
    yield f"link add in address {_INPUT_MAC} type veth peer far0"
    for i in range(OUTPUTS):
        yield f"link add out{i} type veth peer far{i + 1}"
    for i, name in enumerate(["in", *(f"out{i}" for i in range(OUTPUTS))]):
        yield f"link set far{i} up"
        yield f"link set {name} up"
        yield f"addr add 198.18.{i}.0/31 dev {name}"
        yield f"addr add 2001:db8:{i:x}::/127 dev {name}"
    for i in range(OUTPUTS):
        yield f"neigh add {gateway6(i)} lladdr {_GATEWAY_MAC} dev out{i} nud permanent"
        yield f"nexthop add id {100 - i} via {gateway(i)} dev out{i}"
        yield f"nexthop add id {200 - i} via {gateway6(i)} dev out{i}"


def set_sysctls(values: Mapping[str, int]) -> None:
    """Write settings below /proc/sys/net in the router."""

    def write() -> None:
        for name, value in values.items():
            Path("/proc/sys/net", name).write_text(str(value))

    inside(NETNS, write)


def gateway(i: int) -> str:
    return f"198.18.{i + 1}.1"


def gateway6(i: int) -> str:
    return f"2001:db8:{i + 1:x}::1"


def install(
    kind: str, order: Sequence[int], weights: Sequence[int], *, v6: bool = False, group: str = ""
) -> None:
    """Route the prefix over `order`'s outputs. `group`: additional words for the nexthop object."""
    prefix, via = (PREFIX6, gateway6) if v6 else (PREFIX, gateway)
    if v6:
        # A replacement with fewer next hops would leave some of the old ones.
        run_ip([f"route flush {prefix}"], NETNS.name)
    if kind == NEXT_HOPS_IN_ROUTE:
        hops = (
            f"nexthop via {via(i)} dev out{i} weight {w}"
            for i, w in zip(order, weights, strict=True)
        )
        run_ip([f"route replace {prefix} {' '.join(hops)}"], NETNS.name)
        return
    first, group_id = (200, 2000) if v6 else (100, 1000)
    members = "/".join(f"{first - i},{w}" for i, w in zip(order, weights, strict=True))
    run_ip(
        [
            f"nexthop replace id {group_id} group {members} {group}",
            f"route replace {prefix} nhid {group_id}",
        ],
        NETNS.name,
    )


def random_flows(count: int, generator: random.Random, *, v6: bool = False) -> list[Flow5]:
    return [
        Flow5(
            *(_random_addresses6(generator) if v6 else _random_addresses(generator)),
            protocol=generator.choice((TCP, UDP)),
            source_port=generator.randrange(1, 65536),
            destination_port=generator.choice((4791, generator.randrange(1, 65536))),
            flow_label=generator.choice((0, generator.randrange(1 << 20))) if v6 else 0,
        )
        for _ in range(count)
    ]


def _random_addresses(generator: random.Random) -> tuple[str, str]:
    return (
        f"{generator.randrange(1, 127)}.{generator.randrange(256)}"
        f".{generator.randrange(256)}.{generator.randrange(1, 255)}",
        f"198.19.{generator.randrange(256)}.{generator.randrange(1, 255)}",
    )


def _random_addresses6(generator: random.Random) -> tuple[str, str]:
    """Source above and below the destination, in 2000::/3."""
    source = generator.randrange(1 << 125) | 1 << 125
    destination = int(ip_address("2001:db8:ffff::")) | generator.randrange(1, 1 << 80)
    return str(ip_address(source)), str(ip_address(destination))


def kernel_choices(flows: Sequence[Flow5]) -> list[str]:
    """The output interfaces that RTM_GETROUTE gives for forwarded IPv4 packets of these flows."""

    def look_up() -> list[str]:
        names = dict(socket.if_nameindex())
        input_index = socket.if_nametoindex("in")
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
            netlink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 22)
            ports: list[str] = []
            for start in range(0, len(flows), _BATCH):
                requests = [_request(f, input_index) for f in flows[start : start + _BATCH]]
                netlink.send(b"".join(requests))
                ports += [names[_output(netlink.recv(65536))] for _ in requests]
        return ports

    return inside(NETNS, look_up)


def _request(flow: Flow5, input_index: int) -> bytes:
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 32, 0, 0, 0, 0, 0, 0)
    body += _attribute(1, socket.inet_aton(flow.destination))
    body += _attribute(2, socket.inet_aton(flow.source))
    body += _attribute(3, struct.pack("=I", input_index))
    body += _attribute(27, bytes([flow.protocol]))
    body += _attribute(28, struct.pack("!H", flow.source_port))
    body += _attribute(29, struct.pack("!H", flow.destination_port))
    return struct.pack("=IHHII", 16 + len(body), 26, 1, 1, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _output(reply: bytes) -> int:
    kind = struct.unpack_from("=H", reply, 4)[0]
    if kind == 2:
        code = -struct.unpack_from("=i", reply, 16)[0]
        raise OSError(code, errno.errorcode[code])
    offset = 16 + 12
    while offset < len(reply):
        length, kind = struct.unpack_from("=HH", reply, offset)
        if kind == 4:
            return int(struct.unpack_from("=I", reply, offset + 4)[0])
        offset += -(-length // 4) * 4
    raise AssertionError("no RTA_OIF in the kernel's answer")


def forwarded(flows: Sequence[Flow5]) -> list[str]:
    """The output interfaces by which an IPv6 packet of each flow left, as the far ends saw them.

    Raises TimeoutError if a packet does not come out.
    """
    return inside(NETNS, lambda: _send_and_see(flows))


def _send_and_see(flows: Sequence[Flow5]) -> list[str]:
    seen: dict[int, str] = {}
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender,
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IPV6)) as watcher,
    ):
        sender.bind(("far0", 0))
        watcher.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 24)
        watcher.settimeout(LIMIT_S)
        nonce = os.urandom(4)
        for start in range(0, len(flows), _BATCH):
            part = range(start, min(start + _BATCH, len(flows)))
            for number in part:
                sender.send(_frame(flows[number], nonce + struct.pack("!I", number)))
            while len(seen) < part.stop:
                packet, (interface, _, kind, _, _) = watcher.recvfrom(2048)
                leaves = interface.startswith("far") and interface != "far0"
                if leaves and kind != _PACKET_OUTGOING and packet[-8:-4] == nonce:
                    number = struct.unpack("!I", packet[-4:])[0]
                    seen[number] = f"out{int(interface.removeprefix('far')) - 1}"
    return [seen[number] for number in range(len(flows))]


def _frame(flow: Flow5, payload: bytes) -> bytes:
    """An Ethernet frame to the router; forwarding does not check its checksums."""
    ports = struct.pack("!HH", flow.source_port, flow.destination_port)
    if flow.protocol == UDP:
        transport = ports + struct.pack("!HH", 8 + len(payload), 0)
    else:
        transport = ports + struct.pack("!IIBBHHH", 0, 0, 5 << 4, 0x10, 0, 0, 0)
    ip = struct.pack(
        "!IHBB", 6 << 28 | flow.flow_label, len(transport) + len(payload), flow.protocol, 64
    )
    addresses = ip_address(flow.source).packed + ip_address(flow.destination).packed
    macs = bytes.fromhex((_INPUT_MAC + _GATEWAY_MAC).replace(":", ""))
    return macs + struct.pack("!H", _ETH_P_IPV6) + ip + addresses + transport + payload
