"""Locates links that lose packets silently, by the flows that lost packets and those that did not.

The verdict names the links whose loss best explains which flows lost packets: network tomography
with one faulty link as the hypothesis, over predicted paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from rocelab.base.quantities import share
from rocelab.diagnose.case import Case
from rocelab.diagnose.paths import FlowPaths, named, suspects
from rocelab.planning.fabric import DirectedLink
from rocelab.results.diagnosis import Cause, CauseVerdict
from rocelab.results.job import FlowFigures

LEAST_LOSSES = 3
"""The least number of losses for a verdict: NAKs and timeouts that no queue's drop on the flow's
way explains."""

ELSEWHERE = 1e-6
"""The probability that a packet is lost for another reason."""

INDISTINCT = 2.0
"""Hypotheses whose log-likelihoods differ by less are indistinguishable."""

Floats = npt.NDArray[np.float64]


def lossy_links(case: Case) -> list[CauseVerdict]:
    """The links that lose packets silently: none or one verdict.

    The likelihood of a hypothesis is that of the observed losses, Poisson in each flow, if every
    packet that crosses the link, and every message's last ACK, is lost with one probability. The
    drops of queues on a flow's way are subtracted from its losses first, all of them from each
    flow, because the queues do not count per flow.
    """
    flows = case.report.flows
    losses = np.array([_losses(case, flow) for flow in flows], np.float64)
    if case.paths is None:
        return [] if _any_drop(case) or losses.sum() < LEAST_LOSSES else [_unlocated(case, losses)]
    losses = np.maximum(0, losses - _drops_on_path(case, case.paths))
    if losses.sum() < LEAST_LOSSES:
        return []
    links, exposure = _exposure(flows, case.paths)
    scores = np.array([_likelihood(losses, column, flows) for column in exposure.T])
    best = scores >= scores.max() - INDISTINCT
    likely = tuple(link for link, is_best in zip(links, best, strict=True) if is_best)
    if any(case.dropped_at(link) for link in likely):
        return []  # the queue in front of the link says what became of them
    return [_verdict(case, losses, likely, links[int(np.argmax(scores))])]


def notes_on_losses(case: Case) -> Iterator[str]:
    """What of losses cannot be told."""
    losses = sum(_losses(case, flow) for flow in case.report.flows)
    if case.paths is None and _any_drop(case) and losses >= LEAST_LOSSES:
        yield (
            f"queue pairs lost packets {losses:,.0f} times, and queues dropped some; without "
            f"paths it is unknown whether a link lost any"
        )


def _any_drop(case: Case) -> bool:
    """Whether a queue dropped packets, of this job or another."""
    return any(queue.dropped_packets for queue in case.report.queues)


def _losses(case: Case, flow: FlowFigures) -> float:
    """How often the sender learned of a missing packet, by a NAK or a timeout; without timeouts if
    a server at either end, or a port on the way, paused long enough to cause one, or if packets
    waited as long in queues and the receiver had all that was sent again."""
    ends = {case.server_of[flow.rank], case.server_of[flow.peer]}
    limit_ns = case.job.transport.ack_timeout * case.report.clock.dilation / 2
    stalled = any(end - begin >= limit_ns for name in ends for begin, end in case.spans[name])
    stalled |= case.longest_pause_ns((flow.rank, flow.peer)) >= limit_ns
    stalled |= (flow.rtt_p99_ns or 0) >= limit_ns and flow.duplicates >= flow.retransmitted
    return float(flow.naks + (0 if stalled else flow.timeouts))


def _drops_on_path(case: Case, paths: Sequence[FlowPaths]) -> Floats:
    """For each flow, the packets dropped by the queues that its data and answers cross."""
    links = {link for path in paths for link in (*path.data, *path.answers)}
    dropped = {link: case.dropped_at(link) for link in links}
    return np.array(
        [sum(dropped[link] for link in {*path.data, *path.answers}) for path in paths], np.float64
    )


def _exposure(
    flows: Sequence[FlowFigures], paths: Sequence[FlowPaths]
) -> tuple[list[DirectedLink], Floats]:
    """All links, and the number of packets [flow, link] on each whose loss the sender notices."""
    links = sorted(
        {link for path in paths for link in (*path.data, *path.answers)},
        key=lambda link: (link.name, link.sender),
    )
    place = {link: number for number, link in enumerate(links)}
    table = np.zeros((len(flows), len(links)))
    for row, (flow, path) in enumerate(zip(flows, paths, strict=True)):
        for link in path.data:
            table[row, place[link]] += flow.packets
        for link in path.answers:
            table[row, place[link]] += flow.messages
    return links, table


def _likelihood(losses: Floats, exposed: Floats, flows: Sequence[FlowFigures]) -> float:
    """The log-likelihood of the losses if one link loses packets that `exposed` counts, without the
    terms common to all hypotheses."""
    share = losses[exposed > 0].sum() / max(1.0, exposed.sum())
    expected = share * exposed + ELSEWHERE * np.array([max(1, flow.packets) for flow in flows])
    return float((losses * np.log(expected) - expected).sum())


def _verdict(
    case: Case, losses: Floats, likely: tuple[DirectedLink, ...], likeliest: DirectedLink
) -> CauseVerdict:
    flows = case.report.flows
    hit = [flow for flow, lost in zip(flows, losses, strict=True) if lost]
    crossing = np.array([likeliest in path.data for path in case.paths or ()])
    if not crossing.any():
        crossing = np.array([likeliest in path.answers for path in case.paths or ()])
    excess, iterations = case.excess_of_flows(
        [flow for flow, is_crossing in zip(flows, crossing, strict=True) if is_crossing]
    )
    packets = sum(
        flow.packets for flow, is_crossing in zip(flows, crossing, strict=True) if is_crossing
    )
    again = [flow.retransmitted for flow in flows]
    inside = sum(count for count, is_crossing in zip(again, crossing, strict=True) if is_crossing)
    where = "it" if len(likely) == 1 else str(likeliest)
    evidence = [
        f"the {int(crossing.sum())} queue pairs that cross {where} lost packets "
        f"{losses[crossing].sum():,.0f} times in {packets:,} "
        f"({share(losses[crossing].sum() / packets)}) and sent {inside:,} again",
        f"the {int((~crossing).sum())} that do not: {losses[~crossing].sum():,.0f} times, "
        f"{sum(again) - inside:,} sent again",
        "no queue in front of it dropped a packet",
    ]
    if len(likely) > 1:
        evidence.append(
            f"the flows of this job cannot distinguish these {len(likely)} links: the same flows "
            f"cross them"
        )
    return CauseVerdict(
        cause=Cause.GREY_LINK,
        subject=named(likely),
        server=None,
        ranks=tuple(sorted({flow.rank for flow in hit})),
        links=suspects(likely),
        excess=case.times(excess),
        iterations=iterations,
        evidence=tuple(evidence),
    )


def _unlocated(case: Case, losses: Floats) -> CauseVerdict:
    hit = [flow for flow, lost in zip(case.report.flows, losses, strict=True) if lost]
    excess, iterations = case.excess_of_flows(hit)
    return CauseVerdict(
        cause=Cause.GREY_LINK,
        subject="a link that is not known",
        server=None,
        ranks=tuple(sorted({flow.rank for flow in hit})),
        links=(),
        excess=case.times(excess),
        iterations=iterations,
        evidence=(
            f"{len(hit)} of {len(losses)} queue pairs lost packets {losses.sum():,.0f} times, and "
            "no queue dropped any; without paths the link cannot be named",
        ),
    )
