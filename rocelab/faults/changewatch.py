"""Learns which faults others inject into a lab, and when each begins and ends.

    with ChangeWatch(lab) as watch:
        ...
        watch.changes(), watch.disturbances(zero_ns)

The processes that inject and restore them write each change to a file that exists while somebody
watches (`rocelab.faults.record.note_change`). One process watches a lab at a time: who sends in it
beside faults (`rocelab.lab.inuse`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from rocelab.base.files import write_file
from rocelab.faults.base import Fault
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.injector import InjectedChange
from rocelab.faults.record import changes_file, read_faults
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import realtime_ns
from rocelab.record import LabFiles
from rocelab.results.probes import Disturbance


@dataclass(slots=True)
class _Span:
    """A fault; `begins` None if it was there before, `ends` None while it lasts. Each: an instant
    and its uncertainty, CLOCK_REALTIME ns."""

    fault: Fault
    begins: tuple[int, int] | None = None
    ends: tuple[int, int] | None = None


class ChangeWatch:
    """Watches a lab's faults from `__enter__` to `__exit__`."""

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._files = LabFiles(lab.name)
        self._before: dict[int, Fault] = {}

    def __enter__(self) -> Self:
        changes_file(self._files).unlink(missing_ok=True)  # of a watch that was killed
        write_file(changes_file(self._files), "", mode=0o600)
        fabric = self._lab.fabric
        self._before = {fault.number: fault.on(fabric) for fault in read_faults(self._files)}
        return self

    def __exit__(self, *_: object) -> None:
        changes_file(self._files).unlink(missing_ok=True)

    def changes(self) -> tuple[InjectedChange, ...]:
        """What has begun and ended so far, in order of time."""
        changes = []
        for span in self._spans():
            for instant, begins in ((span.begins, True), (span.ends, False)):
                if instant is not None:
                    changes.append(InjectedChange(span.fault, begins, *instant))
        return tuple(sorted(changes, key=lambda change: change.t_ns))

    def disturbances(self, zero_ns: int) -> tuple[Disturbance, ...]:
        """The faults that the lab has had so far, with times after `zero_ns`."""
        return tuple(
            Disturbance(
                kind=span.fault.kind,
                subject=span.fault.subject,
                begins_ns=None if span.begins is None else span.begins[0] - zero_ns,
                ends_ns=None if span.ends is None else span.ends[0] - zero_ns,
            )
            for span in self._spans()
        )

    def _spans(self) -> list[_Span]:
        """The faults in the order in which they began, without those that have yet to."""
        now_ns, spans = realtime_ns(), [_Span(fault) for fault in self._before.values()]
        newest = dict(zip(self._before, spans, strict=True))
        for number, fault, begins, instant in self._noted():
            span = newest.get(number)
            if not begins:
                if span is not None and instant[0] <= now_ns:
                    span.ends = min(span.ends or instant, instant)
            elif span is not None and span.begins is None and span.ends is None:
                span.begins = instant  # it was in the record, and had not begun
            else:
                newest[number] = _Span(fault, instant)
                spans.append(newest[number])
        return [span for span in spans if _has_been(span, now_ns)]

    def _noted(self) -> Iterator[tuple[int, Fault, bool, tuple[int, int]]]:
        for line in changes_file(self._files).read_text().splitlines():
            change = json.loads(line)
            spec = SINGLE_FAULT.validate_json(json.dumps(change["spec"]))
            fault, instant = spec.resolve(self._lab.fabric), (change["t_ns"], change["took_ns"])
            yield change["number"], fault, change["begins"], instant


def _has_been(span: _Span, now_ns: int) -> bool:
    """Whether a fault has begun; one that was restored before its time has not."""
    begins = span.begins or (0, 0)
    return begins[0] <= now_ns and (span.ends is None or span.ends >= begins)
