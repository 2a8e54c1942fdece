"""Checks that devices and endpoints agree: every packet and mark is counted at least twice.

Compares the reports of a run's endpoints with the counters of the lab's devices, as named checks
with both numbers. Only drops that a queue counted explain a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rocelab.jobs.placement import NicRef
from rocelab.jobs.transport import Ecn
from rocelab.labfile.queues import QueueEngine
from rocelab.observe.devices import DeviceCounts
from rocelab.observe.queues import traffic_class
from rocelab.planning.fabric import Fabric, Link
from rocelab.results.job import CountCheck
from rocelab.traffic.jobparts import nic_links
from rocelab.traffic.jobresult import JobResult
from rocelab.traffic.result import AgentRecord

SHOWN = 4

_Counted = tuple[str, int, int]
"""A place and the two counts there."""


def check_all(
    jobs: Sequence[JobResult], agents: Iterable[AgentRecord], counts: DeviceCounts
) -> tuple[CountCheck, ...]:
    """Every check that this lab's queues allow, over all jobs of a run."""
    agents, payload = tuple(agents), _payload(jobs)
    jobs = [job for job in jobs if job.queue_pairs]
    if not jobs:
        # Devices do not count what TCP sends again by job.
        return (payload,)
    links = nic_links([job.plan for job in jobs])
    return (
        payload,
        *_nics(jobs, agents, counts),
        _fabric_links(jobs[0].plan.fabric, counts),
        _end_to_end(links, counts),
        _queue_pairs(jobs[0].plan.fabric, counts),
        *_notifications(jobs, counts),
        *_marks(jobs, counts),
    )


def disagreements(
    checks: Iterable[CountCheck], engine: QueueEngine = QueueEngine.BPF
) -> tuple[str, ...]:
    """The checks that fail, as problems of the run. engine: of the lab's queues."""
    others = "other traffic"
    if engine is QueueEngine.RED:
        others += " (the engine red counts it with RoCEv2, bpf apart)"
    return tuple(
        f"not valid because counters disagree on {check.name}: {check.left} {check.left_count:,}, "
        f"{check.right} {check.right_count:,} ({', '.join(check.differing)}); was there "
        f"{others}, or a link that went down?"
        for check in checks
        if not check.agrees
    )


def _check(name: str, left: str, right: str, counted: Iterable[_Counted]) -> CountCheck:
    counted = tuple(counted)
    return CountCheck(
        name=name,
        left=left,
        left_count=sum(a for _, a, _ in counted),
        right=right,
        right_count=sum(b for _, _, b in counted),
        places=len(counted),
        differing=tuple(place for place, a, b in counted if a != b)[:SHOWN],
    )


def _payload(jobs: Sequence[JobResult]) -> CountCheck:
    posted: Counter[str] = Counter()
    delivered: Counter[str] = Counter()
    for number, job in enumerate(jobs, 1):
        of_job = f"job {number}, " if len(jobs) > 1 else ""
        for pair in job.queue_pairs:
            posted[f"{of_job}rank {pair.end.rank}"] += pair.requester.posted_bytes
            delivered[f"{of_job}rank {pair.end.peer}"] += pair.responder.bytes
        for one in job.connections:
            posted[f"{of_job}rank {one.path.rank}"] += one.posted_bytes
            delivered[f"{of_job}rank {one.path.rank}"] += one.delivered_bytes
    return _check(
        "payload, byte by byte",
        "posted",
        "delivered once",
        ((rank, posted[rank], delivered[rank]) for rank in posted),
    )


def _nics(
    jobs: Sequence[JobResult], agents: Iterable[AgentRecord], counts: DeviceCounts
) -> Iterable[CountCheck]:
    sent: Counter[NicRef] = Counter()
    taken: Counter[NicRef] = Counter()
    links: dict[NicRef, tuple[Link, ...]] = {}
    refused: dict[tuple[NicRef, int], int] = {}
    for job in jobs:
        places = job.plan.places
        for pair in job.queue_pairs:
            place, answer = places[pair.end.rank], pair.responder
            sent[place] += pair.requester.packets
            taken[place] += answer.packets + answer.discarded + answer.duplicates
        for port in job.ports:
            refused[places[port.rank], port.port] = port.refused
            links[places[port.rank]] = job.plan.nic(port.rank).links
    dropped_at = {agent.server: agent.icrc_errors + agent.socket_drops for agent in agents}
    out, into = [], []
    for place, of_nic in links.items():
        seen = sum(counts.data[link.up] for link in of_nic)
        # A refused frame may have been an acknowledgement: then all data was sent after all.
        not_taken = sum(refused[place, port] for port in range(len(of_nic)))
        unsent = min(not_taken, max(0, sent[place] - seen))
        out.append((str(place), sent[place] - unsent, seen))
        came = sum(counts.data[link.down] for link in of_nic)
        untaken = min(dropped_at.get(place.server, 0), max(0, came - taken[place]))
        into.append((str(place), came - untaken, taken[place]))
    yield _check("data packets out of NICs", "the NICs sent", "their switches received", out)
    yield _check(
        "data packets into NICs", "the servers' ports received", "queue pairs accepted", into
    )


