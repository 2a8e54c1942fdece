"""Schedules do what the collective requires: a symbolic execution without knowledge of algorithms.

A chunk is a set of sends joined by their `after`; all carry the same bytes. The content of a send
follows from its dependencies: the contributions that arrived, each once, and the sender's own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.jobs.collectives import (
    MAX_SENDS,
    Pattern,
    Schedule,
    count_sends,
    point_to_point,
    schedule,
)
from rocelab.jobs.patterns.alltoallv import uneven_sizes
from rocelab.jobs.patterns.base import IN_SWITCH, Algorithm, Call, Send
from rocelab.jobs.patterns.building import PIECE_BYTES
from rocelab.jobs.patterns.mesh import cycles

IN_LABS = sorted({*Algorithm} - IN_SWITCH - {Algorithm.PAT})
"""Those whose sends that wait for one another carry the same bytes."""
RANKS = st.integers(2, 17)
SIZES = st.integers(1, 10**6)
PIECES = st.integers(1, 8 * PIECE_BYTES)
CHANNELS = st.integers(1, 4)
SEEDS = st.integers(0, 2**32 - 1)
MIB = 2**20


def check_order(plan: Schedule) -> None:
    """Ids count the sends; a send waits for earlier ones only, that end or begin at its source."""
    for index, send in enumerate(plan.sends):
        assert send.id == index
        assert send.size_bytes > 0
        assert send.source != send.destination
        assert {send.source, send.destination} <= set(range(plan.ranks))
        for before in send.after:
            assert before < index, "a cycle is a deadlock"
            assert send.source in (plan.sends[before].source, plan.sends[before].destination)


def chunks_of(plan: Schedule) -> list[list[Send]]:
    """The sends that move the same bytes, in order of their ids."""
    chunk_of: list[int] = []
    merged: dict[int, int] = {}

    def top(chunk: int) -> int:
        while chunk in merged:
            chunk = merged[chunk]
        return chunk

    for send in plan.sends:
        chunk_of.append(send.id)
        for before in send.after:
            first, second = top(chunk_of[before]), top(send.id)
            if first != second:
                merged[second] = first
    chunks = defaultdict(list)
    for send in plan.sends:
        chunks[top(chunk_of[send.id])].append(send)
    for chunk in chunks.values():
        assert len({send.size_bytes for send in chunk}) == 1
    return list(chunks.values())


def reduce_chunk(plan: Schedule, chunk: list[Send]) -> set[int]:
    """The ranks that end with everybody's contribution, each counted once."""
    carried: dict[int, frozenset[int]] = {}
    arrived: dict[int, list[frozenset[int]]] = defaultdict(list)

    def combined(rank: int, parts: list[frozenset[int]]) -> frozenset[int] | None:
        whole = frozenset().union(*parts)
        if sum(map(len, parts)) != len(whole):
            return None
        return whole | {rank}

    for send in chunk:
        for before in send.after:
            assert plan.sends[before].destination == send.source
        value = combined(send.source, [carried[before] for before in send.after])
        assert value is not None, "a contribution is added twice"
        carried[send.id] = value
        arrived[send.destination].append(value)

    everybody = frozenset(range(plan.ranks))
    return {
        rank
        for rank in everybody
        if everybody in arrived[rank] or combined(rank, arrived[rank]) == everybody
    }


def copy_chunk(plan: Schedule, chunk: list[Send]) -> int:
    """The rank whose bytes every other rank gets, once, from one that has them."""
    origin = chunk[0].source
    has = {origin}
    for send in chunk:
        assert send.source in has
        if send.source != origin:
            assert [plan.sends[before].destination for before in send.after] == [send.source]
        assert send.destination not in has
        has.add(send.destination)
    assert has == set(range(plan.ranks))
    return origin


def bytes_in_and_out(plan: Schedule) -> tuple[list[int], list[int]]:
    into, out = [0] * plan.ranks, [0] * plan.ranks
    for send in plan.sends:
        into[send.destination] += send.size_bytes
        out[send.source] += send.size_bytes
    return into, out


def hops(plan: Schedule) -> int:
    """Sends one after the other on the longest way through the schedule."""
    depth: list[int] = []
    for send in plan.sends:
        depth.append(1 + max((depth[before] for before in send.after), default=0))
    return max(depth)


