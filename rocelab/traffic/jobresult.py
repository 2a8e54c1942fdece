"""The results of jobs: the times of iterations, and counts of bytes and packets.

Combines each `JobPlan` with the agents' reports into a frozen `JobResult` per job, in the lab's
clock; its `problems` say why it is no valid measurement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rocelab.agent.rc.requester import RequesterCounters
from rocelab.agent.rc.responder import ResponderCounters
from rocelab.jobs.jobplan import JobPlan, QueuePairEnd
from rocelab.jobs.tcp import TcpPath
from rocelab.traffic.jobparts import SessionNic, nics_of, session_nic

Numbers = npt.NDArray[np.int64]

MOST_ERRORS = 8
"""Queue pairs and connections that failed and are named."""

LOST_TIME_LIMIT = 0.01
"""The most of a NIC's sending time, as a share, that this machine may leave it idle."""


@dataclass(frozen=True, slots=True)
class AckGap:
    """A requested acknowledgement did not come for long, relative to the start of the job."""

    began_ns: int
    ended_ns: int | None
    """None: it had not come by the end."""
    has_retransmissions: bool
    """Packets were sent again meanwhile."""
    retransmitted: int
    """Packets from then to the next gap, or to the end."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuePairRecord:
    """One end of a queue pair and its counters."""

    end: QueuePairEnd
    requester: RequesterCounters
    responder: ResponderCounters
    cnps_received: int
    error: str | None
    acked_bytes: Numbers
    """Payload acknowledged so far at each of the job's sample times."""
    rtt_ns: Numbers
    """Round trips."""
    port_moves: int = 0
    """How often it moved to another port of its NIC."""
    gaps: tuple[AckGap, ...] = ()
    """The longest, in order of time."""


@dataclass(frozen=True, slots=True, eq=False)
class TcpRecord:
    """A TCP connection and its payload."""

    path: TcpPath
    posted_bytes: int
    acked_bytes: int
    """Of sends that the receiving rank has acknowledged."""
    delivered_bytes: int
    """That the receiving rank has read."""
    error: str | None
    sampled_bytes: Numbers
    """Acknowledged by the receiver's kernel so far at each of the job's sample times, with the
    headers of sends."""


@dataclass(frozen=True, slots=True)
class PortRecord:
    """A port (from 0) of a rank's NIC, including other jobs' packets on it."""

    rank: int
    port: int
    busy_ns: float
    lost_ns: float
    """How long it was idle only because this machine was too slow."""
    late_p99_ns: int
    late_max_ns: int
    refused: int


