"""The model of the kernel's ECMP choice against the running kernel, lookup by lookup."""

from __future__ import annotations

import errno
import itertools
import random
import socket
import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from labs.forwarding.fib import Fib, FibOf, NextHop, Route, planned_fibs, read_fib
from labs.forwarding.multipath import Flow5, multipath_hash, select
from labs.forwarding.path import find_nic, walk
from labs.plan.build import build_fabric
from labs.plan.fabric import Fabric, Node
from labs.runtime.kernel import POLICY_NUMBER, node_settings
from labs.runtime.namespaces import inside
from labs.spec.fabrics import ClosSpec
from labs.spec.model import HashingSpec, HashPolicy, LabSpec
from traffic.traceroute import probe_path

NETNS = Path("/run/netns/t-path-hash")
PREFIX = "198.19.0.0/16"
FLOWS_PER_CASE = 40
SEEDS = (1, 0x5EED, 0xFFFF_FFFF)
GROUPS: tuple[tuple[int, ...], ...] = (
    *((1,) * size for size in range(2, 19)),
    (1, 2),
    (3, 1, 4, 1, 5),
    (256, 1, 7),
    (10, 20, 30, 40),
)


def run_ip(lines: Iterable[str], netns: str | None = None) -> None:
    words = ["ip", *(["-n", netns] if netns else []), "-batch", "-"]
    subprocess.run(words, input="\n".join(lines) + "\n", text=True, check=True)


@pytest.fixture(scope="module")
def router() -> Iterator[Path]:
    """A namespace with an input interface and eighteen output interfaces."""
    run_ip([f"netns add {NETNS.name}"])
    try:
        run_ip(router_configuration(), NETNS.name)
        set_sysctls({"ip_forward": 1, "conf/all/rp_filter": 0, "conf/in/rp_filter": 0})
        yield NETNS
    finally:
        run_ip([f"netns del {NETNS.name}"])


def router_configuration() -> Iterator[str]:
    for i, name in enumerate(["in", *(f"out{i}" for i in range(18))]):
        yield f"link add {name} type veth peer far{i}"
        yield f"link set far{i} up"
        yield f"link set {name} up"
        yield f"addr add 198.18.{i}.0/31 dev {name}"
    for i in range(18):
        yield f"nexthop add id {100 - i} via {gateway(i)} dev out{i}"


def set_sysctls(values: dict[str, int]) -> None:
    def write() -> None:
        for name, value in values.items():
            Path("/proc/sys/net/ipv4", name).write_text(str(value))

    inside(NETNS, write)


def gateway(i: int) -> str:
    return f"198.18.{i + 1}.1"


def install_legacy(order: Sequence[int], weights: Sequence[int]) -> None:
    hops = [
        f"nexthop via {gateway(i)} dev out{i} weight {weight}"
        for i, weight in zip(order, weights, strict=True)
    ]
    run_ip([f"route replace {PREFIX} {' '.join(hops)}"], NETNS.name)


def install_objects(order: Sequence[int], weights: Sequence[int]) -> None:
    members = "/".join(f"{100 - i},{w}" for i, w in zip(order, weights, strict=True))
    run_ip(
        [f"nexthop replace id 1000 group {members}", f"route replace {PREFIX} nhid 1000"],
        NETNS.name,
    )


NEXT_HOPS_IN_ROUTE = "next hops in the route"
INSTALL = {NEXT_HOPS_IN_ROUTE: install_legacy, "nexthop objects": install_objects}


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def kernel_choice(netlink: socket.socket, flow: Flow5, input_index: int) -> int:
    """The output interface index that RTM_GETROUTE gives for a forwarded packet of `flow`."""
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 32, 0, 0, 0, 0, 0, 0)
    body += attribute(1, socket.inet_aton(flow.destination))
    body += attribute(2, socket.inet_aton(flow.source))
    body += attribute(3, struct.pack("=I", input_index))
    body += attribute(27, bytes([flow.protocol]))
    body += attribute(28, struct.pack("!H", flow.source_port))
    body += attribute(29, struct.pack("!H", flow.destination_port))
    netlink.send(struct.pack("=IHHII", 16 + len(body), 26, 1, 1, 0) + body)
    reply = netlink.recv(65536)
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


def random_flows(count: int, generator: random.Random) -> list[Flow5]:
    return [
        Flow5(
            source=f"{generator.randrange(1, 127)}.{generator.randrange(256)}"
            f".{generator.randrange(256)}.{generator.randrange(1, 255)}",
            destination=f"198.19.{generator.randrange(256)}.{generator.randrange(1, 255)}",
            protocol=generator.choice((6, 17)),
            source_port=generator.randrange(1, 65536),
            destination_port=generator.choice((4791, generator.randrange(1, 65536))),
        )
        for _ in range(count)
    ]


