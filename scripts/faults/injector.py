"""Faults on a running lab: prepared, injected, restored, proven undone, and never left behind.

In: a lab and faults as written. Out: the lab broken for as long as asked, and when what changed.
Every fault is in the lab's record before anything is done; it is undone when the context ends, by
an error or Ctrl-C too, and by a guardian process where this one is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import scripts
from labs.errors import ExpectationError
from labs.lab import Lab
from labs.runtime import namespaces
from labs.runtime.record import LabFiles
from scripts.faults.base import Fault, ScheduledFault
from scripts.faults.record import (
    Driver,
    RecordedFault,
    faults_folder,
    read_faults,
    remove_fault,
    write_fault,
)
from scripts.faults.resolve import resolve
from scripts.faults.spec import SingleFaultSpec

PROOF_TIMEOUT_S = 30.0
"""A restarted daemon and its sessions are given so long until nothing of a fault remains."""

PROOF_STEP_S = 0.1


@dataclass(frozen=True, slots=True)
class Held:
    """A fault that is in the lab's record, and what it is on this lab."""

    fault: Fault
    recorded: RecordedFault


@dataclass(frozen=True, slots=True)
class Change:
    """A fault that began or ended. It came about between `t_ns` (CLOCK_REALTIME) and `took_ns`
    later; the kernel did it at exactly `t_ns` where that is 0."""

    fault: Fault
    begins: bool
    t_ns: int
    took_ns: int


class Injector:
    """Breaks a lab, and mends it at the end of the context."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._files = LabFiles(lab.name)
        self._held: dict[int, Held] = {}
        self._unproven: list[Held] = []
        self._guardian: subprocess.Popen[bytes] | None = None
        self.changes: list[Change] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.restore_all()
        except Exception:
            # What went wrong first is what the caller should read.
            if error is None:
                raise
        finally:
            if self._guardian is not None:
                assert self._guardian.stdin is not None
                self._guardian.stdin.close()
                self._guardian.wait()
                self._guardian = None

    def prepare(self, spec: SingleFaultSpec) -> Held:
        """Write the fault down and do what takes time. Raises InputError where it does not fit
        the lab, MachineError where this machine can not."""
        fault = resolve(self._lab.fabric, spec)
        if self._guardian is None:
            self._guardian = _start_guardian(self._lab)
        held = Held(fault, write_fault(self._files, spec, Driver.this_process()))
        self._held[held.recorded.number] = held
        fault.prepare(self._lab)
        return held

    def schedule(self, held: Held, start_ns: int, end_ns: int | None) -> bool:
        """Leave it to the kernel to begin and end a prepared fault (CLOCK_REALTIME), where it
        can; says whether it will."""
        if not isinstance(held.fault, ScheduledFault):
            return False
        now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        to_monotonic_ns = time.monotonic_ns() - now_ns
        monotonic_end_ns = None if end_ns is None else end_ns + to_monotonic_ns
        held.fault.schedule(self._lab, start_ns + to_monotonic_ns, monotonic_end_ns)
        self.changes.append(Change(held.fault, True, max(start_ns, now_ns), 0))
        if end_ns is not None:
            self.changes.append(Change(held.fault, False, end_ns, 0))
        return True

    def inject(self, held: Held) -> None:
        """Break what is prepared."""
        before_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        held.fault.inject(self._lab)
        after_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        self.changes.append(Change(held.fault, True, before_ns, after_ns - before_ns))

    def restore(self, held: Held) -> None:
        """Mend it. It stays in the record until `prove`."""
        ended = any(each.fault is held.fault and not each.begins for each in self.changes)
        before_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        held.fault.restore(self._lab)
        after_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        if not ended:
            self.changes.append(Change(held.fault, False, before_ns, after_ns - before_ns))
        del self._held[held.recorded.number]
        self._unproven.append(held)

    def prove(self) -> None:
        """Return when nothing remains of any restored fault, and forget them. Raises
        ExpectationError where something does."""
        _prove(self._lab, [(held.fault, held.recorded) for held in self._unproven])
        self._unproven.clear()

    def restore_all(self) -> None:
        """Mend and prove whatever is not. Raises the first error once all has been tried."""
        failures: list[Exception] = []
        for held in reversed(list(self._held.values())):
            try:
                self.restore(held)
            except Exception as failure:
                failures.append(failure)
        self.prove()
        if failures:
            raise failures[0]


def restore_recorded(lab: Lab, *, orphans_only: bool = False) -> tuple[Fault, ...]:
    """Undo what the lab's record says it has, last first, and give what was undone.

    With `orphans_only` faults whose driver lives, and faults that are to stay, are left. Raises
    ExpectationError where something of one remains.
    """
    recorded = read_faults(LabFiles(lab.name))
    if orphans_only:
        recorded = tuple(each for each in recorded if each.driver and not each.driver.is_alive)
    return restore_faults(lab, recorded)


def restore_faults(lab: Lab, recorded: Sequence[RecordedFault]) -> tuple[Fault, ...]:
    """Undo these faults of the lab's record, last first, and give them. Raises ExpectationError
    where something of one remains."""
    undone = []
    for each in reversed(recorded):
        fault = resolve(lab.fabric, each.spec)
        fault.restore(lab)
        undone.append((fault, each))
    _prove(lab, undone)
    return tuple(fault for fault, _ in undone)


def _prove(lab: Lab, restored: Sequence[tuple[Fault, RecordedFault]]) -> None:
    deadline = time.monotonic() + PROOF_TIMEOUT_S
    for fault, recorded in restored:
        # Part of it is daemons that start again and tell nobody when they are done.
        while remains := fault.remains(lab):
            if time.monotonic() > deadline:
                raise ExpectationError(
                    f"{fault.kind} of {fault.subject} was restored and is not undone: "
                    f"{'; '.join(remains)}",
                    hint=f"take the lab down with `rocelab down {lab.name}`",
                )
            time.sleep(PROOF_STEP_S)
        remove_fault(LabFiles(lab.name), recorded)


def _start_guardian(lab: Lab) -> subprocess.Popen[bytes]:
    """A process that restores this one's faults once this one is gone.

    It lives in a namespace of the lab, so that taking the lab down ends it, and knows of our end
    by the end of its standard input.
    """
    record = faults_folder(LabFiles(lab.name))
    command = [sys.executable, "-m", "scripts.faults.guardian", lab.name, str(record)]
    path = str(Path(scripts.__path__[0]).parent)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )

    return namespaces.inside(lab.node(lab.fabric.switches[0].name).netns, start)
