"""A training iteration as steps: computation, sends and dependencies.

Makes a `Workload` of tens to hundreds of steps from a `TrainingSpec`, and its `Estimate` by
formula. The first and the last micro-batch have steps per stage, so that the pipeline's fill and
drain and the concurrent data parallel traffic have their times; all micro-batches between are
merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from pydantic import model_validator

from rocelab.base.arrays import Bools, Ints
from rocelab.base.errors import InputError
from rocelab.base.units import BANDWIDTH, SIZE
from rocelab.jobs.checkpoint import CheckpointSpec
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.expert_sends import ExpertTraffic, expert_traffic
from rocelab.jobs.experts import token_bytes
from rocelab.jobs.gpu_memory import check_training_memory, training_memory
from rocelab.jobs.model_shape import BF16_BYTES
from rocelab.jobs.parallelism import between, in_groups, joined, over_network
from rocelab.jobs.pass_times import bubble_passes, pass_times, routing
from rocelab.jobs.steps import Steps, roofline_s
from rocelab.jobs.training_basis import training_basis
from rocelab.jobs.training_checkpoint import (
    Writes,
    checkpoint_figures,
    ranks_that_write,
    shares,
    with_checkpoints,
)
from rocelab.jobs.training_spec import PipelineSchedule, Sharding, TrainingSpec
from rocelab.jobs.volumes import volumes
from rocelab.jobs.workload import Dimension, Sends, Workload
from rocelab.jobs.workloads import Elsewhere, JobPlace, MemoryPart, WorkloadRate

EVERY_STAGE = slice(None)
OPTIMIZER = "optimizer"


class TrainingJob(TrainingSpec):
    """Training with up to five kinds of parallelism; one iteration is one optimizer step."""

    def workload(self, place: JobPlace) -> Workload:
        apart = place.over_network(self.tensor, self.nvlink_bps)
        steps = training_workload(
            self,
            iterations=place.iterations,
            apart=apart,
            servers=place.domains,
            seed=place.seed,
        )
        spec = self.checkpoint
        if spec is None:
            return steps
        if spec.every > 1 and place.iterations == 1:
            raise InputError(
                f"job {place.name}: a checkpoint follows its only step, and one in {spec.every:,} "
                "is meant: its times would be of no other step",
                hint="simulate a step without: iterations: 2, or more",
            )
        sends = None
        if place.endpoints:
            storage = place.endpoints[0]
            sends = shares(self.checkpoint_bytes, self.writers, storage, spec.stripes)
        writes = Writes(sends, place.elsewhere_s)
        return with_checkpoints(replace(steps, ranks=place.ranks), spec, writes)

    @property
    def endpoints(self) -> tuple[Sequence[str], ...]:
        return () if self.checkpoint is None else self.checkpoint.endpoints

    @property
    def endpoint_rate(self) -> int | None:
        return None if self.checkpoint is None else self.checkpoint.endpoint_rate

    @property
    def checkpoint_bytes(self) -> int:
        """Of a whole checkpoint: the parameters in bf16 and the optimizer's state."""
        size = None if self.checkpoint is None else self.checkpoint.size
        return size or self.model.parameters * (BF16_BYTES + self.optimizer_bytes)

    @property
    def writers(self) -> Ints:
        """The ranks that write a checkpoint."""
        replicated = self.sharding is Sharding.NONE and self.expert == 1
        return ranks_that_write(self.layout.grid, replicated=replicated)

    def elsewhere(self, servers: Ints) -> Elsewhere | None:
        spec = self.checkpoint
        if spec is None or spec.network is None:
            return None
        used, writers = np.unique(servers[self.writers], return_counts=True)
        if writers.min() != writers.max():
            raise InputError(
                f"training.checkpoint: {writers.min()} ranks of some servers write, and "
                f"{writers.max()} of others",
                "place as many ranks on each server, or leave checkpoint.network out",
            )
        server_bytes = -(-self.checkpoint_bytes // len(used))

        def written(nics: int) -> CheckpointSpec:
            rate = spec.storage_rate
            return CheckpointSpec.model_validate(
                {
                    "ranks": len(used) * nics,
                    "size": SIZE.written(-(-server_bytes // nics)),
                    "storage": spec.storage,
                    "stripes": spec.stripes,
                    "storage_rate": None if rate is None else BANDWIDTH.written(rate),
                }
            )

        return Elsewhere(spec.network, used, written)

    def latencies(self, ends_s: Sequence[Mapping[str, float]]) -> list[WorkloadRate]:
        """What checkpoints cost."""
        if self.checkpoint is None:
            return []
        return checkpoint_figures(self.checkpoint, ends_s, OPTIMIZER)

    @model_validator(mode="after")
    def _fits_the_gpus(self) -> Self:
        check_training_memory(self)
        return self

    def computed_s(self, place: JobPlace) -> float:
        nvlink = place.over_network(self.tensor, self.nvlink_bps) is None
        times = pass_times(self, nvlink=nvlink, seed=place.seed)
        return self.micro_batches * times.computed_s

    def kept_memory(self) -> tuple[MemoryPart, ...]:
        return training_memory(self)

    def basis(self, seed: int = 1) -> tuple[str, ...]:
        return training_basis(self, seed)


def training_workload(
    spec: TrainingSpec,
    *,
    iterations: int = 1,
    apart: Bools | None = None,
    servers: Ints | None = None,
    seed: int = 1,
) -> Workload:
    """Iterations one after the other, each from gathering the parameters to the last gradient.

    The schedule is one-forward-one-backward, with `interleave` chunks per stage (Narayanan et al.
    2021, sections 2.2.1 and 2.2.2): the longest chain computes for (m + (p - 1) / v) micro-batches.
    Gradients are only sent in the last micro-batch's backward pass, bucket by bucket as the stage
    computes them.

    apart: of each tensor parallel group, in the order of ranks, whether its GPUs are not on one
    server; None if all are. Such groups send their all-reduces over the network; the others, which
    wait for them, then cost nothing. servers: of each rank; None: `server_gpus` ranks share one.
    GPUs of a server send tokens to experts over NVLink. seed: draws popular experts.
    """
    if servers is None:
        servers = (np.arange(spec.ranks) // spec.server_gpus).astype(np.int32)
    return _Iteration(spec, apart, servers, seed).steps_of().workload(spec.ranks, iterations)


class _Iteration:
    def __init__(self, spec: TrainingSpec, apart: Bools | None, servers: Ints, seed: int) -> None:
        self.spec = spec
        self.apart = apart
        self.layout = spec.layout
        self.sizes = volumes(spec)
        times = pass_times(spec, nvlink=apart is None, seed=seed)
        self.times = times
        self.bubble = bubble_passes(spec, times)
        part = 1 / spec.interleave
        if spec.schedule is PipelineSchedule.DUALPIPE:
            # The chain has fewer passes than stages: each counts as a part of one.
            part = self.bubble / (spec.pipeline - 1)
        self.part = part
        self.forward_s, self.backward_s = times.forward_s * part, times.backward_s * part
        self.both_s = times.both_s
        self.traffic: ExpertTraffic | None = None
        if spec.expert > 1:
            self.traffic = expert_traffic(
                routing(spec, seed), spec.routing, self.layout.expert_groups(EVERY_STAGE), servers
            )
        self.steps = Steps()
        self.gathered: list[list[int]] = []
        self.reduced: list[int | None] = []

    def steps_of(self) -> Steps:
        spec, steps = self.spec, self.steps
        later = self._gather()
        filled = self._fill()
        again = self._gather_again(filled)
        chunk_s = spec.pipeline * self.forward_s
        steady: int | None = filled
        for chunk, gathered in enumerate(later, start=1):
            steady = self._compute(f"forward chunk {chunk}", (steady, gathered), chunk_s)
        ahead = 1 + (spec.interleave - 1) * spec.pipeline
        without_forward = spec.interleave - 1 - len(later)
        rest_s = spec.micro_batches * self.both_s - ahead * (self.forward_s + self.backward_s)
        steady = self._compute("steady", (steady,), rest_s + without_forward * chunk_s)
        passed = None
        if (between_stages := self._merged_pipeline()) is not None:
            passed = steps.add(
                "pipeline", (filled,), sends=between_stages, dimension=Dimension.PIPELINE
            )
        passes = spec.micro_batches - self.part
        steady = self._exchange(
            "exchange", EVERY_STAGE, steady, passes, passes, hidden_after=filled
        )
        steady, reduced = self._reduce_later_chunks(steady)
        drained = self._drain(steady, reduced)
        steps.add(OPTIMIZER, (drained, passed, again, *self.reduced))
        return steps

    def _compute(self, name: str, after: Sequence[int | None], seconds: float) -> int:
        """Add computation, of which a part waits for tensor parallel GPUs of the server."""
        times = self.times
        waiting = (times.forward_tensor_s + times.backward_tensor_s) / times.both_s
        if name.startswith("forward"):
            waiting = times.forward_tensor_s / times.forward_s
        elif name.startswith("backward"):
            waiting = times.backward_tensor_s / times.backward_s
        inside = {Dimension.TENSOR: waiting * seconds} if waiting else None
        return self.steps.add(name, after, seconds, inside=inside)

    @property
    def _bucket_share(self) -> float:
        """A first-chunk bucket's share of a stage's bytes."""
        return self.spec.overlapped / self.spec.interleave / self.spec.buckets

    @property
    def _edge_share(self) -> float:
        """The share of the edge bucket, which computation does not hide, plus the share that may
        not overlap."""
        return self._bucket_share + 1 - self.spec.overlapped

    def _parameters(self, stages: slice, share: float, *, backward: bool) -> Sends | None:
        """A share of the parameters gathered (forward) or the gradients reduced (backward)."""
        sizes = self.sizes
        if backward:
            whole = self.spec.sharding is Sharding.NONE
            pattern = Pattern.ALLREDUCE if whole else Pattern.REDUCESCATTER
            dense, expert = sizes.reduce_bytes, sizes.expert_reduce_bytes
        else:
            pattern = Pattern.ALLGATHER
            dense, expert = sizes.gather_bytes, sizes.expert_gather_bytes
        return joined(
            in_groups(pattern, dense * share, self.layout.data_groups(stages)),
            in_groups(pattern, expert * share, self.layout.expert_data_groups(stages)),
        )

    def _exchange(
        self,
        name: str,
        stages: slice,
        last: int | None,
        forward: float,
        backward: float,
        hidden_after: int | None = None,
    ) -> int | None:
        """Add the context, expert and tensor parallel traffic of all layers of stages, one after
        the other as a layer has them, for so many micro-batches forward and backward; return the
        last step. hidden_after: the step after which expert traffic may begin beside the others,
        where it is hidden."""
        spec, sizes, layout, steps = self.spec, self.sizes, self.layout, self.steps
        model = spec.model
        layers = (model.layers + model.predicted_ahead) / spec.pipeline
        context = joined(
            *(
                in_groups(
                    pattern, sizes.context_bytes, layout.context_groups(stages), layers * passes
                )
                for pattern, passes in (
                    (Pattern.ALLGATHER, forward),
                    (Pattern.REDUCESCATTER, backward),
                )
            )
        )
        if context is not None:
            last = steps.add(f"{name} context", (last,), sends=context, dimension=Dimension.CONTEXT)
        last = self._exchange_experts(name, stages, last, forward + backward, hidden_after)
        repeats = 2 * layers * (forward + backward)
        groups = layout.tensor_groups(stages)
        tensor = over_network(sizes.tensor_bytes, groups, self.apart, repeats)
        if tensor is not None:
            last = steps.add(f"{name} tensor", (last,), sends=tensor, dimension=Dimension.TENSOR)
        return last

    def _exchange_experts(
        self, name: str, stages: slice, last: int | None, passes: float, hidden_after: int | None
    ) -> int | None:
        spec, steps, traffic = self.spec, self.steps, self.traffic
        if traffic is None:
            return last
        model = spec.model
        layers = (model.expert_layers + model.predicted_ahead) / spec.pipeline
        tokens = spec.micro_batch * spec.tokens / (spec.context * spec.tensor)
        sizes = [
            tokens * token_bytes(model.hidden, precision)
            for precision in (spec.routing.dispatch, spec.routing.combine)
        ]
        groups = self.layout.expert_groups(stages)
        sends = traffic.sends(groups, sizes[0], sizes[1], layers * passes)
        inside_s = traffic.inside * sum(sizes) * layers * passes / spec.nvlink_bps
        hides = spec.hides_experts and hidden_after is not None
        begin = hidden_after if hides else last
        exchanged = [last] if hides else []
        if sends is not None:
            exchanged.append(
                steps.add(f"{name} experts", (begin,), sends=sends, dimension=Dimension.EXPERT)
            )
        if inside_s:
            inside = {Dimension.EXPERT: inside_s}
            exchanged.append(steps.add(f"{name} NVLink", (begin,), inside_s, inside=inside))
        if len(exchanged) < 2:
            return exchanged[0] if exchanged else last
        return steps.add(f"{name} done", exchanged)

    def _gather_again(self, filled: int | None) -> int | None:
        """Add the gathers of parameters that are not kept: for each pass but the first forward."""
        spec = self.spec
        if spec.sharding is not Sharding.ZERO3:
            return None
        sends = self._parameters(EVERY_STAGE, 2 * spec.micro_batches - 1, backward=False)
        if sends is None:
            return None
        return self.steps.add("gather again", (filled,), sends=sends, dimension=Dimension.DATA)

    def _gather(self) -> list[int]:
        """Add the all-gathers, which all begin at once: per stage the first chunk's buckets in
        order, then every later chunk of all stages; return the steps of the later chunks."""
        spec, steps = self.spec, self.steps
        if self.sizes.gather_bytes == 0 and self.sizes.expert_gather_bytes == 0:
            self.gathered = [[] for _ in range(spec.pipeline)]
            return []
        for stage in range(spec.pipeline):
            last: int | None = None
            buckets: list[int] = []
            for bucket in range(spec.buckets):
                share = self._bucket_share if bucket else self._edge_share
                sends = self._parameters(_only(stage), share, backward=False)
                last = steps.add(
                    f"gather {stage}.{bucket}", (last,), sends=sends, dimension=Dimension.DATA
                )
                buckets.append(last)
            self.gathered.append(buckets)
        waits = tuple(buckets[-1] for buckets in self.gathered)
        later: list[int] = []
        for chunk in range(1, spec.interleave):
            share = self._bucket_share * spec.buckets
            sends = self._parameters(EVERY_STAGE, share, backward=False)
            waits = (
                steps.add(f"gather chunk {chunk}", waits, sends=sends, dimension=Dimension.DATA),
            )
            later.append(waits[0])
        return later

    def _fill(self) -> int | None:
        """Add the first micro-batch through the first chunk of every stage; return its last
        step."""
        spec = self.spec
        last: int | None = None
        for stage in range(spec.pipeline):
            blocks: Sequence[int | None] = self.gathered[stage] or (None,)
            for block, gathered in enumerate(blocks):
                time_s = self.forward_s / len(blocks)
                last = self._compute(f"forward {stage}.{block}", (last, gathered), time_s)
            last = self._add_sends(stage, stage + 1, last, backward=False)
        return last

    def _drain(self, last: int | None, reduced: int | None) -> int | None:
        """Add the last micro-batch back through the first chunk of every stage, followed by
        gradients."""
        spec, steps = self.spec, self.steps
        reduces = self.sizes.reduce_bytes + self.sizes.expert_reduce_bytes > 0
        buckets = spec.buckets if reduces else 1
        for stage in reversed(range(spec.pipeline)):
            before = reduced
            for bucket in range(buckets):
                time_s = self.backward_s / buckets
                last = self._compute(f"backward {stage}.{bucket}", (last,), time_s)
                if reduces:
                    share = self._bucket_share if bucket < buckets - 1 else self._edge_share
                    sends = self._parameters(_only(stage), share, backward=True)
                    before = steps.add(
                        f"reduce {stage}.{bucket}",
                        (last, before),
                        sends=sends,
                        dimension=Dimension.DATA,
                    )
            self.reduced.append(before)
            last = self._add_sends(stage, stage - 1, last, backward=True)
        return last

    def _add_sends(
        self, stage: int, onward: int, last: int | None, *, backward: bool
    ) -> int | None:
        """Add a chunk's exchanges, then activations or gradients to the next
        stage."""
        word = "backward" if backward else "forward"
        passes = (0.0, self.part) if backward else (self.part, 0.0)
        last = self._exchange(f"exchange {word} {stage}", _only(stage), last, *passes)
        if 0 <= onward < self.spec.pipeline:
            sends = self._boundary(stage, onward, 1)
            last = self.steps.add(
                f"pass {word} {stage}", (last,), sends=sends, dimension=Dimension.PIPELINE
            )
        return last

    def _boundary(self, stage: int, onward: int, messages: int) -> Sends | None:
        ends = self.layout.stage(stage), self.layout.stage(onward)
        return between(*ends, self.sizes.pipeline_bytes, messages)

    def _merged_pipeline(self) -> Sends | None:
        """Every message between stages except those of fill and drain; chunks wrap around."""
        spec = self.spec
        messages = spec.micro_batches * spec.interleave - 1
        wraps = spec.micro_batches * (spec.interleave - 1)
        last = spec.pipeline - 1
        parts = [
            self._boundary(stage, stage + way, messages)
            for stage in range(spec.pipeline)
            for way in (1, -1)
            if 0 <= stage + way <= last
        ]
        parts += [self._boundary(last, 0, wraps), self._boundary(0, last, wraps)]
        return joined(*parts) if last else None

    def _reduce_later_chunks(self, last: int | None) -> tuple[int | None, int | None]:
        """Add the last micro-batches back through all chunks but the first, with each chunk's
        gradients sent at its end; return the last backward step and the last of those sends."""
        spec, steps = self.spec, self.steps
        reduced: int | None = None
        for chunk in reversed(range(1, spec.interleave)):
            time_s = spec.pipeline * self.backward_s
            last = self._compute(f"backward chunk {chunk}", (last,), time_s)
            share = self._bucket_share * spec.buckets
            sends = self._parameters(EVERY_STAGE, share, backward=True)
            reduced = steps.add(
                f"reduce chunk {chunk}", (last, reduced), sends=sends, dimension=Dimension.DATA
            )
        return last, reduced


def _only(stage: int) -> slice:
    return slice(stage, stage + 1)


@dataclass(frozen=True)
class Estimate:
    """An iteration if only the NICs limit the network, in seconds."""

    compute_s: float
    """Operations at `gpu_flops`, all micro-batches."""
    tensor_s: float
    """Tensor parallel all-reduces."""
    bubble_s: float
    """The wait of a stage while the pipeline fills and drains (`bubble_passes`)."""
    exposed_s: float
    """The further wait of the longest chain of steps for the network."""
    total_s: float
    """Their sum, a lower bound for the simulated time."""
    gpu_flops: float
    """The resulting rate per GPU."""


def estimate(spec: TrainingSpec, nic_bps: float) -> Estimate:
    """The roofline of an iteration over NICs of `nic_bps` each way, in parts."""
    times = pass_times(spec)
    total_s = roofline_s(training_workload(spec), nic_bps)
    tensor_s = spec.micro_batches * (times.forward_tensor_s + times.backward_tensor_s)
    compute_s = spec.micro_batches * times.both_s - tensor_s
    bubble_s = bubble_passes(spec, times) * times.both_s
    return Estimate(
        compute_s,
        tensor_s,
        bubble_s,
        total_s - compute_s - tensor_s - bubble_s,
        total_s,
        spec.flops_per_iteration / total_s / spec.ranks,
    )
