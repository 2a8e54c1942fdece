"""Faults that the page asks for: each lasts for a time, or until somebody undoes it.

They are those of `rocelab fault`, with the same exclusion of drills and jobs, and in the same
record. A fault of the page ends with its server: by its end, or if it is killed by the guardian.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from rocelab.base.errors import InputError, RocelabError
from rocelab.base.plugin_errors import error_text
from rocelab.faults.asked import asked_fault
from rocelab.faults.base import SeriesSpec, SingleFaultSpec
from rocelab.faults.running import faults_of, injected, restore_numbered
from rocelab.labfile.base import SpecModel
from rocelab.linux.bracket import realtime_ns
from rocelab.live.events import FaultEvent
from rocelab.live.feed import Feed

MOST_FAULTS = 16
"""How many faults the page may have at once."""
NS_PER_S = 10**9


class FaultRequest(SpecModel):
    """What `POST /faults` asks for: a kind, and its keys as on the command line."""

    kind: Annotated[str, Field(max_length=64)]
    keys: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=400)]],
        Field(max_length=32),
    ]

    def spec(self) -> tuple[SingleFaultSpec, int]:
        """The fault, and how long it lasts in ns. Raises InputError, and SpecError with every
        problem of the keys."""
        spec = asked_fault(self.kind, [f"{key}={value}" for key, value in self.keys.items()])
        if isinstance(spec, SeriesSpec):
            raise InputError(
                f"{self.kind} is no fault of the page", hint="use `rocelab fault inject`"
            )
        if spec.lasts is None:
            raise InputError("a fault of the page lasts for a time", hint="add lasts, such as 5s")
        return spec, spec.lasts


@dataclass(frozen=True, slots=True)
class _PageFault:
    """A fault of this server: what ends it before its time, and the thread that undoes it."""

    stop: threading.Event
    thread: threading.Thread


class Faults:
    """The faults of a lab for its page; leaving the context undoes those that it began."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._lab = feed.lab
        self._looking = threading.Lock()
        self._own: dict[int, _PageFault] = {}
        self._begun: set[threading.Thread] = set()
        self._closing = threading.Event()

    def __enter__(self) -> Faults:
        self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for fault in list(self._own.values()):
            fault.stop.set()
        for thread in list(self._begun):
            thread.join()

    def refresh(self) -> None:
        """Publish which faults of others have entered the lab's record, and which have left it."""
        with self._looking:
            faults = {fault.number: fault for fault in faults_of(self._lab)}
            for number, event in list(self._feed.state.faults.items()):
                if number not in faults and number not in self._own:
                    self._feed.publish(replace(event, t_ns=realtime_ns(), begins=False))
            for number, fault in faults.items():
                is_own = fault.driver == "alive" and fault.pid == os.getpid()
                if number not in self._feed.state.faults and not is_own:
                    began_ns = round(fault.since_unix_s * NS_PER_S)
                    self._feed.publish(
                        FaultEvent(began_ns, number, fault.kind, fault.subject, True, None)
                    )

    def inject(self, request: FaultRequest) -> int:
        """Break the lab; returns the fault's number once it is seen to take effect.

        Raises as `rocelab.faults.running.injected`, SpecError with every problem of the keys, and
        InputError if there are MOST_FAULTS already.
        """
        spec, lasts_ns = request.spec()
        begun: Future[int] = Future()
        stop = threading.Event()
        thread = threading.Thread(
            target=self._carry_out, args=(spec, lasts_ns, stop, begun), name="fault"
        )
        with self._looking:
            if len(self._begun) >= MOST_FAULTS or self._closing.is_set():
                raise InputError(
                    f"{MOST_FAULTS} faults are under way", hint="undo one, or wait for its end"
                )
            self._begun.add(thread)
        thread.start()
        return begun.result()

    def _carry_out(
        self, spec: SingleFaultSpec, lasts_ns: int, stop: threading.Event, begun: Future[int]
    ) -> None:
        event = None
        try:
            with injected(self._lab, spec) as (injector, held):
                number, fault = held.recorded.number, held.fault
                ends_ns = realtime_ns() + lasts_ns
                event = FaultEvent(
                    injector.changes[0].t_ns, number, fault.kind, fault.subject, True, ends_ns
                )
                self._own[number] = _PageFault(stop, threading.current_thread())
                self._feed.publish(event)
                begun.set_result(number)
                if not self._closing.is_set():
                    stop.wait(lasts_ns / NS_PER_S)
            undone_ns = injector.changes[-1].t_ns
            self._feed.publish(replace(event, t_ns=undone_ns, begins=False, ends_ns=None))
        except BaseException as error:
            if event is None:
                begun.set_exception(error)
            else:
                self._feed.note(f"fault {event.number} is not undone: {error_text(error)}")
        finally:
            if event is not None:
                self._own.pop(event.number, None)
            self._begun.discard(threading.current_thread())

    def undo(self, number: int) -> None:
        """Undo a fault, of the page or not, and return when no trace of it remains. Raises as
        `rocelab.faults.running.restore_numbered`."""
        fault = self._own.get(number)
        if fault is None:
            restore_numbered(self._lab, number)
        else:
            fault.stop.set()
            fault.thread.join()
        self.refresh()
        if number in self._feed.state.faults:
            raise RocelabError(f"fault {number} is not undone", hint="the timeline says why")
