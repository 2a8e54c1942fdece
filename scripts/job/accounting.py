"""Do devices and endpoints agree? Every packet and mark is counted at least twice; here they meet.

In: what a job's endpoints reported and what the lab's devices counted. Out: named checks with both
numbers. Drops that a queue counted explain a difference; nothing else does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from labs.plan.fabric import Fabric
from labs.spec.model import QueueEngine
from scripts.job.devices import DeviceCounts
from scripts.job.document import Check, QueueFigures
from scripts.job.queues import traffic_class
from traffic.job import Ecn
from traffic.jobresult import JobResult
from traffic.result import AgentRecord

SHOWN = 4

_Counted = tuple[str, int, int]
"""A place and the two counts there."""


def check_all(
    job: JobResult, agents: Iterable[AgentRecord], counts: DeviceCounts
) -> tuple[Check, ...]:
    """Every check that this lab's queues allow."""
    agents = tuple(agents)
    return (
        _payload(job),
        *_nics(job, agents, counts),
        _fabric_links(job.plan.fabric, counts),
        _end_to_end(job, agents, counts),
        *_notifications(job, counts),
        *_marks(job, counts),
    )


def disagreements(checks: Iterable[Check]) -> tuple[str, ...]:
    """The checks that fail, as problems of the run."""
    return tuple(
        f"not valid because counters disagree on {check.name}: {check.left} {check.left_count:,}, "
        f"{check.right} {check.right_count:,} ({', '.join(check.differing)}); was there other "
        "traffic, or a link that went down?"
        for check in checks
        if not check.agrees
    )


def _check(name: str, left: str, right: str, counted: Iterable[_Counted]) -> Check:
    counted = tuple(counted)
    return Check(
        name=name,
        left=left,
        left_count=sum(a for _, a, _ in counted),
        right=right,
        right_count=sum(b for _, _, b in counted),
        places=len(counted),
        differing=tuple(place for place, a, b in counted if a != b)[:SHOWN],
    )


def _payload(job: JobResult) -> Check:
    posted: Counter[int] = Counter()
    delivered: Counter[int] = Counter()
    for pair in job.queue_pairs:
        posted[pair.end.rank] += pair.requester.posted_bytes
        delivered[pair.end.peer] += pair.responder.bytes
    return _check(
        "payload, byte by byte",
        "posted",
        "delivered once",
        ((f"rank {rank}", posted[rank], delivered[rank]) for rank in range(job.plan.job.ranks)),
    )


def _nics(job: JobResult, agents: Iterable[AgentRecord], counts: DeviceCounts) -> Iterable[Check]:
    sent: Counter[int] = Counter()
    taken: Counter[int] = Counter()
    for pair in job.queue_pairs:
        sent[pair.end.rank] += pair.requester.packets
        answer = pair.responder
        taken[pair.end.rank] += answer.packets + answer.out_of_order + answer.duplicates
    refused = {nic.rank: nic.refused for nic in job.nics}
    dropped_at = {agent.server: agent.icrc_errors + agent.socket_drops for agent in agents}
    out, into = [], []
    for rank, place in enumerate(job.plan.places):
        link = job.plan.nic_link(rank)
        seen = counts.data[link.name, link.a.node]
        # A refused frame may have been an acknowledgement: then all data was sent after all.
        unsent = min(refused.get(rank, 0), max(0, sent[rank] - seen))
        out.append((str(place), sent[rank] - unsent, seen))
        came = counts.data[link.name, link.b.node]
        untaken = min(dropped_at.get(place.server, 0), max(0, came - taken[rank]))
        into.append((str(place), came - untaken, taken[rank]))
    yield _check("data packets out of NICs", "the NICs sent", "their switches took in", out)
    yield _check("data packets into NICs", "the servers' ports took in", "queue pairs took", into)


