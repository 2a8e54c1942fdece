"""Finds servers that paused although they had packets to send or to receive.

A verdict names each server that stood still for longer than the machine's own stalls.
"""

from __future__ import annotations

import statistics

from rocelab.diagnose.case import Case
from rocelab.diagnose.critical import step_of
from rocelab.results.diagnosis import Cause, CauseVerdict

LEAST_PAUSE_NS = 40_000_000
"""The shortest uninterrupted pause of a server, in the lab's clock."""

ABOVE_OTHERS = 3.0
"""The least ratio of that pause to the median server's longest stall."""


def paused_hosts(case: Case) -> list[CauseVerdict]:
    """The servers that paused on their own."""
    longest = {
        server: max((end - begin for begin, end in spans), default=0)
        for server, spans in case.spans.items()
    }
    verdicts = []
    for server, length in longest.items():
        elsewhere = [longest_ns for name, longest_ns in longest.items() if name != server]
        usual = statistics.median(elsewhere) if elsewhere else 0
        if length >= max(LEAST_PAUSE_NS, ABOVE_OTHERS * usual):
            verdicts.append(_verdict(case, server))
    return verdicts


def _verdict(case: Case, server: str) -> CauseVerdict:
    ranks = tuple(rank for rank, name in enumerate(case.server_of) if name == server)
    excess, iterations = 0, set()
    for path in case.timing.paths:
        for critical in path:
            part = case.host_part(critical).get(server, 0)
            excess += part
            if part:
                iterations.add(critical.iteration)
    who = f"{'ranks' if len(ranks) > 1 else 'rank'} {', '.join(map(str, ranks))} on {server}"
    return CauseVerdict(
        cause=Cause.HOST_PAUSE,
        subject=who,
        server=server,
        ranks=ranks,
        links=(),
        excess=case.times(excess),
        iterations=tuple(sorted(iterations)),
        evidence=tuple(_evidence(case, server, who)),
    )


def _evidence(case: Case, server: str, who: str) -> list[str]:
    lines = []
    steps = step_of(case.timing.schedule)
    for begin, end in case.spans[server]:
        if end - begin < LEAST_PAUSE_NS:
            continue
        waiting = _waiting(case, server, begin, end)
        where = ""
        if waiting:
            row, send = waiting[0]
            where = (
                f", in step {steps[send]} of iteration {case.timing.first + row}; "
                f"{len(waiting)} sends from or to it were under way"
            )
        lines.append(
            f"{who} had packets to send or receive and did neither for "
            f"{(end - begin) / 1e6:,.0f} ms of the lab{where}"
        )
    others = max(
        (
            end - begin
            for name, spans in case.spans.items()
            if name != server
            for begin, end in spans
        ),
        default=0,
    )
    lines.append(f"longest stall of any other server: {others / 1e6:,.0f} ms")
    return lines


def _waiting(case: Case, server: str, begin_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """(row, send) of the transfers of a server's ranks in progress during a time, oldest first."""
    timing, waits = case.timing, []
    for row in range(len(timing.posted)):
        for send in timing.schedule.sends:
            if server in (case.server_of[send.source], case.server_of[send.destination]):
                posted, arrived = timing.posted[row, send.id], timing.arrived[row, send.id]
                if posted < end_ns and arrived > begin_ns:
                    waits.append((int(posted), row, send.id))
    return [(row, send) for _, row, send in sorted(waits)]
