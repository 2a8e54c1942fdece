"""The model of the schemes: hashes, pins, and which paths can be said before a packet is sent."""

from __future__ import annotations

from collections import Counter
from functools import cache
from ipaddress import IPv4Address

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.kinds.hpn import HpnSpec
from rocelab.fabrics.roles import Role
from rocelab.jobs.placement import find_nic
from rocelab.labfile.model import HashingSpec, LabSpec, SeedPlan
from rocelab.labfile.schemes.base import Headers, Treatment
from rocelab.labfile.schemes.e_ecmp import EEcmpScheme
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.flowlet import FlowletScheme
from rocelab.labfile.schemes.path_pinning import PathPinningScheme
from rocelab.labfile.schemes.resilient import ResilientScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.labfile.schemes.spray import SprayScheme
from rocelab.labfile.schemes.te import TeScheme
from rocelab.linux.fibtable import FibOf
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.routes.bulk import field_hashes
from rocelab.routes.multipath import UDP, Flow5, select
from rocelab.routes.path import Path, walk
from rocelab.routes.planned import planned_fibs
from rocelab.routes.steering import (
    ROCE_PORT,
    EntryKey,
    PinKey,
    SteeringModel,
    field_hash,
    planned_pins,
    steering_hash,
)

ZONE = ClosSpec(racks=3, spines=4, servers_per_rack=2, nics_per_server=3)
THREE_TIERS = ClosSpec(zones=2, racks=2, spines=2, atsws=3, servers_per_rack=2)
E_ECMP, SPRAY = EEcmpScheme(kind="e-ecmp"), SprayScheme(kind="spray")
PINNING, FLOWLET = PathPinningScheme(kind="path-pinning"), FlowletScheme(kind="flowlet")
TE, RESILIENT = TeScheme(kind="te"), ResilientScheme(kind="resilient")

ADDRESSES = st.integers(0, 2**32 - 1)
PORTS = st.integers(0, 2**16 - 1)
QPS = st.integers(0, 2**24 - 1)


@cache
def fabric_of(kind: str, seed: SeedPlan | int = SeedPlan.PER_NODE) -> Fabric:
    shapes: dict[str, ClosSpec | HpnSpec] = {
        "zone": ZONE,
        "three tiers": THREE_TIERS,
        "hpn": HpnSpec(
            kind="hpn",
            segments=2,
            servers_per_segment=2,
            rails=2,
            ports_per_nic=2,
            planes=2,
            aggs=2,
            cores=2,
        ),
    }
    return build_fabric(LabSpec(name="lab", fabric=shapes[kind], hashing=HashingSpec(seed=seed)))


@cache
def tables_of(kind: str) -> FibOf:
    fabric = fabric_of(kind)
    return planned_fibs(fabric, fabric.prefixes)


def planned_walk(
    kind: str, ends: tuple[str, str], port: int, qp: int | None, model: SteeringModel
) -> Path:
    source, destination = (find_nic(model.fabric, name) for name in ends)
    return walk(
        model.fabric,
        tables_of(kind),
        source,
        destination,
        port,
        destination_qp=qp,
        steering=model,
    )


@given(st.lists(st.tuples(ADDRESSES, ADDRESSES, PORTS, QPS), min_size=1), ADDRESSES)
def test_hashes_of_many_flows_are_those_of_each(
    flows: list[tuple[int, int, int, int]], seed: int
) -> None:
    table = np.array(flows, dtype=np.uint64)
    assert field_hashes(Headers(*table.T), seed).tolist() == [
        field_hash(
            Flow5(str(IPv4Address(source)), str(IPv4Address(destination)), UDP, port, ROCE_PORT),
            qp,
            seed,
        )
        for source, destination, port, qp in flows
    ]


def test_a_hash_that_was_computed_once_stays_what_it_is() -> None:
    flow = Flow5("198.18.0.1", "198.18.0.9", UDP, 49152, ROCE_PORT)
    assert field_hash(flow, 17, 0x5EED) == 0xCFE1B972