def _fabric_links(fabric: Fabric, counts: DeviceCounts) -> Check:
    """What left a switch's queues came in at the far end; without queues that count packets, what
    came into a switch left it again."""
    if counts.engine is QueueEngine.OFF:
        into: Counter[str] = Counter()
        out: Counter[str] = Counter()
        for link in fabric.links:
            for sender in (link.a.node, link.b.node):
                into[link.far(sender).node] += counts.roce[link.name, sender]
                out[sender] += counts.roce[link.name, sender]
        switches = ((node.name, into[node.name], out[node.name]) for node in fabric.switches)
        return _check("RoCEv2 packets through switches", "taken in", "taken in behind", switches)
    left: Counter[tuple[str, str]] = Counter()
    for queue in counts.queues:
        left[queue.node, queue.interface] += queue.packets
    ports = [
        (f"{port.node}:{port.interface}", left[port.node, port.interface], link, port.node)
        for link in fabric.links
        for port in (link.a, link.b)
        if fabric.node(port.node).is_switch
    ]
    return _check(
        "RoCEv2 packets over links",
        "switch queues let through",
        "the far ends took in",
        ((place, count, counts.roce[link.name, node]) for place, count, link, node in ports),
    )


def _end_to_end(job: JobResult, agents: Iterable[AgentRecord], counts: DeviceCounts) -> Check:
    plan = job.plan
    nic_links = {link.name: link for link in map(plan.nic_link, range(plan.job.ranks))}.values()
    sent = sum(counts.roce[link.name, link.a.node] for link in nic_links)
    came = sum(counts.roce[link.name, link.b.node] for link in nic_links)
    dropped = sum(queue.dropped_packets for queue in counts.queues)
    return _check(
        "RoCEv2 packets end to end",
        "came out of NICs",
        "went into NICs or were dropped by queues",
        [("all NICs", sent, came + dropped)],
    )


def _of_class(queues: Iterable[QueueFigures], traffic_class: int) -> list[QueueFigures]:
    return [queue for queue in queues if queue.traffic_class == traffic_class]


def _notifications(job: JobResult, counts: DeviceCounts) -> Iterable[Check]:
    transport, fabric = job.plan.job.transport, job.plan.fabric
    sent = sum(pair.responder.cnps for pair in job.queue_pairs)
    received = sum(pair.cnps_received for pair in job.queue_pairs)
    own = traffic_class(fabric, transport.cnp_dscp)
    shares = own in {traffic_class(fabric, d) for d in (transport.dscp, transport.ack_dscp)}
    dropped = sum(queue.dropped_packets for queue in _of_class(counts.queues, own))
    if not (shares and dropped):
        yield _check(
            "congestion notifications (CNPs)",
            "receivers sent",
            "senders got, or queues dropped",
            [("all queue pairs", sent, received + dropped)],
        )


def _marks(job: JobResult, counts: DeviceCounts) -> Iterable[Check]:
    """Marks that reached receivers, where data has a class of its own."""
    transport, plan = job.plan.job.transport, job.plan
    data, ack, cnp = (
        traffic_class(plan.fabric, d)
        for d in (transport.dscp, transport.ack_dscp, transport.cnp_dscp)
    )
    if data in (ack, cnp) or counts.engine is QueueEngine.OFF:
        return
    queues = _of_class(counts.queues, data)
    seen: Counter[tuple[str, str]] = Counter()
    for pair in job.queue_pairs:
        link = plan.nic_link(pair.end.rank)
        seen[link.b.node, link.b.interface] += pair.responder.ce
    last = {(q.node, q.interface): q.ce_out for q in queues if (q.node, q.interface) in seen}
    if None not in last.values():
        yield _check(
            "marks at receivers",
            "the last queues let through",
            "receivers saw",
            ((f"{a}:{b}", last.get((a, b)) or 0, count) for (a, b), count in seen.items()),
        )
    dropped = sum(queue.dropped_packets for queue in queues)
    if transport.ecn is not Ecn.CE and not dropped:
        yield _check(
            "marks given",
            "switches marked",
            "receivers saw",
            [("all queues", sum(q.marked for q in queues), sum(seen.values()))],
        )
