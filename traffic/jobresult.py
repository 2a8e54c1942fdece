"""What came of a job: when each iteration was over, and what became of every byte and packet.

In: a `JobPlan` and the reports of its agents. Out: a frozen `JobResult` in the lab's clock, with
what makes it not a measurement in `problems`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from traffic.jobplan import JobPlan, QueuePairEnd
from traffic.rc.requester import RequesterCounters
from traffic.rc.responder import ResponderCounters

Numbers = npt.NDArray[np.int64]

LOST_TIME_LIMIT = 0.01
"""The share of a NIC's sending time that this machine may have left it idle."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuePairRecord:
    """One end of a queue pair and what it did.

    acked_bytes: payload acknowledged so far at each of the job's sample times; rtt_ns: round trips.
    """

    end: QueuePairEnd
    requester: RequesterCounters
    responder: ResponderCounters
    cnps_received: int
    error: str | None
    acked_bytes: Numbers
    rtt_ns: Numbers


@dataclass(frozen=True, slots=True)
class NicRecord:
    """A rank's NIC. lost_ns: how long it stood idle only because this machine was too slow."""

    rank: int
    busy_ns: float
    lost_ns: float
    late_p99_ns: int
    late_max_ns: int
    refused: int


@dataclass(frozen=True, slots=True, eq=False)
class RankRecord:
    """A rank's iterations, warm-up included: when each began and ended, relative to the start of
    the job, and how long in it the rank had nothing of its own under way."""

    rank: int
    began_ns: Numbers
    ended_ns: Numbers
    waited_ns: Numbers
    received_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class JobResult:
    """A job's outcome, in the lab's clock. `errors` are queue pairs that failed."""

    plan: JobPlan
    ranks: tuple[RankRecord, ...]
    queue_pairs: tuple[QueuePairRecord, ...]
    nics: tuple[NicRecord, ...]
    sampled_ns: Mapping[str, Numbers] = field(repr=False)
    errors: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def iteration_ns(self) -> Numbers:
        """How long each measured iteration took: from the end of the one before, and the pause
        behind it, to its own end at the last rank. Empty for streams and where a job failed."""
        if not self.ranks or self.errors:
            return np.empty(0, np.int64)
        ended = np.max([rank.ended_ns for rank in self.ranks], axis=0)
        began = np.min([rank.began_ns for rank in self.ranks], axis=0)
        pause_ns = round(self.plan.job.compute * self.plan.dilation)
        starts = np.concatenate((began[:1], ended[:-1] + pause_ns))
        return np.asarray((ended - starts)[self.plan.job.warmup_iterations :], np.int64)

    @property
    def posted_bytes(self) -> int:
        """Payload that ranks gave to their queue pairs."""
        return sum(pair.requester.posted_bytes for pair in self.queue_pairs)

    @property
    def acked_bytes(self) -> int:
        """Payload that was acknowledged."""
        return sum(pair.requester.acked_bytes for pair in self.queue_pairs)

    @property
    def delivered_bytes(self) -> int:
        """Payload that receivers took, each byte once."""
        return sum(pair.responder.bytes for pair in self.queue_pairs)


def read_job(
    plan: JobPlan,
    reports: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, Sequence[bytes]],
    start_ns: int,
) -> JobResult:
    """The result from each server's report and `columns`, its arrays; `start_ns` began the job."""
    ends = {end.number: end for end in plan.ends}
    rank_of: dict[str, list[int]] = {}
    for rank, place in enumerate(plan.places):
        rank_of.setdefault(place.server, []).append(rank)
    pairs, nics, ranks, sampled = [], [], [], {}
    for server, report in reports.items():
        if server not in rank_of:
            continue
        arrays = [np.frombuffer(column, np.int64) for column in columns[server]]
        count = len(report["queue_pairs"])
        sampled[server] = arrays[0] - start_ns
        for index, fields in enumerate(report["queue_pairs"]):
            pairs.append(
                QueuePairRecord(
                    end=ends[fields["number"]],
                    requester=RequesterCounters(**fields["requester"]),
                    responder=ResponderCounters(**fields["responder"]),
                    cnps_received=fields["cnps_received"],
                    error=fields["error"],
                    acked_bytes=arrays[1 + index],
                    rtt_ns=arrays[1 + count + index],
                )
            )
        for rank, fields in zip(rank_of[server], report["nics"], strict=True):
            nics.append(NicRecord(rank=rank, **fields))
        ranks += [_rank_record(fields, start_ns) for fields in report["ranks"]]
    result = JobResult(
        plan,
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        queue_pairs=tuple(sorted(pairs, key=lambda pair: pair.end.number)),
        nics=tuple(sorted(nics, key=lambda nic: nic.rank)),
        sampled_ns=sampled,
        errors=tuple(_error(plan, pair) for pair in pairs if pair.error),
    )
    problems = tuple(f"not valid because {reason}" for reason in _problems(result))
    return replace(result, problems=problems)


def _error(plan: JobPlan, pair: QueuePairRecord) -> str:
    end = pair.end
    here, there = plan.places[end.rank], plan.places[end.peer]
    return (
        f"queue pair {end.number} of rank {end.rank} ({here}) to rank {end.peer} ({there}) is in "
        f"error: {pair.error}"
    )


def _rank_record(fields: Mapping[str, Any], start_ns: int) -> RankRecord:
    def relative(name: str) -> Numbers:
        return np.asarray(fields[name], np.int64) - start_ns

    return RankRecord(
        rank=fields["rank"],
        began_ns=relative("began_ns"),
        ended_ns=relative("ended_ns"),
        waited_ns=np.asarray(fields["waited_ns"], np.int64),
        received_bytes=fields["received_bytes"],
    )


def _problems(result: JobResult) -> list[str]:
    found = []
    slow = [nic for nic in result.nics if nic.lost_ns > LOST_TIME_LIMIT * nic.busy_ns]
    if slow:
        worst = max(slow, key=lambda nic: nic.lost_ns / max(1.0, nic.busy_ns))
        place = result.plan.places[worst.rank]
        found.append(
            f"this machine could not feed {len(slow)} of {len(result.nics)} NICs: {place} stood "
            f"idle for {worst.lost_ns / 1e6:,.0f} ms with packets to send, beside "
            f"{worst.busy_ns / 1e6:,.0f} ms of sending; raise the lab's dilation, or send less"
        )
    if not result.errors:
        posted, acked, taken = result.posted_bytes, result.acked_bytes, result.delivered_bytes
        if not posted == acked == taken:
            found.append(f"of {posted:,} bytes posted {acked:,} were acked and {taken:,} delivered")
        schedule = result.plan.schedule
        planned = sum(send.size_bytes for send in schedule.sends) if schedule else 0
        if schedule and posted != planned * result.plan.iterations:
            found.append(f"{posted:,} bytes were posted, {planned:,} per iteration were planned")
    return found