def _fabric_links(fabric: Fabric, counts: DeviceCounts) -> CountCheck:
    """Packets that left a switch's queues came in at the far end; without queues that count
    packets, packets that came into a switch left it again."""
    if counts.engine is QueueEngine.OFF:
        into: Counter[str] = Counter()
        out: Counter[str] = Counter()
        for link in fabric.directed_links:
            into[link.receiver] += counts.roce[link]
            out[link.sender] += counts.roce[link]
        switches = ((node.name, into[node.name], out[node.name]) for node in fabric.switches)
        return _check(
            "RoCEv2 packets through switches", "received", "received at the next hop", switches
        )
    left: Counter[tuple[str, str]] = Counter()
    for queue in counts.queues:
        left[queue.node, queue.interface] += queue.roce_packets
    links = [
        (str(link.port), left[link.sender, link.port.interface], counts.roce[link])
        for link in fabric.directed_links
        if link.port.role.is_switch
    ]
    lost = _lost(counts)
    if lost:
        # Where a lossless class lost a packet is known by the port that it came in by.
        whole = sum(out for _, out, _ in links), sum(came for _, _, came in links) + lost
        links = [("all links", *whole)]
    return _check(
        "RoCEv2 packets over links",
        "switch queues sent",
        "the far ends received" + (", or lossless classes lost" if lost else ""),
        links,
    )


def _lost(counts: DeviceCounts) -> int:
    """Packets that lossless classes lost after a queue had counted them: without room, or to a
    watchdog."""
    return 0 if counts.lossless is None else counts.lossless.dropped + counts.lossless.discarded


def _end_to_end(links: Iterable[Link], counts: DeviceCounts) -> CountCheck:
    links = tuple(links)
    sent = sum(counts.roce[link.up] for link in links)
    came = sum(counts.roce[link.down] for link in links)
    dropped = sum(queue.roce_dropped for queue in counts.queues) + _lost(counts)
    return _check(
        "RoCEv2 packets end to end",
        "sent by NICs",
        "received by NICs or dropped by queues",
        [("all NICs", sent, came + dropped)],
    )


def _queue_pairs(fabric: Fabric, counts: DeviceCounts) -> CountCheck:
    """All that servers sent to RoCEv2's port was of the jobs' queue pairs."""
    links = (link for link in fabric.links if not link.is_between_switches)
    return _check(
        "RoCEv2 packets of the jobs",
        "sent by servers",
        "belonged to the jobs' queue pairs",
        ((link.name, counts.roce[link.up], counts.jobs.get(link.up, 0)) for link in links),
    )


def _classes(jobs: Sequence[JobResult]) -> tuple[set[int], set[int], set[int]]:
    """The traffic classes of all jobs' data, of their ACKs and of their CNPs."""
    fabric = jobs[0].plan.fabric
    transports = [job.plan.job.transport for job in jobs]
    return (
        {traffic_class(fabric, transport.dscp) for transport in transports},
        {traffic_class(fabric, transport.ack_dscp) for transport in transports},
        {traffic_class(fabric, transport.cnp_dscp) for transport in transports},
    )


def _notifications(jobs: Sequence[JobResult], counts: DeviceCounts) -> Iterable[CountCheck]:
    data, acks, cnps = _classes(jobs)
    pairs = [pair for job in jobs for pair in job.queue_pairs]
    sent = sum(pair.responder.cnps for pair in pairs)
    received = sum(pair.cnps_received for pair in pairs)
    dropped = sum(queue.roce_dropped for queue in counts.queues if queue.traffic_class in cnps)
    if not (cnps & (data | acks) and dropped):
        yield _check(
            "congestion notifications (CNPs)",
            "receivers sent",
            "senders received, or queues dropped",
            [("all queue pairs", sent, received + dropped)],
        )


def _marks(jobs: Sequence[JobResult], counts: DeviceCounts) -> Iterable[CountCheck]:
    """Marks that reached receivers, if data has classes of its own."""
    data, acks, cnps = _classes(jobs)
    if data & (acks | cnps) or counts.engine is QueueEngine.OFF or _lost(counts):
        return
    queues = [queue for queue in counts.queues if queue.traffic_class in data]
    seen: Counter[NicRef] = Counter()
    nic_at: dict[tuple[str, str], NicRef] = {}
    for job in jobs:
        for pair in job.queue_pairs:
            seen[job.plan.places[pair.end.rank]] += pair.responder.ce
        for rank, place in enumerate(job.plan.places):
            for link in job.plan.nic(rank).links:
                nic_at[link.b.node, link.b.interface] = place
    last = [queue for queue in queues if (queue.node, queue.interface) in nic_at]
    if all(queue.roce_ce_out is not None for queue in last):
        left: Counter[NicRef] = Counter()
        for queue in last:
            left[nic_at[queue.node, queue.interface]] += queue.roce_ce_out or 0
        yield _check(
            "marks at receivers",
            "the last queues sent",
            "receivers saw",
            ((str(place), left[place], count) for place, count in seen.items()),
        )
    dropped = sum(queue.roce_dropped for queue in queues)
    pre_marked = any(job.plan.job.transport.ecn is Ecn.CE for job in jobs)
    if not pre_marked and not dropped:
        yield _check(
            "marks given",
            "switches marked",
            "receivers saw",
            [("all queues", sum(q.roce_marked for q in queues), sum(seen.values()))],
        )