@st.composite
def allreduces(draw: st.DrawFn) -> Schedule:
    ranks, size = draw(RANKS), draw(PIECES)
    divisors = [group for group in range(1, ranks + 1) if ranks % group == 0]
    return schedule(
        Pattern.ALLREDUCE,
        ranks,
        size,
        algorithm=draw(st.sampled_from(IN_LABS)),
        channels=draw(CHANNELS),
        group=draw(st.sampled_from(divisors)),
    )


@given(allreduces())
def test_every_allreduce_leaves_every_rank_with_every_contribution_once(plan: Schedule) -> None:
    check_order(plan)
    chunks = chunks_of(plan)
    for chunk in chunks:
        assert reduce_chunk(plan, chunk) == set(range(plan.ranks))
    assert sum(chunk[0].size_bytes for chunk in chunks) == plan.size_bytes


@given(RANKS, SIZES, CHANNELS)
def test_a_reduce_scatter_leaves_each_rank_with_its_part_of_the_sum(
    ranks: int, size: int, channels: int
) -> None:
    plan = schedule(Pattern.REDUCESCATTER, ranks, size, channels=channels)
    check_order(plan)
    parts = [0] * ranks
    for chunk in chunks_of(plan):
        (owner,) = reduce_chunk(plan, chunk)
        parts[owner] += chunk[0].size_bytes
    assert sum(parts) == size
    assert max(parts) - min(parts) <= 1


@given(RANKS, SIZES, CHANNELS)
def test_an_all_gather_brings_each_ranks_part_to_every_other(
    ranks: int, size: int, channels: int
) -> None:
    plan = schedule(Pattern.ALLGATHER, ranks, size, channels=channels)
    check_order(plan)
    parts = [0] * ranks
    for chunk in chunks_of(plan):
        parts[copy_chunk(plan, chunk)] += chunk[0].size_bytes
    assert sum(parts) == size
    assert max(parts) - min(parts) <= 1


@given(RANKS, PIECES, CHANNELS, st.data())
def test_a_broadcast_brings_the_roots_buffer_to_every_rank_over_each_nic_once(
    ranks: int, size: int, channels: int, data: st.DataObject
) -> None:
    root = data.draw(st.integers(0, ranks - 1))
    plan = schedule(Pattern.BROADCAST, ranks, size, channels=channels, root=root)
    check_order(plan)
    chunks = chunks_of(plan)
    assert {copy_chunk(plan, chunk) for chunk in chunks} == {root}
    assert sum(chunk[0].size_bytes for chunk in chunks) == size
    assert max(chunk[0].size_bytes for chunk in chunks) <= PIECE_BYTES
    into, out = bytes_in_and_out(plan)
    assert max(into + out) == size


def pairwise_bytes(plan: Schedule) -> list[list[int]]:
    moved = [[0] * plan.ranks for _ in range(plan.ranks)]
    for send in plan.sends:
        moved[send.source][send.destination] += send.size_bytes
    return moved


@given(RANKS, SIZES, CHANNELS)
def test_an_alltoall_sends_each_destination_its_part_of_every_buffer(
    ranks: int, size: int, channels: int
) -> None:
    plan = schedule(Pattern.ALLTOALL, ranks, size, channels=channels)
    check_order(plan)
    moved = pairwise_bytes(plan)
    parts = [moved[(rank + 1) % ranks][rank] for rank in range(ranks)]
    assert sum(parts) == size
    assert max(parts) - min(parts) <= 1
    for source in range(ranks):
        expected = [0 if rank == source else parts[rank] for rank in range(ranks)]
        assert moved[source] == expected


@given(RANKS, SIZES, CHANNELS, SEEDS)
def test_an_alltoallv_moves_its_matrix_whatever_the_sizes(
    ranks: int, size: int, channels: int, seed: int
) -> None:
    matrix = uneven_sizes(ranks, size, seed)
    assert all(sum(row) == size and min(row) >= 0 for row in matrix)
    plan = schedule(Pattern.ALLTOALLV, ranks, size, channels=channels, seed=seed)
    check_order(plan)
    expected = [
        [0 if source == rank else size for rank, size in enumerate(row)]
        for source, row in enumerate(matrix)
    ]
    assert pairwise_bytes(plan) == expected


