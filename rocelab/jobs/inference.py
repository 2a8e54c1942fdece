"""Serving of a large model with prefill and decode on separate GPUs.

Validates the block `inference` of a job and makes its `Workload`: a wave of prompts is prefilled,
its keys and values are sent to the decoding GPUs, and the answers are generated
(Patel et al. 2024 (Splitwise); Zhong et al. 2024 (DistServe)).
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from rocelab.base.arrays import Bools, Ints
from rocelab.base.units import BytesPerSecond
from rocelab.base.wording import RefusedError
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.models import Flops, Model
from rocelab.jobs.parallelism import RankLayout, between, in_groups, joined, over_network
from rocelab.jobs.steps import Steps
from rocelab.jobs.training_spec import MAX_RANKS
from rocelab.jobs.volumes import BF16_BYTES, activation_bytes, expert_bytes
from rocelab.jobs.workload import Sends, Workload
from rocelab.jobs.workloads import JobPlace, WorkloadSpec

Count = Annotated[int, Field(ge=1, le=MAX_RANKS)]


class InferenceSpec(WorkloadSpec):
    """Some replicas of a model prefill, others decode; one iteration is a wave of prompts."""

    title = "prefill and decode"
    place = 2
    may_send_nothing = True
    peers = 8  # a few neighbours in each dimension

    model: Model
    tensor: Annotated[Count, Field(description="GPUs that divide each layer, in a server")] = 1
    pipeline: Annotated[Count, Field(description="stages that divide the layers")] = 1
    expert: Annotated[Count, Field(description="replicas that divide the experts")] = 1
    prefill: Annotated[Count, Field(description="replicas that prefill; the first ranks")]
    decode: Annotated[Count, Field(description="replicas that decode; the ranks after them")]
    batch: Annotated[Count, Field(description="prompts of a prefill replica in one wave")] = 1
    prompt: Annotated[int, Field(ge=1, le=10**8, description="tokens of a prompt")]
    output: Annotated[int, Field(ge=1, le=10**6, description="tokens of an answer")]
    gpu_flops: Annotated[Flops, Field(ge=10**9, description="speed of a GPU while it computes")]
    memory: Annotated[
        BytesPerSecond, Field(ge=10**9, description="bandwidth of a GPU's own memory")
    ] = 3_350 * 10**9
    server_gpus: Annotated[int, Field(ge=1, le=1024, description="GPUs of a server")] = 8
    nvlink: Annotated[
        BytesPerSecond, Field(ge=10**6, description="a GPU to others of its server, one way")
    ] = 450 * 10**9

    @model_validator(mode="after")
    def _replicas_fit(self) -> Self:
        model, shapes = self.model, (self.prefill, self.decode)
        wave = self.prefill * self.batch
        refusals = {
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
            ("expert", "prefill", "decode"): (
                model.experts % self.expert or any(shape % self.expert for shape in shapes),
                f"{self.expert} expert parallel replicas do not divide {model.experts} experts and "
                f"{self.prefill} + {self.decode} replicas",
                "use a divisor of experts, prefill and decode",
            ),
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
        for keys, (refused, message, hint) in refusals.items():
            if refused:
                raise RefusedError(message, hint, keys=keys)
        return self

    @property
    def ranks(self) -> int:
        """GPUs of the job, each with its own NIC."""
        return self.tensor * self.pipeline * (self.prefill + self.decode)

    @property
    def server_ranks(self) -> int:
        return self.tensor

    def workload(self, place: JobPlace) -> Workload:
        apart = place.over_network(self.tensor, self.nvlink)
        return inference_workload(self, iterations=place.iterations, apart=apart)

    @property
    def cache_bytes(self) -> float:
        """Bytes of keys and values of one token that a GPU holds: 2 x 2 L h_kv / (PP TP) (Kwon et
        al. 2023 (PagedAttention), section 3); GPUs in excess of the heads of keys and values hold
        copies."""
        kv_heads = self.model.kv_heads or self.model.heads
        whole = 2 * BF16_BYTES * self.model.layers * self.model.kv_hidden
        return whole / self.pipeline / min(self.tensor, kv_heads)

    @cached_property
    def layout(self) -> RankLayout:
        """The layout, with replicas as the data parallel dimension."""
        return RankLayout(self.tensor, 1, self.pipeline, self.prefill + self.decode, self.expert)


def inference_workload(
    spec: InferenceSpec, *, iterations: int = 1, apart: Bools | None = None
) -> Workload:
    """Waves one after the other: each stage's keys and values are sent as soon as it has prefilled,
    while later stages compute; decoding begins when the last have arrived. All tokens of an answer
    are one step. apart: as for `rocelab.jobs.training.training_workload`.
    """
    steps, grid = Steps(), spec.layout.grid
    prefill, decode = grid[: spec.prefill], grid[spec.prefill :]
    last: int | None = None
    moved: list[int] = []
    for stage in range(spec.pipeline):
        only = slice(stage, stage + 1)
        exchange = joined(
            _experts(spec, spec.batch * spec.prompt, prefill[:, only], 1),
            _tensor_sends(spec, spec.batch, spec.prompt, prefill[:, only], apart),
        )
        compute_s = _prefill_s(spec, nvlink=apart is None)
        last = steps.add(f"prefill {stage}", (last,), compute_s, exchange)
        cache = _cache_sends(spec, prefill[:, stage], decode[:, stage])
        moved.append(steps.add(f"cache {stage}", (last,), sends=cache))
        if stage + 1 < spec.pipeline:
            size = activation_bytes(spec.model, spec.batch, spec.prompt, 1) / spec.tensor
            ends = prefill[:, stage].reshape(-1), prefill[:, stage + 1].reshape(-1)
            last = steps.add(f"pass {stage}", (last,), sends=between(*ends, size))
    requests = spec.prefill * spec.batch // spec.decode
    compute_s = spec.output * spec.pipeline * _token_s(spec, requests, nvlink=apart is None)
    size = activation_bytes(spec.model, requests, 1, 1) / spec.tensor
    ends = decode[:, :-1].reshape(-1), decode[:, 1:].reshape(-1)
    passed = between(*ends, size, spec.output)
    last = steps.add(
        "decode",
        moved,
        compute_s,
        joined(passed, _experts(spec, requests, decode, spec.output)),
    )
    # A token passes the stages one after the other.
    for stage in range(spec.pipeline if apart is not None else 0):
        reduced = _tensor_sends(spec, requests, 1, decode[:, stage], apart, spec.output)
        last = steps.add(f"tensor {stage}", (last,), sends=reduced)
    return steps.workload(spec.ranks, iterations)


def _prefill_s(spec: InferenceSpec, *, nvlink: bool) -> float:
    tokens = spec.batch * spec.prompt
    flops = spec.model.forward_flops(tokens, spec.prompt) / (spec.tensor * spec.pipeline)
    return flops / spec.gpu_flops + nvlink * _tensor_s(spec, spec.batch, spec.prompt)


def _token_s(spec: InferenceSpec, requests: int, *, nvlink: bool) -> float:
    """A stage's time for the next token of all requests: the longer of its computation and one read
    of its weights and cached keys and values (Pope et al. 2022, section 2)."""
    model, gpus = spec.model, spec.tensor * spec.pipeline
    weights = BF16_BYTES * (model.dense_parameters + model.expert_parameters / spec.expert) / gpus
    known = spec.prompt + spec.output // 2
    read_s = (weights + requests * known * spec.cache_bytes) / spec.memory
    compute_s = model.forward_flops(requests, known) / gpus / spec.gpu_flops
    return max(read_s, compute_s) + nvlink * _tensor_s(spec, requests, 1)


def _tensor_s(spec: InferenceSpec, sequences: int, tokens: int) -> float:
    """A stage's tensor parallel all-reduces, two per layer, over NVLink."""
    factor = 2 * (spec.tensor - 1) / spec.tensor * 2 * spec.model.layers / spec.pipeline
    return factor * activation_bytes(spec.model, sequences, tokens, 1) / spec.nvlink


