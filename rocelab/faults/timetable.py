"""Carries out timed faults: each begins and ends at its time.

The `Injector` records the changes. `events_of` turns them into `Event`s, in which changes close to
each other count as one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import IntEnum
from itertools import chain

from rocelab.base import quantities
from rocelab.base.interruption import shielded
from rocelab.faults.base import CarrierFault, LinksFault, NodeFault, Timed
from rocelab.faults.injector import InjectedChange, Injector, RunningFault
from rocelab.linux.bracket import realtime_ns
from rocelab.linux.priority import running_first
from rocelab.results.probes import Event, FaultChange

NS_PER_S = 10**9
LATE_LIMIT_NS = 100_000_000
"""A change that is later than planned by more than this is reported: the machine was too busy for
the plan. A smaller delay does not matter, because every figure counts from the actual change."""

AHEAD_NS = 100_000_000
"""Faults that begin this close after another are prepared before it, so that they do not wait for
each other."""

SHOWN = 4


Prepared = dict[int, RunningFault]
"""Prepared faults, by their index among all."""


def prepare_first(injector: Injector, faults: Sequence[Timed]) -> Prepared:
    """Prepare the faults that begin first, while there is time. Raises as `Injector.prepare`."""
    first_ns = min((timed.begins_ns for timed in faults), default=0)
    return {
        place: injector.prepare(timed.spec)
        for place, timed in enumerate(faults)
        if timed.begins_ns <= first_ns + AHEAD_NS
    }


def carry_out(
    injector: Injector,
    faults: Sequence[Timed],
    zero_ns: int,
    wait: Callable[[int], None],
    prepared: Prepared | None = None,
) -> tuple[str, ...]:
    """Begin and end every fault and wait for the last change; return the reasons, if any, why the
    faults differ from the plan.

    `zero_ns` is time 0 in CLOCK_REALTIME ns; `wait` returns at the instant it is given. Faults
    without an end are left to the injector's context. Raises as the faults do.
    """
    ready = dict(prepared or {})
    order = sorted(
        [(timed.begins_ns, _Step.BEGIN, place) for place, timed in enumerate(faults)]
        + [(timed.ends_ns, _Step.END, place) for place, timed in enumerate(faults) if timed.ends_ns]
        + [(at_ns, _Step.LOOK, place) for place, at_ns in _looks(injector, faults).items()]
    )
    waiting = [place for _, step, place in order if step is _Step.BEGIN]
    held: dict[int, tuple[RunningFault, bool]] = {}
    problems = []
    free_ns = 0
    for at_ns, step, place in order:
        begins = step is _Step.BEGIN
        begun_ns = realtime_ns()
        while waiting and faults[waiting[0]].begins_ns <= at_ns + AHEAD_NS:
            following = waiting.pop(0)
            timed = faults[following]
            one = ready.pop(following, None) or injector.prepare(timed.spec)
            end_ns = None if timed.ends_ns is None else zero_ns + timed.ends_ns
            # Behind a lab's senders an order to the kernel would take seconds on a busy machine.
            with running_first():
                exact = injector.schedule(one, zero_ns + timed.begins_ns, end_ns)
            held[following] = (one, exact)
        one, exact = held[place]
        # Faults close to each other wait until the one before is prepared, injected, checked or
        # restored. That does not count as late: only a further delay does, as on a busy machine.
        due_ns = max(zero_ns + at_ns, free_ns + realtime_ns() - begun_ns)
        with nullcontext() if step is _Step.LOOK else running_first():
            wait(zero_ns + at_ns)
            injector.check_lab()
            begun_ns = realtime_ns()
            if step is _Step.LOOK:
                injector.check_effect(one)
            elif not begins:
                injector.restore(one)
            elif not exact:
                injector.inject(one)
        free_ns = due_ns + realtime_ns() - begun_ns
        if step is _Step.LOOK:
            continue
        change = _change(injector, one, begins=begins)
        if change is None:
            problems.append(
                f"not valid because {one.fault.kind} of {one.fault.subject} ended before it had "
                "begun: this machine's clock was set back"
            )
            continue
        late_ns = change.t_ns - due_ns
        if late_ns > LATE_LIMIT_NS:
            problems.append(_late(change, late_ns))
        if begins and change.took_ns > LATE_LIMIT_NS:
            problems.append(_uncertain(change))
    return tuple(problems)


class _Step(IntEnum):
    """The action at an instant; several at one instant happen in this order."""

    LOOK = 0
    END = 1
    BEGIN = 2


def _looks(injector: Injector, faults: Sequence[Timed]) -> dict[int, int]:
    """When to check whether each fault took effect, by index: as late as possible, to disturb the
    measurement after its begin least.

    That is shortly before it ends, or before another begins on one of its nodes, which may remove
    the evidence. Other faults are checked at the end.
    """
    nodes = [injector.nodes_of(timed.spec) for timed in faults]
    looks = {}
    for place, timed in enumerate(faults):
        nexts_ns = [
            other.begins_ns
            for number, other in enumerate(faults)
            if other.begins_ns > timed.begins_ns and nodes[number] & nodes[place]
        ]
        if timed.ends_ns is not None:
            nexts_ns.append(timed.ends_ns)
        if nexts_ns:
            next_ns = min(nexts_ns)
            looks[place] = next_ns - min(AHEAD_NS, (next_ns - timed.begins_ns) // 2)
    return looks


def _change(injector: Injector, held: RunningFault, *, begins: bool) -> InjectedChange | None:
    """None if the fault was restored before its time came, as when a clock is set back."""
    return next(
        (
            change
            for change in reversed(injector.changes)
            if change.fault is held.fault and change.begins is begins
        ),
        None,
    )


@contextmanager
def carried_out(
    injector: Injector, faults: Sequence[Timed], zero_ns: int, prepared: Prepared
) -> Iterator[list[str]]:
    """Carry out faults on a thread that ends with the context.

    `prepared` are the first of them (`prepare_first`). The yielded list has the problems once the
    context has ended. A fault that has not begun by then is a problem; the injector restores those
    that have not ended. Raises as the faults do.
    """
    over = threading.Event()
    problems: list[str] = []
    failures: list[BaseException] = []

    def wait(instant_ns: int) -> None:
        left_ns = instant_ns - realtime_ns()
        if over.wait(max(0, left_ns) / NS_PER_S):
            raise _OverError

    def work() -> None:
        try:
            problems.extend(carry_out(injector, faults, zero_ns, wait, prepared))
        except _OverError:
            begun = sum(change.begins for change in injector.happened())
            if begun < len(faults):
                problems.append(
                    f"not valid because the run ended before {len(faults) - begun} of "
                    f"{len(faults)} faults began"
                )
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, name="faults")
    with shielded("faults under way are carried out") as shield:
        thread.start()
        try:
            with shield.lifted():
                yield problems
        finally:
            over.set()
            thread.join()
    if failures:
        raise failures[0]


class _OverError(Exception):
    """The caller's context has ended."""