def kernel_choices(flows: Sequence[Flow5]) -> list[str]:
    def look_up() -> list[str]:
        input_index = socket.if_nametoindex("in")
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
            return [socket.if_indextoname(kernel_choice(netlink, f, input_index)) for f in flows]

    return inside(NETNS, look_up)


@pytest.mark.parametrize("policy", HashPolicy)
@pytest.mark.parametrize("kind", INSTALL)
def test_the_predicted_next_hop_is_the_kernels_for_every_flow(
    router: Path, kind: str, policy: HashPolicy
) -> None:
    generator = random.Random(f"{kind} {policy}")
    set_sysctls({"fib_multipath_hash_policy": POLICY_NUMBER[policy]})
    compared = 0
    for weights in GROUPS:
        order = generator.sample(range(18), len(weights))
        INSTALL[kind](order, weights)
        for seed in SEEDS:
            set_sysctls({"fib_multipath_hash_seed": seed})
            flows = random_flows(FLOWS_PER_CASE, generator)
            predicted = [
                f"out{order[select(multipath_hash(flow, seed, policy), weights)]}" for flow in flows
            ]
            assert kernel_choices(flows) == predicted, (weights, seed)
            compared += len(flows)
    assert compared >= 1000


@pytest.mark.parametrize("ignored", [0, 1])
@pytest.mark.parametrize("kind", INSTALL)
def test_the_table_read_after_a_carrier_loss_predicts_the_kernels_choice(
    router: Path, kind: str, ignored: int
) -> None:
    order, weights = (4, 2, 9, 7), (1, 2, 1, 3)
    set_sysctls(
        {
            "conf/all/ignore_routes_with_linkdown": ignored,
            "fib_multipath_hash_policy": 1,
            "fib_multipath_hash_seed": 7,
        }
    )
    INSTALL[kind](order, weights)
    run_ip(["link set far10 down"], NETNS.name)
    try:
        route = read_fib(router).lookup("198.19.0.1")
        assert route is not None
        flows = random_flows(200, random.Random(1))
        hop_weights = [hop.weight for hop in route.next_hops]
        predicted = [
            route.next_hops[select(multipath_hash(flow, 7, HashPolicy.L4), hop_weights)].interface
            for flow in flows
        ]
        assert kernel_choices(flows) == predicted
        still_used = {hop.interface for hop in route.next_hops if not hop.carrier}
        assert still_used == ({"out9"} if kind == NEXT_HOPS_IN_ROUTE and not ignored else set())
    finally:
        run_ip(["link set far10 up", "link set out9 up"], NETNS.name)
        run_ip([f"nexthop replace id 91 via {gateway(9)} dev out9"], NETNS.name)


def test_the_table_keeps_the_kernels_order_of_a_group_and_the_lowest_metric(router: Path) -> None:
    install_objects((3, 1, 2), (1, 5, 1))
    run_ip(
        [
            f"route replace 10.1.0.0/16 via {gateway(5)} metric 20",
            f"route replace 10.1.0.0/16 via {gateway(6)} metric 10",
            "route replace blackhole 10.0.0.0/8",
        ],
        NETNS.name,
    )
    fib = read_fib(router)
    assert fib.lookup("198.19.3.4") == Route(
        PREFIX,
        (
            NextHop("out3", gateway(3), 1),
            NextHop("out1", gateway(1), 5),
            NextHop("out2", gateway(2), 1),
        ),
    )
    assert fib.lookup("10.1.2.3") == Route("10.1.0.0/16", (NextHop("out6", gateway(6)),))
    assert fib.lookup("10.2.2.3") == Route("10.0.0.0/8", ())
    assert fib.lookup("198.18.2.1") == Route("198.18.2.0/31", (NextHop("out1", None),))
    assert fib.lookup("8.8.8.8") is None


