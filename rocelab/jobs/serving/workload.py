"""The block `serving` of a job: requests become flows, and the flows' ends become latencies.

Flows of keys and values are an open loop: when they begin follows from arrivals and prefills alone.
So a simulation or a lab carries them as any list of flows, and `RequestServing.served` makes the
figures of the times when they are over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from rocelab.base.arrays import Bools, Floats, Ints, Longs
from rocelab.base.errors import InputError
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.base.wording import counted
from rocelab.jobs.flow_list import FlowList
from rocelab.jobs.served import Carried, Served
from rocelab.jobs.serving.decoding import DecodeStalls, assigned, decode
from rocelab.jobs.serving.exchanges import exchange_times
from rocelab.jobs.serving.outcome import Answers, served_by
from rocelab.jobs.serving.prefill import Prefilled, prefill
from rocelab.jobs.serving.requests import Requests
from rocelab.jobs.serving.serving_spec import RequestServingSpec, Reuse
from rocelab.jobs.serving.times import DecodeTimes, PrefillTimes
from rocelab.jobs.serving.transfers import Transfers, transfers
from rocelab.jobs.serving_times import served_basis
from rocelab.jobs.workload import Step, Workload
from rocelab.jobs.workloads import JobPlace, MemoryPart
from rocelab.labfile.reference import may_be_quoted, named_by

NS = 1e9


@dataclass(frozen=True, eq=False)
class Plan:
    """What happens before the network: N requests that fit, their prefills and flows."""

    requests: Requests
    arrived: Requests
    """These, and those that no decoding replica has room for."""
    computed: Longs
    """Tokens of each prompt that are computed."""
    prefilled: Prefilled
    decoder: Ints
    """The decoding replica of each request."""
    decode: DecodeTimes
    transfers: Transfers | None
    """None if the same replicas prefill and decode."""

    @property
    def rejected(self) -> int:
        return len(self.arrived) - len(self.requests)


class RequestServing(RequestServingSpec):
    """Replicas of a model that answer requests: some prefill and others decode, or all do both."""

    title = "requests to a served model: their caches on the network, and what they feel"
    place = 6
    may_send_nothing = True
    is_open_loop = True

    @property
    def digested(self) -> tuple[Path, ...]:
        trace = self.requests.trace
        return () if trace is None else (Path(trace),)

    @property
    def source(self) -> str:
        return self.requests.trace or ""

    def within(self, file: Path) -> Self:
        trace = self.requests.trace
        if trace is None:
            return self
        path = file.parent / trace
        requests = self.requests.model_copy(update={"trace": str(path)})
        if not may_be_quoted(path, file):
            with named_by(file, path):
                requests.read(no_progress)
        return self.model_copy(update={"requests": requests})

    def read(self, progress: ProgressSink) -> None:
        """Read the trace; flows depend on the place."""
        self.requests.read(progress)

    def workload(self, place: JobPlace) -> Workload | FlowList:
        plan = self.plan(place)
        if plan.transfers is not None:
            return replace(plan.transfers.flows, warnings=plan.requests.warnings)
        last_s = float(plan.prefilled.end_s.max())
        step = Step("prefill", (), last_s, launches=False)
        return Workload(self.ranks, (step,), warnings=plan.requests.warnings)

    def plan(self, place: JobPlace, *, has_network: bool = True) -> Plan:
        """The schedule on these NICs. has_network: else experts exchange tokens in no time. Raises
        InputError."""
        arrived = self.requests.requests(place.seed, place.name)
        requests = self._fitting(arrived, place.name)
        exchange = exchange_times(self, place, decodes=False, seed=place.seed)
        decoding = exchange_times(self, place, decodes=True, seed=place.seed)
        if not has_network:
            exchange, decoding = exchange.without_network, decoding.without_network
        reused = np.zeros_like(requests.prompt) if self.reuse is Reuse.NONE else requests.reused
        # The last token of a prompt is computed in any case: it makes the answer's first.
        computed = np.maximum(1, requests.prompt - reused)
        times = PrefillTimes(self, exchange, place.seed)
        prefilled = prefill(requests, computed, self.prefill, times, self.batch_tokens)
        decode_times = DecodeTimes(self, decoding, place.seed)
        if self.decode is None:
            return Plan(
                requests, arrived, computed, prefilled, prefilled.replica, decode_times, None
            )
        decoder = assigned(
            requests, prefilled.end_s, self.decode, self._usual_s(decode_times, requests)
        )
        sent = computed if self.reuse is Reuse.BOTH else requests.prompt
        moved = transfers(self, prefilled, decoder, sent, place.name)
        return Plan(requests, arrived, computed, prefilled, decoder, decode_times, moved)

    def _fitting(self, arrived: Requests, job: str) -> Requests:
        """The requests that a decoding replica has room for, at their times of arrival."""
        room = self.cache_tokens
        if room is None:
            return arrived
        fits: Bools = arrived.prompt + arrived.answer <= room
        if not fits.any():
            raise InputError(
                f"{job}: no request fits the cache of a decoding replica, {room:,} tokens",
                hint="take more tensor or pipeline parallel GPUs, or precision: fp8",
            )
        return replace(arrived.chosen(fits), arrival_s=arrived.arrival_s[fits])

    def _usual_s(self, times: DecodeTimes, requests: Requests) -> float:
        """The time between tokens that requests are distributed by: that of half a batch."""
        half = max(1, self.batch_requests // 2)
        known = float((requests.prompt + requests.answer / 2).mean())
        return times.pace(half, half * known)[0]

    def served(self, place: JobPlace, over_s: Floats) -> Served:
        """What requests feel. over_s: when each flow of `workload` is over, from the job's start,
        inf for never; of replicas that do both, ignored."""
        plan = self.plan(place)
        ideal = self.plan(place, has_network=False)
        requests = plan.requests
        computed_s = plan.prefilled.end_s
        ready = {Carried.CARRIED: computed_s, Carried.ALONE: computed_s}
        if plan.transfers is not None:
            ready[Carried.CARRIED] = plan.transfers.moved_s(over_s, computed_s)
            alone_s = plan.transfers.alone_s(place.nic_bps)
            ready[Carried.ALONE] = plan.transfers.moved_s(alone_s, computed_s)
        answers = [self._answers(network, plan, moved) for network, moved in ready.items()]
        answers.append(self._answers(Carried.NONE, ideal, ideal.prefilled.end_s))
        cache = np.zeros(0, np.int64) if plan.transfers is None else plan.transfers.cache_bytes
        arrived = plan.arrived
        period_s = arrived.period_s
        of_second = np.bincount(computed_s.astype(np.int64), weights=cache if len(cache) else None)
        return Served(
            requests=len(arrived),
            rejected=plan.rejected,
            rate=arrived.rate,
            prompt_tokens=int(requests.prompt.sum()),
            reused_tokens=int((requests.prompt - plan.computed).sum()),
            answer_tokens=int(requests.answer.sum()),
            cache_bytes=int(cache.sum()),
            cache_bytes_per_s=float(cache.sum()) / period_s if len(cache) and period_s else None,
            cache_peak_bytes_per_s=float(of_second.max())
            if len(cache) and arrived.lasts_s > 1
            else None,
            prefill_load=float(plan.prefilled.work_s.mean()) / period_s if period_s else None,
            ttft_objective_ns=None if self.ttft is None else float(self.ttft),
            itl_objective_ns=None if self.itl is None else float(self.itl),
            together=plan.transfers is None,
            by_network=tuple(
                served_by(requests, answer, arrived=arrived, ttft_ns=self.ttft, itl_ns=self.itl)
                for answer in answers
            ),
            warnings=self._warnings(plan),
        )

    def _answers(self, network: Carried, plan: Plan, moved_s: Floats) -> Answers:
        stalls = None
        if plan.transfers is None:
            stalls = {number: _stalls(plan.prefilled, number) for number in range(self.prefill)}
        decoded = decode(plan.requests, moved_s, plan.decoder, plan.decode, stalls)
        return Answers(network, plan.prefilled, moved_s, decoded)

    def _warnings(self, plan: Plan) -> tuple[str, ...]:
        lines = list(plan.requests.warnings)
        if plan.rejected:
            exceed = "exceeds" if plan.rejected == 1 else "exceed"
            lines.append(
                f"{counted(plan.rejected, 'request')} {exceed} the cache of a decoding replica, "
                f"{self.cache_tokens or 0:,} tokens; what is refused meets no objective"
            )
        return tuple(lines)

    def kept_memory(self) -> tuple[MemoryPart, ...]:
        room = self.cache_room_bytes
        if room is None:
            return self.memory_parts
        return (*self.memory_parts, MemoryPart("KV cache, at most", room))

    def basis(self, seed: int = 1) -> tuple[str, ...]:
        lines = list(served_basis(self))
        lines.append(
            "predicted: prompts wait for the replica that would be first, which computes all that "
            f"wait together, up to {self.batch_tokens:,} tokens; answers are made in continuous "
            f"batches of up to {self.batch_requests:,}; TTFT is queue, prefill, the cache's way, "
            "and one token of the decoding batch"
        )
        if self.model.has_experts and max(self.expert, self.decoding) > 1:
            lines.append(
                "predicted: dispatch and combine by formula, the busiest NIC's bytes at its rate, "
                "and not on the simulated network: they load no link, and no cache slows them"
            )
        if self.decode is None:
            lines.append(
                "assumed: a replica that prefills decodes nothing meanwhile; no cache travels, and "
                "what stages and experts exchange is not on the simulated network"
            )
        if self.reuse is not Reuse.NONE:
            saved = "computation and transfer" if self.reuse is Reuse.BOTH else "computation"
            lines.append(
                f"assumed: the beginning of a prompt that an earlier one had saves its {saved}, in "
                "whichever replica that was: caches without limits, in no time where they are "
                "needed"
            )
        lines.append(
            "assumed: no preemption, no speculation; a request holds room for its whole answer; "
            "requests and tokens themselves travel in no time"
        )
        return tuple(lines)


def _stalls(prefilled: Prefilled, number: int) -> DecodeStalls:
    """When a replica prefills."""
    rows = np.flatnonzero(prefilled.replica == number)
    begins, first = np.unique(prefilled.begin_s[rows], return_index=True)
    return DecodeStalls(begins, prefilled.free_s[rows][first])