def _tensor_sends(
    spec: InferenceSpec,
    sequences: int,
    tokens: int,
    ranks: Ints,
    apart: Bools | None,
    passes: int = 1,
) -> Sends | None:
    """The same all-reduces of the groups that are apart, over the network."""
    size = activation_bytes(spec.model, sequences, tokens, 1)
    repeats = 2 * spec.model.layers / spec.pipeline * passes
    return over_network(size, ranks.reshape(-1, spec.tensor), apart, repeats)


def _experts(spec: InferenceSpec, tokens: int, ranks: Ints, passes: int) -> Sends | None:
    """Dispatch and combine of every layer among expert parallel replicas."""
    replicas, stages, _, tensor = ranks.shape
    grouped = ranks.reshape(replicas // spec.expert, spec.expert, stages * tensor)
    groups = grouped.transpose(0, 2, 1).reshape(-1, spec.expert)
    size = expert_bytes(spec.model, 1, tokens, 1, spec.tensor)
    layers = spec.model.layers / spec.pipeline
    return in_groups(Pattern.ALLTOALL, size, groups, 2 * layers * passes)


def _cache_sends(spec: InferenceSpec, source: Ints, destination: Ints) -> Sends | None:
    """A stage's keys and values, sent from each prefill replica to the decode replicas in turn."""
    pairs = max(spec.prefill, spec.decode)
    prompts = spec.prefill * spec.batch // pairs
    number = np.arange(pairs)
    ends = source[number % spec.prefill], destination[number % spec.decode]
    size = prompts * spec.prompt * spec.cache_bytes
    return between(ends[0].reshape(-1), ends[1].reshape(-1), size)
