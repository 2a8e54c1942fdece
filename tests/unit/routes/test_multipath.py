"""The kernel's ECMP choice as a pure function."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.labfile.model import MAX_SEED, HashField, HashPolicy
from rocelab.routes.multipath import Flow5, _siphash_2_4, multipath_hash, select, upper_bounds

ports = st.integers(0, 65535)
seeds = st.integers(1, MAX_SEED)
weight_lists = st.lists(st.integers(1, 256), min_size=1, max_size=128)
field_sets = st.lists(st.sampled_from(HashField), min_size=1, unique=True).map(tuple)
hashings = st.one_of(
    st.tuples(st.sampled_from([HashPolicy.L3, HashPolicy.L4]), st.just(())),
    st.tuples(st.just(HashPolicy.CUSTOM), field_sets),
)


def flows_of(version: Literal[4, 6]) -> st.SearchStrategy[Flow5]:
    addresses = st.ip_addresses(v=version).map(str)
    labels = st.integers(0, 2**20 - 1) if version == 6 else st.just(0)
    return st.builds(Flow5, addresses, addresses, st.integers(0, 255), ports, ports, labels)


flows = st.one_of(flows_of(4), flows_of(6))


def test_siphash_gives_the_published_answer_for_forty_eight_bytes() -> None:
    # Aumasson and Bernstein's reference vectors: key 00..0f, message 00..2f.
    key = bytes(range(16))
    key0, key1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    digest = _siphash_2_4(bytes(range(48)), key0, key1).to_bytes(8, "little")
    assert digest.hex() == "51a9cb9ecba312e6"


@given(flows, seeds, hashings)
def test_a_hash_has_31_bits_and_is_the_same_in_both_directions_where_both_ends_are_hashed(
    flow: Flow5, seed: int, hashing: tuple[HashPolicy, tuple[HashField, ...]]
) -> None:
    policy, fields = hashing
    ends = {HashField.SOURCE_IP, HashField.DESTINATION_IP}
    doors = {HashField.SOURCE_PORT, HashField.DESTINATION_PORT}
    both = all(pair <= set(fields) or not pair & set(fields) for pair in (ends, doors))
    back = replace(
        flow,
        source=flow.destination,
        destination=flow.source,
        source_port=flow.destination_port,
        destination_port=flow.source_port,
    )
    forth = multipath_hash(flow, seed, policy, fields)
    assert 0 <= forth < 2**31
    assert not both or forth == multipath_hash(back, seed, policy, fields)


@given(flows_of(4), seeds, ports, st.integers(0, 255))
def test_policy_l3_does_not_see_ports_or_protocol(
    flow: Flow5, seed: int, port: int, protocol: int
) -> None:
    other = replace(flow, source_port=port, protocol=protocol)
    assert multipath_hash(flow, seed, HashPolicy.L3) == multipath_hash(other, seed, HashPolicy.L3)


CHANGED = {
    HashField.SOURCE_IP: {"source": "2001:db8::9"},
    HashField.DESTINATION_IP: {"destination": "2001:db8::8"},
    HashField.PROTOCOL: {"protocol": 6},
    HashField.SOURCE_PORT: {"source_port": 9},
    HashField.DESTINATION_PORT: {"destination_port": 8},
    HashField.FLOW_LABEL: {"flow_label": 7},
}


@given(seeds, field_sets)
def test_the_custom_policy_sees_the_fields_it_is_given_and_no_others(
    seed: int, fields: tuple[HashField, ...]
) -> None:
    flow = Flow5("2001:db8::1", "2001:db8::2", 17, 49152, 4791, 1)
    value = multipath_hash(flow, seed, HashPolicy.CUSTOM, fields)
    for field, change in CHANGED.items():
        other = multipath_hash(replace(flow, **change), seed, HashPolicy.CUSTOM, fields)
        assert (other != value) == (field in fields)


def test_ipv4_has_no_flow_label_to_hash() -> None:
    flow = Flow5("198.18.0.0", "198.18.0.2", 17, 1, 2)
    label = (HashField.FLOW_LABEL,)
    assert {
        multipath_hash(replace(flow, source_port=port), 1, HashPolicy.CUSTOM, label)
        for port in range(10)
    } == {multipath_hash(flow, 1, HashPolicy.CUSTOM, label)}


@pytest.mark.parametrize(
    ("policy", "fields"), [(HashPolicy.CUSTOM, ()), (HashPolicy.L4, (HashField.PROTOCOL,))]
)
def test_fields_and_the_custom_policy_go_together(
    policy: HashPolicy, fields: tuple[HashField, ...]
) -> None:
    with pytest.raises(ValueError, match="policy"):
        multipath_hash(Flow5("198.18.0.0", "198.18.0.2", 17, 1, 2), 1, policy, fields)


def test_policy_l4_sees_the_source_port() -> None:
    flow = Flow5("198.18.0.0", "198.18.0.2", 17, 49152, 4791)
    hashes = {
        multipath_hash(replace(flow, source_port=port), 1, HashPolicy.L4)
        for port in range(49152, 49252)
    }
    assert len(hashes) == 100


def test_the_kernels_own_secret_can_not_be_predicted_and_the_error_names_the_key() -> None:
    with pytest.raises(InputError, match=r"hashing\.seed"):
        multipath_hash(Flow5("198.18.0.0", "198.18.0.2", 17, 1, 2), 0, HashPolicy.L4)


def test_the_hash_space_is_cut_where_the_kernel_cuts_it() -> None:
    assert upper_bounds([1]) == (2**31 - 1,)
    assert upper_bounds([1, 1, 1]) == (715827882, 1431655764, 2147483647)
    assert upper_bounds([3, 1]) == (1610612735, 2147483647)


@given(weight_lists)
def test_every_hash_has_a_next_hop_and_shares_follow_weights(weights: list[int]) -> None:
    bounds = upper_bounds(weights)
    assert bounds[-1] == 2**31 - 1
    previous = -1
    for bound, weight in zip(bounds, weights, strict=True):
        assert bound - previous == pytest.approx(2**31 * weight / sum(weights), abs=1)
        previous = bound


@given(weight_lists, st.data())
def test_a_bound_belongs_to_its_next_hop_and_what_follows_to_the_next(
    weights: list[int], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(weights) - 1))
    bound = upper_bounds(weights)[index]
    assert select(bound, weights) == index
    if index + 1 < len(weights):
        assert select(bound + 1, weights) == index + 1


def test_an_empty_group_has_no_choice() -> None:
    with pytest.raises(ValueError, match="at least one"):
        select(0, [])
