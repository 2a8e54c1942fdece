"""Flows and patterns against a planned fabric."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.jobs.flow import ProbeStream, permutation, resolve_endpoints, resolve_flow
from rocelab.labfile.model import LabSpec, LinksSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from tests.helpers.labs import planned


def clos(mtu: int = 9000, **shape: int) -> Fabric:
    fabric = ClosSpec.model_validate(shape)
    return build_fabric(LabSpec(name="t", fabric=fabric, links=LinksSpec(mtu=mtu)))


def flow(**changed: object) -> ProbeStream:
    values: dict[str, object] = {
        "id": 0,
        "source": "srv1-1",
        "source_nic": 1,
        "destination": "srv2-1",
        "destination_nic": 1,
        "sport": 0xC000,
        "dest_qp": 17,
        "rate_pps": 1000,
        "payload_bytes": 1024,
    }
    return ProbeStream(**(values | changed))  # type: ignore[arg-type]


def rack_of(fabric: Fabric, server: str) -> str:
    return fabric.uplinks(server)[0].b.node


def test_a_flow_resolves_to_the_addresses_of_its_nics_and_the_switch_between() -> None:
    fabric = clos(racks=2, nics_per_server=2)
    ends = resolve_flow(fabric, flow(source_nic=2, destination_nic=1))
    cable = fabric.uplinks("srv1-1")[1]
    assert ends.interface == "rtsw1-2" == cable.a.interface
    assert (ends.source_mac, ends.next_hop_mac) == (cable.a.mac, cable.b.mac)
    assert cable.b.node == "rtsw1"
    assert ends.source_ip == cable.a.ip
    assert ends.destination_ip == fabric.nics("srv2-1")[0].ip


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": "srv9-1"}, "srv9-1 is not in the fabric"),
        ({"source": "ctsw1"}, "ctsw1 is a switch"),
        ({"destination_nic": 2}, "srv2-1 has no NIC 2"),
        ({"source_nic": 0}, "srv1-1 has no NIC 0"),
        ({"destination": "srv1-1"}, "srv1-1 would send to itself"),
    ],
)
def test_a_flow_that_is_not_of_the_fabric_is_an_input_error_with_a_hint(
    changed: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        resolve_flow(clos(racks=2), flow(**changed))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sport", 0),
        ("sport", 65536),
        ("dest_qp", 2**24),
        ("rate_pps", 0),
        ("payload_bytes", 23),
        ("payload_bytes", 4097),
        ("id", -1),
        ("id", 2**32 - 1),
    ],
)
def test_a_number_that_the_packet_can_not_hold_is_an_input_error(name: str, value: int) -> None:
    with pytest.raises(InputError, match=name):
        flow(**{name: value})


def test_a_payload_just_fits_the_mtu_or_is_an_input_error() -> None:
    fabric = clos(racks=2, mtu=1500)
    resolve_flow(fabric, flow(payload_bytes=1456))
    with pytest.raises(InputError, match="do not fit the MTU 1500") as caught:
        resolve_flow(fabric, flow(payload_bytes=1457))
    assert "1456" in (caught.value.hint or "")


@given(
    racks=st.integers(2, 6),
    servers=st.integers(1, 4),
    nics=st.integers(1, 3),
    flows=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)
def test_a_permutation_joins_racks_and_loads_all_servers_alike(
    racks: int, servers: int, nics: int, flows: int, seed: int
) -> None:
    fabric = clos(racks=racks, servers_per_rack=servers, nics_per_server=nics)
    dealt = permutation(fabric, flows, 1000, 1024, seed)
    assert [f.id for f in dealt] == list(range(flows))
    assert all(rack_of(fabric, f.source) != rack_of(fabric, f.destination) for f in dealt)
    assert len({f.sport for f in dealt}) == len({f.dest_qp for f in dealt}) == flows
    assert all(0xC000 <= f.sport <= 0xFFFF and f.dest_qp >= 2 for f in dealt)
    for end in ("source", "destination"):
        loads = Counter(getattr(f, end) for f in dealt)
        counts = [loads[server.name] for server in fabric.servers]
        assert max(counts) - min(counts) <= 1
    for f in dealt:
        resolve_flow(fabric, f)


def test_the_same_seed_gives_the_same_permutation_and_another_seed_another() -> None:
    fabric = clos(racks=8)
    assert permutation(fabric, 40, 1000, 1024, 7) == permutation(fabric, 40, 1000, 1024, 7)
    assert permutation(fabric, 40, 1000, 1024, 7) != permutation(fabric, 40, 1000, 1024, 8)


def test_later_rounds_of_a_permutation_use_the_further_nics() -> None:
    fabric = clos(racks=4, nics_per_server=2)
    dealt = permutation(fabric, 8, 1000, 1024, 1)
    assert [f.source_nic for f in dealt] == [1] * 4 + [2] * 4
    assert all(f.source_nic == f.destination_nic for f in dealt)


def test_more_flows_than_source_ports_still_have_distinct_queue_pairs() -> None:
    dealt = permutation(clos(racks=2), 2**14 + 10, 1, 64, 1)
    assert len({f.dest_qp for f in dealt}) == 2**14 + 10
    assert len({f.sport for f in dealt}) == 2**14


@pytest.mark.parametrize("shape", [{"racks": 1}, {"racks": 4, "servers_per_rack": 0}])
def test_a_permutation_needs_servers_in_two_racks(shape: dict[str, int]) -> None:
    with pytest.raises(InputError, match="two racks"):
        permutation(clos(**shape), 4, 1000, 1024, 1)


def test_a_permutation_of_no_flows_is_an_input_error() -> None:
    with pytest.raises(InputError, match="0 flows"):
        permutation(clos(racks=2), 0, 1000, 1024, 1)


def test_endpoints_of_a_path_probe_need_no_flow() -> None:
    fabric = clos(racks=2)
    assert resolve_endpoints(fabric, "srv1-1", "srv2-1") == resolve_flow(fabric, flow())


def test_flows_of_a_permutation_are_within_tenants_and_between_racks() -> None:
    tenants = planned("evpn-vxlan")
    flows = permutation(tenants, 40, 1000, 256, seed=9)

    pairs = {(one.source, one.destination) for one in flows}
    assert {source[-2:] + destination[-2:] for source, destination in pairs} == {"-1-1", "-2-2"}
    assert all(rack_of(tenants, source) != rack_of(tenants, to) for source, to in pairs)
    assert len({one.sport for one in flows}) == 40
    assert flows == permutation(tenants, 40, 1000, 256, seed=9)


def test_a_flow_within_a_tenant_goes_to_the_other_nics_mac() -> None:
    tenants = planned("evpn-vxlan")

    ends = resolve_endpoints(tenants, "srv1-1", "srv3-1")

    assert ends.next_hop_mac == tenants.nics("srv3-1")[0].links[0].a.mac
    assert (ends.destination_ip, ends.mtu) == ("10.10.0.3", 9166)
    with pytest.raises(InputError, match="srv1-1 is in tenant red and srv3-2 is in tenant blue"):
        resolve_endpoints(tenants, "srv1-1", "srv3-2")
