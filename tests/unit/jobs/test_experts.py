"""Where tokens of a mixture of experts go: chances, bytes between GPUs, and what is read."""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rocelab.jobs.expert_sends import expert_traffic
from rocelab.jobs.experts import Exchange, ExpertRouting, exchanged, routing_of, token_bytes
from rocelab.jobs.gpus import Precision
from rocelab.jobs.model_shape import ModelShape
from rocelab.jobs.models import MODELS

DEEPSEEK = MODELS["deepseek-v3"]


def shape(experts: int, top_k: int, **keys: object) -> ModelShape:
    return ModelShape.model_validate(
        {
            "layers": 2,
            "hidden": 64,
            "heads": 4,
            "ffn": 64,
            "vocab": 100,
            "sequence": 32,
            "experts": experts,
            "top_k": top_k,
            **keys,
        }
    )


def servers(ranks: int, of_server: int) -> np.ndarray:
    return (np.arange(ranks) // of_server).astype(np.int32)


def test_a_token_of_deepseek_reaches_at_most_four_servers() -> None:
    # Four of eight groups, eight of the 128 experts in them (DeepSeek-V3, section 2.1.2).
    routing = routing_of(DEEPSEEK, ExpertRouting(), 64)
    by_hand = 4 / 8 * (1 - comb(96, 8) / comb(128, 8))
    assert routing.reached(np.arange(8, dtype=np.int32)) == pytest.approx([by_hand])
    traffic = exchanged(routing, Exchange.PER_SERVER, servers(64, 8))
    assert traffic.network.sum(axis=1) == pytest.approx(np.full(64, 7 * by_hand))
    assert 8 * by_hand < 4


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_equal_experts_are_reached_as_often_as_draws_without_return(ranks: int) -> None:
    routing = routing_of(shape(16, 3), ExpertRouting(), 8)
    outside = 16 - 2 * ranks
    assert routing.reached(np.arange(ranks, dtype=np.int32)) == pytest.approx(
        [1 - comb(outside, 3) / comb(16, 3)]
    )


def test_tokens_for_several_experts_of_a_server_are_sent_once() -> None:
    model = shape(8, 4)
    routing = routing_of(model, ExpertRouting(), 8)
    lie = servers(8, 4)
    every = exchanged(routing, Exchange.ALLTOALL, lie)
    once = exchanged(routing, Exchange.PER_SERVER, lie)
    # Four experts on the other server: half of a token's copies; at least one of them: 1 - 1/70.
    assert every.network.sum(axis=1) == pytest.approx(np.full(8, 2.0))
    assert once.network.sum(axis=1) == pytest.approx(np.full(8, 1 - 1 / 70))
    # To the GPU of the sender's place on the other server.
    assert np.argwhere(once.network).tolist() == [
        [0, 4], [1, 5], [2, 6], [3, 7], [4, 0], [5, 1], [6, 2], [7, 3]
    ]  # fmt: skip


def test_a_group_on_one_server_sends_nothing_over_the_network() -> None:
    routing = routing_of(shape(8, 2), ExpertRouting(), 8)
    for exchange in Exchange:
        traffic = exchanged(routing, exchange, servers(8, 8))
        assert traffic.network.sum() == 0
        assert traffic.inside == pytest.approx(7 / 8 * 2)


def test_a_group_on_servers_of_several_sizes_leaves_nobody_out() -> None:
    routing = routing_of(shape(6, 2), ExpertRouting(), 3)
    traffic = exchanged(routing, Exchange.PER_SERVER, np.array([0, 0, 1], np.int32))
    both = 1 - comb(2, 2) / comb(6, 2)
    one = 1 - comb(4, 2) / comb(6, 2)
    assert traffic.network[2].sum() == pytest.approx(both)
    assert traffic.network[:2].sum(axis=1) == pytest.approx([one, one])


@settings(max_examples=60)
@given(
    of_rank=st.integers(1, 4),
    ranks=st.sampled_from([2, 4, 8]),
    top_k=st.integers(1, 8),
    skew=st.sampled_from([0.0, 0.5, 1.0, 4.0]),
    of_server=st.sampled_from([1, 2, 4, 8]),
)
def test_every_copy_of_a_token_arrives_somewhere(
    of_rank: int, ranks: int, top_k: int, skew: float, of_server: int
) -> None:
    experts = of_rank * ranks
    top_k = min(top_k, experts)
    routing = routing_of(shape(experts, top_k), ExpertRouting(skew=skew), ranks)
    assert routing.chance.max() <= 1 + 1e-9
    assert routing.copies.sum(axis=1) == pytest.approx([top_k])
    lie = servers(ranks, of_server)
    every = exchanged(routing, Exchange.ALLTOALL, lie)
    once = exchanged(routing, Exchange.PER_SERVER, lie)
    assert once.network.sum() <= every.network.sum() + 1e-6
    together = lie[:, None] == lie[None]
    kept = np.where(together, np.broadcast_to(routing.copies, (ranks, ranks)), 0).sum()
    assert every.network.sum() + kept == pytest.approx(ranks * top_k)
    assert routing.busiest >= 1 - 1e-9
    assert 0 <= routing.experts_read(0.5) <= of_rank


@settings(max_examples=40)
@given(
    experts=st.sampled_from([2, 8, 64]),
    top_k=st.integers(1, 64),
    tokens=st.integers(1, 4096),
    ranks=st.sampled_from([1, 2]),
)
def test_experts_read_follow_the_formula_and_grow_with_the_batch(
    experts: int, top_k: int, tokens: int, ranks: int
) -> None:
    top_k = min(top_k, experts)
    routing = routing_of(shape(experts, top_k), ExpertRouting(), ranks)
    read = routing.experts_read(tokens)
    formula = experts / ranks * (1 - (1 - top_k / experts) ** (tokens * ranks))
    assert read == pytest.approx(formula, abs=1e-9)
    assert read <= routing.experts_read(2 * tokens) + 1e-12
    assert read >= min(top_k, experts) / ranks - 1e-9


def test_a_batch_of_one_reads_top_k_experts_and_all_are_read_where_each_token_goes_to_all() -> None:
    assert routing_of(DEEPSEEK, ExpertRouting(), 1).experts_read(1) == pytest.approx(8)
    whole = routing_of(shape(8, 8), ExpertRouting(), 2)
    assert whole.experts_read(1) == pytest.approx(4)
    assert whole.reached(np.array([1], np.int32)) == pytest.approx([1])


def test_more_skew_makes_the_busiest_gpu_busier() -> None:
    model = MODELS["qwen3-235b"]
    busiest = [
        np.mean([routing_of(model, ExpertRouting(skew=skew), 32, seed=n).busiest for n in range(9)])
        for skew in (0, 0.25, 0.5, 1.0)
    ]
    assert busiest == sorted(busiest)
    assert busiest[0] == 1


def test_copies_of_popular_experts_relieve_the_busiest_gpu() -> None:
    model, spec = MODELS["qwen3-235b"], ExpertRouting(skew=0.6)
    alone = routing_of(model, spec, 32)
    copied = routing_of(model, spec, 32, copies=32)
    assert copied.chance.shape == (1, 160)
    assert copied.chance.sum() == pytest.approx(8)
    assert copied.busiest < alone.busiest
    # More copies than experts: every expert has a second one, and some a third.
    assert routing_of(shape(4, 2), ExpertRouting(), 4, copies=8).chance.sum() == pytest.approx(2)


def test_a_matrix_of_tokens_says_what_each_sender_sends() -> None:
    matrix = ((3.0, 1.0, 2.0, 2.0), (1.0, 3.0, 2.0, 2.0))
    routing = routing_of(shape(4, 2), ExpertRouting(tokens=matrix), 2)
    traffic = exchanged(routing, Exchange.ALLTOALL, np.array([0, 1], np.int32))
    assert traffic.network == pytest.approx(np.array([[0, 1.0], [1.0, 0]]))
    assert routing.chance == pytest.approx(np.array(matrix) / 4)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"skew": 1.0, "tokens": [[1, 1]]}, "both say how popular"),
        ({"tokens": [[1, 1], [1]]}, "rows of one length"),
        ({"tokens": []}, "rows of one length"),
        ({"tokens": [[0, 0]]}, "sends no token"),
        ({"tokens": [[-1, 2]]}, "greater than or equal to 0"),
        ({"skew": -1}, "greater than or equal to 0"),
        ({"skew": float("nan")}, "finite"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_imbalance_that_cannot_be_is_refused(keys: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ExpertRouting.model_validate(keys)


def test_fp8_sends_half_the_bytes_and_scales() -> None:
    assert token_bytes(7168, Precision.BF16) == 14336
    assert token_bytes(7168, Precision.FP8) == 7168 + 56 * 4


def test_sends_of_two_groups_are_those_of_each_by_hand() -> None:
    routing = routing_of(shape(4, 2), ExpertRouting(), 2)
    groups = np.array([[0, 2], [1, 3]], np.int32)
    traffic = expert_traffic(routing, ExpertRouting(), groups, np.arange(4, dtype=np.int32))
    sends = traffic.sends(groups, 100.0, 300.0, 3)
    assert sends is not None
    # Two copies of a token, one of them on the other GPU: 100 there and 300 back, three times.
    assert sorted(zip(sends.source, sends.destination, sends.size_bytes, strict=True)) == [
        (0, 2, 1200), (1, 3, 1200), (2, 0, 1200), (3, 1, 1200)
    ]  # fmt: skip
    assert np.unique(sends.rounds).tolist() == [6]
