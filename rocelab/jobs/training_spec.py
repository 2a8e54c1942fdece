"""The training of a large model as a user writes it: its shape and how it is divided.

Validates the block `training` of a job as a `TrainingSpec`; `rocelab.jobs.volumes` and
`rocelab.jobs.training` derive its computation and sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from rocelab.base.units import SHARE, BytesPerSecond, SharePpm
from rocelab.base.wording import RefusedError
from rocelab.jobs.models import Flops, Model
from rocelab.jobs.parallelism import RankLayout
from rocelab.jobs.workloads import WorkloadRate, WorkloadSpec

MAX_RANKS = 2**17

Ways = Annotated[int, Field(ge=1, le=MAX_RANKS)]


class Sharding(StrEnum):
    """What data parallel ranks keep: everything, or a share of the optimizer and gradients."""

    NONE = "none"
    FSDP = "fsdp"


class TrainingSpec(WorkloadSpec):
    """Training with up to five kinds of parallelism; one iteration is one optimizer step.

    `rocelab.jobs.training.TrainingJob` makes its steps.
    """

    title = "of a large model"
    place = 0
    may_send_nothing = True
    peers = 8  # a few neighbours in each dimension

    model: Model
    tensor: Annotated[Ways, Field(description="GPUs that divide each layer, within a server")] = 1
    context: Annotated[Ways, Field(description="GPUs that divide a sequence")] = 1
    pipeline: Annotated[Ways, Field(description="stages that divide the layers")] = 1
    data: Annotated[Ways, Field(description="replicas of the model")] = 1
    expert: Annotated[
        Ways, Field(description="replicas that divide the experts of a layer among them")
    ] = 1
    sharding: Annotated[
        Sharding,
        Field(
            strict=False,
            description="none: gradients are all-reduced in bf16; fsdp: parameters all-gathered in "
            "bf16 before the forward pass, gradients reduce-scattered in fp32",
        ),
    ] = Sharding.NONE
    micro_batches: Annotated[
        int, Field(ge=1, le=100_000, description="micro-batches of a replica per iteration")
    ] = 1
    micro_batch: Annotated[int, Field(ge=1, le=100_000, description="sequences in one")] = 1
    sequence: Annotated[
        int | None, Field(ge=1, le=10**8, description="tokens; left out: the model's")
    ] = None
    interleave: Annotated[
        int, Field(ge=1, le=1000, description="chunks of layers that each stage holds")
    ] = 1
    gpu_flops: Annotated[
        Flops,
        Field(
            ge=10**9,
            description="speed of a GPU while it computes: without pipeline bubbles and whatever "
            "waits for another GPU, so more than a published average",
        ),
    ]
    gpu_peak: Annotated[
        Flops | None,
        Field(ge=10**9, description="the GPU's peak speed, for MFU; left out: no MFU"),
    ] = None
    server_gpus: Annotated[int, Field(ge=1, le=1024, description="GPUs of a server")] = 8
    nvlink: Annotated[
        BytesPerSecond,
        Field(ge=10**6, description="what a GPU sends to others of its server, one way"),
    ] = 450 * 10**9
    overlap: Annotated[
        SharePpm,
        Field(
            le=10**6, description="share of data parallel bytes that may travel during computation"
        ),
    ] = 10**6
    buckets: Annotated[
        int,
        Field(ge=1, le=64, description="parts that a stage's gradients are sent in, as they come"),
    ] = 4

    @model_validator(mode="after")
    def _a_layout_of_this_model(self) -> Self:
        model = self.model
        if self.server_gpus % self.tensor:
            raise RefusedError(
                f"{self.tensor} tensor parallel GPUs do not fit evenly into a server of "
                f"{self.server_gpus}",
                "tensor parallelism is modelled within a server: use a divisor of server_gpus",
                keys=("tensor", "server_gpus"),
            )
        if model.heads % self.tensor:
            raise RefusedError(
                f"{model.heads} heads do not divide over {self.tensor} GPUs",
                "use a divisor of the model's heads",
                keys=("tensor", "model"),
            )
        if self.pipeline * self.interleave > model.layers:
            raise RefusedError(
                f"{model.layers} layers do not fill {self.pipeline} stages of {self.interleave}",
                "use fewer stages, or a smaller interleave",
                keys=("pipeline", "interleave"),
            )
        if self.tokens % (self.context * self.tensor):
            raise RefusedError(
                f"a sequence of {self.tokens} tokens does not divide over {self.context} x "
                f"{self.tensor} GPUs",
                "context x tensor divides the sequence",
                keys=("context", "sequence", "tensor"),
            )
        if self.ranks > MAX_RANKS:
            raise RefusedError(
                f"{self.ranks:,} GPUs; at most {MAX_RANKS:,} are planned",
                "ranks are tensor x context x pipeline x data",
                keys=("data", "pipeline", "context", "tensor"),
            )
        if self.ranks < 2:
            raise RefusedError(
                "a job of one GPU sends nothing",
                "give data, pipeline, context or tensor",
                keys=("data", "pipeline", "context", "tensor", "model"),
            )
        return self

    @model_validator(mode="after")
    def _experts_divide(self) -> Self:
        if self.data % self.expert:
            raise RefusedError(
                f"{self.data} replicas do not divide into groups of {self.expert}",
                "expert parallel GPUs are data parallel ones too: use a divisor of data",
                keys=("expert", "data"),
            )
        if self.model.experts % self.expert:
            raise RefusedError(
                f"{self.model.experts} per layer: experts do not divide over {self.expert} GPUs",
                "use a divisor of the model's experts; a model without experts has 1",
                keys=("expert", "model"),
            )
        return self

    @model_validator(mode="after")
    def _a_schedule_that_fills(self) -> Self:
        if self.interleave > 1 and (self.pipeline == 1 or self.micro_batches < self.pipeline):
            raise RefusedError(
                f"interleaving wants more than one stage and a micro-batch for each; here are "
                f"{self.micro_batches} for {self.pipeline}",
                "raise micro_batches, or remove interleave",
                keys=("interleave", "micro_batches"),
            )
        return self

    @property
    def ranks(self) -> int:
        """GPUs of the job, each with its own NIC."""
        return self.tensor * self.context * self.pipeline * self.data

    @property
    def server_ranks(self) -> int:
        return self.tensor

    def rates(self, seconds: Sequence[float]) -> list[WorkloadRate]:
        """Model operations per GPU and second, their share of the peak (MFU: Chowdhery et al. 2022
        (PaLM), appendix B), and tokens per second of all GPUs."""
        flops = [self.flops_per_iteration / time_s / self.ranks for time_s in seconds]
        rates = [WorkloadRate("gpu_tflops", "per GPU", "TFLOP/s", [rate / 1e12 for rate in flops])]
        if self.gpu_peak is not None:
            shares = [100 * rate / self.gpu_peak for rate in flops]
            rates.append(WorkloadRate("mfu", "MFU", "%", shares))
        tokens = [self.tokens_per_iteration / time_s for time_s in seconds]
        return [*rates, WorkloadRate("tokens", "tokens", "tokens/s", tokens)]

    @property
    def tokens(self) -> int:
        """Tokens of a sequence."""
        return self.sequence or self.model.sequence

    @property
    def tokens_per_iteration(self) -> int:
        """Tokens that all replicas together learn from in one iteration."""
        return self.data * self.micro_batches * self.micro_batch * self.tokens

    @property
    def flops_per_iteration(self) -> float:
        """Operations of all GPUs in one iteration: forward, and twice that backward."""
        return 3 * self.model.forward_flops(self.tokens_per_iteration, self.tokens)

    @property
    def overlapped(self) -> float:
        """`overlap` as a fraction."""
        return self.overlap / SHARE.units["%"] / 100

    @cached_property
    def layout(self) -> RankLayout:
        """The layout of the ranks."""
        return RankLayout(self.tensor, self.context, self.pipeline, self.data, self.expert)