@pytest.mark.parametrize("seed", [0, 1, 0x5EED, 2**32 - 1])
def test_consecutive_qps_of_one_five_tuple_spread_evenly(seed: int) -> None:
    """Chi-square over 16 parts: below its 99.9 % quantile for each of four fixed seeds."""
    count = 16_384
    same = np.full(count, int(IPv4Address("198.18.0.1")), dtype=np.uint64)
    ports = np.full(count, 49152, dtype=np.uint64)
    qps = np.arange(count, dtype=np.uint64)
    hashes = field_hashes(Headers(same, same + np.uint64(8), ports, qps), seed)
    parts = np.bincount(hashes >> np.uint32(28), minlength=16)
    assert ((parts - count / 16) ** 2).sum() / (count / 16) < 37.7


@given(st.lists(st.integers(1, 256), min_size=1, max_size=64), st.data())
def test_a_steering_hash_chooses_the_next_hop_asked_for(
    weights: list[int], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(weights) - 1))
    assert select(steering_hash(index, weights) >> 1, weights) == index


def test_a_pin_is_the_destinations_slot_modulo_the_uplinks() -> None:
    fabric = fabric_of("zone")
    model = SteeringModel(fabric, PINNING)
    pins = planned_pins(fabric)
    assert len(pins) == 3 * 12
    leaf = fabric.node("rtsw1")
    for slot, link in enumerate(fabric.downlinks("rtsw2")):
        flow = Flow5(fabric.nics("srv1-1")[0].ip, link.a.ip, UDP, 50000, ROCE_PORT)
        given_hash = model.hash_at(leaf, flow, None)
        assert given_hash == pins[PinKey("rtsw1", link.a.ip)]
        route = tables_of("zone")("rtsw1").lookup(link.a.ip)
        assert route is not None and given_hash is not None
        chosen = route.next_hops[select(given_hash >> 1, [1] * len(route.next_hops))]
        assert chosen.interface == fabric.uplinks("rtsw1")[slot % 4].a.interface
    for link in fabric.downlinks("rtsw1"):
        assert PinKey("rtsw1", link.a.ip) not in pins


def test_a_nic_of_two_ports_is_pinned_at_neither_of_its_own_switches() -> None:
    fabric = fabric_of("hpn")
    servers = {
        (link.b.node, nic.ip)
        for server in fabric.servers
        for nic in fabric.nics(server.name)
        for link in nic.links
    }
    pins = planned_pins(fabric)
    leaves = [node.name for node in fabric.switches if node.is_leaf]
    nics = [nic.ip for server in fabric.servers for nic in fabric.nics(server.name)]
    assert set(pins) == {
        PinKey(leaf, ip) for leaf in leaves for ip in nics if (leaf, ip) not in servers
    }


@pytest.mark.long
@settings(max_examples=20)
@given(st.integers(1024, 65535), st.lists(QPS, min_size=128, max_size=128, unique=True))
def test_under_e_ecmp_qps_of_one_five_tuple_take_many_paths(port: int, qps: list[int]) -> None:
    """128 QPs over choices of 2 and 3: all 6 combinations, but for once in 10^8 runs."""
    fabric = fabric_of("three tiers")
    model = SteeringModel(fabric, E_ECMP)
    ends = ("z1-srv1-1", "z2-srv1-1")
    by_ecmp = {
        planned_walk("three tiers", ends, port, qp, SteeringModel(fabric, EcmpScheme())).nodes
        for qp in qps
    }
    assert len(by_ecmp) == 1
    by_e_ecmp = {planned_walk("three tiers", ends, port, qp, model).nodes for qp in qps}
    assert len({nodes[2:4] for nodes in by_e_ecmp}) == 6


def test_under_e_ecmp_equal_seeds_polarize_the_tiers_as_they_do_without() -> None:
    fabric = fabric_of("zone", SeedPlan.SHARED)
    flow = Flow5("198.18.0.1", "198.18.0.9", UDP, 50000, ROCE_PORT)
    model = SteeringModel(fabric, E_ECMP)
    assert len({model.hash_at(node, flow, 7) for node in fabric.switches}) == 1


