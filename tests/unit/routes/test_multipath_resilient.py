"""The bucket tables of resilient groups."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.routes.resilient import filled, wanted, without

groups = st.tuples(st.lists(st.integers(1, 256), min_size=2, max_size=16), st.integers(16, 300))


def test_a_new_group_is_filled_from_its_last_member() -> None:
    assert filled([None] * 8, [1, 1]) == (1, 1, 1, 1, 0, 0, 0, 0)
    assert filled([None] * 8, [3, 1]) == (1, 1, 0, 0, 0, 0, 0, 0)


@given(groups)
def test_members_have_as_many_buckets_as_their_weights_say(group: tuple[list[int], int]) -> None:
    weights, buckets = group
    has = Counter(filled([None] * buckets, weights))
    assert [has[i] for i in range(len(weights))] == list(wanted(weights, buckets))
    for i, weight in enumerate(weights):
        assert has[i] == pytest.approx(buckets * weight / sum(weights), abs=1)


@given(groups, st.data())
def test_in_a_busy_group_only_the_buckets_of_a_lost_member_move(
    group: tuple[list[int], int], data: st.DataObject
) -> None:
    weights, buckets = group
    lost = data.draw(st.integers(0, len(weights) - 1))
    before = filled([None] * buckets, weights)
    after = without(before, weights, lost, busy=range(buckets))
    assert lost not in after
    assert all(new == old for old, new in zip(before, after, strict=True) if old != lost)


@given(groups, st.data())
def test_an_idle_group_is_balanced_again_at_once(
    group: tuple[list[int], int], data: st.DataObject
) -> None:
    weights, buckets = group
    lost = data.draw(st.integers(0, len(weights) - 1))
    after = Counter(without(filled([None] * buckets, weights), weights, lost))
    left = [i for i in range(len(weights)) if i != lost]
    assert [after[i] for i in left] == list(wanted([weights[i] for i in left], buckets))


def test_a_new_member_gets_nothing_of_a_busy_group_and_its_share_of_an_idle_one() -> None:
    before = filled([None] * 12, [1, 1])
    assert filled(before, [1, 1, 1], busy=range(12)) == before
    assert Counter(filled(before, [1, 1, 1])) == {0: 4, 1: 4, 2: 4}
