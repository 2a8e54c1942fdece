"""Judges what packets that are not RoCEv2, as of a ping or an ssh, took from the jobs of a run.

They delay the jobs' packets by no more than the time that they themselves take on the links, and
take room in buffers. A run in which that is little is valid, and its warnings say what there was;
else the jobs were disturbed, and it is not.

The limit of time is of the whole run, as nothing says when others came. Of n equal iterations it
holds the mean to 1% and the median to 2%, whatever moments others choose: half of the iterations
would have to be late. One alone may owe them n%, as the longest of all: the warning says how much.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rocelab.base import quantities
from rocelab.base.quantities import share as share_text
from rocelab.base.quantities import whole_share
from rocelab.base.wording import listed
from rocelab.observe.devices import DeviceCounts
from rocelab.planning.queues import plan_queues
from rocelab.results.job import OtherTraffic, QueueFigures
from rocelab.traffic.jobresult import LOST_TIME_LIMIT, JobResult

MARKS_SHARE_LIMIT = 0.01
"""The most that other packets may hold of a job's own queue, as a share of the depth from which it
is marked, or paused if that is less."""

_MOST_WIRE_OVERHEAD_BYTES = 50
"""What the shortest IP packet, a frame of 34 bytes, has more on the wire, where it takes 84."""

_Place = tuple[str, str]


def described(counts: DeviceCounts) -> tuple[str, ...]:
    """What other packets than RoCEv2's there were, where jobs of TCP sent some of them."""
    with_others = [queue for queue in counts.queues if queue.others is not None]
    if not with_others:
        return ()
    return (
        f"IP traffic beside RoCEv2, of the jobs' TCP and of others, which are not told apart: "
        f"{_described(with_others)}",
    )


