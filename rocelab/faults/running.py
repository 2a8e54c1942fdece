"""Faults on a lab that is up, for the command line rather than a drill.

Injects a fault that stays in the lab's record after the command, or carries one out and waits for
its end; lists a lab's faults and restores them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from rocelab.base.errors import ExpectationError, InputError
from rocelab.base.interruption import shielded
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.base.wording import listed
from rocelab.faults.base import Fault, LinksFault, SingleFaultSpec, Timed
from rocelab.faults.fault_spec import FaultSpec
from rocelab.faults.injector import (
    InjectedChange,
    Injector,
    RunningFault,
    check_there,
    restore_faults,
    undo,
    wait_for_effect,
)
from rocelab.faults.lost import LostFault
from rocelab.faults.record import (
    RecordedFault,
    faults_folder,
    note_change,
    read_faults,
    remove_fault,
    write_fault,
)
from rocelab.faults.schedule import expand
from rocelab.faults.selectors import with_names
from rocelab.faults.timetable import carry_out
from rocelab.lab.adoption.adopt import check_adopted, forget
from rocelab.lab.inuse import Use, in_use
from rocelab.lab.lab import RunningLab
from rocelab.lab.names import name_of
from rocelab.record import DamagedRecordError, LabFiles, read_record

NS_PER_S = 10**9
HEAD_START_NS = NS_PER_S
"""The time for preparation before the first timed fault begins."""

_DRIVERS: Mapping[bool | None, Literal["none", "alive", "orphaned"]] = {
    None: "none",
    True: "alive",
    False: "orphaned",
}
_STEP_NS = NS_PER_S // 4


@dataclass(frozen=True, slots=True)
class ListedFault:
    """A fault that a lab has. `since_unix_s` is when it was recorded, just before it began."""

    number: int
    kind: str
    subject: str
    since_unix_s: float
    driver: Literal["none", "alive", "orphaned"]
    """`none` if it stays until a user restores it; otherwise the state of the process `pid` that
    should restore it."""
    pid: int | None
    lost: str | None = None
    """Why nothing can restore it, as its package is gone or refuses it."""

    @property
    def since(self) -> str:
        """The time as text for users."""
        return datetime.fromtimestamp(self.since_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def inject_and_leave(lab: RunningLab, spec: SingleFaultSpec) -> tuple[RecordedFault, Fault]:
    """Break the lab until someone restores it, and return once the fault is seen to take effect.

    Raises as the fault's `prepare` and `inject` and as `wait_for_effect` do, and then leaves
    nothing of it; InputError while a drill or a job uses the lab.
    """
    spec = with_names(spec, lab.fabric)
    fault = spec.resolve(lab.fabric)
    with (
        _by_hand(lab),
        shielded(f"{fault.kind} of {fault.subject} is undone") as shield,
    ):
        check_there(lab, fault)
        recorded = write_fault(LabFiles(lab.name), spec, fault, driver=None)
        try:
            with shield.lifted():
                fault.prepare(lab)
                intact = fault.intact(lab)
                done = fault.inject(lab)
                note_change(LabFiles(lab.name), recorded, done, begins=True)
                wait_for_effect(lab, fault, recorded, intact)
        except BaseException:
            restore_faults(lab, [recorded])
            raise
    return recorded, fault


@contextmanager
def injected(lab: RunningLab, spec: SingleFaultSpec) -> Iterator[tuple[Injector, RunningFault]]:
    """Break the lab for the duration of the context, from when the fault is seen to take effect
    until it is proven undone, whose injector has its changes. Undone too where this is interrupted
    or killed.

    Raises as `inject_and_leave`, and ExpectationError if something of it remains.
    """
    spec = with_names(spec, lab.fabric)
    with _by_hand(lab), Injector(lab) as injector:
        held = injector.prepare(spec)
        injector.inject(held)
        injector.wait_for_effect(held)
        yield injector, held


def inject_and_wait(
    lab: RunningLab, spec: FaultSpec, progress: ProgressSink = no_progress
) -> tuple[tuple[InjectedChange, ...], tuple[str, ...]]:
    """Carry a fault out that ends by itself, and return once it is proven undone: its changes, and
    which of them came late. Undone too where this is interrupted or killed.

    Raises InputError where the fault does not fit the lab, and while a drill or a job uses it;
    ExpectationError where a change had no visible effect.
    """
    faults = expand(lab.fabric, (spec,))
    for timed in faults:
        timed.spec.resolve(lab.fabric)
    with _by_hand(lab), Injector(lab) as injector:
        zero_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) + HEAD_START_NS
        wait = _waiter(injector, faults, spec.kind, zero_ns, progress)
        late = carry_out(injector, faults, zero_ns, wait)
        injector.restore_all()
        changes = tuple(change for change in injector.changes if change.begins or not spec.instant)
    if injector.unseen:
        raise ExpectationError("; ".join(_reasons(injector.unseen)))
    return changes, _reasons(late)


def _reasons(problems: Sequence[str]) -> tuple[str, ...]:
    return tuple(problem.removeprefix("not valid because ") for problem in problems)


def release(text: str) -> tuple[Fault, ...]:
    """Give a lab that was adopted back: undo its faults, except on nodes that are gone, and forget
    it. Returns what was undone.

    Raises InputError if the lab is not up or was not adopted, or a drill or a job uses it;
    ExpectationError if something of a fault remains, or after all if the package of one is gone;
    DamagedRecordError if its faults cannot be
    read: then the lab is forgotten too.
    """
    name = name_of(text)
    if LabFiles(name).is_adopted and read_record(name) is None:
        forget(name)  # `adopt` was killed before it had written all of the record
        return ()
    try:
        lab = RunningLab.recorded(text)
    except DamagedRecordError:
        if LabFiles(name).is_adopted:
            forget(name)
        raise
    files = lab.runtime.files
    check_adopted(files)
    gone = set(lab.runtime.provider.gone(files))
    restored: list[Fault] = []
    lost: list[LostFault] = []
    with in_use(files, "its release"):
        for recorded in reversed(read_faults(files)):
            fault = recorded.on(lab.fabric)
            if isinstance(fault, LinksFault):
                fault = fault.without(gone)
            if isinstance(fault, LostFault):
                lost.append(fault)
            elif not fault.nodes or gone.intersection(fault.nodes):
                remove_fault(files, recorded)
            else:
                restored += undo(lab, [(fault, recorded)])
        # Of a cable to a node that is gone the near end still has them.
        lab.impairments.clear_all(gone)
        forget(lab.name)
    if lost:
        nodes = dict.fromkeys(node for fault in lost for node in fault.nodes)
        raise ExpectationError(
            "; ".join(f"{fault.kind} of {fault.subject} is left: {fault.why}" for fault in lost),
            hint=f"the lab is released: repair {listed(nodes, 'and')} by hand",
        )
    return tuple(restored)


def _by_hand(lab: RunningLab) -> AbstractContextManager[None]:
    """Hold the lab for faults by hand, which exclude measurements but not each other."""
    return in_use(LabFiles(lab.name), "a fault by hand", Use.FAULT)


def _waiter(
    injector: Injector, faults: Sequence[Timed], name: str, zero_ns: int, progress: ProgressSink
) -> Callable[[int], None]:
    """A function that waits until an instant and shows how many seconds of the total have passed.
    It raises ExpectationError if the lab goes down meanwhile."""
    last_ns = max(timed.ends_ns or timed.begins_ns for timed in faults)
    total = -(-last_ns // NS_PER_S)

    def wait(instant_ns: int) -> None:
        while (now_ns := time.clock_gettime_ns(time.CLOCK_REALTIME)) < instant_ns:
            injector.check_lab()
            progress(Progress(name, max(0, (now_ns - zero_ns) // NS_PER_S), total))
            time.sleep(min(instant_ns - now_ns, _STEP_NS) / NS_PER_S)

    return wait


def faults_of(lab: RunningLab) -> tuple[ListedFault, ...]:
    """The faults that a lab has, in order of injection."""
    folder = faults_folder(LabFiles(lab.name))
    faults = []
    for recorded in read_faults(LabFiles(lab.name)):
        driver = recorded.driver
        try:
            since = (folder / f"{recorded.number}.json").stat().st_mtime
        except FileNotFoundError:
            continue  # restored meanwhile
        fault = recorded.on(lab.fabric)
        faults.append(
            ListedFault(
                number=recorded.number,
                kind=recorded.spec.kind,
                subject=fault.subject,
                since_unix_s=since,
                driver=_DRIVERS[None if driver is None else driver.is_alive],
                pid=None if driver is None else driver.pid,
                lost=fault.why if isinstance(fault, LostFault) else None,
            )
        )
    return tuple(faults)


def restore_numbered(lab: RunningLab, number: int) -> Fault:
    """Undo one fault of the lab's record. Raises InputError if there is none of that number, or a
    living process will undo it; ExpectationError if something of it remains."""
    recorded = read_faults(LabFiles(lab.name))
    chosen = next((fault for fault in recorded if fault.number == number), None)
    if chosen is None:
        numbers = [str(fault.number) for fault in recorded]
        raise InputError(
            f"lab {lab.name} has no fault {number}",
            hint=f"it has {listed(numbers, 'and')}" if numbers else "it has none",
        )
    if chosen.driver is not None and chosen.driver.is_alive:
        raise InputError(
            f"fault {number} belongs to process {chosen.driver.pid}, which will undo it",
            hint="stop that process: its faults are then undone",
        )
    return restore_faults(lab, [chosen])[0]


def restore_ownerless(lab: RunningLab) -> tuple[tuple[Fault, ...], tuple[RecordedFault, ...]]:
    """Undo every fault that no living process will undo. Returns these, and those left to
    processes.

    Raises ExpectationError if something of one remains.
    """
    recorded = read_faults(LabFiles(lab.name))
    owned = [fault for fault in recorded if fault.driver is not None and fault.driver.is_alive]
    return restore_faults(lab, [fault for fault in recorded if fault not in owned]), tuple(owned)
