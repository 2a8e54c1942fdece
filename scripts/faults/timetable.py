"""Faults carried out in time: each begins and ends when it should.

In: faults with their times, the instant of time 0, and an `Injector`. Out: the injector's changes,
as `Event`s where several changes close to each other count as one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from labs.units import format_duration
from scripts.drill.result import Event
from scripts.faults.injector import Change, Held, Injector
from scripts.faults.schedule import Timed

NS_PER_S = 10**9
LATE_LIMIT_NS = 100_000_000
"""A change later than this against its plan is reported: the machine was too busy for the plan. A
smaller delay costs nothing, as every figure counts from the instant of the change itself."""

AHEAD_NS = 100_000_000
"""Faults that begin this close after another are prepared before it, so that they do not wait for
each other."""

SHOWN = 4


Prepared = dict[int, Held]
"""Faults that are ready to begin, by their place among all."""


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
    """Begin and end every fault and return when the last change is over, with why the faults
    were not what was asked for, if they were not.

    `zero_ns` is time 0 in CLOCK_REALTIME ns; `wait` returns at the instant it is given. Faults
    without an end are left to the injector's context. Raises as the faults do.
    """
    ready = dict(prepared or {})
    order = sorted(
        [(timed.begins_ns, 1, place) for place, timed in enumerate(faults)]
        + [(timed.ends_ns, 0, place) for place, timed in enumerate(faults) if timed.ends_ns]
    )
    waiting = [place for _, begins, place in order if begins]
    held: dict[int, tuple[Held, bool]] = {}
    problems = []
    free_ns = 0
    for at_ns, begins, place in order:
        while waiting and faults[waiting[0]].begins_ns <= at_ns + AHEAD_NS:
            following = waiting.pop(0)
            timed = faults[following]
            one = ready.pop(following, None) or injector.prepare(timed.spec)
            end_ns = None if timed.ends_ns is None else zero_ns + timed.ends_ns
            held[following] = (one, injector.schedule(one, zero_ns + timed.begins_ns, end_ns))
        one, exact = held[place]
        wait(zero_ns + at_ns)
        if not begins:
            injector.restore(one)
        elif not exact:
            injector.inject(one)
        change = _change(injector, one, begins=bool(begins))
        # Faults close to each other wait for the one before them: that is no lateness.
        late_ns = change.t_ns - max(zero_ns + at_ns, free_ns)
        if late_ns > LATE_LIMIT_NS:
            problems.append(_late(change, late_ns))
        free_ns = change.t_ns + change.took_ns
    return tuple(problems)


def _change(injector: Injector, held: Held, *, begins: bool) -> Change:
    return next(
        change
        for change in reversed(injector.changes)
        if change.fault is held.fault and change.begins is begins
    )


@contextmanager
def carried_out(
    injector: Injector, faults: Sequence[Timed], zero_ns: int, prepared: Prepared
) -> Iterator[list[str]]:
    """Carry out faults beside what the caller does, on a thread that ends with the context.

    `prepared` are the first of them (`prepare_first`). The list that is given has the problems once
    the context has ended; faults that had not begun by then are one, and those that had not ended
    are restored by the injector. Raises as the faults do.
    """
    over = threading.Event()
    problems: list[str] = []
    failures: list[BaseException] = []

    def wait(instant_ns: int) -> None:
        left_ns = instant_ns - time.clock_gettime_ns(time.CLOCK_REALTIME)
        if over.wait(max(0, left_ns) / NS_PER_S):
            raise _OverError

    def work() -> None:
        try:
            problems.extend(carry_out(injector, faults, zero_ns, wait, prepared))
        except _OverError:
            begun = sum(change.begins for change in injector.changes)
            if begun < len(faults):
                problems.append(f"all was over before {len(faults) - begun} faults had begun")
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, name="faults")
    thread.start()
    try:
        yield problems
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


class _OverError(Exception):
    """The caller's context has ended."""


def _late(change: Change, late_ns: int) -> str:
    return (
        f"not valid because {change.fault.kind} of {change.fault.subject} "
        f"{'began' if change.begins else 'ended'} {format_duration(late_ns)} late "
        f"(the limit is {format_duration(LATE_LIMIT_NS)})"
    )


def events_of(changes: Sequence[Change], apart_ns: int) -> tuple[Event, ...]:
    """The Convergence Events that changes amount to, in order of time.

    Changes less than `apart_ns` after the one before are part of its event: what the network does
    about one can not be told from what it does about the other. An event begins something where
    any of its changes does.
    """
    groups: list[list[Change]] = []
    for change in sorted(changes, key=lambda change: change.t_ns):
        if groups and change.t_ns - groups[-1][-1].t_ns < apart_ns:
            groups[-1].append(change)
        else:
            groups.append([change])
    return tuple(map(_event, groups))


def _event(group: Sequence[Change]) -> Event:
    kinds = list(dict.fromkeys(change.fault.kind for change in group))
    subjects = list(dict.fromkeys(change.fault.subject for change in group))
    more = [f"{len(subjects) - SHOWN} more"] if len(subjects) > SHOWN else []
    return Event(
        t_ns=group[0].t_ns,
        kind=kinds[0] if len(kinds) == 1 else "several faults",
        change="begin" if any(change.begins for change in group) else "end",
        subject=", ".join(chain(subjects[:SHOWN], more)),
        changes=len(group),
    )
