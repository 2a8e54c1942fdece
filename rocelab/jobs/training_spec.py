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
from rocelab.base.wording import RefusedError, listed
from rocelab.jobs.experts import Exchange, ExpertRouting, Overlap
from rocelab.jobs.gpus import GPUS, Gpu, GpuName, Precision
from rocelab.jobs.kernels import Speed
from rocelab.jobs.model_shape import Flops
from rocelab.jobs.models import Model
from rocelab.jobs.parallelism import RankLayout
from rocelab.jobs.training_checkpoint import TrainingCheckpoint
from rocelab.jobs.workloads import WorkloadRate, WorkloadSpec

MAX_RANKS = 2**17
NVLINK_BPS = 450e9
"""Of an H100, bytes per second one way, where no type is given."""

Ways = Annotated[int, Field(ge=1, le=MAX_RANKS)]


class Sharding(StrEnum):
    """What data parallel ranks keep: everything, or a share of the optimizer, of gradients too, or
    of parameters too."""

    NONE = "none"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP = "fsdp"


class Recompute(StrEnum):
    """What the backward pass computes again instead of keeping it."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class PipelineSchedule(StrEnum):
    """In which order stages compute micro-batches."""

    ONE_F_ONE_B = "1f1b"
    DUALPIPE = "dualpipe"


class RankOrder(StrEnum):
    """Which ranks are neighbours, the nearest first."""

    PIPELINE_INSIDE = "tp-cp-pp-dp"
    PIPELINE_OUTSIDE = "tp-cp-dp-pp"


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
        Ways,
        Field(
            description="GPUs that divide the experts of a layer among them: replicas, and with "
            "expert_tensor 1 the tensor parallel GPUs of a replica too"
        ),
    ] = 1
    expert_tensor: Annotated[
        int | None,
        Field(
            ge=1, description="tensor parallel GPUs that divide an expert; left out: tensor; or 1"
        ),
    ] = None
    routing: Annotated[
        ExpertRouting, Field(description="how tokens travel to experts and back")
    ] = ExpertRouting()
    order: Annotated[
        RankOrder | None,
        Field(
            strict=False,
            description="which ranks are neighbours, nearest first; left out: tp-cp-pp-dp, and "
            "tp-cp-dp-pp where experts are divided, so that those GPUs share servers",
        ),
    ] = None
    sharding: Annotated[
        Sharding,
        Field(
            strict=False,
            description="none: gradients are all-reduced in bf16; else gradients are "
            "reduce-scattered in fp32 and parameters gathered in bf16 once an iteration, and each "
            "GPU keeps a share of the optimizer (zero1), also of gradients (zero2 and fsdp, which "
            "keeps what it gathered), also of parameters (zero3, which gathers them for each pass)",
        ),
    ] = Sharding.NONE
    recompute: Annotated[
        Recompute,
        Field(
            strict=False,
            description="what the backward pass computes again: none; selective: "
            "normalisations, activations and the projections of latent attention; full: all",
        ),
    ] = Recompute.NONE
    optimizer_bytes: Annotated[
        int,
        Field(ge=0, le=64, description="of a parameter's optimizer state; 12: Adam in fp32"),
    ] = 12
    schedule: Annotated[
        PipelineSchedule,
        Field(
            strict=False,
            description="1f1b, with chunks where interleave says so; or dualpipe, both ways at "
            "once, with expert traffic behind the other way's computation",
        ),
    ] = PipelineSchedule.ONE_F_ONE_B
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
    gpu: Annotated[
        GpuName | None,
        Field(
            description="type of GPU: its table of speeds and its memory, which the job must fit"
        ),
    ] = None
    precision: Annotated[
        Precision, Field(strict=False, description="what matrices are multiplied in")
    ] = Precision.BF16
    gpu_flops: Annotated[
        Flops | None,
        Field(
            ge=10**9,
            description="constant speed of a GPU while it computes, instead of its type's table: "
            "without pipeline bubbles and whatever waits for another GPU, so more than a published "
            "average",
        ),
    ] = None
    ignore_memory: Annotated[
        bool, Field(description="simulate it though it does not fit the GPUs' memory")
    ] = False
    gpu_peak: Annotated[
        Flops | None,
        Field(
            ge=10**9,
            description="the GPU's peak speed, for MFU; left out: its type's in bf16, or no MFU",
        ),
    ] = None
    server_gpus: Annotated[int, Field(ge=1, le=1024, description="GPUs of a server")] = 8
    nvlink: Annotated[
        BytesPerSecond | None,
        Field(
            ge=10**6,
            description="what a GPU sends to others of its server, one way; left out: its type's, "
            "or 450GB/s",
        ),
    ] = None
    tensor_overlap: Annotated[
        SharePpm,
        Field(
            le=10**6,
            description="share of tensor parallel traffic within servers that computation hides",
        ),
    ] = 0
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
    checkpoint: Annotated[
        TrainingCheckpoint | None,
        Field(description="when the job's state is written to storage; left out: never"),
    ] = None

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
        if self.expert_tensor not in (None, 1, self.tensor):
            raise RefusedError(
                f"{self.expert_tensor} of {self.tensor} tensor parallel GPUs cannot divide an "
                "expert",
                "expert_tensor is 1, or as tensor",
                keys=("expert_tensor", "tensor"),
            )
        if self.data * self.spread_tensor % self.expert or self.expert % self.spread_tensor:
            raise RefusedError(
                f"{self.data * self.spread_tensor} replicas do not divide into groups of "
                f"{self.expert}",
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
    def _routing_of_this_model(self) -> Self:
        if not self.model.has_experts and self.routing != ExpertRouting():
            raise RefusedError(
                "a model without experts routes no tokens",
                "remove routing, or give the model experts",
                keys=("routing", "model"),
            )
        self.routing.check(self.model, self.expert)
        return self

    @model_validator(mode="after")
    def _a_speed(self) -> Self:
        if self.gpu is None and self.gpu_flops is None:
            raise RefusedError(
                "expected gpu or gpu_flops",
                f"gpu: {listed(GPUS)}; or gpu_flops: a constant speed such as 400T",
                keys=("gpu_flops", "gpu", "model"),
            )
        return self

    @model_validator(mode="after")
    def _a_schedule_that_fills(self) -> Self:
        if self.schedule is PipelineSchedule.DUALPIPE and (
            self.interleave > 1
            or self.pipeline % 2
            or self.micro_batches % 2
            or self.micro_batches < 2 * self.pipeline
        ):
            raise RefusedError(
                f"DualPipe wants an even number of stages, without interleave, and an even number "
                f"of micro-batches, two for each stage or more; here are {self.micro_batches} for "
                f"{self.pipeline} stages",
                "change pipeline or micro_batches, or remove schedule",
                keys=("schedule", "micro_batches", "pipeline", "interleave"),
            )
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
        if (peak := self.peak_flops) is not None:
            shares = [100 * rate / peak for rate in flops]
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
        """Operations of the model in one iteration: forward, and twice that backward; what is
        computed again does not count."""
        return 3 * self.model.forward_flops(self.tokens_per_iteration, self.tokens, training=True)

    @property
    def gpu_type(self) -> Gpu | None:
        return None if self.gpu is None else GPUS[self.gpu]

    @property
    def peak_flops(self) -> float | None:
        """For MFU."""
        return self.gpu_peak or (None if self.gpu_type is None else self.gpu_type.bf16_flops)

    @property
    def speed(self) -> Speed:
        """How fast a GPU computes."""
        gpu = self.gpu_type
        memory_bps = float("inf") if gpu is None or self.gpu_flops else gpu.memory_bps
        return Speed(memory_bps, self.gpu_flops, gpu, self.precision)

    @property
    def nvlink_bps(self) -> float:
        """Bytes per second, one way."""
        if self.nvlink is not None:
            return self.nvlink
        return NVLINK_BPS if self.gpu_type is None else self.gpu_type.nvlink_bps

    @property
    def spread_tensor(self) -> int:
        """Tensor parallel GPUs that hold different experts."""
        return 1 if self.expert_tensor in (None, self.tensor) else self.tensor

    @property
    def divided_expert(self) -> int:
        """GPUs that divide one expert."""
        return self.tensor // self.spread_tensor

    @property
    def hides_experts(self) -> bool:
        """Whether expert traffic travels while GPUs compute."""
        dualpipe = self.schedule is PipelineSchedule.DUALPIPE
        return dualpipe or self.routing.overlap is Overlap.MICRO_BATCHES

    @property
    def sends_per_server(self) -> bool:
        return self.routing.exchange is Exchange.PER_SERVER

    @property
    def pipeline_outside(self) -> bool:
        """Whether the stages are the outermost dimension of the ranks."""
        if self.order is None:
            return self.expert > 1
        return self.order is RankOrder.PIPELINE_OUTSIDE

    @property
    def overlapped(self) -> float:
        """`overlap` as a fraction."""
        return self.overlap / SHARE.units["%"] / 100

    @cached_property
    def layout(self) -> RankLayout:
        """The layout of the ranks."""
        return RankLayout(
            self.tensor,
            self.context,
            self.pipeline,
            self.data,
            self.expert,
            pipeline_outside=self.pipeline_outside,
            expert_tensor=self.spread_tensor,
        )
