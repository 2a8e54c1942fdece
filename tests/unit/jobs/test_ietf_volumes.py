"""Bytes that draft-calabria-bmwg-ai-fabric-inference-bench gives for caches and for experts."""

from __future__ import annotations

import pytest

from rocelab.jobs.model_shape import ModelShape
from rocelab.jobs.models import MODELS
from rocelab.jobs.volumes import expert_bytes

K = 1024


@pytest.mark.parametrize(
    ("model", "tokens", "gigabytes"),
    [
        ("llama3-8b", 4 * K, 0.54),
        ("llama3-8b", 32 * K, 4.3),
        ("llama3-8b", 128 * K, 17.2),
        ("llama3-70b", 4 * K, 1.34),
        ("llama3-70b", 32 * K, 10.7),
        ("llama3-70b", 128 * K, 43),
    ],
)
def test_a_cache_weighs_what_configurations_a_and_b_say(
    model: str, tokens: int, gigabytes: float
) -> None:
    assert MODELS[model].cache_bytes * tokens / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize(
    ("experts", "top_k", "hidden", "kilobytes"),
    [(8, 2, 4096, 21.8), (64, 4, 7168, 76.5), (256, 2, 7168, 38.2), (256, 8, 7168, 153)],
)
def test_a_pair_of_gpus_exchanges_what_the_matrix_of_experts_says(
    experts: int, top_k: int, hidden: int, kilobytes: float
) -> None:
    """B k H P / N, of 128 tokens in bf16 on 96 GPUs."""
    model = ModelShape(
        layers=1,
        hidden=hidden,
        heads=32,
        ffn=1024,
        vocab=1000,
        sequence=1024,
        experts=experts,
        top_k=top_k,
    )
    assert expert_bytes(model, 128) / 96 / 1e3 == pytest.approx(kilobytes, rel=0.005)
