"""Records the FIB of every switch over time: each netlink change, and whether it is complete.

`FibChange`s are in CLOCK_REALTIME nanoseconds. An event-driven wait returns when every switch again
holds every prefix at full ECMP width.

A thread reads the events as they come. The kernel does not stamp them: a stamp is late by the time
this process needs to wake up and read.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Self

from rocelab.base.errors import ExpectationError
from rocelab.lab.lab import RunningLab
from rocelab.linux import namespaces
from rocelab.linux.fib import read_fib
from rocelab.linux.fibtable import Fib
from rocelab.linux.fibwatch import FibAction, FibEvent, FibWatch
from rocelab.linux.priority import run_first
from rocelab.planning.fabric import Fabric, Node
from rocelab.planning.routes import expected_routes, expected_width
from rocelab.results.probes import FibChange

POLL_S = 0.25
SWITCH_INTERVAL_S = 0.0001
"""A thread that reads an event waits for computing threads: by default 5 ms for each
(sys.setswitchinterval), which is more than a switch needs to converge."""

SHOWN = 4


def opened_namespaces(
    lab: RunningLab, nodes: tuple[Node, ...]
) -> AbstractContextManager[Mapping[str, int]]:
    """A descriptor of each node's namespace, by node name, closed at the end."""
    return namespaces.opened({node.name: lab.node(node.name).netns for node in nodes})


class FibTimeline:
    """Records the FIB changes of a lab's switches from `__enter__` to `__exit__`."""

    def __init__(self, lab: RunningLab, namespaces: Mapping[str, int]) -> None:
        self._lab = lab
        self._namespaces = namespaces
        self._expected = expected_widths(lab.fabric)
        self._widths: dict[tuple[str, str], int] = {}
        self._changes: list[FibChange] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._switch_interval_s = sys.getswitchinterval()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._record, name="fib-timeline", daemon=True)
        self._watch: FibWatch | None = None

    def __enter__(self) -> Self:
        """Start listening, and only then read the tables, so that no change is missed."""
        self._watch = FibWatch(self._namespaces)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            for node, fib in self.read().items():
                for route in fib.routes:
                    self._widths[node, route.prefix] = len(route.next_hops)
            self._thread.start()
        except BaseException:
            self._watch.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()
        sys.setswitchinterval(self._switch_interval_s)
        if self._watch is not None:
            self._watch.close()

    def changes(self, start_ns: int, end_ns: int) -> tuple[FibChange, ...]:
        """The changes in [start_ns, end_ns). Raises the error that ended the recording, if any."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return tuple(c for c in self._changes if start_ns <= c.t_ns < end_ns)

    def overflowed(self) -> tuple[str, ...]:
        """The switches that lost events because the kernel's buffer was full."""
        return tuple(sorted(self._watch.overflowed)) if self._watch is not None else ()

    def read(self) -> dict[str, Fib]:
        """The tables as they are now, by switch."""
        return {name: read_fib(self._lab.node(name).netns) for name in self._namespaces}

    def wait_until_whole(self, timeout_s: float) -> Mapping[str, Fib]:
        """Return the tables once every expected route is there at full width.

        Raises ExpectationError with what is missing after `timeout_s`.
        """
        return self.wait_until(
            "whole again", lambda fibs: narrow_routes(self._expected, fibs), timeout_s
        )

    def wait_until(
        self,
        state: str,
        lacking: Callable[[Mapping[str, Fib]], Sequence[str]],
        timeout_s: float,
        quiet_s: float = 0.0,
    ) -> Mapping[str, Fib]:
        """Return the tables once they are in `state`.

        Events trigger a read of the tables, which decides: the kernel drops the routes of an
        interface that goes down without a notification. The read waits until nothing has changed
        for `quiet_s`, to leave the CPUs to what is measured. Raises ExpectationError with what is
        missing after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._changed:
                seen = len(self._changes)
                while quiet_s and self._changed.wait_for(self._changes_since(seen), quiet_s):
                    if self._failure is not None:
                        raise self._failure
                    seen = len(self._changes)
            fibs = self.read()
            missing = lacking(fibs)
            if not missing:
                return fibs
            with self._changed:
                left_s = deadline - time.monotonic()
                if not self._changed.wait_for(self._changes_since(seen), max(0.0, left_s)):
                    some = ", ".join(missing[:SHOWN])
                    raise ExpectationError(
                        f"the FIBs were not {state} after {timeout_s:.0f} s: "
                        f"{len(missing)} routes are not as expected ({some})"
                    )
                if self._failure is not None:
                    raise self._failure

    def _changes_since(self, seen: int) -> Callable[[], bool]:
        return lambda: len(self._changes) > seen or self._failure is not None

    def _record(self) -> None:
        assert self._watch is not None
        run_first()
        try:
            while not self._stopping:
                for event in self._watch.events(POLL_S):
                    self._take(event)
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _take(self, event: FibEvent) -> None:
        key = event.node, event.prefix
        before = self._widths.get(key)
        if event.action is FibAction.DELETE:
            self._widths.pop(key, None)
            change = FibChange(event.time_ns, *key, "delete", before, None)
        else:
            self._widths[key] = event.width
            what: Literal["new", "replace"] = "new" if before is None else "replace"
            change = FibChange(event.time_ns, *key, what, before, event.width)
        with self._changed:
            self._changes.append(change)
            self._changed.notify_all()


def expected_widths(fabric: Fabric) -> dict[tuple[str, str], int]:
    """How many next hops each switch must hold for each prefix, by (switch, prefix)."""
    return {
        (node, prefix): expected_width(fabric, links)
        for node, routes in expected_routes(fabric).items()
        for prefix, links in routes.items()
    }


def narrow_routes(
    expected: Mapping[tuple[str, str], int], fibs: Mapping[str, Fib]
) -> tuple[str, ...]:
    """Each route that is missing or has too few next hops with carrier, as text."""
    widths = {
        (node, route.prefix): sum(hop.carrier for hop in route.next_hops)
        for node, fib in fibs.items()
        for route in fib.routes
    }
    return tuple(
        f"{node} {prefix}: {widths.get((node, prefix), 0)} of {width} next hops"
        for (node, prefix), width in expected.items()
        if widths.get((node, prefix), 0) < width
    )
