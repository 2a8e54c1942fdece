"""Published models by name, and `Model`: the key of a job that names one or gives a shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from rocelab.base.wording import RefusedError, described, did_you_mean, listed, shown
from rocelab.jobs.model_shape import LatentAttention, ModelShape
from rocelab.labfile.base import short_form

MODELS: Mapping[str, ModelShape] = {
    # Brown et al. 2020, table 2.1 and section 2.1; the vocabulary is GPT-2's.
    "gpt3-175b": ModelShape(
        block="gpt", layers=96, hidden=12288, heads=96, ffn=49152, vocab=50257, sequence=2048
    ),
    # Dubey et al. 2024, table 3.
    "llama3-8b": ModelShape(
        layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, sequence=8192
    ),
    "llama3-70b": ModelShape(
        layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocab=128256, sequence=8192
    ),
    "llama3-405b": ModelShape(
        layers=126, hidden=16384, heads=128, kv_heads=8, ffn=53248, vocab=128256, sequence=8192
    ),
    # Jiang et al. 2024 (Mixtral of Experts), table 1.
    "mixtral-8x7b": ModelShape(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        ffn=14336,
        vocab=32000,
        sequence=32768,
        experts=8,
        top_k=2,
    ),
    # Yang et al. 2025 (Qwen3), table 2, and the config.json of Qwen/Qwen3-235B-A22B.
    "qwen3-235b": ModelShape(
        layers=94,
        hidden=4096,
        heads=64,
        kv_heads=4,
        head_width=128,
        ffn=12288,
        vocab=151936,
        sequence=4096,
        experts=128,
        top_k=8,
        expert_ffn=1536,
    ),
    # DeepSeek-AI 2024 (DeepSeek-V3), sections 4.2 and 2.2, and the model's config.json; sequences
    # of pre-training.
    "deepseek-v3": ModelShape(
        layers=61,
        hidden=7168,
        heads=128,
        latent=LatentAttention(kv_rank=512, rope=64, q_rank=1536, nope=128, value=128),
        ffn=18432,
        vocab=129280,
        sequence=4096,
        experts=256,
        top_k=8,
        expert_ffn=2048,
        shared_experts=1,
        dense_layers=3,
        expert_groups=8,
        top_groups=4,
        predicted_ahead=1,
    ),
}
EXPECTED = [*MODELS, "a block of keys"]


def _named(value: object) -> object:
    if isinstance(value, str):
        if value in MODELS:
            return MODELS[value]
        raise RefusedError(
            f"expected {listed(EXPECTED)}, got {shown(value)}",
            did_you_mean(value, MODELS)
            or "write its layers, hidden, heads and so on, or config: and a Hugging Face "
            "config.json",
        )
    if isinstance(value, Mapping | ModelShape):
        return value
    raise RefusedError(f"expected {listed(EXPECTED)}, got {described(value)}")


Model = Annotated[
    ModelShape,
    BeforeValidator(_named),
    short_form({"enum": list(MODELS)}),
    Field(
        description=f"{listed(MODELS)}, or a shape: layers, hidden, heads, ffn, vocab, sequence; "
        "or in a file of jobs {config: FILE}, a Hugging Face config.json"
    ),
]
