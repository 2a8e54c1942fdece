"""Faults that break nothing and record their calls, and an injector of such faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rocelab.faults import injector, timetable
from rocelab.faults.base import SingleFaultSpec, Timed
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.injector import Injector, RunningFault
from rocelab.faults.record import RecordedFault
from rocelab.lab.lab import Lab, RunningLab
from rocelab.linux import bracket
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric

MS = 10**6
ZERO_NS = 1_000 * 10**9


class Clock:
    """CLOCK_REALTIME for the injector, which only the test moves."""

    def __init__(self) -> None:
        self.now_ns = ZERO_NS
        self.extra_ns = 0

    @classmethod
    def moved_by_test(cls, monkeypatch: pytest.MonkeyPatch) -> Clock:
        made = cls()
        for module in (bracket, injector, timetable):
            monkeypatch.setattr(module, "realtime_ns", lambda: made.now_ns)
        monkeypatch.setattr(injector, "clock_offset_ns", lambda: 0)
        return made

    def wait(self, instant_ns: int) -> None:
        self.now_ns = max(self.now_ns, instant_ns + self.extra_ns)

    def advance(self, ms: int) -> None:
        self.now_ns += ms * MS


@dataclass(eq=False)
class Noted:
    """A fault without effect that records its calls."""

    subject: str
    log: list[str]
    begins: Callable[[], None] = lambda: None
    reaches_kernel: Callable[[], None] = lambda: None
    kind: str = "carrier-down"
    broken: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self.subject.split(":"))

    def prepare(self, lab: RunningLab) -> None:
        self.log.append(f"prepare {self.subject}")

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset() if self.broken else frozenset({f"{self.subject} has carrier"})

    def inject(self, lab: RunningLab) -> Bracket:
        self.log.append(f"inject {self.subject}")
        self.reaches_kernel()
        self.broken = True
        return Bracket.of(self.begins)

    def restore(self, lab: RunningLab) -> Bracket:
        self.log.append(f"restore {self.subject}")
        self.broken = False
        return Bracket.now()

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return ()


@dataclass(eq=False)
class DoesNothing(Noted):
    """A fault whose injection does nothing."""

    def inject(self, lab: RunningLab) -> Bracket:
        return Bracket.of(self.begins)


@dataclass(eq=False)
class Darkens(Noted):
    """A fault that removes the carrier of its link."""

    def dark_ports(self, fabric: Fabric) -> tuple[tuple[str, str], ...]:
        link = fabric.link_by_name[self.subject]
        return ((link.a.node, link.a.interface), (link.b.node, link.b.interface))


@dataclass
class Scheduled(Noted):
    """A fault that the kernel begins and ends."""

    def schedule(self, lab: RunningLab, start_ns: int, end_ns: int | None) -> Bracket:
        self.log.append(f"schedule {self.subject}")
        self.reaches_kernel()
        self.broken = True
        return Bracket.of(self.begins)


class OnPaper(Injector):
    """An injector whose faults are `Noted`: it needs neither a running lab nor a record."""

    def __init__(self, **begins: Callable[[], None]) -> None:
        super().__init__(Lab.planned("zone-small").unstarted())
        self.log: list[str] = []
        self._begins = begins
        self.reaches_kernel: Callable[[], None] = lambda: None
        self.kind: type[Noted] = Noted
        self._count = 0

    def _recorded(self, spec: SingleFaultSpec) -> RunningFault:
        subject = spec.resolve(self._lab.fabric).subject
        begins = self._begins.get(subject.partition(":")[2], lambda: None)
        fault = self.kind(subject, self.log, begins, self.reaches_kernel)
        self._count += 1
        return RunningFault(fault, RecordedFault(self._count, spec, None, subject, ()))


def down(spine: str, at_ms: int, ends_ms: int | None = None) -> Timed:
    spec = SINGLE_FAULT.validate_python({"kind": "carrier-down", "link": f"rtsw1:{spine}"})
    return Timed(spec, at_ms * MS, None if ends_ms is None else ends_ms * MS)
