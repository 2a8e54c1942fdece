"""The shape of a transformer: its parameters, and its operations per token.

A frozen `ModelShape`, from a published name or from sizes of layers, heads and vocabulary, has
parameters and operations by formula. It does not know how a model is divided.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from rocelab.base.units import UnitScale
from rocelab.base.wording import RefusedError, described, did_you_mean, listed, shown
from rocelab.labfile.base import SpecModel, short_form

FLOPS = UnitScale(
    expected="a speed such as 400T or 1.2P",
    base_unit="floating-point operations per second",
    hint="a speed is floating-point operations per second: a number and G, T or P",
    units={"P": 10**15, "T": 10**12, "G": 10**9},
    examples=("400T", "1.2P"),
)
Flops = Annotated[
    int,
    BeforeValidator(FLOPS.parse),
    FLOPS,
    WithJsonSchema({"type": "string", "pattern": FLOPS.pattern}),
    PlainSerializer(FLOPS.written, return_type=str, when_used="json"),
]


class ModelShape(SpecModel):
    """A decoder of equal layers; with `experts`, each layer has that many feed-forward parts."""

    block: Annotated[
        Literal["gpt", "llama"],
        Field(
            description="gpt: two feed-forward matrices, biases, learned positions, one embedding; "
            "llama: three (SwiGLU), no biases, rotary positions, an output matrix of its own"
        ),
    ] = "llama"
    layers: Annotated[int, Field(ge=1, le=10_000)]
    hidden: Annotated[int, Field(ge=1, le=10**6, description="width of the residual stream")]
    heads: Annotated[int, Field(ge=1, le=10_000, description="attention heads")]
    kv_heads: Annotated[
        int | None,
        Field(ge=1, description="heads of keys and values (grouped queries); left out: heads"),
    ] = None
    ffn: Annotated[int, Field(ge=1, le=10**7, description="width within the feed-forward part")]
    vocab: Annotated[int, Field(ge=1, le=10**8, description="tokens of the vocabulary")]
    sequence: Annotated[int, Field(ge=1, le=10**8, description="tokens of a sequence")]
    experts: Annotated[int, Field(ge=1, le=10_000, description="experts of a layer")] = 1
    top_k: Annotated[int, Field(ge=1, description="experts that a token goes to")] = 1

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden % self.heads:
            raise RefusedError(
                f"a hidden size of {self.hidden} does not divide into {self.heads} heads",
                "give a number of heads that divides hidden",
                keys=("heads", "hidden"),
            )
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise RefusedError(
                f"{self.heads} heads do not share {self.kv_heads} heads of keys and values evenly",
                "give a number of kv_heads that divides heads",
                keys=("kv_heads", "heads"),
            )
        if self.top_k > self.experts:
            raise RefusedError(
                f"a token cannot go to {self.top_k} of {self.experts} experts",
                "top_k is at most experts",
                keys=("top_k", "experts"),
            )
        return self

    @property
    def kv_hidden(self) -> int:
        """Width of a layer's keys, and of its values."""
        return self.hidden // self.heads * (self.kv_heads or self.heads)

    @property
    def expert_parameters(self) -> int:
        """Parameters in the experts of all layers; 0 for a model without experts."""
        return self.layers * self.experts * self._feed_forward if self.experts > 1 else 0

    @property
    def dense_parameters(self) -> int:
        """Parameters outside of experts; for GPT's kind 12 L h^2 (1 + 13/12h) + (V + s) h + 2h.

        That is Narayanan et al., SC 2021, equation 2, and the last normalisation. Llama's kind has
        no biases and positions, and two embeddings.
        """
        hidden, kv_hidden = self.hidden, self.kv_hidden
        layer = 2 * hidden * hidden + 2 * hidden * kv_hidden
        if self.block == "gpt":
            layer += 2 * hidden + 2 * kv_hidden + 4 * hidden
            outside = (self.vocab + self.sequence) * hidden + 2 * hidden
        else:
            layer += 2 * hidden
            outside = 2 * self.vocab * hidden + hidden
        layer += hidden * self.experts if self.experts > 1 else self._feed_forward
        return self.layers * layer + outside

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.dense_parameters + self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses."""
        return self.dense_parameters + self.expert_parameters * self.top_k // self.experts

    @property
    def _feed_forward(self) -> int:
        matrices = (2 if self.block == "gpt" else 3) * self.hidden * self.ffn
        return matrices + (self.ffn + self.hidden if self.block == "gpt" else 0)

    def forward_flops(self, tokens: float, sequence: int) -> float:
        """Operations of a forward pass over `tokens` in sequences of `sequence`.

        2 per active parameter and token, and 4 L h s per token for attention, without regard to the
        causal mask; with a backward pass of twice as many, 6 N + 12 L h s (Kaplan et al. 2020,
        section 2.1; Chowdhery et al. 2022 (PaLM), appendix B).
        """
        return tokens * (2 * self.active_parameters + 4 * self.layers * self.hidden * sequence)


MODELS: Mapping[str, ModelShape] = {
    # Brown et al. 2020, table 2.1 and section 2.1; the vocabulary is GPT-2's.
    "gpt3-175b": ModelShape(
        block="gpt", layers=96, hidden=12288, heads=96, ffn=49152, vocab=50257, sequence=2048
    ),
    # Dubey et al. 2024, table 3.
    "llama3-405b": ModelShape(
        layers=126,
        hidden=16384,
        heads=128,
        kv_heads=8,
        ffn=53248,
        vocab=128256,
        sequence=8192,
    ),
}


def _named(value: object) -> object:
    if isinstance(value, str):
        if value in MODELS:
            return MODELS[value]
        raise RefusedError(
            f"expected {listed([*MODELS, 'a block of keys'])}, got {shown(value)}",
            did_you_mean(value, MODELS) or "write its layers, hidden, heads and so on",
        )
    if isinstance(value, Mapping | ModelShape):
        return value
    raise RefusedError(f"expected {listed([*MODELS, 'a block of keys'])}, got {described(value)}")


Model = Annotated[
    ModelShape,
    BeforeValidator(_named),
    short_form({"enum": list(MODELS)}),
    Field(description=f"{listed(MODELS)}, or a shape: layers, hidden, heads, ffn, vocab, sequence"),
]
