"""A training iteration as steps: computation, sends and dependencies.

Makes a `Workload` of tens to hundreds of steps from a `TrainingSpec`, and its `Estimate` by
formula. The first and the last micro-batch have steps per stage, so that the pipeline's fill and
drain and the concurrent data parallel traffic have their times; all micro-batches between are
merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.base.arrays import Bools
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.parallelism import between, in_groups, joined, over_network
from rocelab.jobs.steps import Steps, roofline_s
from rocelab.jobs.training_spec import Sharding, TrainingSpec
from rocelab.jobs.volumes import volumes
from rocelab.jobs.workload import Sends, Workload
from rocelab.jobs.workloads import JobPlace

EVERY_STAGE = slice(None)


@dataclass(frozen=True)
class PassTimes:
    """Seconds that a stage takes for one micro-batch, forward and backward: all its chunks.

    *_tensor_s is the part that waits for tensor parallel all-reduces within the server.
    """

    forward_s: float
    backward_s: float
    forward_tensor_s: float
    backward_tensor_s: float

    @property
    def both_s(self) -> float:
        return self.forward_s + self.backward_s


def pass_times(spec: TrainingSpec, *, nvlink: bool = True) -> PassTimes:
    """Computation at `gpu_flops`, backward twice the forward, and tensor parallel all-reduces.

    An all-reduce among n takes 2 (n - 1) / n of its bytes at `nvlink`; a layer has two each way
    (Shoeybi et al. 2019, section 3), none hidden behind computation. nvlink: False without them.
    """
    tokens = spec.micro_batch * spec.tokens
    shards = spec.tensor * spec.pipeline * spec.context
    compute_s = spec.model.forward_flops(tokens, spec.tokens) / shards / spec.gpu_flops
    factor = 2 * (spec.tensor - 1) / spec.tensor
    all_reduce_s = factor * volumes(spec).tensor_bytes / spec.nvlink
    tensor_s = 2 * spec.model.layers / spec.pipeline * all_reduce_s if nvlink else 0.0
    return PassTimes(compute_s + tensor_s, 2 * compute_s + tensor_s, tensor_s, tensor_s)


class TrainingJob(TrainingSpec):
    """Training with up to five kinds of parallelism; one iteration is one optimizer step."""

    def workload(self, place: JobPlace) -> Workload:
        apart = place.over_network(self.tensor, self.nvlink)
        return training_workload(self, iterations=place.iterations, apart=apart)


def training_workload(
    spec: TrainingSpec, *, iterations: int = 1, apart: Bools | None = None
) -> Workload:
    """Iterations one after the other, each from gathering the parameters to the last gradient.

    The schedule is one-forward-one-backward, with `interleave` chunks per stage (Narayanan et al.
    2021, sections 2.2.1 and 2.2.2): the longest chain computes for (m + (p - 1) / v) micro-batches.
    Gradients are only sent in the last micro-batch's backward pass, bucket by bucket as the stage
    computes them.

    apart: of each tensor parallel group, in the order of ranks, whether its GPUs are not on one
    server; None if all are. Such groups send their all-reduces over the network; the others, which
    wait for them, then cost nothing.
    """
    return _Iteration(spec, apart).steps_of().workload(spec.ranks, iterations)


class _Iteration:
    def __init__(self, spec: TrainingSpec, apart: Bools | None) -> None:
        self.spec = spec
        self.apart = apart
        self.layout = spec.layout
        self.sizes = volumes(spec)
        times = pass_times(spec, nvlink=apart is None)
        self.forward_s = times.forward_s / spec.interleave
        self.backward_s = times.backward_s / spec.interleave
        self.both_s = times.both_s
        self.steps = Steps()
        self.gathered: list[list[int]] = []
        self.reduced: list[int | None] = []

    def steps_of(self) -> Steps:
        spec, steps = self.spec, self.steps
        later = self._gather()
        filled = self._fill()
        chunk_s = spec.pipeline * self.forward_s
        steady: int | None = filled
        for chunk, gathered in enumerate(later, start=1):
            steady = steps.add(f"forward chunk {chunk}", (steady, gathered), chunk_s)
        ahead = 1 + (spec.interleave - 1) * spec.pipeline
        without_forward = spec.interleave - 1 - len(later)
        rest_s = spec.micro_batches * self.both_s - ahead * (self.forward_s + self.backward_s)
        steady = steps.add("steady", (steady,), rest_s + without_forward * chunk_s)
        passed = None
        if (between_stages := self._merged_pipeline()) is not None:
            passed = steps.add("pipeline", (filled,), sends=between_stages)
        merged = joined(
            self._exchange(EVERY_STAGE, spec.micro_batches - 1 / spec.interleave, backward=False),
            self._exchange(EVERY_STAGE, spec.micro_batches - 1 / spec.interleave, backward=True),
        )
        if merged is not None:
            steady = steps.add("exchange", (steady,), sends=merged)
        steady, reduced = self._reduce_later_chunks(steady)
        drained = self._drain(steady, reduced)
        steps.add("optimizer", (drained, passed, *self.reduced))
        return steps

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

    def _exchange(self, stages: slice, passes: float, *, backward: bool) -> Sends | None:
        """Context and expert parallel traffic of all layers of stages, and what tensor parallel
        groups send over the network, for some micro-batches."""
        spec, sizes, layout = self.spec, self.sizes, self.layout
        layers = spec.model.layers / spec.pipeline * passes
        pattern = Pattern.REDUCESCATTER if backward else Pattern.ALLGATHER
        return joined(
            in_groups(pattern, sizes.context_bytes, layout.context_groups(stages), layers),
            in_groups(
                Pattern.ALLTOALL, sizes.expert_bytes, layout.expert_groups(stages), 2 * layers
            ),
            over_network(sizes.tensor_bytes, layout.tensor_groups(stages), self.apart, 2 * layers),
        )

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
                last = steps.add(f"gather {stage}.{bucket}", (last,), sends=sends)
                buckets.append(last)
            self.gathered.append(buckets)
        waits = tuple(buckets[-1] for buckets in self.gathered)
        later: list[int] = []
        for chunk in range(1, spec.interleave):
            share = self._bucket_share * spec.buckets
            sends = self._parameters(EVERY_STAGE, share, backward=False)
            waits = (steps.add(f"gather chunk {chunk}", waits, sends=sends),)
            later.append(waits[0])
        return later

    def _fill(self) -> int | None:
        """Add the first micro-batch through the first chunk of every stage; return its last
        step."""
        spec, steps = self.spec, self.steps
        last: int | None = None
        for stage in range(spec.pipeline):
            blocks: Sequence[int | None] = self.gathered[stage] or (None,)
            for block, gathered in enumerate(blocks):
                time_s = self.forward_s / len(blocks)
                last = steps.add(f"forward {stage}.{block}", (last, gathered), time_s)
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
                last = steps.add(f"backward {stage}.{bucket}", (last,), time_s)
                if reduces:
                    share = self._bucket_share if bucket < buckets - 1 else self._edge_share
                    sends = self._parameters(_only(stage), share, backward=True)
                    before = steps.add(f"reduce {stage}.{bucket}", (last, before), sends=sends)
            self.reduced.append(before)
            last = self._add_sends(stage, stage - 1, last, backward=True)
        return last

    def _add_sends(
        self, stage: int, onward: int, last: int | None, *, backward: bool
    ) -> int | None:
        """Add a chunk's exchanges, then activations or gradients to the next
        stage."""
        word = "backward" if backward else "forward"
        exchange = self._exchange(_only(stage), 1 / self.spec.interleave, backward=backward)
        if exchange is not None:
            last = self.steps.add(f"exchange {word} {stage}", (last,), sends=exchange)
        if 0 <= onward < self.spec.pipeline:
            sends = self._boundary(stage, onward, 1)
            last = self.steps.add(f"pass {word} {stage}", (last,), sends=sends)
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
            last = steps.add(f"backward chunk {chunk}", (last,), time_s)
            share = self._bucket_share * spec.buckets
            sends = self._parameters(EVERY_STAGE, share, backward=True)
            reduced = steps.add(f"reduce chunk {chunk}", (last, reduced), sends=sends)
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
    """The wait of a stage while the pipeline fills and drains, (p - 1) / v micro-batches."""
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
    bubble_s = (spec.pipeline - 1) / spec.interleave * times.both_s
    return Estimate(
        compute_s,
        tensor_s,
        bubble_s,
        total_s - compute_s - tensor_s - bubble_s,
        total_s,
        spec.flops_per_iteration / total_s / spec.ranks,
    )
