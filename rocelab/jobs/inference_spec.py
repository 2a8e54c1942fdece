"""The serving of a large model as a user writes it: its shape, and how replicas divide the work.

Validates the block `inference` of a job; `rocelab.jobs.inference` makes its steps.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from rocelab.base.units import BytesPerSecond
from rocelab.base.wording import RefusedError, listed
from rocelab.jobs.experts import ExpertRouting
from rocelab.jobs.gpus import GPUS, GpuName, Precision
from rocelab.jobs.kernels import Speed
from rocelab.jobs.model_shape import Flops
from rocelab.jobs.models import Model
from rocelab.jobs.parallelism import RankLayout
from rocelab.jobs.training_spec import MAX_RANKS, NVLINK_BPS
from rocelab.jobs.workloads import WorkloadSpec

Count = Annotated[int, Field(ge=1, le=MAX_RANKS)]

MEMORY_BPS = 3.35e12
"""Of an H100, bytes per second, where no type is given."""


class ServedModel(WorkloadSpec):
    """A model on replicas of GPUs that serve it, whatever they are asked."""

    model: Model
    tensor: Annotated[Count, Field(description="GPUs that divide each layer, in a server")] = 1
    pipeline: Annotated[Count, Field(description="stages that divide the layers")] = 1
    expert: Annotated[Count, Field(description="replicas that divide the experts")] = 1
    decode_expert: Annotated[
        Count | None, Field(description="of replicas that decode; left out: expert")
    ] = None
    redundant_experts: Annotated[
        int, Field(ge=0, le=10_000, description="further copies of the most popular experts")
    ] = 0
    routing: Annotated[
        ExpertRouting, Field(description="how tokens travel to experts and back, in prefill")
    ] = ExpertRouting()
    decode_routing: Annotated[
        ExpertRouting | None, Field(description="the same in decode; left out: routing")
    ] = None
    prefill: Annotated[Count, Field(description="replicas that prefill; the first ranks")]
    gpu: Annotated[
        GpuName | None,
        Field(
            description="type of GPU: its table of speeds and its memory, which the job must fit"
        ),
    ] = None
    precision: Annotated[
        Precision,
        Field(strict=False, description="of parameters; what matrices are multiplied in"),
    ] = Precision.BF16
    gpu_flops: Annotated[
        Flops | None,
        Field(
            ge=10**9, description="constant speed of a GPU while it computes, instead of its table"
        ),
    ] = None
    memory: Annotated[
        BytesPerSecond | None,
        Field(
            ge=10**9,
            description="bandwidth of a GPU's own memory; left out: its type's, or 3.35TB/s",
        ),
    ] = None
    ignore_memory: Annotated[
        bool, Field(description="simulate it though it does not fit the GPUs' memory")
    ] = False
    server_gpus: Annotated[int, Field(ge=1, le=1024, description="GPUs of a server")] = 8
    nvlink: Annotated[
        BytesPerSecond | None,
        Field(
            ge=10**6,
            description="a GPU to others of its server, one way; left out: its type's, or 450GB/s",
        ),
    ] = None

    @model_validator(mode="after")
    def _replicas_fit(self) -> Self:
        for keys, (refused, message, hint) in self._refusals().items():
            if refused:
                raise RefusedError(message, hint, keys=keys)
        self.routing.check(self.model, self.expert)
        self.routing_to_decode.check(
            self.model,
            self.decoding,
            "routing" if self.decode_routing is None else "decode_routing",
        )
        return self

    def _refusals(self) -> dict[tuple[str, ...], tuple[object, str, str]]:
        """By the keys at fault: whether they are, what is wrong, and what to do."""
        model = self.model
        return {
            ("tensor", "server_gpus"): (
                self.server_gpus % self.tensor or model.heads % self.tensor,
                f"{self.tensor} tensor parallel GPUs do not fit a server of {self.server_gpus} and "
                f"{model.heads} heads evenly",
                "use a divisor of both",
            ),
            ("pipeline", "model"): (
                self.pipeline > model.layers,
                f"{model.layers} layers do not fill {self.pipeline} stages",
                "take fewer stages",
            ),
            ("expert", "prefill"): (
                self.copies % self.expert or self.prefill % self.expert,
                f"{self.expert} expert parallel replicas do not divide {self.copies} experts and "
                f"{self.prefill} replicas that prefill",
                "use a divisor of prefill, and of experts and redundant_experts together",
            ),
            ("decode_expert", "expert", "decode"): (
                self.copies % self.decoding or self.decoders % self.decoding,
                f"{self.decoding} expert parallel replicas do not divide {self.copies} experts and "
                f"{self.decoders} replicas that decode",
                "use a divisor of decode, and of experts and redundant_experts together",
            ),
            ("redundant_experts", "routing", "decode_routing", "model"): (
                not model.has_experts
                and (
                    self.redundant_experts
                    or self.decode_routing is not None
                    or self.routing != ExpertRouting()
                ),
                "a model without experts routes no tokens",
                "remove routing and redundant_experts, or give the model experts",
            ),
            ("gpu_flops", "gpu", "model"): (
                self.gpu is None and self.gpu_flops is None,
                "expected gpu or gpu_flops",
                f"gpu: {listed(GPUS)}; or gpu_flops: a constant speed such as 400T",
            ),
        }

    @property
    def decoders(self) -> int:
        """Replicas that decode."""
        raise NotImplementedError

    @property
    def decoding(self) -> int:
        """Replicas that divide the experts and decode."""
        return self.expert if self.decode_expert is None else self.decode_expert

    @property
    def copies(self) -> int:
        """Experts of a layer, with their further copies."""
        return self.model.experts + self.redundant_experts

    @property
    def routing_to_decode(self) -> ExpertRouting:
        return self.routing if self.decode_routing is None else self.decode_routing

    @property
    def speed(self) -> Speed:
        """How fast a GPU computes and reads."""
        gpu = None if self.gpu is None else GPUS[self.gpu]
        known = MEMORY_BPS if gpu is None else gpu.memory_bps
        return Speed(self.memory or known, self.gpu_flops, gpu, self.precision)

    @property
    def nvlink_bps(self) -> float:
        """Bytes per second, one way."""
        if self.nvlink is not None:
            return self.nvlink
        return NVLINK_BPS if self.gpu is None else GPUS[self.gpu].nvlink_bps

    @property
    def cache_bytes(self) -> float:
        """Bytes of keys and values of one token that a GPU holds: 2 x 2 L h_kv / (PP TP) (Kwon et
        al. 2023 (PagedAttention), section 3); GPUs in excess of the heads of keys and values hold
        copies, and of latent attention each holds the whole."""
        return self.model.cache_bytes / self.pipeline / min(self.tensor, self.model.cached_heads)


class ServingSpec(ServedModel):
    """Some replicas of a model prefill, others decode; one iteration is a wave of prompts.

    `rocelab.jobs.inference.InferenceSpec` makes its steps.
    """

    title = "prefill and decode"
    place = 2
    may_send_nothing = True
    peers = 8  # a few neighbours in each dimension

    decode: Annotated[Count, Field(description="replicas that decode; the ranks after them")]
    batch: Annotated[Count, Field(description="prompts of a prefill replica in one wave")] = 1
    prompt: Annotated[int, Field(ge=1, le=10**8, description="tokens of a prompt")]
    output: Annotated[int, Field(ge=1, le=10**6, description="tokens of an answer")]

    def _refusals(self) -> dict[tuple[str, ...], tuple[object, str, str]]:
        wave, shapes = self.prefill * self.batch, (self.prefill, self.decode)
        return {
            **super()._refusals(),
            ("batch", "decode", "prefill"): (
                wave % self.decode or max(shapes) % min(shapes),
                f"{wave} prompts of {self.prefill} replicas do not divide over {self.decode}",
                "one number of replicas divides the other, and decode divides prefill x batch",
            ),
            ("prefill", "decode"): (
                self.ranks > MAX_RANKS,
                f"{self.ranks:,} GPUs; at most {MAX_RANKS:,} are planned",
                "ranks are tensor x pipeline x (prefill + decode)",
            ),
        }

    @property
    def decoders(self) -> int:
        return self.decode

    @property
    def ranks(self) -> int:
        """GPUs of the job, each with its own NIC."""
        return self.tensor * self.pipeline * (self.prefill + self.decode)

    @property
    def server_ranks(self) -> int:
        return self.tensor

    @property
    def requests(self) -> int:
        """That a decoding replica answers at once."""
        return self.prefill * self.batch // self.decode

    @cached_property
    def layout(self) -> RankLayout:
        """The layout, with replicas as the data parallel dimension."""
        replicas = self.prefill + self.decode
        return RankLayout(self.tensor, 1, self.pipeline, replicas)
