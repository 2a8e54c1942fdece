"""Faults, injected at exact times and taken back.

In: a running lab, the faults of a drill and the instant that counts as time 0. Out: an `Event` per
change, at the instant it was asked of the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, NamedTuple

from labs.lab import Lab
from labs.plan.fabric import Fabric, Link
from labs.units import format_duration
from scripts.drill.result import Event
from scripts.drill.spec import LinkFlapFault

NS_PER_S = 10**9
LATE_LIMIT_NS = 20_000_000
"""A fault later than this against its plan is reported: the machine was too busy to be exact."""


@dataclass(frozen=True, slots=True)
class Injected:
    """What was done. `took_ns` is how long the kernel's calls lasted: the change came about between
    `event.t_ns` and that much later. `late_ns` is against the drill's plan."""

    event: Event
    took_ns: int
    late_ns: int


class _Step(NamedTuple):
    at_ns: int
    kind: Literal["carrier-down", "carrier-up"]
    links: tuple[Link, ...]


def inject(
    lab: Lab,
    faults: Sequence[LinkFlapFault],
    zero_ns: int,
    wait: Callable[[int], None],
) -> tuple[Injected, ...]:
    """Carry out all faults and their ends, in order of time, and return when the last is over.

    `zero_ns` is time 0 in CLOCK_REALTIME ns; `wait` returns at the instant it is given. Links that
    are down when an error (or Ctrl-C) ends this are given their carrier back. Raises InputError
    where a link is not in the lab.
    """
    done = []
    with ExitStack() as restore:
        for step in _steps(lab.fabric, faults):
            links = [lab.link(link.name) for link in step.links]
            due_ns = zero_ns + step.at_ns
            wait(due_ns)
            before_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            for link in links:
                if step.kind == "carrier-down":
                    restore.callback(link.up)
                    link.down()
                else:
                    link.up()
            after_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            event = Event(before_ns, step.kind, subject(step.links))
            done.append(Injected(event, after_ns - before_ns, before_ns - due_ns))
        restore.pop_all()
    return tuple(done)


def subject(links: Sequence[Link]) -> str:
    """What an event is about: `rtsw1:ctsw2`, or `rtsw1:ctsw2,ctsw2-2` where it is about several."""
    by_node: dict[str, list[str]] = {}
    for link in links:
        by_node.setdefault(link.a.node, []).append(link.a.interface)
    return " ".join(f"{node}:{','.join(names)}" for node, names in by_node.items())


def _steps(fabric: Fabric, faults: Sequence[LinkFlapFault]) -> list[_Step]:
    steps = []
    for fault in faults:
        links = fault.find(fabric)
        steps.append(_Step(fault.at, "carrier-down", links))
        steps.append(_Step(fault.end, "carrier-up", links))
    return sorted(steps, key=lambda step: step.at_ns)


def fault_problems(injected: Sequence[Injected]) -> tuple[str, ...]:
    """Why the faults were not what the drill asked for, if they were not."""
    return tuple(
        f"not valid because {one.event.subject} {one.event.kind.replace('-', ' ')} came "
        f"{format_duration(one.late_ns)} late (the limit is {format_duration(LATE_LIMIT_NS)})"
        for one in injected
        if one.late_ns > LATE_LIMIT_NS
    )


def wait_until(instant_ns: int) -> None:
    """Sleep until CLOCK_REALTIME reads `instant_ns`."""
    while (left_ns := instant_ns - time.clock_gettime_ns(time.CLOCK_REALTIME)) > 0:
        time.sleep(left_ns / NS_PER_S)