@given(RANKS)
def test_in_no_round_of_an_alltoall_do_two_ranks_send_to_the_same_one(ranks: int) -> None:
    plan = schedule(Pattern.ALLTOALL, ranks, ranks * 1000, in_flight=1)
    rounds: dict[int, list[Send]] = defaultdict(list)
    depth: list[int] = []
    for send in plan.sends:
        assert all(plan.sends[before].source == send.source for before in send.after)
        depth.append(1 + max((depth[before] for before in send.after), default=0))
        rounds[depth[-1]].append(send)
    assert len(rounds) == ranks - 1
    for number, sends in rounds.items():
        assert {send.destination for send in sends} == set(range(ranks))
        assert all(send.destination == (send.source + number) % ranks for send in sends)


@given(RANKS, CHANNELS, st.integers(1, 40))
def test_a_rank_of_an_alltoall_sends_to_as_many_at_once_as_are_in_flight(
    ranks: int, channels: int, in_flight: int
) -> None:
    plan = schedule(Pattern.ALLTOALL, ranks, ranks * 1000, channels=channels, in_flight=in_flight)
    at_once = Counter(send.source for send in plan.sends if not send.after)
    assert set(at_once.values()) == {channels * min(in_flight, ranks - 1)}
    for send in plan.sends:
        assert all(plan.sends[before].source == send.source for before in send.after)


