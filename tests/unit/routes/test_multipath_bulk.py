"""Hashes and choices of many flows at once equal those of each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.labfile.model import HashField, HashPolicy
from rocelab.routes.bulk import multipath_hashes, select_all, select_buckets
from rocelab.routes.flows import columns_v4
from rocelab.routes.multipath import Flow5, multipath_hash, select
from tests.helpers.flow_columns import as_columns
from tests.unit.routes.test_multipath import flows_of, hashings, seeds, weight_lists

several = st.one_of(
    st.lists(flows_of(4), min_size=1, max_size=40), st.lists(flows_of(6), min_size=1, max_size=40)
)


@given(several, seeds, hashings)
def test_hashes_of_many_flows_are_those_of_each(
    flows: list[Flow5], seed: int, hashing: tuple[HashPolicy, tuple[HashField, ...]]
) -> None:
    hashes = multipath_hashes(as_columns(flows), seed, *hashing)
    assert hashes.tolist() == [multipath_hash(flow, seed, *hashing) for flow in flows]


@given(st.lists(st.tuples(flows_of(4), seeds), min_size=1, max_size=40), hashings)
def test_every_flow_may_have_a_seed_of_its_own(
    flows_and_seeds: list[tuple[Flow5, int]],
    hashing: tuple[HashPolicy, tuple[HashField, ...]],
) -> None:
    flows = as_columns([flow for flow, _ in flows_and_seeds])
    values = np.array([seed for _, seed in flows_and_seeds], np.uint32)
    assert multipath_hashes(flows, values, *hashing).tolist() == [
        multipath_hash(flow, seed, *hashing) for flow, seed in flows_and_seeds
    ]


def test_more_flows_than_are_hashed_at_a_time_are_hashed_alike() -> None:
    flows = columns_v4(0xC6120001, np.arange(20_000) + 0xC6130000, np.arange(20_000), 4791)
    hashes = multipath_hashes(flows, 7, HashPolicy.L4)
    for number in (0, 8191, 8192, 16384, 19_999):
        flow = Flow5("198.18.0.1", f"198.19.{number // 256}.{number % 256}", 17, number, 4791)
        assert hashes[number] == multipath_hash(flow, 7, HashPolicy.L4)
    part = flows.part(hashes % 3 == 0)
    assert (multipath_hashes(part, 7, HashPolicy.L4) == hashes[hashes % 3 == 0]).all()


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1), weight_lists)
def test_choices_of_many_hashes_are_those_of_each(hashes: list[int], weights: list[int]) -> None:
    chosen = select_all(np.array(hashes, np.uint32), weights)
    assert chosen.tolist() == [select(value, weights) for value in hashes]


def test_a_bucket_is_taken_by_modulo() -> None:
    hashes = np.array([0, 3, 4, 2**31 - 1], np.uint32)
    assert select_buckets(hashes, (5, 5, 7, 9)).tolist() == [5, 9, 5, 9]


@pytest.mark.parametrize("seed", [0, np.array([1, 0], np.uint32)])
def test_the_kernels_own_secret_can_not_be_predicted(seed: object) -> None:
    flows = columns_v4([1, 2], 3, 4, 4791)
    with pytest.raises(InputError, match=r"hashing\.seed"):
        multipath_hashes(flows, seed, HashPolicy.L4)  # type: ignore[arg-type]


def test_flows_of_both_ip_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="one IP version"):
        as_columns([Flow5("10.0.0.1", "10.0.0.2", 17, 1, 2), Flow5("fd00::1", "fd00::2", 17, 1, 2)])
