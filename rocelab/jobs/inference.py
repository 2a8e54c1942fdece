"""Serving of a large model with prefill and decode on separate GPUs.

Makes the `Workload` of a job's block `inference`: a wave of prompts is prefilled, its keys and
values are sent to the decoding GPUs, and the answers are generated (Patel et al. 2024 (Splitwise);
Zhong et al. 2024 (DistServe)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import model_validator

from rocelab.base.arrays import Bools, Ints
from rocelab.jobs.expert_sends import expert_traffic
from rocelab.jobs.experts import ExpertRouting, Overlap, token_bytes
from rocelab.jobs.inference_spec import ServingSpec
from rocelab.jobs.parallelism import between, over_network
from rocelab.jobs.serving_memory import check_serving_memory, serving_memory
from rocelab.jobs.serving_times import (
    prefill_s,
    routing,
    serving_basis,
    tensor_s,
    token_s,
)
from rocelab.jobs.steps import Steps, step_ends
from rocelab.jobs.volumes import activation_bytes
from rocelab.jobs.workload import Dimension, Sends, Workload
from rocelab.jobs.workloads import JobPlace, MemoryPart, WorkloadRate


class InferenceSpec(ServingSpec):
    """Some replicas of a model prefill, others decode; one iteration is a wave of prompts."""

    @model_validator(mode="after")
    def _fits_the_gpus(self) -> Self:
        check_serving_memory(self)
        return self

    def workload(self, place: JobPlace) -> Workload:
        apart = place.over_network(self.tensor, self.nvlink_bps)
        return inference_workload(
            self,
            iterations=place.iterations,
            apart=apart,
            servers=place.domains,
            seed=place.seed,
        )

    def kept_memory(self) -> tuple[MemoryPart, ...]:
        return serving_memory(self)

    def basis(self, seed: int = 1) -> tuple[str, ...]:
        return serving_basis(self, seed)

    def latencies(self, ends_s: Sequence[Mapping[str, float]]) -> list[WorkloadRate]:
        """Time to first token: prefill, its cache's way and one token; the time between tokens;
        and what GPUs of each kind read and write in a second."""
        gpus = self.tensor * self.pipeline
        moved_s = [_last(ends, "cache") for ends in ends_s]
        token = [
            (_last(ends, "decode") - moved) / self.output
            for ends, moved in zip(ends_s, moved_s, strict=True)
        ]
        first = [moved + one for moved, one in zip(moved_s, token, strict=True)]
        read = [self.batch * self.prompt / _last(ends, "prefill") / gpus for ends in ends_s]
        written = [self.requests / one / gpus for one in token]
        return [
            WorkloadRate("ttft", "TTFT", "ns", [seconds * 1e9 for seconds in first]),
            WorkloadRate("itl", "ITL (TPOT)", "ns", [seconds * 1e9 for seconds in token]),
            WorkloadRate("prefilled", "prefill per GPU", "tokens/s", read),
            WorkloadRate("written", "decode per GPU", "tokens/s", written),
        ]


@dataclass(frozen=True)
class ServingEstimate:
    """A wave if only the NICs limit the network, in seconds."""

    prefill_s: float
    """All prompts of a replica, with the exchanges of tokens."""
    first_s: float
    """Time to first token: prefill, the cache's way and one token."""
    token_s: float
    """From one token of an answer to the next."""
    read_tokens_per_s: float
    """By a GPU that prefills."""
    written_tokens_per_s: float
    """By a GPU that decodes."""


def estimate_serving(spec: InferenceSpec, nic_bps: float) -> ServingEstimate:
    """The roofline of a wave over NICs of `nic_bps` each way."""
    workload = inference_workload(spec)
    ends = step_ends(workload, nic_bps)
    named = dict(zip((step.name for step in workload.steps), ends, strict=True))
    rates = {rate.name: rate.values[0] for rate in spec.latencies([named])}
    return ServingEstimate(
        _last(named, "prefill"),
        rates["ttft"] / 1e9,
        rates["itl"] / 1e9,
        rates["prefilled"],
        rates["written"],
    )


def _last(ends: Mapping[str, float], word: str) -> float:
    return max(end for name, end in ends.items() if name.startswith(word))