def _late(change: InjectedChange, late_ns: int) -> str:
    return (
        f"not valid because {change.fault.kind} of {change.fault.subject} "
        f"{'began' if change.begins else 'ended'} {quantities.duration(late_ns)} late "
        f"(the limit is {quantities.duration(LATE_LIMIT_NS)})"
    )


def _uncertain(change: InjectedChange) -> str:
    return (
        f"not valid because {change.fault.kind} of {change.fault.subject} may have begun up to "
        f"{quantities.duration(change.took_ns)} after its stamp (the limit is "
        f"{quantities.duration(LATE_LIMIT_NS)})"
    )


def events_of(changes: Sequence[InjectedChange], apart_ns: int) -> tuple[Event, ...]:
    """The Convergence Events that changes form, in order of time.

    A change less than `apart_ns` after the one before is part of its event: the network's reactions
    to the two cannot be distinguished. An event begins a fault if any of its changes does.
    """
    groups: list[list[InjectedChange]] = []
    for change in sorted(changes, key=lambda change: change.t_ns):
        if groups and change.t_ns - groups[-1][-1].t_ns < apart_ns:
            groups[-1].append(change)
        else:
            groups.append([change])
    return tuple(map(_event, groups))


def _event(group: Sequence[InjectedChange]) -> Event:
    kinds = list(dict.fromkeys(change.fault.kind for change in group))
    subjects = list(dict.fromkeys(change.fault.subject for change in group))
    more = [f"{len(subjects) - SHOWN} more"] if len(subjects) > SHOWN else []
    return Event(
        t_ns=group[0].t_ns,
        kind=kinds[0] if len(kinds) == 1 else "several faults",
        change="begin" if any(change.begins for change in group) else "end",
        subject=", ".join(chain(subjects[:SHOWN], more)),
        changes=len(group),
        took_ns=group[0].took_ns,
        faults=tuple(map(_fault_change, group)),
    )


def _fault_change(change: InjectedChange) -> FaultChange:
    fault = change.fault
    return FaultChange(
        t_ns=change.t_ns,
        kind=fault.kind,
        begins=change.begins,
        subject=fault.subject,
        links=tuple(link.name for link in fault.links) if isinstance(fault, LinksFault) else (),
        nodes=(fault.node,) if isinstance(fault, NodeFault) else (),
        dark=isinstance(fault, CarrierFault),
    )