class HandMadeLab:
    """A fabric in namespaces, its switches' tables static: no routing daemon decides anything."""

    def __init__(self, fabric: Fabric, *, nexthop_objects: bool) -> None:
        self.fabric = fabric
        self.nexthop_objects = nexthop_objects

    def netns(self, node: str) -> Path:
        return Path("/run/netns", f"t-path-{node}")

    def fib_of(self, node: str) -> Fib:
        return read_fib(self.netns(node))

    def up(self) -> None:
        for node in self.fabric.nodes:
            run_ip([f"netns add t-path-{node.name}"])
        run_ip(
            f"link add {link.a.interface} netns t-path-{link.a.node} address {link.a.mac} "
            f"type veth peer name {link.b.interface} netns t-path-{link.b.node} "
            f"address {link.b.mac}"
            for link in self.fabric.links
        )
        for node in self.fabric.nodes:
            inside(self.netns(node.name), partial(self.write_sysctls, node))
            run_ip(self.addresses(node), f"t-path-{node.name}")
        planned = planned_fibs(self.fabric, self.fabric.prefixes)
        for node in self.fabric.nodes:
            run_ip(self.routes(node, planned), f"t-path-{node.name}")

    def down(self) -> None:
        names = (f"t-path-{node.name}" for node in self.fabric.nodes)
        run_ip(f"netns del {name}" for name in names if Path("/run/netns", name).exists())

    def write_sysctls(self, node: Node) -> None:
        for name, value in node_settings(self.fabric, node).items():
            Path("/proc/sys/net", name).write_text(value)

    def addresses(self, node: Node) -> Iterator[str]:
        for link in self.fabric.links_of[node.name]:
            near, far = link.port(node.name), link.far(node.name)
            yield f"addr add {near.address} dev {near.interface}"
            yield f"link set {near.interface} up"
            yield f"neigh add {far.ip} lladdr {far.mac} dev {near.interface} nud permanent"

    def routes(self, node: Node, planned: FibOf) -> Iterator[str]:
        if not node.is_switch:
            yield f"route add default via {self.fabric.uplinks(node.name)[0].b.ip}"
            return
        routes = [route for route in planned(node.name).routes if route.next_hops[0].gateway]
        identifier = 0
        for route in routes:
            if not self.nexthop_objects:
                hops = (f"nexthop via {hop.gateway}" for hop in route.next_hops)
                yield f"route add {route.prefix} {' '.join(hops)}"
                continue
            members = []
            # Highest id first: the order of a group is not the order of its members' ids.
            identifier += 1000
            for i, hop in enumerate(route.next_hops):
                members.append(str(identifier - i))
                yield f"nexthop add id {members[-1]} via {hop.gateway} dev {hop.interface}"
            identifier += 1
            yield f"nexthop add id {identifier} group {'/'.join(members)}"
            yield f"route add {route.prefix} nhid {identifier}"


FABRICS = {
    "two tiers": ClosSpec(racks=4, spines=4, servers_per_rack=1, links_per_pair=2),
    "three tiers": ClosSpec(zones=2, racks=2, spines=2, atsws=3, links_per_atsw=2),
}


@pytest.mark.parametrize("tiers", FABRICS)
@pytest.mark.parametrize("nexthop_objects", [False, True])
@pytest.mark.parametrize("policy", HashPolicy)
def test_packets_on_the_wire_take_the_predicted_path(
    tiers: str, nexthop_objects: bool, policy: HashPolicy
) -> None:
    spec = LabSpec(name="hand", fabric=FABRICS[tiers], hashing=HashingSpec(policy=policy))
    fabric = build_fabric(spec)
    generator = random.Random(tiers)
    lab = HandMadeLab(fabric, nexthop_objects=nexthop_objects)
    compared = 0
    try:
        lab.up()
        fibs = {node.name: lab.fib_of(node.name) for node in fabric.switches}
        servers = [node.name for node in fabric.servers]
        for one, other in itertools.permutations(servers, 2):
            source, destination = find_nic(fabric, one), find_nic(fabric, other)
            ports = generator.sample(range(1024, 65536), 100)
            seen = probe_path(fabric, lab.netns, source, destination, ports)
            predicted = {
                port: walk(fabric, fibs.__getitem__, source, destination, port).nodes
                for port in ports
            }
            assert seen == predicted
            assert policy is HashPolicy.L3 or len(set(seen.values())) > 1
            compared += len(ports)
    finally:
        lab.down()
    assert compared >= 1000


@pytest.fixture
def small_lab() -> Iterator[HandMadeLab]:
    fabric = build_fabric(LabSpec(name="hand", fabric=ClosSpec(racks=2, spines=1)))
    lab = HandMadeLab(fabric, nexthop_objects=False)
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


def probe_small(lab: HandMadeLab) -> set[tuple[str | None, ...]]:
    source, destination = find_nic(lab.fabric, "srv1-1"), find_nic(lab.fabric, "srv2-1")
    return set(probe_path(lab.fabric, lab.netns, source, destination, range(2000, 2050)).values())


def test_a_switch_that_does_not_answer_leaves_a_gap_in_the_path(small_lab: HandMadeLab) -> None:
    def be_silent() -> None:
        Path("/proc/sys/net/ipv4/icmp_msgs_per_sec").write_text("0")
        Path("/proc/sys/net/ipv4/icmp_msgs_burst").write_text("0")

    inside(small_lab.netns("ctsw1"), be_silent)
    assert probe_small(small_lab) == {("srv1-1", "rtsw1", None, "rtsw2", "srv2-1")}


def test_a_flow_that_does_not_arrive_ends_after_the_last_switch_that_forwarded_it(
    small_lab: HandMadeLab,
) -> None:
    run_ip(["link set srv2-1 down"], "t-path-rtsw2")
    assert probe_small(small_lab) == {("srv1-1", "rtsw1", "ctsw1", None)}
