"""The model of the kernel's ECMP choice against the running kernel, lookup by lookup."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.jobs.placement import find_nic
from rocelab.labfile.model import MAX_SEED, HashField, HashingSpec, HashPolicy, LabSpec
from rocelab.linux import netlink
from rocelab.linux.fib import NHA_ID, NHMSG, read_fib, read_objects
from rocelab.linux.fibtable import Fib, FibOf, NextHop, Route
from rocelab.linux.namespaces import inside
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric, Node
from rocelab.planning.settings import FIELD_BIT, POLICY_NUMBER, node_settings
from rocelab.routes.bulk import multipath_hashes, select_all, select_buckets
from rocelab.routes.multipath import multipath_hash, select
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from rocelab.routes.resilient import filled, without
from rocelab.traffic.traceroute import probe_path
from tests.helpers.flow_columns import as_columns
from tests.helpers.hash_router import (
    KINDS,
    NETNS,
    NEXT_HOPS_IN_ROUTE,
    NEXTHOP_OBJECTS,
    PREFIX,
    forwarded,
    gateway,
    install,
    kernel_choices,
    random_flows,
    run_ip,
    running_router,
    set_sysctls,
)
from tests.helpers.long import mostly_long
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.side_by_side

# include/uapi/linux/rtnetlink.h and nexthop.h
RTM_GETNEXTHOPBUCKET = 118
NHA_RES_BUCKET = 13
NHA_RES_BUCKET_INDEX, NHA_RES_BUCKET_NH_ID = 1, 3


FLOWS_PER_CASE = 40
SEEDS = (1, 0x5EED, 0xFFFF_FFFF)
GROUPS: tuple[tuple[int, ...], ...] = (
    *((1,) * size for size in range(2, 19)),
    (1, 2),
    (3, 1, 4, 1, 5),
    (256, 1, 7),
    (10, 20, 30, 40),
)
RANDOM_CASES = 25


@pytest.fixture(scope="module")
def router() -> Iterator[Path]:
    """A namespace with an input interface and eighteen output interfaces."""
    yield from running_router()


def random_fields(generator: random.Random) -> tuple[HashField, ...]:
    return tuple(generator.sample(list(HashField), generator.randint(1, len(HashField))))


def set_hashing(
    policy: HashPolicy, fields: Sequence[HashField], seed: int, *, v6: bool = False
) -> None:
    family = "ipv6" if v6 else "ipv4"
    settings = {
        f"{family}/fib_multipath_hash_policy": POLICY_NUMBER[policy],
        "ipv4/fib_multipath_hash_seed": seed,
    }
    if fields:
        settings[f"{family}/fib_multipath_hash_fields"] = sum(FIELD_BIT[field] for field in fields)
    set_sysctls(settings)


@pytest.mark.parametrize("policy", [HashPolicy.L3, HashPolicy.L4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_predicted_next_hop_is_the_kernels_for_every_flow(
    router: Path, kind: str, policy: HashPolicy
) -> None:
    generator = random.Random(f"{kind} {policy}")
    compared = 0
    for weights in GROUPS:
        order = generator.sample(range(18), len(weights))
        install(kind, order, weights)
        for seed in SEEDS:
            set_hashing(policy, (), seed)
            flows = random_flows(FLOWS_PER_CASE, generator)
            predicted = [
                f"out{order[select(multipath_hash(flow, seed, policy), weights)]}" for flow in flows
            ]
            assert kernel_choices(flows) == predicted, (weights, seed)
            compared += len(flows)
    assert compared >= 1000


@pytest.mark.parametrize("v6", [False, True], ids=["lookups in IPv4", "packets in IPv6"])
@pytest.mark.parametrize("policy", HashPolicy)
@pytest.mark.parametrize("kind", KINDS)
def test_random_weights_seeds_and_fields_are_predicted_for_every_flow(
    router: Path, kind: str, policy: HashPolicy, v6: bool
) -> None:
    generator = random.Random(f"{kind} {policy} {v6}")
    taken = set()
    compared = 0
    for _ in range(RANDOM_CASES):
        weights = [generator.randint(1, 256) for _ in range(generator.randint(2, 16))]
        order = generator.sample(range(18), len(weights))
        install(kind, order, weights, v6=v6)
        seed = generator.randint(1, MAX_SEED)
        fields = random_fields(generator) if policy is HashPolicy.CUSTOM else ()
        set_hashing(policy, fields, seed, v6=v6)
        flows = random_flows(FLOWS_PER_CASE, generator, v6=v6)
        hashes = multipath_hashes(as_columns(flows), seed, policy, fields)
        assert hashes.tolist() == [multipath_hash(flow, seed, policy, fields) for flow in flows]
        predicted = [f"out{order[i]}" for i in select_all(hashes, weights)]
        assert (forwarded if v6 else kernel_choices)(flows) == predicted, (weights, seed, fields)
        taken |= set(predicted)
        compared += len(flows)
    assert len(taken) == 18
    assert compared == 1000


def resilient(buckets: int) -> str:
    return f"type resilient buckets {buckets} idle_timer 3600"


def fresh_resilient_group(
    order: Sequence[int], weights: Sequence[int], buckets: int, *, v6: bool = False
) -> None:
    """Make a new group, because a replaced group keeps its old table."""
    number = 2000 if v6 else 1000
    remove = f"ip -n {NETNS.name} nexthop del id {number}"
    subprocess.run(remove.split(), check=False, capture_output=True)
    install(NEXTHOP_OBJECTS, order, weights, v6=v6, group=resilient(buckets))


@pytest.mark.parametrize("v6", [False, True], ids=["lookups in IPv4", "packets in IPv6"])
def test_resilient_groups_start_with_the_predicted_table_and_take_the_predicted_member(
    router: Path, v6: bool
) -> None:
    generator = random.Random("resilient")
    number = 2000 if v6 else 1000
    compared = 0
    try:
        for _ in range(RANDOM_CASES):
            weights = [generator.randint(1, 256) for _ in range(generator.randint(2, 16))]
            order = generator.sample(range(18), len(weights))
            buckets = generator.randint(len(weights), 1000)
            fresh_resilient_group(order, weights, buckets, v6=v6)
            group = resilient_group(router, number)
            table = filled([None] * buckets, weights)
            assert group.weights == tuple(weights)
            assert group.buckets == tuple(group.members[i] for i in table)
            seed = generator.randint(1, MAX_SEED)
            set_hashing(HashPolicy.L4, (), seed, v6=v6)
            flows = random_flows(FLOWS_PER_CASE, generator, v6=v6)
            hashes = multipath_hashes(as_columns(flows), seed, HashPolicy.L4)
            predicted = [f"out{order[i]}" for i in select_buckets(hashes, table)]
            assert predicted == [
                f"out{order[group.members.index(group.buckets[value % buckets])]}"
                for value in hashes.tolist()
            ]
            assert (forwarded if v6 else kernel_choices)(flows) == predicted
            compared += len(flows)
    finally:
        subprocess.run(f"ip -n {NETNS.name} nexthop del id {number}".split(), check=True)
    assert compared == 1000


@pytest.mark.parametrize("flows_before", [0, 5, 500])
def test_a_lost_member_of_a_resilient_group_leaves_the_predicted_table(
    router: Path, flows_before: int
) -> None:
    generator = random.Random("lost member")
    set_hashing(HashPolicy.L4, (), 7)
    other_members_moved = 0
    try:
        for _ in range(RANDOM_CASES):
            weights = [generator.randint(1, 256) for _ in range(generator.randint(3, 16))]
            order = generator.sample(range(18), len(weights))
            buckets = generator.randint(len(weights), 100)
            fresh_resilient_group(order, weights, buckets)
            # A use in the very tick in which a bucket was filled does not count.
            time.sleep(0.02)
            flows = random_flows(flows_before, generator)
            kernel_choices(flows)
            busy = {multipath_hash(flow, 7, HashPolicy.L4) % buckets for flow in flows}
            before = resilient_group(router, 1000)
            lost = generator.randrange(len(weights))
            table = [before.members.index(bucket) for bucket in before.buckets]
            predicted = without(table, weights, lost, busy)
            out = order[lost]
            run_ip([f"nexthop del id {100 - out}"], NETNS.name)
            after = resilient_group(router, 1000)
            run_ip([f"nexthop add id {100 - out} via {gateway(out)} dev out{out}"], NETNS.name)
            assert after.buckets == tuple(before.members[i] for i in predicted)
            moved = {old for old, new in zip(table, predicted, strict=True) if old != new}
            other_members_moved += len(moved - {lost})
    finally:
        subprocess.run(f"ip -n {NETNS.name} nexthop del id 1000".split(), check=True)
    assert (other_members_moved > 0) == (flows_before < 500)


class ResilientGroup(NamedTuple):
    """As the kernel holds it: ids and weights of its members, and the id in each bucket."""

    members: tuple[int, ...]
    weights: tuple[int, ...]
    buckets: tuple[int, ...]


def resilient_group(router: Path, number: int) -> ResilientGroup:
    def read() -> ResilientGroup:
        with netlink.open_socket() as channel:
            group = read_objects(channel)[1][number]
            answers = netlink.dump(channel, RTM_GETNEXTHOPBUCKET, bytes(NHMSG.size))
        table = {}
        for answer in answers:
            attributes = netlink.attributes(answer, NHMSG.size)
            if netlink.number(attributes[NHA_ID]) == number:
                bucket = netlink.attributes(attributes[NHA_RES_BUCKET])
                index = netlink.number(bucket[NHA_RES_BUCKET_INDEX])
                table[index] = netlink.number(bucket[NHA_RES_BUCKET_NH_ID])
        members, weights = zip(*group.members, strict=True)
        return ResilientGroup(
            members, weights, tuple(table[number] for number in range(len(table)))
        )

    return inside(router, read)


def operational_state(interface: str) -> str:
    """IF_OPER_* as iproute2 shows it."""
    command = ["ip", "-n", NETNS.name, "-json", "link", "show", interface]
    document = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return str(document[0]["operstate"])


@pytest.mark.parametrize("ignored", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_table_read_after_a_carrier_loss_predicts_the_kernels_choice(
    router: Path, kind: str, ignored: int
) -> None:
    order, weights = (4, 2, 9, 7), (1, 2, 1, 3)
    set_sysctls(
        {
            "ipv4/conf/all/ignore_routes_with_linkdown": ignored,
            "ipv4/fib_multipath_hash_policy": 1,
            "ipv4/fib_multipath_hash_seed": 7,
        }
    )
    install(kind, order, weights)
    run_ip(["link set far10 down"], NETNS.name)
    # The kernel tells the routes of it when it comes to it (net/core/link_watch.c).
    wait_until(lambda: operational_state("out9") != "UP")
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
    install(NEXTHOP_OBJECTS, (3, 1, 2), (1, 5, 1))
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
    """A fabric in namespaces with static tables: no routing daemon decides anything."""

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
        # The kernel notes a carrier after the call that brings it, and leaves out what has none.
        wait_until(self.is_whole, "every carrier")

    def is_whole(self) -> bool:
        tables = (self.fib_of(node.name) for node in self.fabric.nodes)
        return all(
            route.next_hops and all(hop.carrier for hop in route.next_hops)
            for table in tables
            for route in table.routes
        )

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

HASHINGS = (
    HashingSpec(policy=HashPolicy.L3),
    HashingSpec(policy=HashPolicy.L4),
    HashingSpec(policy=HashPolicy.CUSTOM, fields=(HashField.DESTINATION_IP, HashField.SOURCE_PORT)),
)


@pytest.mark.parametrize("tiers", mostly_long(FABRICS, ("two tiers",)))
@pytest.mark.parametrize("nexthop_objects", [False, True])
@pytest.mark.parametrize("hashing", HASHINGS, ids=lambda hashing: hashing.policy.value)
def test_packets_on_the_wire_take_the_predicted_path(
    tiers: str, nexthop_objects: bool, hashing: HashingSpec
) -> None:
    spec = LabSpec(name="hand", fabric=FABRICS[tiers], hashing=hashing)
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
            assert hashing.policy is HashPolicy.L3 or len(set(seen.values())) > 1
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