def inference_workload(
    spec: ServingSpec,
    *,
    iterations: int = 1,
    apart: Bools | None = None,
    servers: Ints | None = None,
    seed: int = 1,
) -> Workload:
    """Waves one after the other: each stage's keys and values are sent as soon as it has prefilled,
    while later stages compute; decoding begins when the last have arrived. All tokens of an answer
    are one step. apart, servers, seed: as for `rocelab.jobs.training.training_workload`.
    """
    if servers is None:
        servers = (np.arange(spec.ranks) // spec.server_gpus).astype(np.int32)
    return _Wave(spec, apart, servers, seed).steps_of().workload(spec.ranks, iterations)


class _Wave:
    def __init__(self, spec: ServingSpec, apart: Bools | None, servers: Ints, seed: int) -> None:
        self.spec, self.apart, self.servers, self.seed = spec, apart, servers, seed
        self.steps = Steps()
        grid = spec.layout.grid
        self.prefill, self.decode = grid[: spec.prefill], grid[spec.prefill :]

    def steps_of(self) -> Steps:
        return self._decode(self._prefill())

    def _prefill(self) -> list[int]:
        """Add the stages' prefills; return when their caches have arrived."""
        spec, steps = self.spec, self.steps
        nvlink = self.apart is None
        compute_s = prefill_s(spec, nvlink=nvlink, seed=self.seed)
        waits = {Dimension.TENSOR: nvlink * tensor_s(spec, spec.batch, spec.prompt)}
        last: int | None = None
        moved: list[int] = []
        for stage in range(spec.pipeline):
            before = last
            last = steps.add(f"prefill {stage}", (last,), compute_s, inside=waits)
            last = self._experts(
                f"prefill {stage}",
                spec.batch * spec.prompt,
                self.prefill[:, stage : stage + 1],
                (before, last),
                1,
            )
            last = self._tensor(
                f"prefill {stage} tensor",
                last,
                self.prefill[:, stage],
                (spec.batch, spec.prompt, 1),
            )
            cache = _cache_sends(spec, self.prefill[:, stage], self.decode[:, stage])
            moved.append(
                steps.add(f"cache {stage}", (last,), sends=cache, dimension=Dimension.CACHE)
            )
            if stage + 1 < spec.pipeline:
                size = activation_bytes(spec.model, spec.batch, spec.prompt, 1) / spec.tensor
                ends = (
                    self.prefill[:, stage].reshape(-1),
                    self.prefill[:, stage + 1].reshape(-1),
                )
                last = steps.add(
                    f"pass {stage}",
                    (last,),
                    sends=between(*ends, size),
                    dimension=Dimension.PIPELINE,
                )
        return moved

    def _decode(self, moved: list[int]) -> Steps:
        spec, steps = self.spec, self.steps
        nvlink = self.apart is None
        passes = spec.output * spec.pipeline
        compute_s = passes * token_s(spec, nvlink=nvlink, seed=self.seed)
        waits = {Dimension.TENSOR: nvlink * passes * tensor_s(spec, spec.requests, 1)}
        begin = steps.add("begin", moved)
        last: int | None = steps.add("decode", (begin,), compute_s, inside=waits)
        last = self._experts("decode", spec.requests, self.decode, (begin, last), spec.output)
        size = activation_bytes(spec.model, spec.requests, 1, 1) / spec.tensor
        ends = self.decode[:, :-1].reshape(-1), self.decode[:, 1:].reshape(-1)
        if (passed := between(*ends, size, spec.output)) is not None:
            last = steps.add("decode pass", (last,), sends=passed, dimension=Dimension.PIPELINE)
        # A token passes the stages one after the other.
        for stage in range(spec.pipeline):
            last = self._tensor(
                f"decode tensor {stage}",
                last,
                self.decode[:, stage],
                (spec.requests, 1, spec.output),
            )
        return steps

    def _experts(
        self,
        name: str,
        tokens: float,
        ranks: Ints,
        after: tuple[int | None, int | None],
        passes: int,
    ) -> int | None:
        """Add dispatch and combine of every layer among expert parallel replicas, `passes` times
        for `tokens` of each replica; return the last step. after: what comes before the
        computation, and the computation, beside which they go where they are hidden."""
        spec, steps = self.spec, self.steps
        decodes = name == "decode"
        size, chosen = _division(spec, decodes=decodes)
        before, computed = after
        if size < 2:
            return computed
        groups = _expert_groups(ranks, size)
        traffic = expert_traffic(
            routing(spec, decodes=decodes, seed=self.seed), chosen, groups, self.servers
        )
        layers = spec.model.expert_layers / spec.pipeline
        sizes = [
            tokens / spec.tensor * token_bytes(spec.model.hidden, precision)
            for precision in (chosen.dispatch, chosen.combine)
        ]
        hides = chosen.overlap is Overlap.MICRO_BATCHES
        begin = before if hides else computed
        waits = [computed]
        repeats = layers * passes
        if (sends := traffic.sends(groups, sizes[0], sizes[1], repeats)) is not None:
            waits.append(
                steps.add(f"{name} experts", (begin,), sends=sends, dimension=Dimension.EXPERT)
            )
        stages = spec.pipeline if decodes else 1
        inside_s = traffic.inside * sum(sizes) * repeats * stages / spec.nvlink_bps
        if inside_s:
            inside = {Dimension.EXPERT: inside_s}
            waits.append(steps.add(f"{name} NVLink", (begin,), inside_s, inside=inside))
        return steps.add(f"{name} done", waits)

    def _tensor(
        self, name: str, last: int | None, ranks: Ints, size: tuple[int, int, int]
    ) -> int | None:
        """Add the all-reduces of the groups that are apart, over the network: of sequences of so
        many tokens, so many times."""
        spec = self.spec
        sequences, tokens, passes = size
        reduced = activation_bytes(spec.model, sequences, tokens, 1)
        repeats = 2 * spec.model.layers / spec.pipeline * passes
        sends = over_network(reduced, ranks.reshape(-1, spec.tensor), self.apart, repeats)
        if sends is None:
            return last
        return self.steps.add(name, (last,), sends=sends, dimension=Dimension.TENSOR)


def _division(spec: ServingSpec, *, decodes: bool) -> tuple[int, ExpertRouting]:
    if decodes:
        return spec.decoding, spec.routing_to_decode
    return spec.expert, spec.routing


def _expert_groups(ranks: Ints, size: int) -> Ints:
    """Groups of `size` replicas that divide the experts, G x size, from ranks by (replica, stage,
    context, tensor)."""
    replicas, stages, _, tensor = ranks.shape
    grouped = ranks.reshape(replicas // size, size, stages * tensor)
    groups: Ints = grouped.transpose(0, 2, 1).reshape(-1, size)
    return groups


def _cache_sends(spec: ServingSpec, source: Ints, destination: Ints) -> Sends | None:
    """A stage's keys and values, sent from each prefill replica to the decode replicas in turn."""
    pairs = max(spec.prefill, spec.decode)
    prompts = spec.prefill * spec.batch // pairs
    number = np.arange(pairs)
    ends = source[number % spec.prefill], destination[number % spec.decode]
    size = prompts * spec.prompt * spec.cache_bytes
    return between(ends[0].reshape(-1), ends[1].reshape(-1), size)
