"""Published models: parameters, caches and operations."""

from typing import Any

import pytest
from pydantic import ValidationError

from rocelab.jobs.model_shape import ModelShape
from rocelab.jobs.models import MODELS

PUBLISHED = {
    # All parameters and those of a token, in billions, by the models' own reports.
    "gpt3-175b": (175, 175),
    "llama3-8b": (8.0, 8.0),
    "llama3-70b": (70.6, 70.6),
    "llama3-405b": (405, 405),
    "mixtral-8x7b": (46.7, 12.9),
    "qwen3-235b": (235, 22),
    "deepseek-v3": (671, 37),
}


def test_every_model_that_ships_has_a_published_size() -> None:
    assert set(PUBLISHED) == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_published_parameters(name: str) -> None:
    model, (every, active) = MODELS[name], PUBLISHED[name]
    assert model.parameters == pytest.approx(every * 1e9, rel=0.01)
    assert model.active_parameters == pytest.approx(active * 1e9, rel=0.02)


def test_deepseek_has_as_many_parameters_as_its_weights() -> None:
    # The sum over the tensors of the released model, without the layer that predicts ahead.
    assert MODELS["deepseek-v3"].parameters == 671_026_404_352


@pytest.mark.parametrize(
    ("name", "cached"),
    [("llama3-70b", 327_680), ("qwen3-235b", 192_512), ("deepseek-v3", 70_272)],
)
def test_a_token_s_cache_has_the_published_bytes(name: str, cached: int) -> None:
    assert MODELS[name].cache_bytes == cached


def test_operations_are_those_that_deepseek_counts_for_a_token() -> None:
    # DeepSeek-AI 2025 (Insights into DeepSeek-V3), table 4: 432 TFLOPS on 2,048 GPUs, 19.926 s a
    # step of 15,360 sequences of 4,096, without the layer that predicts ahead.
    published = 432e12 * 2048 * 19.926 / (15360 * 4096)
    assert 3 * MODELS["deepseek-v3"].forward_flops(1, 4096) == pytest.approx(published, rel=0.01)


def test_a_layer_that_predicts_ahead_costs_a_layer_and_an_output_matrix() -> None:
    model = MODELS["deepseek-v3"]
    extra = model.forward_flops(1, 4096, training=True) - model.forward_flops(1, 4096)
    dense, experts = model.ahead_parameters
    attended = 2 * (128 * 192 + 128 * 128) * 4096
    assert extra == pytest.approx(2 * (dense + experts / 32 + 129280 * 7168) + attended)
    without = model.model_copy(update={"predicted_ahead": 0})
    assert without.forward_flops(1, 4096, training=True) == model.forward_flops(1, 4096)


def test_tied_embeddings_are_one_matrix_that_multiplies() -> None:
    model = MODELS["llama3-8b"]
    tied = model.model_copy(update={"tied": True})
    assert model.parameters - tied.parameters == 128256 * 4096
    assert model.forward_flops(1, 1) == tied.forward_flops(1, 1)


TINY: dict[str, Any] = {
    "layers": 4,
    "hidden": 64,
    "heads": 4,
    "ffn": 128,
    "vocab": 100,
    "sequence": 32,
}
MLA = {"kv_rank": 8, "rope": 4, "nope": 8, "value": 8}


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"experts": 4, "top_k": 5}, "cannot go to 5 of 4"),
        ({"shared_experts": 1}, "for a model with experts"),
        ({"experts": 4, "dense_layers": 4}, "leave none with"),
        ({"experts": 6, "expert_groups": 4}, "do not divide into 4 groups"),
        ({"experts": 8, "expert_groups": 4, "top_groups": 5}, "goes to 5"),
        ({"experts": 8, "expert_groups": 4, "top_groups": 1, "top_k": 3}, "fewer than 3"),
        ({"latent": MLA, "kv_heads": 2}, "latent attention has no kv_heads"),
        ({"hidden": 65}, "does not divide into 4 heads"),
        ({"latent": {**MLA, "kv_rank": 0}}, "greater than or equal to 1"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_shape_that_cannot_be_is_refused(keys: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ModelShape.model_validate({**TINY, **keys})


def test_a_head_may_be_wider_than_its_share_of_hidden() -> None:
    model = ModelShape.model_validate({**TINY, "head_width": 32, "kv_heads": 2})
    assert (model.q_hidden, model.kv_hidden) == (128, 64)
    assert model.cache_bytes == 2 * 2 * 4 * 64