def judged(
    jobs: Sequence[JobResult], counts: DeviceCounts, elapsed_s: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Warnings that say what other packets there were, and why the run is no measurement of its
    jobs if these were too many. Neither without others, or where queues cannot tell them."""
    with_others = [queue for queue in counts.queues if queue.others is not None]
    if not with_others:
        return (), ()
    shared = {_place(queue) for queue in counts.queues if queue.roce_packets or queue.roce_dropped}
    shares = _shares(jobs, with_others, elapsed_s)
    taken = {place: share for place, share in shares.items() if place in shared}
    worst = max(taken, key=lambda place: taken[place], default=None)
    seen = f"other traffic during the jobs: {_described(with_others)}"
    if worst is not None:
        seen += (
            f"; on ports where jobs sent as well, it used at most {share_text(taken[worst])} of "
            f"the time, at {_name(worst)}{_iteration_clause(jobs, taken[worst] * elapsed_s)}"
        )
    problems = [
        f"not valid because other traffic used up to {_above_limit(share)} of the time of "
        f"{_name(place)}, where jobs sent too (the limit is {LOST_TIME_LIMIT:.0%})"
        for place, share in taken.items()
        if share > LOST_TIME_LIMIT
    ]
    problems += [
        f"not valid because {queue.others.crowded_out:,} RoCEv2 packets did not fit at "
        f"{_name(_place(queue))}, where other traffic held some"
        for queue in with_others
        if queue.others is not None and queue.others.crowded_out
    ]
    return (seen,), (*problems, *_in_queues_of(jobs, counts, with_others))


def _above_limit(share: float) -> str:
    """A share above the limit, with as many digits as tell them apart."""
    texts = ((f"{share:.{digits}%}", f"{LOST_TIME_LIMIT:.{digits}%}") for digits in range(9))
    return next((text for text, limit in texts if text != limit), share_text(share))


def _iteration_clause(jobs: Sequence[JobResult], taken_s: float) -> str:
    """How much longer an iteration may be if all others came within it, unless that is little."""
    iterations = [job.iteration_ns for job in jobs if len(job.iteration_ns) > 1]
    shortest_ns = min((int(times_ns.min()) for times_ns in iterations), default=0)
    if taken_s * 1e9 <= LOST_TIME_LIMIT * shortest_ns or not shortest_ns:
        return ""
    return (
        f", and an iteration may be {whole_share(taken_s * 1e9 / shortest_ns)} longer because of it"
    )


def _in_queues_of(
    jobs: Sequence[JobResult], counts: DeviceCounts, with_others: Sequence[QueueFigures]
) -> list[str]:
    """Other packets in the jobs' own queues, and in lossless classes that dropped some."""
    fabric = jobs[0].plan.fabric
    queues, pfc = fabric.spec.queues, fabric.spec.queues.pfc
    least = min(queues.ecn.kmin, (pfc.xoff if pfc else None) or queues.ecn.kmin)
    plan = plan_queues(fabric)
    transports = [job.plan.job.transport for job in jobs]
    dscps = {
        dscp
        for transport in transports
        for dscp in (transport.dscp, transport.ack_dscp, transport.cnp_dscp)
    }
    classes = {plan.class_of_dscp[dscp] for dscp in dscps}
    ports = [
        f"not valid because other traffic held up to "
        f"{quantities.size(queue.others.held_max_bytes)} of the jobs' own queue, class "
        f"{queue.traffic_class} of {_name(_place(queue))} (the limit is "
        f"{quantities.size(round(MARKS_SHARE_LIMIT * least))})"
        for queue in with_others
        if queue.others is not None
        and queue.traffic_class in classes
        and queue.others.held_max_bytes > MARKS_SHARE_LIMIT * least
    ]
    lossless = counts.lossless
    if lossless is not None and lossless.dropped + lossless.discarded:
        ports += [
            f"not valid because lossless class {queue.traffic_class} dropped packets while other "
            f"traffic was in it, at {_name(_place(queue))}"
            for queue in with_others
            if queue.traffic_class in lossless.classes
        ]
    return ports


def _shares(
    jobs: Sequence[JobResult], with_others: Sequence[QueueFigures], elapsed_s: float
) -> dict[_Place, float]:
    """The share of the run in which each port sent other packets, or more: they are counted since a
    while before it."""
    ports = plan_queues(jobs[0].plan.fabric).port_of
    wire_bytes: Counter[_Place] = Counter()
    for queue in with_others:
        others = queue.others
        assert others is not None
        wire_bytes[_place(queue)] += others.bytes + _MOST_WIRE_OVERHEAD_BYTES * others.packets
    return {
        place: min(1.0, 8 * size / (ports[place].rate_bps * elapsed_s))
        for place, size in wire_bytes.items()
    }


def _described(with_others: Sequence[QueueFigures]) -> str:
    """What there was at the port that most passed; other ports count the same packets again."""
    of_port: dict[_Place, list[OtherTraffic]] = defaultdict(list)
    classes: dict[_Place, list[int]] = defaultdict(list)
    for queue in with_others:
        assert queue.others is not None
        of_port[_place(queue)].append(queue.others)
        classes[_place(queue)].append(queue.traffic_class)
    place = max(of_port, key=lambda port: sum(others.packets for others in of_port[port]))
    at = of_port[place]
    counts = {
        "TCP": sum(others.tcp for others in at),
        "UDP": sum(others.udp for others in at),
        "ICMP": sum(others.icmp for others in at),
        "other": sum(others.rest for others in at),
    }
    kinds = [f"{count:,} {kind}" for kind, count in counts.items() if count] or ["no"]
    dropped = sum(others.dropped_packets for others in at)
    number = ", ".join(map(str, sorted(classes[place])))
    return (
        f"{listed(kinds, 'and')} packets ({quantities.size(sum(others.bytes for others in at))}) "
        f"in class {number} passed {_name(place)}"
        + (f" and {dropped:,} were dropped there" if dropped else "")
        + (f", {len(of_port) - 1} other ports had fewer" if len(of_port) > 1 else "")
    )


def _place(queue: QueueFigures) -> _Place:
    return queue.node, queue.interface


def _name(place: _Place) -> str:
    return ":".join(place)
