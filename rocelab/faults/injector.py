"""Prepares, injects and restores faults on a running lab, and proves that they are undone.

It records when each change happened. Every fault is in the lab's record before anything is done. It
is undone when the context ends, also by an error or Ctrl-C; if this process is killed, a guardian
process undoes it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rocelab.agent.agent import clock_offset_ns
from rocelab.base.errors import ExpectationError, RocelabError
from rocelab.base.interruption import shielded, undone
from rocelab.base.plugin_errors import error_text
from rocelab.faults.base import CarrierFault, Fault, LinksFault, ScheduledFault, SingleFaultSpec
from rocelab.faults.ports import check_ports
from rocelab.faults.record import (
    Driver,
    RecordedFault,
    faults_folder,
    note_change,
    read_faults,
    remove_fault,
    write_fault,
)
from rocelab.lab.lab import RunningLab
from rocelab.lab.node import PortGoneError
from rocelab.linux import background, namespaces
from rocelab.linux.bracket import Bracket, realtime_ns
from rocelab.record import LabFiles, is_still_at

PROOF_TIMEOUT_S = 60.0
"""The time limit for a restarted daemon and its sessions until nothing of a fault remains."""

PROOF_STEP_S = 0.1

_LEFT: list[subprocess.Popen[bytes]] = []
"""Guardians that outlive their injectors; nothing waits for them."""

SHOWN = 4


@dataclass(frozen=True, slots=True)
class RunningFault:
    """A fault in the lab's record, resolved on this lab."""

    fault: Fault
    recorded: RecordedFault


@dataclass(frozen=True, slots=True)
class InjectedChange:
    """A fault that began or ended. The kernel or the daemon did it between `t_ns` (CLOCK_REALTIME)
    and `took_ns` later, the uncertainty of the instant. If `took_ns` is 0 the kernel did it at
    exactly `t_ns`."""

    fault: Fault
    begins: bool
    t_ns: int
    took_ns: int


