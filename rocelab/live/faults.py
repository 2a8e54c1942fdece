"""Faults that the page asks for: each lasts for a time, or until somebody undoes it.

They are those of `rocelab fault`, with the same exclusion of drills and jobs, and in the same
record. A fault of the page ends with its server: by its end, or if it is killed by the guardian.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from rocelab.errors import InputError, RocelabError
from rocelab.faults.asked import asked_fault
from rocelab.faults.record import RecordedFault, read_faults
from rocelab.faults.running import injected, restore_numbered
from rocelab.faults.spec import CampaignSpec, FlappingSpec, SingleFaultSpec
from rocelab.kernel.bracket import realtime_ns
from rocelab.live.events import FaultEvent
from rocelab.live.feed import Feed
from rocelab.spec.base import SpecModel

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
        if isinstance(spec, FlappingSpec | CampaignSpec):
            raise InputError(
                f"{self.kind} is no fault of the page", hint="use `rocelab fault inject`"
            )
        if spec.lasts is None:
            raise InputError("a fault of the page lasts for a time", hint="add lasts, such as 5s")
        return spec, spec.lasts


@dataclass(frozen=True, slots=True)
class _Own:
    """A fault of this server: when it ends, and what ends it before."""

    ends_ns: int
    stop: threading.Event
    thread: threading.Thread


class Faults:
    """The faults of a lab for its page; leaving the context undoes those that it began."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._lab = feed.lab
        self._looking = threading.Lock()
        self._own: dict[int, _Own] = {}
        self._begun: set[threading.Thread] = set()
        self._closing = threading.Event()

    def __enter__(self) -> Faults:
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for own in list(self._own.values()):
            own.stop.set()
        for thread in list(self._begun):
            thread.join()

    def look(self) -> None:
        """Publish which faults have entered the lab's record, or left it."""
        with self._looking:
            recorded = {each.number: each for each in read_faults(self._lab.runtime.files)}
            known = dict(self._feed.state.faults)
            for number, event in known.items():
                if number not in recorded:
                    self._publish(number, event.fault, event.subject, begins=False)
            for number, each in recorded.items():
                own = self._own.get(number)
                if number not in known and (own is not None or not self._is_ours(each)):
                    subject = each.spec.resolve(self._lab.fabric).subject
                    self._publish(number, each.spec.kind, subject, begins=True)

    def _publish(self, number: int, fault: str, subject: str, *, begins: bool) -> None:
        own = self._own.get(number)
        ends_ns = own.ends_ns if own is not None and begins else None
        self._feed.publish(FaultEvent(realtime_ns(), number, fault, subject, begins, ends_ns))

    def _is_ours(self, recorded: RecordedFault) -> bool:
        """Whether this process injects it, which then says when it ends."""
        return recorded.driver is not None and recorded.driver.pid == os.getpid()

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
        number = None
        try:
            with injected(self._lab, spec) as held:
                number = held.recorded.number
                ends_ns = realtime_ns() + lasts_ns
                self._own[number] = _Own(ends_ns, stop, threading.current_thread())
                self.look()
                begun.set_result(number)
                if not self._closing.is_set():
                    stop.wait(lasts_ns / NS_PER_S)
        except BaseException as error:
            if begun.done():
                self._feed.note(f"fault {number}, {spec.kind}, is not undone: {error}")
            else:
                begun.set_exception(error)
        finally:
            if number is not None:
                self._own.pop(number, None)
            self._begun.discard(threading.current_thread())
            self.look()

    def undo(self, number: int) -> None:
        """Undo a fault, of the page or not, and return when nothing of it remains. Raises as
        `rocelab.faults.running.restore_numbered`."""
        own = self._own.get(number)
        if own is None:
            restore_numbered(self._lab, number)
        else:
            own.stop.set()
            own.thread.join()
        self.look()
        if number in self._feed.state.faults:
            raise RocelabError(f"fault {number} is not undone", hint="the timeline says why")