@dataclass(frozen=True, slots=True, eq=False)
class RankRecord:
    """A rank's iterations, warm-up included: when each began and ended, relative to the start of
    the job, and how long the rank had nothing in progress during it."""

    rank: int
    began_ns: Numbers
    ended_ns: Numbers
    waited_ns: Numbers
    received_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class StepRecord:
    """When each send was posted, completely arrived and acknowledged, relative to the start of
    the job: a row per recorded iteration from `first` on, a column per send of the schedule.
    Negative if it never happened."""

    first: int
    posted_ns: Numbers
    arrived_ns: Numbers
    acked_ns: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class StallRecord:
    """When a server's agent did nothing though a deadline or an arrival waited, relative to the
    start of the job."""

    server: str
    began_ns: Numbers
    length_ns: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class JobResult:
    """A job's outcome, in the lab's clock. `errors` are queue pairs that failed, of any job of the
    session: all jobs end with the first."""

    plan: JobPlan
    ranks: tuple[RankRecord, ...]
    queue_pairs: tuple[QueuePairRecord, ...]
    ports: tuple[PortRecord, ...]
    sampled_ns: Mapping[str, Numbers] = field(repr=False)
    steps: StepRecord | None = field(default=None, repr=False)
    stalls: tuple[StallRecord, ...] = ()
    errors: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    connections: tuple[TcpRecord, ...] = ()
    """Of a job of TCP, which has no queue pairs."""
    rto_is_scaled: bool = False
    """Whether its servers' kernels let it have the least retransmission timeout of its plan."""

    @property
    def samples(self) -> list[tuple[int, Numbers]]:
        """The sending rank of each queue pair and connection with data, and the bytes that were
        acknowledged at each sample time."""
        pairs = [
            (pair.end.rank, pair.acked_bytes)
            for pair in self.queue_pairs
            if pair.requester.posted_bytes and not pair.end.control
        ]
        return pairs + [
            (one.path.rank, one.sampled_bytes) for one in self.connections if one.posted_bytes
        ]

    @property
    def iteration_ns(self) -> Numbers:
        """The duration of each measured iteration: from the end of the one before plus the pause to
        its end at the last rank. Empty for streams and failed jobs."""
        if not self.ranks or self.errors:
            return np.empty(0, np.int64)
        ended = np.max([rank.ended_ns for rank in self.ranks], axis=0)
        began = np.min([rank.began_ns for rank in self.ranks], axis=0)
        pause_ns = round(self.plan.job.compute * self.plan.dilation)
        starts = np.concatenate((began[:1], ended[:-1] + pause_ns))
        return np.asarray((ended - starts)[self.plan.job.warmup_iterations :], np.int64)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Says that not every byte posted was acknowledged and delivered once, although no queue
        pair failed."""
        posted, acked, taken = self.posted_bytes, self.acked_bytes, self.delivered_bytes
        if self.errors or posted == acked == taken:
            return ()
        return (f"of {posted:,} bytes posted {acked:,} were acked and {taken:,} delivered",)

    @property
    def posted_bytes(self) -> int:
        """Payload that ranks posted."""
        return sum(pair.requester.posted_bytes for pair in self.queue_pairs) + sum(
            one.posted_bytes for one in self.connections
        )

    @property
    def acked_bytes(self) -> int:
        """Payload that was acknowledged."""
        return sum(pair.requester.acked_bytes for pair in self.queue_pairs) + sum(
            one.acked_bytes for one in self.connections
        )

    @property
    def delivered_bytes(self) -> int:
        """Payload that receivers accepted, each byte once."""
        return sum(pair.responder.bytes for pair in self.queue_pairs) + sum(
            one.delivered_bytes for one in self.connections
        )


def read_jobs(
    plans: Sequence[JobPlan],
    reports: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, Sequence[bytes]],
    start_ns: int,
    paused: Collection[str] = (),
) -> tuple[JobResult, ...]:
    """The result of each job of a session, from every server's report and `columns`, its arrays;
    `start_ns` began the jobs. Servers that were `paused` on purpose may leave NICs idle."""
    nics = nics_of(plans)
    arrays = {
        server: [np.frombuffer(column, np.int64) for column in columns[server]] for server in nics
    }
    pairs: dict[int, QueuePairRecord] = {}
    ends = {end.number: end for plan in plans for end in plan.ends}
    port_fields: dict[SessionNic, Sequence[Mapping[str, Any]]] = {}
    for server, refs in nics.items():
        port_fields.update(zip(refs, reports[server]["nics"], strict=True))
        count = len(reports[server]["queue_pairs"])
        for index, fields in enumerate(reports[server]["queue_pairs"]):
            pairs[fields["number"]] = QueuePairRecord(
                end=ends[fields["number"]],
                requester=RequesterCounters(**fields["requester"]),
                responder=ResponderCounters(**fields["responder"]),
                cnps_received=fields["cnps_received"],
                error=fields["error"],
                acked_bytes=arrays[server][1 + index],
                rtt_ns=arrays[server][1 + count + index],
                port_moves=fields["port_moves"],
                gaps=_gaps(fields, start_ns),
            )
    connections = _connections(plans, reports, arrays)
    results = []
    for number, plan in enumerate(plans):
        servers = dict.fromkeys(place.server for place in plan.places)
        ranks = [
            _rank_record(fields, start_ns)
            for server in servers
            for fields in reports[server]["ranks"]
            if fields["job"] == number
        ]
        results.append(
            JobResult(
                plan,
                ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
                queue_pairs=tuple(pairs[end.number] for end in plan.ends),
                connections=tuple(connections[path.number] for path in plan.tcp_paths),
                rto_is_scaled=all(reports[server]["tcp"]["rto_is_scaled"] for server in servers),
                ports=tuple(
                    PortRecord(rank=rank, port=port, **fields)
                    for rank, place in enumerate(plan.places)
                    for port, fields in enumerate(port_fields[session_nic(plan, place)])
                ),
                sampled_ns={server: arrays[server][0] - start_ns for server in servers},
                steps=_step_record(number, plan, reports, arrays, start_ns),
                stalls=tuple(
                    _stall_record(server, reports[server], arrays[server], start_ns)
                    for server in servers
                ),
            )
        )
    errors = _most(tuple(_errors(results)))
    return tuple(
        replace(ended, problems=_problems(ended, paused))
        for ended in (replace(result, errors=errors) for result in results)
    )


def _connections(
    plans: Sequence[JobPlan],
    reports: Mapping[str, Mapping[str, Any]],
    arrays: Mapping[str, Sequence[Numbers]],
) -> dict[int, TcpRecord]:
    """Each TCP connection by its number, from the reports of both of its ends."""
    paths = {path.number: path for plan in plans for path in plan.tcp_paths}
    delivered = {
        receiver["number"]: receiver["bytes"]
        for server in arrays
        for receiver in reports[server]["tcp"]["receivers"]
    }
    records = {}
    for server, columns in arrays.items():
        senders = reports[server]["tcp"]["senders"]
        for sender, sampled in zip(senders, columns[len(columns) - len(senders) :], strict=True):
            number = sender["number"]
            records[number] = TcpRecord(
                path=paths[number],
                posted_bytes=sender["posted_bytes"],
                acked_bytes=sender["acked_bytes"],
                delivered_bytes=delivered.get(number, 0),
                error=sender["error"],
                sampled_bytes=sampled,
            )
    return records


def _most(errors: tuple[str, ...]) -> tuple[str, ...]:
    """The first of many errors, and how many more there are."""
    more = len(errors) - MOST_ERRORS
    return errors if more < 2 else (*errors[:MOST_ERRORS], f"{more:,} more connections failed")


def _errors(results: Sequence[JobResult]) -> Iterator[str]:
    for number, result in enumerate(results, 1):
        which = f" of job {number}" if len(results) > 1 else ""
        for pair in result.queue_pairs:
            if pair.error is not None:
                end, places = pair.end, result.plan.places
                yield (
                    f"queue pair {end.number}{which} of rank {end.rank} ({places[end.rank]}) to "
                    f"rank {end.peer} ({places[end.peer]}) is in error: {pair.error}"
                )
        for one in result.connections:
            if one.error is not None:
                path, places = one.path, result.plan.places
                yield (
                    f"TCP connection{which} of rank {path.rank} ({places[path.rank]}) to rank "
                    f"{path.peer} ({places[path.peer]}) failed: {one.error}"
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


def _gaps(fields: Mapping[str, Any], start_ns: int) -> tuple[AckGap, ...]:
    gaps = fields["gaps"]
    before = [count for *_, count in gaps] + [fields["requester"]["retransmitted"]]
    return tuple(
        AckGap(
            began_ns - start_ns,
            None if ended_ns is None else ended_ns - start_ns,
            resent,
            before[place + 1] - before[place],
        )
        for place, (began_ns, ended_ns, resent, _) in enumerate(gaps)
    )


def _stall_record(
    server: str, report: Mapping[str, Any], columns: Sequence[Numbers], start_ns: int
) -> StallRecord:
    ended, length = columns[1 + 2 * len(report["queue_pairs"]) :][:2]
    return StallRecord(server, ended - length - start_ns, length)


def _step_record(
    number: int,
    plan: JobPlan,
    reports: Mapping[str, Mapping[str, Any]],
    arrays: Mapping[str, Sequence[Numbers]],
    start_ns: int,
) -> StepRecord | None:
    """The combined columns of all ranks, oldest iteration first; None if none were kept."""
    kept = plan.recorded_iterations
    if plan.schedule is None or not kept:
        return None
    sends = plan.schedule.sends
    whole = [np.full((kept, len(sends)), -1, np.int64) for _ in range(3)]
    ends = np.array([(send.source, send.destination) for send in sends])
    for server in dict.fromkeys(place.server for place in plan.places):
        columns = iter(arrays[server][1 + 2 * len(reports[server]["queue_pairs"]) + 2 :])
        for fields in reports[server]["ranks"]:
            parts = [next(columns) for _ in whole]
            if fields["job"] != number:
                continue
            for table, column, end in zip(whole, parts, (0, 0, 1), strict=True):
                at = np.flatnonzero(ends[:, end] == fields["rank"])
                times = column.reshape(kept, len(at))
                table[:, at] = np.where(times > 0, times - start_ns, -1)
    # Iteration n is in row n mod kept.
    turn = plan.iterations % kept
    posted, acked, arrived = (np.roll(table, -turn, axis=0) for table in whole)
    return StepRecord(plan.iterations - kept, posted, arrived, acked)


def _problems(result: JobResult, paused: Collection[str]) -> tuple[str, ...]:
    problems = []
    slow = [
        port
        for port in result.ports
        if port.lost_ns > LOST_TIME_LIMIT * port.busy_ns
        and result.plan.places[port.rank].server not in paused
    ]
    if slow:
        worst = max(slow, key=lambda port: port.lost_ns / max(1.0, port.busy_ns))
        place = result.plan.places[worst.rank]
        nics = len({port.rank for port in slow})
        problems.append(
            f"this machine could not keep {nics} of {result.plan.ranks} NICs busy: {place} sat "
            f"idle for {worst.lost_ns / 1e6:,.0f} of "
            f"{(worst.lost_ns + worst.busy_ns) / 1e6:,.0f} ms with packets to send; send less, or "
            "slow the lab's clock down: "
            f"`--dilation {2 * result.plan.dilation:g}` of `rocelab up`, or of `rocelab drill run`"
        )
    if not result.errors:
        schedule, posted = result.plan.over_network, result.posted_bytes
        planned = sum(send.size_bytes for send in schedule.sends) if schedule else 0
        if schedule and posted != planned * result.plan.iterations:
            problems.append(f"{posted:,} bytes were posted, {planned:,} per iteration were planned")
    return tuple(f"not valid because {reason}" for reason in problems)