class Injector:
    """Injects faults into a lab, and restores them at the end of the context."""

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._files = LabFiles(lab.name)
        self._held: dict[int, RunningFault] = {}
        self._unproven: list[RunningFault] = []
        self._intact: dict[int, frozenset[str]] = {}
        self._guardian: subprocess.Popen[bytes] | None = None
        self._folder: int | None = None
        self.changes: list[InjectedChange] = []
        self.unseen: list[str] = []
        """Why injected faults are not valid: their effect was not seen."""

    def __enter__(self) -> Self:
        # Open, so that no other lab's folder gets its number.
        with suppress(FileNotFoundError):
            self._folder = os.open(self._files.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_gone():
            # A lab of the same name that is up by now has nothing of these faults.
            self._held.clear()
            self._unproven.clear()
        faults = [held.fault for held in (*self._held.values(), *self._unproven)]
        if error is not None:
            self._intact.clear()  # nothing is measured from here on
        with shielded("faults are undone"):
            try:
                self.restore_all()
                if faults:
                    undone(f"{_named(faults)} undone")
            except Exception as failure:
                # The caller should see the first error, unless that is a signal.
                if error is None or not isinstance(error, Exception):
                    raise
                error.add_note(
                    f"and lab {self._lab.name} is still broken: {error_text(failure)}; a guardian "
                    f"process continues to clear it when this one has ended"
                )
            finally:
                self._end_guardian()
                if self._folder is not None:
                    os.close(self._folder)
                    self._folder = None

    def check_lab(self) -> None:
        """Raises ExpectationError if the lab went down meanwhile."""
        if self._is_gone():
            raise ExpectationError(f"lab {self._lab.name} went down during a fault")

    def _is_gone(self) -> bool:
        return self._folder is not None and not is_still_at(self._folder, self._files.root)

    def _end_guardian(self) -> None:
        """Let the guardian end: now if everything is proven undone, else once it has restored the
        rest."""
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        assert guardian.stdin is not None
        guardian.stdin.close()
        if self._held or self._unproven:
            _LEFT.append(guardian)
        else:
            guardian.wait()

    def prepare(self, spec: SingleFaultSpec) -> RunningFault:
        """Record the fault and do everything slow. Raises InputError if it does not fit the lab,
        MachineError if this machine cannot do it."""
        held = self._recorded(spec)
        self._held[held.recorded.number] = held
        held.fault.prepare(self._lab)
        self._intact[held.recorded.number] = held.fault.intact(self._lab)
        return held

    def _recorded(self, spec: SingleFaultSpec) -> RunningFault:
        fault = spec.resolve(self._lab.fabric)
        check_there(self._lab, fault)
        if self._guardian is None:
            self._guardian = _start_guardian(self._lab)
        recorded = write_fault(self._files, spec, fault, Driver.this_process())
        return RunningFault(fault, recorded)

    def happened(self) -> tuple[InjectedChange, ...]:
        """The changes so far, without those that the kernel has yet to make."""
        now_ns = realtime_ns()
        return tuple(change for change in self.changes if change.t_ns <= now_ns)

    def nodes_of(self, spec: SingleFaultSpec) -> frozenset[str]:
        """The nodes that a fault concerns. Raises InputError where it does not fit the lab."""
        return frozenset(spec.resolve(self._lab.fabric).nodes)

    def schedule(self, held: RunningFault, start_ns: int, end_ns: int | None) -> bool:
        """Let the kernel begin and end a prepared fault (CLOCK_REALTIME); return whether it can."""
        if not isinstance(held.fault, ScheduledFault):
            return False
        offset_ns = clock_offset_ns()
        monotonic_end_ns = None if end_ns is None else end_ns - offset_ns
        order = held.fault.schedule(self._lab, start_ns - offset_ns, monotonic_end_ns)
        # If the order is in time the kernel begins at that instant, else when it gets the order.
        began_ns = start_ns
        if end_ns is not None and order.after_ns >= end_ns:
            self.unseen.append(
                f"not valid because {held.fault.kind} of {held.fault.subject} ended before the "
                f"kernel received it"
            )
        elif order.after_ns > start_ns:
            began_ns = max(start_ns, order.before_ns)
        uncertain_ns = max(0, order.after_ns - began_ns)
        self._changed(held, InjectedChange(held.fault, True, began_ns, uncertain_ns))
        if end_ns is not None:
            self._changed(held, InjectedChange(held.fault, False, end_ns, 0))
        return True

    def _changed(self, held: RunningFault, change: InjectedChange) -> None:
        self.changes.append(change)
        self._note(held, change)

    def _note(self, held: RunningFault, change: InjectedChange) -> None:
        done = Bracket(change.t_ns, change.t_ns + change.took_ns)
        note_change(self._files, held.recorded, done, begins=change.begins)

    def inject(self, held: RunningFault) -> None:
        """Inject a prepared fault."""
        is_overlapped = self._is_overlapped(held)
        if is_overlapped or not self._intact.get(held.recorded.number, True):
            # It cannot change, nor show, what a fault that began since it was prepared has already
            # removed; and it may have been prepared while the one before it still lasted, as with
            # a flapping link.
            intact = held.fault.intact(self._lab)
            if intact or not is_overlapped:
                self._intact[held.recorded.number] = intact
            else:
                self._intact.pop(held.recorded.number, None)
        done = held.fault.inject(self._lab)
        self._changed(held, InjectedChange(held.fault, True, done.before_ns, done.width_ns))

    def _is_overlapped(self, held: RunningFault) -> bool:
        """Whether another fault on one of its nodes is under way."""
        begun = [change.fault for change in self.happened() if change.begins]
        others = [
            other.fault
            for other in self._held.values()
            if other is not held and any(other.fault is fault for fault in begun)
        ]
        return any(set(other.nodes) & set(held.fault.nodes) for other in others)

    def check_effect(self, held: RunningFault) -> None:
        """Check by the kernel and FRR whether a fault that has begun took effect, and add a problem
        to `unseen`. Only the first call counts. A fault that began during another on its nodes is
        not checked where that one had left nothing for it to change."""
        intact = self._intact.pop(held.recorded.number, None)
        if intact is None or all(other.fault is not held.fault for other in self.happened()):
            return
        if unseen := _unseen_effect(self._lab, held.fault, intact):
            self.unseen.append(f"not valid because {unseen}")

    def wait_for_effect(self, held: RunningFault) -> None:
        """Return once a fault that was injected is seen to take effect. Raises ExpectationError as
        `wait_for_effect`."""
        if (intact := self._intact.pop(held.recorded.number, None)) is not None:
            wait_for_effect(self._lab, held.fault, held.recorded, intact)

    def restore(self, held: RunningFault) -> None:
        """Restore a fault, after `look`. It stays in the record until `prove`."""
        self.check_effect(held)
        now_ns = realtime_ns()
        # The kernel will not make the changes that it has yet to make.
        self.changes = [
            change
            for change in self.changes
            if change.fault is not held.fault or change.t_ns <= now_ns
        ]
        begins = [change.begins for change in self.changes if change.fault is held.fault]
        done = held.fault.restore(self._lab) or Bracket.now()
        ended = InjectedChange(held.fault, False, done.before_ns, done.width_ns)
        if begins == [True]:
            self.changes.append(ended)
        self._note(held, ended)  # also of one that was to begin later: it has not
        del self._held[held.recorded.number]
        self._unproven.append(held)

    def prove(self) -> None:
        """Wait until nothing remains of any restored fault, and remove them from the record. Raises
        ExpectationError if something remains."""
        _prove(self._lab, [(held.fault, held.recorded) for held in self._unproven])
        self._unproven.clear()

    def restore_all(self) -> None:
        """Restore and prove all remaining faults. Raises the first error after all have been
        tried."""
        failures: list[Exception] = []
        # Check all before any is restored: restoring one may undo what shows another.
        for held in self._held.values():
            self.check_effect(held)
        for held in reversed(list(self._held.values())):
            try:
                self.restore(held)
            except Exception as failure:
                failures.append(failure)
        try:
            self.prove()
        except Exception as failure:
            failures.append(failure)
        if failures:
            raise failures[0]


def wait_for_effect(
    lab: RunningLab, fault: Fault, recorded: RecordedFault, intact: frozenset[str]
) -> None:
    """Return once nothing of what was `intact` before a fault was injected is so any more, and the
    fault, unless it is over at once, finds something of itself to undo.

    A lab that has another fault on one of its nodes is not looked at: what that one has taken away
    this one cannot change. Raises ExpectationError where there was nothing that the fault could
    change, and where its effect is not seen in time.
    """
    others = [other for other in read_faults(LabFiles(lab.name)) if other.number != recorded.number]
    if any(set(other.nodes) & set(fault.nodes) for other in others):
        return
    deadline = time.monotonic() + PROOF_TIMEOUT_S
    is_over = recorded.spec.instant
    while unseen := _unseen_effect(lab, fault, intact) or _unseen_trace(lab, fault, is_over):
        if not intact or time.monotonic() > deadline:
            raise ExpectationError(unseen, hint=f"`rocelab status {lab.name}` says how the lab is")
        time.sleep(PROOF_STEP_S)


def _unseen_effect(lab: RunningLab, fault: Fault, intact: frozenset[str]) -> str | None:
    """Why a fault that was injected cannot be taken for one; None where its effect is seen."""
    named = f"{fault.kind} of {fault.subject}"
    if not intact:
        return f"there was nothing that {named} could change"
    try:
        left = intact & fault.intact(lab)
    except (RocelabError, OSError) as error:
        return f"whether {named} took effect could not be read: {error}"
    if left:
        return f"{named} had no visible effect: {'; '.join(sorted(left)[:SHOWN])}"
    return None


def _unseen_trace(lab: RunningLab, fault: Fault, is_over: bool) -> str | None:
    """Why a fault that says that it took effect cannot be taken for one: nothing of it could be
    undone. None where something could, and for one that is over at once."""
    if is_over or fault.remains(lab):
        return None
    return f"{fault.kind} of {fault.subject} had no visible effect: nothing of it is left to undo"


def _named(faults: Sequence[Fault]) -> str:
    """A single fault by name, several by their number, with a verb."""
    if len(faults) > 1:
        return f"{len(faults)} faults were"
    return f"{faults[0].kind} of {faults[0].subject} was"


def restore_recorded(lab: RunningLab, *, orphans_only: bool = False) -> tuple[Fault, ...]:
    """Undo the faults in the lab's record, last first, and return them.

    `orphans_only` keeps faults whose driver lives, and those that stay until restored. Raises
    ExpectationError if something of one remains.
    """
    recorded = read_faults(LabFiles(lab.name))
    if orphans_only:
        recorded = tuple(
            record for record in recorded if record.driver and not record.driver.is_alive
        )
    return restore_faults(lab, recorded)


def restore_faults(lab: RunningLab, recorded: Sequence[RecordedFault]) -> tuple[Fault, ...]:
    """Undo these faults of the lab's record, last first, and return them. Raises ExpectationError
    if something of one remains."""
    return undo(lab, [(record.on(lab.fabric), record) for record in reversed(recorded)])


def undo(lab: RunningLab, faults: Sequence[tuple[Fault, RecordedFault]]) -> tuple[Fault, ...]:
    """Undo faults in this order, each with its place in the lab's record. Raises as
    `restore_faults`: the first error after all have been tried."""
    with shielded("faults are undone"):
        failures: list[Exception] = []
        restored = []
        for entry in faults:
            try:
                done = entry[0].restore(lab) or Bracket.now()
                restored.append(entry)
                note_change(LabFiles(lab.name), entry[1], done, begins=False)
            except Exception as failure:
                failures.append(failure)
        try:
            _prove(lab, restored)
        except Exception as failure:
            failures.append(failure)
        if failures:
            raise failures[0]
        if faults:
            undone(f"{_named([fault for fault, _ in faults])} undone")
    return tuple(fault for fault, _ in faults)


def check_there(lab: RunningLab, fault: Fault) -> None:
    """Raises PortGoneError if a port that the fault changes was removed or renamed: nothing could
    undo the fault."""
    if isinstance(fault, LinksFault):
        ends = (end for link in fault.links for end in (link.a, link.b))
        check_ports(lab, ((end.node, end.interface) for end in ends))
    elif isinstance(fault, CarrierFault):
        check_ports(lab, fault.dark_ports(lab.fabric))


def _prove(lab: RunningLab, restored: Sequence[tuple[Fault, RecordedFault]]) -> None:
    """Remove from the record those of which nothing remains in time. Raises ExpectationError if
    something of another remains."""
    deadline = time.monotonic() + PROOF_TIMEOUT_S
    left = []
    failures = []
    for fault, recorded in restored:
        try:
            remains = _remains(lab, fault, deadline)
        except Exception as failure:  # of a plug-in: the others are proven all the same
            failures.append(failure)
            continue
        if not remains:
            remove_fault(LabFiles(lab.name), recorded)
            continue
        left.append(
            f"{fault.kind} of {fault.subject} was restored and is not undone: {'; '.join(remains)}"
        )
    if failures:
        raise failures[0]
    if left:
        hint = f"bring the lab up again, after `rocelab down {lab.name}`"
        if lab.fabric.is_adopted:
            hint = f"repair it in the node, then `rocelab release {lab.name}`"
        raise ExpectationError("; ".join(left), hint=hint)


def _remains(lab: RunningLab, fault: Fault, deadline: float) -> tuple[str, ...]:
    """What of a fault is left at the `deadline` (monotonic), or when nothing undoes it any more."""
    # It includes restarting daemons, which send no event when they are done.
    while remains := fault.remains(lab):
        if time.monotonic() > deadline or _is_unrecoverable(lab, fault):
            break
        time.sleep(PROOF_STEP_S)
    return remains


def _is_unrecoverable(lab: RunningLab, fault: Fault) -> bool:
    """Whether nothing will undo a fault any more, because a port that it changed is gone."""
    try:
        check_there(lab, fault)
    except PortGoneError:
        return True
    return False


def _start_guardian(lab: RunningLab) -> subprocess.Popen[bytes]:
    """Start a process that restores this one's faults once this one is gone.

    It runs in a namespace of the lab, so that taking the lab down ends it. The end of its standard
    input means that this process has ended or given up.
    """
    record = faults_folder(LabFiles(lab.name))
    driver = Driver.this_process()
    arguments = lab.name, str(record), str(driver.pid), str(driver.started)

    def start() -> subprocess.Popen[bytes]:
        return background.launch("rocelab.faults.guardian", *arguments, stdin=subprocess.PIPE)

    return namespaces.inside(lab.node(lab.fabric.switches[0].name).netns, start)