def test_rings_enter_a_group_on_the_rail_on_which_they_left_the_one_before() -> None:
    plan = schedule(Pattern.ALLGATHER, 32, 32_000, channels=8, group=8)
    between = [send for send in plan.sends if send.source // 8 != send.destination // 8]
    assert between
    assert all(send.source % 8 == send.destination % 8 for send in between)


def test_trees_of_groups_leave_a_group_by_its_first_rank_alone() -> None:
    plan = schedule(Pattern.ALLREDUCE, 32, 32_000, algorithm=Algorithm.TREE, channels=2, group=8)
    gates = {
        rank
        for send in plan.sends
        if send.source // 8 != send.destination // 8
        for rank in (send.source % 8, send.destination % 8)
    }
    assert gates == {0, 1}


def test_the_channels_of_an_alltoall_begin_at_different_destinations() -> None:
    plan = schedule(Pattern.ALLTOALL, 9, 9 * 1000, channels=4, in_flight=1)
    first = [send.destination for send in plan.sends if send.source == 0 and not send.after]
    assert first == [1, 3, 5, 7]


@given(RANKS, SIZES, CHANNELS, st.data())
def test_a_gather_brings_every_part_to_the_root(
    ranks: int, size: int, channels: int, data: st.DataObject
) -> None:
    root = data.draw(st.integers(0, ranks - 1))
    plan = schedule(Pattern.GATHER, ranks, size, channels=channels, root=root)
    check_order(plan)
    assert {send.destination for send in plan.sends} <= {root}
    into, out = bytes_in_and_out(plan)
    kept = size - into[root]
    parts = [kept if rank == root else out[rank] for rank in range(ranks)]
    assert max(parts) - min(parts) <= 1


@given(st.sampled_from([Pattern.INCAST, Pattern.PAIRS, Pattern.PERMUTATION]), RANKS, SEEDS)
def test_single_sends_carry_the_whole_size_at_once(pattern: Pattern, ranks: int, seed: int) -> None:
    ranks += ranks % 2
    plan = schedule(pattern, ranks, 1001, channels=3, seed=seed)
    check_order(plan)
    assert all(send.after == () for send in plan.sends)
    moved = pairwise_bytes(plan)
    edges = {
        (source, rank) for source in range(ranks) for rank in range(ranks) if moved[source][rank]
    }
    assert {moved[source][rank] for source, rank in edges} == {1001}
    match pattern:
        case Pattern.INCAST:
            assert edges == {(rank, 0) for rank in range(1, ranks)}
        case Pattern.PAIRS:
            assert edges == {(rank, rank + 1) for rank in range(0, ranks, 2)}
        case _:
            assert sorted(source for source, _ in edges) == list(range(ranks))
            assert sorted(rank for _, rank in edges) == list(range(ranks))


def test_a_permutation_is_its_seeds_and_another_seed_gives_another() -> None:
    first = point_to_point(Pattern.PERMUTATION, 16, 1)
    assert first == point_to_point(Pattern.PERMUTATION, 16, 1)
    assert first != point_to_point(Pattern.PERMUTATION, 16, 2)


@pytest.mark.parametrize("ranks", [2, 5, 8, 16])
@pytest.mark.parametrize("algorithm", [Algorithm.RING, Algorithm.HIERARCHICAL])
def test_rings_use_every_nic_the_same_and_no_more_than_they_must(
    ranks: int, algorithm: Algorithm
) -> None:
    size = ranks * 10_000
    group = 4 if ranks % 4 == 0 else 1
    plan = schedule(Pattern.ALLREDUCE, ranks, size, algorithm=algorithm, group=group)
    into, out = bytes_in_and_out(plan)
    assert set(into) == set(out) == {2 * (ranks - 1) * size // ranks}


@given(RANKS, SIZES, CHANNELS)
def test_a_rank_has_its_sends_in_the_order_in_which_it_comes_to_them(
    ranks: int, size: int, channels: int
) -> None:
    """Its queue pairs get the messages in this order, in a lab and in a simulation."""
    plan = schedule(Pattern.ALLREDUCE, ranks, size, channels=channels)
    rounds: list[int] = []
    for send in plan.sends:
        rounds.append(1 + max((rounds[before] for before in send.after), default=0))
    for rank in range(ranks):
        local = [rounds[send.id] for send in plan.sends if send.source == rank]
        assert local == sorted(local)


@given(st.integers(2, 200))
def test_two_trees_take_twice_the_buffer_over_no_nic_and_logarithmically_many_hops(
    ranks: int,
) -> None:
    plan = schedule(Pattern.ALLREDUCE, ranks, 2000, algorithm=Algorithm.TREE)
    into, out = bytes_in_and_out(plan)
    assert max(into + out) <= 2 * 2000
    assert hops(plan) <= 2 * ((ranks - 1).bit_length() + 1)


def test_a_hierarchical_allreduce_sends_less_between_groups_than_a_ring() -> None:
    def between_groups(plan: Schedule) -> int:
        return sum(
            send.size_bytes for send in plan.sends if send.source // 4 != send.destination // 4
        )

    size, ranks, groups = 16_000, 16, 4
    plan = schedule(
        Pattern.ALLREDUCE, ranks, size, algorithm=Algorithm.HIERARCHICAL, group=ranks // groups
    )
    ring = schedule(Pattern.ALLREDUCE, ranks, size)
    assert between_groups(plan) == 2 * (groups - 1) * size
    assert between_groups(ring) == groups * 2 * (ranks - 1) * size // ranks
    assert all(
        send.source % 4 == send.destination % 4
        for send in plan.sends
        if send.source // 4 != send.destination // 4
    )


def test_each_channel_leaves_a_group_from_another_member() -> None:
    plan = schedule(Pattern.ALLGATHER, 16, 16_000, channels=4, group=4)
    gates = {send.source for send in plan.sends if send.source // 4 != send.destination // 4}
    assert gates == set(range(16))
    alone = schedule(Pattern.ALLGATHER, 16, 16_000, channels=1, group=4)
    assert {send.source for send in alone.sends if send.source // 4 != send.destination // 4} == {
        3,
        4,
        11,
        12,
    }


def test_a_tree_and_a_chain_pass_on_pieces_before_they_have_it_all() -> None:
    for pattern in (Pattern.ALLREDUCE, Pattern.BROADCAST):
        plan = schedule(pattern, 8, 8 * MIB, algorithm=Algorithm.TREE)
        assert max(send.size_bytes for send in plan.sends) == MIB // 2


@given(st.sampled_from(Pattern), st.sampled_from(IN_LABS), RANKS, st.integers(1, 10**7), CHANNELS)
def test_the_count_of_sends_is_never_below_the_sends(
    pattern: Pattern, algorithm: Algorithm, ranks: int, size: int, channels: int
) -> None:
    ranks += ranks % 2
    plan = schedule(pattern, ranks, size, algorithm=algorithm, channels=channels, group=2)
    assert len(plan.sends) <= count_sends(pattern, ranks, size, algorithm, channels)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((Pattern.ALLREDUCE, 1, 100), {}, "of 1 ranks"),
        ((Pattern.ALLREDUCE, 4, 0), {}, "size is 0"),
        ((Pattern.ALLREDUCE, 4, 100), {"channels": 0}, "channels is 0"),
        ((Pattern.ALLREDUCE, 4, 100), {"group": 3}, "groups of 3"),
        ((Pattern.ALLREDUCE, 4, 100), {"algorithm": Algorithm.HIERARCHICAL}, "needs groups"),
        ((Pattern.BROADCAST, 4, 100), {"root": 4}, "no rank 4"),
        ((Pattern.PAIRS, 5, 100), {}, "do not make pairs"),
        ((Pattern.ALLTOALL, 4096, 10**6), {}, f"at most {MAX_SENDS:,}"),
    ],
)
def test_numbers_that_do_not_fit_are_an_input_error_with_a_hint(
    arguments: tuple[Pattern, int, int], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        schedule(*arguments, **options)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "ranks", "sends"),
    [(Pattern.ALLREDUCE, 128, 32_512), (Pattern.ALLTOALL, 256, 65_280)],
)
def test_a_large_job_has_as_many_sends_as_its_algorithm(
    pattern: Pattern, ranks: int, sends: int
) -> None:
    plan = schedule(pattern, ranks, 2**30)
    assert len(plan.sends) == sends


