"""A model that serves requests, as a user writes it: replicas, batches, caches and objectives.

Validates the block `serving` of a job; `rocelab.jobs.serving.workload` makes its flows and figures.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from rocelab.base import quantities
from rocelab.base.units import DurationNs
from rocelab.base.wording import RefusedError
from rocelab.jobs.gpus import GPUS
from rocelab.jobs.inference_spec import Count, ServedModel
from rocelab.jobs.serving.request_spec import RequestsSpec
from rocelab.jobs.serving_memory import CHUNK_TOKENS, kept_memory
from rocelab.jobs.training_spec import MAX_RANKS
from rocelab.jobs.transport import MAX_DURATION
from rocelab.jobs.workloads import MemoryPart

MOST_PARTS = 1024


class Reuse(StrEnum):
    """What a prompt that begins like earlier ones saves."""

    NONE = "none"
    PREFILL = "prefill"
    BOTH = "both"


class RequestServingSpec(ServedModel):
    """Replicas of a model that answer requests."""

    requests: Annotated[RequestsSpec, Field(description="who asks what, and when")]
    decode: Annotated[
        Count | None,
        Field(description="replicas that decode; left out: those that prefill decode too"),
    ] = None
    nics: Annotated[
        Count | None,
        Field(description="NICs of a replica, the ranks of the job; left out: one for each GPU"),
    ] = None
    batch_tokens: Annotated[
        int,
        Field(ge=1, le=10**8, description="tokens of prompts that are computed together, at most"),
    ] = CHUNK_TOKENS
    batch_requests: Annotated[
        int,
        Field(ge=1, le=2**16, description="requests that a replica decodes together, at most"),
    ] = 256
    reuse: Annotated[
        Reuse,
        Field(
            strict=False,
            description="what the beginning of a prompt that earlier ones had saves: none; "
            "prefill: its computation; both: its keys and values do not travel either",
        ),
    ] = Reuse.BOTH
    cache_parts: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_PARTS,
            description="layers' keys and values are sent in so many parts while later ones "
            "compute; 1: all after the prefill",
        ),
    ] = 1
    ttft: Annotated[
        DurationNs | None,
        Field(gt=0, le=MAX_DURATION, description="objective: time to first token, at most"),
    ] = None
    itl: Annotated[
        DurationNs | None,
        Field(gt=0, le=MAX_DURATION, description="objective: mean time between tokens, at most"),
    ] = None

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        room = self.cache_room_bytes
        if room is not None and room <= 0:
            raise RefusedError(
                f"parameters and activations leave {quantities.memory(0)} of a GPU's memory for "
                f"caches: {quantities.memory(-room)} are missing",
                "take more tensor or pipeline parallel GPUs, precision: fp8, or ignore_memory",
                keys=("tensor", "pipeline", "gpu", "model"),
            )
        return self

    def _refusals(self) -> dict[tuple[str, ...], tuple[object, str, str]]:
        return {
            **super()._refusals(),
            ("prefill", "decode"): (
                max(self.ranks, self.gpus * self.replicas) > MAX_RANKS,
                f"{self.gpus * self.replicas:,} GPUs; at most {MAX_RANKS:,} are planned",
                "take fewer replicas",
            ),
        }

    @property
    def decoders(self) -> int:
        return self.prefill if self.decode is None else self.decode

    @property
    def replicas(self) -> int:
        return self.prefill + (self.decode or 0)

    @property
    def gpus(self) -> int:
        """Of a replica."""
        return self.tensor * self.pipeline

    @property
    def replica_nics(self) -> int:
        return self.gpus if self.nics is None else self.nics

    @property
    def ranks(self) -> int:
        """The NICs of all replicas, of those that prefill first."""
        return self.replica_nics * self.replicas

    @property
    def memory_parts(self) -> tuple[MemoryPart, ...]:
        """What a decoding GPU keeps besides its cache."""
        tokens = self.batch_requests
        if self.decode is None:
            tokens = max(tokens, min(self.batch_tokens, CHUNK_TOKENS))
        return tuple(part for part in kept_memory(self, self.decoding, 0, tokens) if part.bytes > 0)

    @property
    def cache_room_bytes(self) -> float | None:
        """What a decoding GPU has for its cache, below 0 if nothing; None: as much as it wants."""
        if self.gpu is None or self.ignore_memory:
            return None
        return GPUS[self.gpu].memory_bytes - sum(part.bytes for part in self.memory_parts)

    @property
    def cache_tokens(self) -> int | None:
        """Tokens of prompts and answers in the cache of a decoding replica, at most."""
        room = self.cache_room_bytes
        return None if room is None else int(room / self.cache_bytes)
