"""The record of a lab's faults, written before they are injected.

A fault's file exists from before any change until it is proven that nothing of the fault remains,
so faults that a killed driver leaves can be restored from the lab's record alone:

    /run/rocelab/<lab>/faults/<number>.json   the fault as written, and the process that answers
    /run/rocelab/<lab>/changes                there while somebody wants to know when faults begin
                                              and end (`rocelab.faults.changewatch`)
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rocelab.base.errors import RocelabError
from rocelab.base.files import make_folder, write_file
from rocelab.base.plugin_errors import error_text
from rocelab.faults.base import Fault, SingleFaultSpec
from rocelab.faults.door import KINDS
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.lost import LostFault, LostSpec
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles


@dataclass(frozen=True, slots=True)
class Driver:
    """The process that will restore a fault: its id, and its start in clock ticks since boot
    (proc_pid_stat(5), field 22), which distinguishes it from a later one with the same id."""

    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Driver:
        return cls(os.getpid(), _started(os.getpid()) or 0)

    @property
    def is_alive(self) -> bool:
        return _started(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class RecordedFault:
    """A fault that a lab has; `driver` is None if it stays until a user restores it. `spec` is a
    `LostSpec` if nothing can restore it. `subject` and `nodes` are those of the fault as it was
    when it was recorded."""

    number: int
    spec: SingleFaultSpec
    driver: Driver | None
    subject: str
    nodes: tuple[str, ...]

    def on(self, fabric: Fabric) -> Fault:
        """The fault on the lab's fabric: a `LostFault` where its kind, which may be a newer one
        than the record, refuses it."""
        try:
            return self.spec.resolve(fabric)
        except Exception as error:  # a plug-in's may be any
            says = error.message if isinstance(error, RocelabError) else error_text(error)
            why = f"{KINDS.origin(self.spec.kind) or 'this rocelab'} refuses it: {says}"
            return LostFault(self.spec.kind, self.subject, self.nodes, why)


def faults_folder(files: LabFiles) -> Path:
    """The folder of a lab's faults."""
    return files.faults


def write_fault(
    files: LabFiles, spec: SingleFaultSpec, fault: Fault, driver: Driver | None
) -> RecordedFault:
    """Record a fault under the next free number, as written and as it is on the lab's fabric."""
    folder = faults_folder(files)
    make_folder(folder, exist_ok=True)
    document = {
        "spec": spec.model_dump(mode="json", exclude_none=True),
        "driver": None if driver is None else [driver.pid, driver.started],
        "package": KINDS.origin(spec.kind),
        "subject": fault.subject,
        "nodes": fault.nodes,
        "settings": dict(spec.settings),
    }
    fresh = folder / f"{os.getpid()}.new"
    write_file(fresh, json.dumps(document))
    number = max((fault.number for fault in read_faults(files)), default=0) + 1
    try:
        while True:
            try:
                os.link(fresh, folder / f"{number}.json")
            except FileExistsError:
                number += 1  # another process was faster
            else:
                return RecordedFault(number, spec, driver, fault.subject, fault.nodes)
    finally:
        fresh.unlink()


def read_faults(files: LabFiles) -> tuple[RecordedFault, ...]:
    """The faults that a lab has, in order of injection."""
    faults = []
    for path in faults_folder(files).glob("*.json"):
        try:
            document = json.loads(path.read_text())
        except FileNotFoundError:
            continue  # restored meanwhile
        try:
            spec = SINGLE_FAULT.validate_json(json.dumps(document["spec"]))
        except ValidationError:
            spec = LostSpec.recorded(document)
        driver = None if document["driver"] is None else Driver(*document["driver"])
        subject, nodes = document.get("subject", "unknown"), tuple(document.get("nodes", ()))
        faults.append(RecordedFault(int(path.stem), spec, driver, subject, nodes))
    return tuple(sorted(faults, key=lambda fault: fault.number))


def remove_fault(files: LabFiles, fault: RecordedFault) -> None:
    """Remove a fault from the record. Idempotent."""
    (faults_folder(files) / f"{fault.number}.json").unlink(missing_ok=True)


def changes_file(files: LabFiles) -> Path:
    """The file to which `note_change` writes, if it is there."""
    return files.root / "changes"


def note_change(files: LabFiles, fault: RecordedFault, done: Bracket, *, begins: bool) -> None:
    """Tell who watches the lab that a fault begins or ends at an instant in `done`."""
    line = json.dumps(
        {
            "number": fault.number,
            "spec": fault.spec.model_dump(mode="json", exclude_none=True),
            "begins": begins,
            "t_ns": done.before_ns,
            "took_ns": done.width_ns,
        }
    )
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileNotFoundError):  # nobody watches
        descriptor = os.open(changes_file(files), flags)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)


def _started(pid: int) -> int | None:
    """The start of a process; None if there is no such process, or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, *fields = text.rpartition(") ")[2].split()
    return None if state == "Z" else int(fields[18])