@pytest.mark.parametrize("ranks", range(2, 11))
def test_rings_of_a_mesh_have_no_link_in_common(ranks: int) -> None:
    rings = cycles(ranks)
    links = [(ring[at - 1], ring[at]) for ring in rings for at in range(ranks)]
    assert all(sorted(ring) == list(range(ranks)) for ring in rings)
    assert len(set(links)) == len(links)
    if ranks in (3, 5, 7, 8):
        assert len(links) == ranks * (ranks - 1)


@pytest.mark.parametrize("group", [2, 4, 6, 8])
def test_rings_through_meshes_take_each_link_once_each_way_and_stay_on_rails(group: int) -> None:
    call = Call(4 * group, 1000, channels=group, group=group, mesh=True)
    links: Counter[tuple[int, int]] = Counter()
    for ring in call.rings:
        assert sorted(ring) == list(range(4 * group))
        for source, target in zip(ring, ring[1:] + ring[:1], strict=True):
            if source // group == target // group:
                links[source, target] += 1
            else:
                assert source % group == target % group
    assert set(links.values()) == {1}
    assert len(links) == 4 * group * (group - 1)


@given(st.integers(2, 40), st.integers(1, 10**6))
def test_aggregated_trees_gather_what_they_have_in_few_steps(ranks: int, size: int) -> None:
    parts = [size * (rank + 1) // ranks - size * rank // ranks for rank in range(ranks)]
    held = list(parts)
    planned = schedule(Pattern.ALLGATHER, ranks, size, algorithm=Algorithm.PAT)
    rounds: list[int] = []
    for send in planned.sends:
        before = [planned.sends[number] for number in send.after]
        assert all(earlier.destination == send.source for earlier in before)
        arrived = sum(earlier.size_bytes for earlier in before)
        assert send.size_bytes <= parts[send.source] + arrived
        held[send.destination] += send.size_bytes
        rounds.append(1 + max((rounds[number] for number in send.after), default=0))
    assert held == [size] * ranks
    assert max(rounds) <= (ranks - 1).bit_length()


@given(st.integers(2, 40), st.integers(1, 10**6))
def test_aggregated_trees_scatter_the_way_they_gather_backwards(ranks: int, size: int) -> None:
    gathered, scattered = (
        schedule(pattern, ranks, size, algorithm=Algorithm.PAT).sends
        for pattern in (Pattern.ALLGATHER, Pattern.REDUCESCATTER)
    )
    forth = Counter((send.source, send.destination, send.size_bytes) for send in gathered)
    back = Counter((send.destination, send.source, send.size_bytes) for send in scattered)
    assert forth == back