def test_entries_decide_where_they_are_and_the_kernel_elsewhere() -> None:
    fabric = fabric_of("zone")
    ends = ("srv1-1", "srv2-1")
    plain = planned_walk("zone", ends, 50000, None, SteeringModel(fabric, EcmpScheme(), {}))
    assert planned_walk("zone", ends, 50000, None, SteeringModel(fabric, TE, {})) == plain
    source, destination = (find_nic(fabric, name).ip for name in ends)
    for index in range(4):
        entry = {EntryKey("rtsw1", source, destination, 50000): steering_hash(index, [1] * 4)}
        model = SteeringModel(fabric, TE, entry)
        assert planned_walk("zone", ends, 50000, None, model).hops[1].index == index
        other = planned_walk("zone", ends, 50001, None, model)
        assert other == planned_walk("zone", ends, 50001, None, SteeringModel(fabric, EcmpScheme()))


@pytest.mark.parametrize(
    ("scheme", "qp", "message"),
    [
        (SPRAY, 1, "each packet draws its path at random"),
        (FLOWLET, 1, "each flowlet draws its path at random"),
        (E_ECMP, None, r"none is given\n.*--qp"),
        (TE, 1, "a planned lab has no paths yet"),
        (RESILIENT, 1, "which buckets each switch has moved"),
    ],
)
def test_a_path_that_can_not_be_predicted_is_an_input_error(
    scheme: SchemeSpec, qp: int | None, message: str
) -> None:
    model = SteeringModel(fabric_of("zone"), scheme)
    with pytest.raises(InputError, match=message):
        planned_walk("zone", ("srv1-1", "srv2-1"), 50000, qp, model)
    assert planned_walk("zone", ("srv1-1", "srv1-2"), 50000, qp, model).nodes[1] == "rtsw1"


def test_a_path_is_predicted_by_the_specs_scheme_unless_another_is_given() -> None:
    spec = LabSpec(name="lab", fabric=ZONE, scheme=SPRAY)
    fabric = build_fabric(spec)
    ends = find_nic(fabric, "srv1-1"), find_nic(fabric, "srv2-1")
    with pytest.raises(InputError, match="under spray"):
        walk(fabric, tables_of("zone"), *ends, 50000)
    walk(fabric, tables_of("zone"), *ends, 50000, steering=SteeringModel(fabric, EcmpScheme()))


@pytest.mark.parametrize("scheme", [E_ECMP, SPRAY, FLOWLET, PINNING, TE])
def test_only_roce_is_steered(scheme: SchemeSpec) -> None:
    fabric = fabric_of("zone")
    model = SteeringModel(fabric, scheme, {})
    for protocol, port in ((6, ROCE_PORT), (UDP, 4790)):
        flow = Flow5("198.18.0.1", "198.18.0.9", protocol, 50000, port)
        assert model.hash_at(fabric.node("rtsw1"), flow, 1) is None


@pytest.mark.parametrize(
    ("scheme", "leaf", "upper"),
    [
        (EcmpScheme(), Treatment.OFF, Treatment.OFF),
        (RESILIENT, Treatment.OFF, Treatment.OFF),
        (E_ECMP, Treatment.HASH, Treatment.HASH),
        (SPRAY, Treatment.SPRAY, Treatment.SPRAY),
        (TE, Treatment.ENTRIES, Treatment.ENTRIES),
        (FLOWLET, Treatment.FLOWLET, Treatment.KERNEL),
        (PINNING, Treatment.PINS, Treatment.KERNEL),
    ],
)
def test_each_tier_does_what_the_scheme_says(
    scheme: SchemeSpec, leaf: Treatment, upper: Treatment
) -> None:
    treatments = {
        node.role: scheme.treatment(is_leaf=node.is_leaf)
        for node in fabric_of("three tiers").switches
    }
    assert treatments == {Role.RTSW: leaf, Role.CTSW: upper, Role.ATSW: upper}


def test_pins_share_the_uplinks_of_a_rack_in_full_use_evenly() -> None:
    fabric = fabric_of("zone")
    model = SteeringModel(fabric, PINNING)
    taken = Counter(
        select((model.hash_at(fabric.node("rtsw1"), flow, None) or 0) >> 1, [1] * 4)
        for flow in (
            Flow5("198.18.0.1", link.a.ip, UDP, 50000, ROCE_PORT)
            for link in fabric.downlinks("rtsw2")
        )
    )
    assert sorted(taken.values()) == [1, 1, 2, 2]
