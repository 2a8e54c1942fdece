"""Ranks on NICs: every layout, the leaves and zones that a ring crosses, and errors."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.kinds.hpn import HpnSpec
from rocelab.fabrics.kinds.rail import RailSpec
from rocelab.jobs.placement import Cut, NicRef, Placement, choose, cut, group_size, place
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.routes.arrays.build import network_of
from tests.helpers.labs import planned


def fabric(racks: int = 3, servers: int = 2, nics: int = 2, **keys: int) -> Fabric:
    counts = {"racks": racks, "servers_per_rack": servers, "nics_per_server": nics}
    clos = ClosSpec.model_validate(counts | keys)
    return build_fabric(LabSpec(name="zone", fabric=clos))


def names(places: tuple[NicRef, ...]) -> list[str]:
    return [str(place) for place in places]


def rack_of(nic: NicRef) -> str:
    return nic.server.partition("-")[0]


def test_contiguous_fills_nic_by_nic_server_by_server_rack_by_rack() -> None:
    places = place(fabric(), 6, Placement.CONTIGUOUS)
    assert names(places) == [
        "srv1-1:1",
        "srv1-1:2",
        "srv1-2:1",
        "srv1-2:2",
        "srv2-1:1",
        "srv2-1:2",
    ]


def rails(kind: type[RailSpec] | type[HpnSpec] = RailSpec) -> Fabric:
    """Two units or segments of two servers with two NICs, each NIC on a leaf of its own rail."""
    keys: dict[str, object] = {"kind": "rail", "units": 2, "servers_per_unit": 2, "rails": 2}
    if kind is HpnSpec:
        keys = {"kind": "hpn", "segments": 2, "servers_per_segment": 2, "rails": 2, "cores": 1}
    return build_fabric(LabSpec(name="zone", fabric=kind.model_validate(keys)))


@pytest.mark.parametrize("kind", [RailSpec, HpnSpec])
def test_with_rails_contiguous_follows_servers_and_topology_aware_follows_leaves(
    kind: type[RailSpec] | type[HpnSpec],
) -> None:
    built = rails(kind)
    contiguous = place(built, 4, Placement.CONTIGUOUS)
    aware = place(built, 4, Placement.TOPOLOGY_AWARE)
    assert names(contiguous) == ["srv1-1:1", "srv1-1:2", "srv1-2:1", "srv1-2:2"]
    assert names(aware) == ["srv1-1:1", "srv1-2:1", "srv1-1:2", "srv1-2:2"]
    assert cut(built, contiguous) == Cut(leaves=4, zones=0)
    assert cut(built, aware) == Cut(leaves=2, zones=0)


def test_a_fragmented_placement_crosses_zones_at_every_hop() -> None:
    two_zones = fabric(racks=2, servers=1, nics=1, zones=2, atsws=1)
    places = place(two_zones, 4, Placement.FRAGMENTED)
    assert names(places) == ["z1-srv1-1:1", "z2-srv1-1:1", "z1-srv2-1:1", "z2-srv2-1:1"]
    assert cut(two_zones, places) == Cut(leaves=4, zones=4)
    assert cut(two_zones, place(two_zones, 4, Placement.TOPOLOGY_AWARE)) == Cut(leaves=4, zones=2)


def test_a_ring_of_two_crosses_there_and_back_and_one_of_one_nothing() -> None:
    built = fabric()
    assert cut(built, place(built, 2, ["srv1-1", "srv2-1"])) == Cut(leaves=2, zones=0)
    assert cut(built, place(built, 2, ["srv1-1", "srv1-2"])) == Cut(leaves=0, zones=0)
    assert cut(built, place(built, 1, ["srv1-1"])) == Cut(leaves=0, zones=0)


few = st.integers(1, 2)
shapes = st.one_of(
    st.builds(
        lambda zones, racks, servers, nics: ClosSpec(
            zones=zones, racks=racks, servers_per_rack=servers, nics_per_server=nics, atsws=1
        ),
        few,
        few,
        few,
        few,
    ),
    st.builds(
        lambda units, servers, rails: RailSpec(
            kind="rail", units=units, servers_per_unit=servers, rails=rails
        ),
        few,
        few,
        few,
    ),
    st.builds(
        lambda segments, servers, ports: HpnSpec(
            kind="hpn",
            segments=segments,
            servers_per_segment=servers,
            rails=2,
            ports_per_nic=ports,
            planes=1,
        ),
        few,
        few,
        few,
    ),
)


@given(shapes, st.data())
def test_no_placement_has_a_smaller_cut_than_the_topology_aware_one(
    shape: ClosSpec | RailSpec | HpnSpec, data: st.DataObject
) -> None:
    built = build_fabric(LabSpec(name="zone", fabric=shape))
    nics = [
        NicRef(server.name, nic.number)
        for server in built.servers
        for nic in built.nics(server.name)
    ]
    ranks = data.draw(st.integers(1, min(5, len(nics))))
    aware = cut(built, place(built, ranks, Placement.TOPOLOGY_AWARE))
    every = [cut(built, places) for places in permutations(nics, ranks)]
    assert aware.zones == min(placement.zones for placement in every)
    assert aware.leaves == min(placement.leaves for placement in every)


def test_fragmented_puts_consecutive_ranks_into_different_racks() -> None:
    places = place(fabric(), 7, Placement.FRAGMENTED)
    assert names(places) == [
        "srv1-1:1",
        "srv2-1:1",
        "srv3-1:1",
        "srv1-1:2",
        "srv2-1:2",
        "srv3-1:2",
        "srv1-2:1",
    ]


def test_zones_are_filled_one_after_another() -> None:
    two_zones = fabric(racks=1, servers=1, nics=1, zones=2, atsws=1)
    assert names(place(two_zones, 2, Placement.CONTIGUOUS)) == ["z1-srv1-1:1", "z2-srv1-1:1"]


def test_a_random_placement_is_its_seeds() -> None:
    built = fabric(racks=4, servers=4)
    first = place(built, 16, Placement.RANDOM, seed=1)
    assert first == place(built, 16, Placement.RANDOM, seed=1)
    assert first != place(built, 16, Placement.RANDOM, seed=2)
    assert first[:8] == place(built, 8, Placement.RANDOM, seed=1)


@given(
    st.integers(2, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(Placement),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_every_rank_gets_a_nic_of_its_own_that_exists(
    racks: int, servers: int, nics: int, how: Placement, seed: int, data: st.DataObject
) -> None:
    built = fabric(racks, servers, nics)
    ranks = data.draw(st.integers(1, racks * servers * nics))
    places = place(built, ranks, how, seed)
    assert len(set(places)) == len(places) == ranks
    assert all(1 <= place.nic <= len(built.nics(place.server)) for place in places)
    assert place(built, ranks, names(places)) == places
    if how is Placement.FRAGMENTED:
        assert all(rack_of(one) != rack_of(other) for one, other in pairwise(places))


def test_beside_other_jobs_ranks_get_whole_servers_in_one_zone_where_some_have_room() -> None:
    zone = fabric(racks=2, servers=2, nics=4, zones=2, atsws=1)
    nics = network_of(zone.spec).nic_columns

    def servers(ranks: int, *taken: int) -> list[str]:
        occupied = [nic in taken for nic in range(len(nics.server))]
        chosen = choose(nics, ranks, Placement.CONTIGUOUS, taken=occupied)
        return list(dict.fromkeys(nics.server[nic] for nic in chosen))

    first = list(dict.fromkeys(nics.server))
    assert servers(4) == first[:1]
    assert servers(4, 0) == first[1:2]
    assert servers(3, 0) == first[:1]
    assert servers(8, 0) == first[1:3]
    assert servers(16, 0) == first[4:8]
    assert servers(29, 0) == first


def test_a_list_names_servers_or_their_nics() -> None:
    places = place(fabric(), 3, ["srv2-1", "srv1-1:2", "srv1-1"])
    assert places == (NicRef("srv2-1", 1), NicRef("srv1-1", 2), NicRef("srv1-1", 1))


@pytest.mark.parametrize(
    ("ranks", "how", "message", "hint"),
    [
        (13, Placement.CONTIGUOUS, "13 ranks do not fit the 12 NICs of zone", "fewer ranks"),
        (2, ["srv1-1"], "lists 1 NICs for 2 ranks", "one NIC per rank"),
        (2, ["srv1-1", "srv1-1:1"], "NIC srv1-1:1 is listed 2 times", "srv1-1 alone means"),
        (1, ["srv9-1"], "'srv9-1' is not in the fabric", "srv1-1, srv1-2"),
        (1, ["rtsw1"], "'rtsw1' is a switch", "srv1-1, srv1-2"),
        (1, ["srv1-1:3"], "srv1-1 has no NIC 3", "1 to 2"),
        (1, ["srv1-1:0"], "srv1-1 has no NIC 0", "1 to 2"),
        (1, ["srv1-1:x"], "expected server or server:nic", "from 1"),
        (1, [""], "expected server or server:nic", "from 1"),
    ],
)
def test_what_can_not_be_placed_is_an_input_error_with_a_hint(
    ranks: int, how: Placement | list[str], message: str, hint: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        place(fabric(), ranks, how)
    assert hint in (caught.value.hint or "")


def test_one_leaf_can_not_be_fragmented() -> None:
    with pytest.raises(InputError, match="one leaf") as caught:
        place(fabric(racks=1), 2, Placement.FRAGMENTED)
    assert "contiguous" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("nics", "ranks", "how", "size"),
    [
        (2, 8, Placement.CONTIGUOUS, 2),
        (1, 4, Placement.CONTIGUOUS, 2),
        (1, 3, Placement.FRAGMENTED, 1),
        (2, 2, Placement.CONTIGUOUS, 2),
    ],
)
def test_a_group_is_the_ranks_of_a_server_or_else_of_a_rack(
    nics: int, ranks: int, how: Placement, size: int
) -> None:
    built = fabric(nics=nics)
    assert group_size(built, place(built, ranks, how)) == size


@pytest.mark.parametrize(("ranks", "how"), [(6, Placement.FRAGMENTED), (5, Placement.CONTIGUOUS)])
def test_ranks_that_do_not_fall_into_equal_groups_are_an_input_error(
    ranks: int, how: Placement
) -> None:
    built = fabric(nics=1)
    with pytest.raises(InputError, match="groups of one size") as caught:
        group_size(built, place(built, ranks, how))
    assert "contiguous" in (caught.value.hint or "")


def test_ranks_are_placed_in_the_first_tenant_that_has_room_for_them() -> None:
    tenants = planned("evpn-vxlan")

    assert {one.server[-2:] for one in place(tenants, 4, Placement.CONTIGUOUS)} == {"-1"}
    assert {one.server[-2:] for one in place(tenants, 3, Placement.RANDOM, seed=3)} == {"-1"}
    with pytest.raises(
        InputError, match="5 ranks do not fit one tenant of evpn-vxlan: the largest"
    ):
        place(tenants, 5, Placement.CONTIGUOUS)


def test_a_list_of_nics_is_of_one_tenant() -> None:
    tenants = planned("evpn-vxlan")

    assert [str(one) for one in place(tenants, 2, ["srv1-2", "srv3-2"])] == ["srv1-2:1", "srv3-2:1"]
    with pytest.raises(InputError, match="lists NICs of tenant red and tenant blue"):
        place(tenants, 2, ["srv1-1", "srv3-2"])


def test_a_simulation_places_ranks_as_the_lab_does() -> None:
    tenants = planned("evpn-vxlan")
    columns = network_of(tenants.spec).nic_columns

    for ranks in (2, 4):
        chosen = choose(columns, ranks, Placement.FRAGMENTED)
        names = [f"{columns.server[nic]}:{columns.number[nic]}" for nic in chosen]
        assert names == [str(one) for one in place(tenants, ranks, Placement.FRAGMENTED)]
