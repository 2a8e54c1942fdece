"""The shape of a transformer: its parameters, its operations per token, and its cache.

A frozen `ModelShape`, from sizes of layers, heads, experts and vocabulary, has parameters and
operations by formula. It does not know how a model is divided. `rocelab.jobs.models` has published
ones.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from rocelab.base.units import UnitScale
from rocelab.base.wording import RefusedError
from rocelab.labfile.base import SpecModel

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


BF16_BYTES = 2
FP32_BYTES = 4

Width = Annotated[int, Field(ge=1, le=10**6)]


class LatentAttention(SpecModel):
    """Multi-head latent attention: keys and values of all heads are made from one short vector
    (DeepSeek-AI 2024 (DeepSeek-V2), section 2.1)."""

    kv_rank: Annotated[Width, Field(description="width of the vector that the cache holds")]
    rope: Annotated[Width, Field(description="width of the key that all heads share, cached too")]
    q_rank: Annotated[
        Width | None, Field(description="width that queries are made from; left out: hidden")
    ] = None
    nope: Annotated[Width, Field(description="width of each head's own part of a key")]
    value: Annotated[Width, Field(description="width of each head's values")]


class ModelShape(SpecModel):
    """A decoder of equal layers; with `experts`, each layer but the first `dense_layers` has that
    many feed-forward parts."""

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
    head_width: Annotated[
        Width | None, Field(description="width of a head; left out: hidden / heads")
    ] = None
    latent: Annotated[
        LatentAttention | None, Field(description="multi-head latent attention (MLA)")
    ] = None
    ffn: Annotated[int, Field(ge=1, le=10**7, description="width within the feed-forward part")]
    vocab: Annotated[int, Field(ge=1, le=10**8, description="tokens of the vocabulary")]
    tied: Annotated[bool, Field(description="the embedding is the output matrix too")] = False
    sequence: Annotated[int, Field(ge=1, le=10**8, description="tokens of a sequence")]
    experts: Annotated[int, Field(ge=1, le=10_000, description="experts of a layer")] = 1
    top_k: Annotated[int, Field(ge=1, description="experts that a token goes to")] = 1
    expert_ffn: Annotated[
        int | None, Field(ge=1, le=10**7, description="width within an expert; left out: ffn")
    ] = None
    shared_experts: Annotated[
        int, Field(ge=0, le=1000, description="experts that every token goes to, besides top_k")
    ] = 0
    dense_layers: Annotated[
        int, Field(ge=0, description="leading layers without experts, of width ffn")
    ] = 0
    expert_groups: Annotated[
        int, Field(ge=1, le=1000, description="groups of experts that routing is limited by")
    ] = 1
    top_groups: Annotated[
        int | None, Field(ge=1, description="groups that a token goes to; left out: all")
    ] = None
    predicted_ahead: Annotated[
        int,
        Field(ge=0, le=16, description="further tokens predicted in training, a layer each (MTP)"),
    ] = 0

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.head_width is None and self.latent is None and self.hidden % self.heads:
            raise RefusedError(
                f"a hidden size of {self.hidden} does not divide into {self.heads} heads",
                "give a number of heads that divides hidden, or a head_width",
                keys=("heads", "hidden"),
            )
        if self.latent is not None and (self.kv_heads or self.head_width):
            raise RefusedError(
                "latent attention has no kv_heads and no head_width",
                "remove them: latent says the widths",
                keys=("kv_heads", "head_width", "latent"),
            )
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise RefusedError(
                f"{self.heads} heads do not share {self.kv_heads} heads of keys and values evenly",
                "give a number of kv_heads that divides heads",
                keys=("kv_heads", "heads"),
            )
        return self

    @model_validator(mode="after")
    def _experts_agree(self) -> Self:
        if self.top_k > self.experts:
            raise RefusedError(
                f"a token cannot go to {self.top_k} of {self.experts} experts",
                "top_k is at most experts",
                keys=("top_k", "experts"),
            )
        if self.experts == 1:
            said = [
                key
                for key in ("expert_ffn", "shared_experts", "dense_layers", "expert_groups")
                if getattr(self, key) != type(self).model_fields[key].default
            ]
            if said:
                raise RefusedError(
                    f"{said[0]} is for a model with experts",
                    "remove it, or give experts",
                    keys=(*said, "experts"),
                )
        if self.dense_layers >= self.layers and self.experts > 1:
            raise RefusedError(
                f"{self.dense_layers} of {self.layers} layers without experts leave none with",
                "give fewer dense_layers, or remove experts",
                keys=("dense_layers", "layers"),
            )
        groups, limit = self.expert_groups, self.routed_groups
        if self.experts % groups or limit > groups:
            raise RefusedError(
                f"{self.experts} experts do not divide into {groups} groups of which a token "
                f"goes to {limit}",
                "expert_groups divides experts, and top_groups is at most expert_groups",
                keys=("expert_groups", "top_groups", "experts"),
            )
        if self.top_k > limit * (self.experts // groups):
            raise RefusedError(
                f"{limit} groups of {self.experts // groups} experts are fewer than {self.top_k}",
                "raise top_groups, or lower top_k",
                keys=("top_groups", "top_k", "expert_groups"),
            )
        return self

    @property
    def routed_groups(self) -> int:
        """Groups of experts that a token goes to at most."""
        return self.top_groups or self.expert_groups

    @property
    def has_experts(self) -> bool:
        return self.experts > 1

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.has_experts else 0

    @property
    def expert_width(self) -> int:
        return self.expert_ffn or self.ffn

    @property
    def q_hidden(self) -> int:
        """Width of a layer's queries, all heads."""
        if self.latent is not None:
            return self.heads * (self.latent.nope + self.latent.rope)
        return self.heads * (self.head_width or self.hidden // self.heads)

    @property
    def value_hidden(self) -> int:
        """Width of what all heads give."""
        return self.q_hidden if self.latent is None else self.heads * self.latent.value

    @property
    def kv_hidden(self) -> int:
        """Width of a layer's keys, and of its values, before they are shared by heads; of latent
        attention that of its longer keys."""
        return self.q_hidden // self.heads * (self.kv_heads or self.heads)

    @property
    def cached_heads(self) -> int:
        """Into how many tensor parallel parts the cache divides at most."""
        return 1 if self.latent is not None else self.kv_heads or self.heads

    @property
    def cached_width(self) -> int:
        """Values that a layer caches for a token: keys and values, or the latent vector and the
        shared key."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope
        return 2 * self.kv_hidden

    @property
    def cache_bytes(self) -> int:
        """Bytes of all layers' cache for a token in bf16: 2 x 2 L h_kv (Kwon et al. 2023
        (PagedAttention), section 3), of latent attention 2 L (kv_rank + rope)."""
        return BF16_BYTES * self.layers * self.cached_width

    @property
    def attention_matrices(self) -> tuple[tuple[int, int], ...]:
        """A layer's matrices around attention, each as (inputs, outputs)."""
        hidden = self.hidden
        if (latent := self.latent) is None:
            return (hidden, self.q_hidden + 2 * self.kv_hidden), (self.q_hidden, hidden)
        queries: tuple[tuple[int, int], ...] = ((hidden, self.q_hidden),)
        if latent.q_rank is not None:
            queries = ((hidden, latent.q_rank), (latent.q_rank, self.q_hidden))
        return (
            *queries,
            (hidden, latent.kv_rank + latent.rope),
            (latent.kv_rank, self.heads * (latent.nope + latent.value)),
            (self.value_hidden, hidden),
        )

    @property
    def expert_parameters(self) -> int:
        """Parameters in the routed experts of all layers; 0 for a model without experts."""
        return self.expert_layers * self.experts * self.feed_forward(self.expert_width)

    @property
    def dense_parameters(self) -> int:
        """Parameters outside of routed experts; for GPT's kind 12 L h^2 (1 + 13/12h) + (V + s) h +
        2h.

        That is Narayanan et al., SC 2021, equation 2, and the last normalisation. Llama's kind has
        no biases and positions, and two embeddings.
        """
        hidden = self.hidden
        layer = sum(rows * columns for rows, columns in self.attention_matrices)
        if self.block == "gpt":
            layer += self.q_hidden + 2 * self.kv_hidden + hidden + 4 * hidden
        else:
            layer += 2 * hidden
        if self.latent is not None:
            layer += self.latent.kv_rank + (self.latent.q_rank or 0)
        dense = self.layers - self.expert_layers
        parameters = self.layers * layer + dense * self.feed_forward(self.ffn)
        parameters += self.expert_layers * (hidden * self.experts + self._shared)
        return parameters + self._outside

    @property
    def _shared(self) -> int:
        return self.shared_experts * self.feed_forward(self.expert_width)

    @property
    def _outside(self) -> int:
        """Embedding, positions, output matrix and the last normalisation."""
        if self.block == "gpt":
            return (self.vocab + self.sequence) * self.hidden + 2 * self.hidden
        return (1 if self.tied else 2) * self.vocab * self.hidden + self.hidden

    @property
    def parameters(self) -> int:
        """All parameters that a served model has."""
        return self.dense_parameters + self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses."""
        return self.dense_parameters + self.expert_parameters * self.top_k // self.experts

    @property
    def ahead_parameters(self) -> tuple[int, int]:
        """Parameters of the layers that predict further tokens in training, without embedding and
        output matrix, which are shared: outside of experts, and in experts. Each is a layer and a
        projection of 2h (DeepSeek-AI 2024 (DeepSeek-V3), section 2.2)."""
        if not self.predicted_ahead:
            return 0, 0
        layer = sum(rows * columns for rows, columns in self.attention_matrices)
        layer += 2 * self.hidden * self.hidden + 5 * self.hidden
        if not self.has_experts:
            return self.predicted_ahead * (layer + self.feed_forward(self.ffn)), 0
        layer += self.hidden * self.experts + self._shared
        experts = self.experts * self.feed_forward(self.expert_width)
        return self.predicted_ahead * layer, self.predicted_ahead * experts

    def feed_forward(self, width: int) -> int:
        """Parameters of a feed-forward part of that width."""
        matrices = self.up_matrices * self.hidden * width + width * self.hidden
        return matrices + (width + self.hidden if self.block == "gpt" else 0)

    @property
    def up_matrices(self) -> int:
        """Matrices of a feed-forward part before its activation."""
        return 1 if self.block == "gpt" else 2

    def forward_flops(self, tokens: float, sequence: int, *, training: bool = False) -> float:
        """Operations of a forward pass over `tokens` in sequences of `sequence`.

        2 per active parameter and token except the looked-up embedding, which is no operation, and
        4 L h s per token for attention (2 L s times the width of queries and of values), without
        regard to the causal mask; with a backward pass of twice as many, 6 N + 12 L h s (Kaplan et
        al. 2020, section 2.1; Chowdhery et al. 2022 (PaLM), appendix B). training: with the layers
        that predict further tokens, and their output matrix.
        """
        looked_up = 0 if self.tied else self.vocab
        if self.block == "gpt":
            looked_up = self.sequence
        parameters = self.active_parameters - looked_up * self.hidden
        layers = self.layers
        if training and self.predicted_ahead:
            dense, experts = self.ahead_parameters
            parameters += dense + experts * self.top_k // self.experts
            parameters += self.predicted_ahead * self.vocab * self.hidden
            layers += self.predicted_ahead
        attended = 2 * layers * (self.q_hidden + self.value_hidden) * sequence
        return tokens * (2 * parameters + attended)
