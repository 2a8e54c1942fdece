"""The scheme of a lab that is up: set it, switch to another and read it.

Setting a scheme attaches the program of `rocelab.dataplane.steering.program` if the scheme steers
packets, fills its maps, starts the scheme's controller and writes the scheme into the lab's folder
for other commands. Packets are forwarded all the time: a switch changes with one write to its
element of a map, and before and after it the kernel's routes give the next hops to choose from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import TypeAdapter

from rocelab.base.doors import of_gone
from rocelab.base.errors import InputError, MachineError
from rocelab.base.files import replace_file
from rocelab.base.interruption import shielded, undone
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.dataplane.steering import program
from rocelab.dataplane.steering.controller import controller_pid, start_controller, stop_controller
from rocelab.dataplane.steering.maps import NodeCounters, SteeringMaps, node_ids
from rocelab.labfile.model import HashPolicy
from rocelab.labfile.schemes.base import Treatment
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.scheme_spec import SCHEME_DOOR, SchemeSpec
from rocelab.linux import probes, processes
from rocelab.linux.bpf import BpfError
from rocelab.planning.fabric import Fabric
from rocelab.planning.tenancy import check_scheme
from rocelab.record import LabFiles, not_up, read_record
from rocelab.routes.steering import (
    EntryKey,
    SteeringModel,
    planned_pins,
)

_SCHEME: TypeAdapter[SchemeSpec] = TypeAdapter(SchemeSpec)


def read_scheme(files: LabFiles) -> SchemeSpec:
    """The scheme that a lab runs; `ecmp` if none was ever set. Raises InputError for one whose
    package is gone or broken."""
    try:
        document = json.loads(_scheme_file(files).read_text())
    except FileNotFoundError:
        return EcmpScheme()
    try:
        return SCHEME_DOOR.find(document["kind"]).model_validate_json(json.dumps(document))
    except InputError as error:
        record = read_record(files.lab)
        packages = of_gone(() if record is None else record.plugins)
        hint = f"install its package again, or take the lab down: `rocelab down {files.lab}`"
        raise InputError(f"lab {files.lab}: {error.message}{packages}", hint) from error


def lacks_controller(files: LabFiles) -> bool:
    """Whether the lab's scheme needs a controller, and none runs, or a signal has stopped it."""
    if read_scheme(files).controller_period_s is None:
        return False
    pid = controller_pid(files)
    return pid is None or processes.is_stopped(pid)


class Steering:
    """The scheme of a lab that is up. The caller of a change holds the lab's lock."""

    def __init__(self, fabric: Fabric, files: LabFiles) -> None:
        self._fabric = fabric
        self._files = files
        self._ids = node_ids(fabric)

    def read_scheme(self) -> SchemeSpec:
        """The scheme that runs now."""
        return read_scheme(self._files)

    def set_scheme(self, scheme: SchemeSpec, progress: ProgressSink = no_progress) -> None:
        """Switch to `scheme` from any other without packet loss, and reset the counters. Signals
        are deferred until it is done.

        Raises InputError if the lab is not up or does not hash by `l4`, or no lab has the scheme,
        MachineError if this machine cannot run the program.
        """
        if not self._files.root.exists():
            raise not_up(self._fabric.name)
        scheme.check_lab()
        check_scheme(self._fabric.spec, scheme.kind)
        policy = self._fabric.hash_policy
        if scheme.is_steered and policy is not HashPolicy.L4:
            raise InputError(
                f"scheme {scheme.kind} needs hashing.policy: l4, the lab has {policy}",
                hint="only with that policy does the kernel use a packet's own hash",
            )
        if self._fabric.is_adopted and scheme.kind != "ecmp":
            raise InputError(
                f"lab {self._fabric.name} was adopted, and a scheme would change it",
                hint="only faults may change it, since rocelab reverts them",
            )
        with shielded(f"lab {self._fabric.name} is switched to {scheme.kind}"):
            self._switch(scheme, progress)
            undone(f"lab {self._fabric.name} runs {scheme.kind}")

    def _switch(self, scheme: SchemeSpec, progress: ProgressSink) -> None:
        before = self.read_scheme()
        if before.controller_period_s is not None:
            stop_controller(self._fabric, self._files)
        try:
            if scheme.is_steered:
                self._steer(before, scheme, progress)
            elif before.is_steered:
                self._stop_steering(scheme, progress)
        except OSError as error:
            raise MachineError(
                f"scheme {scheme.kind} does not run here: {error}",
                "run `rocelab doctor` for what eBPF programs need",
            ) from None
        self._write(scheme)
        if scheme.controller_period_s is not None:
            start_controller(self._fabric, self._files, scheme)

    def write_entries(self, entries: Mapping[EntryKey, int]) -> None:
        """Set entries and keep all others.

        Raises InputError if the lab's scheme is not `te`, BpfError for more than
        `program.MAX_ENTRIES`.
        """
        with self._entry_maps() as maps:
            maps.write_entries(entries)

    def remove_entries(self, keys: Iterable[EntryKey]) -> None:
        """Remove entries, ignoring those that do not exist. Raises as `write_entries` does."""
        with self._entry_maps() as maps:
            maps.remove_entries(keys)

    def read_entries(self) -> dict[EntryKey, int]:
        """Every entry with its 32-bit hash. Raises InputError if the scheme is not `te`."""
        with self._entry_maps() as maps:
            return maps.read_entries()

    def counters(self) -> dict[str, NodeCounters]:
        """The counters of each switch since its scheme was set; empty if the scheme steers none."""
        if not self.read_scheme().is_steered:
            return {}
        with self._maps() as maps:
            return maps.counters()

    def model(self) -> SteeringModel:
        """The hashes that the switches give packets now, for `rocelab.routes.path.walk`."""
        scheme = self.read_scheme()
        entries = self.read_entries() if scheme.has_entries else None
        return SteeringModel(self._fabric, scheme, entries)

    def _maps(self) -> SteeringMaps:
        try:
            return SteeringMaps(program.pins_folder(self._files), self._ids)
        except BpfError:
            raise not_up(self._fabric.name) from None

    def _entry_maps(self) -> SteeringMaps:
        scheme = self.read_scheme()
        if not scheme.has_entries:
            raise InputError(
                f"lab {self._fabric.name} has no entries: its scheme is {scheme.kind}",
                hint=f"`rocelab scheme {self._fabric.name} te` switches to the one that has",
            )
        return self._maps()

    def _steer(self, before: SchemeSpec, scheme: SchemeSpec, progress: ProgressSink) -> None:
        pins = planned_pins(self._fabric)
        if before.is_steered and before.program != scheme.program:
            self._stop_steering(EcmpScheme(), progress)
            before = EcmpScheme()
        if not before.is_steered:
            lacking = probes.missing(program.NEEDS)
            if lacking:
                raise OSError(lacking)
            program.attach(self._fabric, self._files, len(pins), scheme.program, progress)
        with self._maps() as maps:
            if Treatment.PINS in scheme.treatments:
                maps.write_pins(pins)
            gap_ns = round(scheme.gap_ns * self._fabric.spec.dilation)
            # Upper tiers first, so that no switch takes a lower one's new hash for its own.
            for node in sorted(self._fabric.switches, key=lambda node: -node.role.tier):
                treatment = scheme.treatment(is_leaf=node.is_leaf)
                is_own = treatment is Treatment.FUNCTION
                fields = scheme.parameter if is_own else scheme.hashed
                maps.set_node(node.name, treatment, node.hash_seed, gap_ns, fields)
            maps.reset_counters()
            if Treatment.PINS not in scheme.treatments:
                maps.clear_pins()
            if not scheme.has_entries:
                maps.remove_entries(maps.read_entries())

    def _stop_steering(self, scheme: SchemeSpec, progress: ProgressSink) -> None:
        with self._maps() as maps:
            # Upper tiers last: until then they clear the hashes that lower ones still set.
            for node in sorted(self._fabric.switches, key=lambda node: node.role.tier):
                maps.set_node(node.name, Treatment.OFF)
        # From here on no switch is steered: a command killed below leaves a program that is idle.
        self._write(scheme)
        program.detach(self._fabric, self._files, progress)

    def _write(self, scheme: SchemeSpec) -> None:
        replace_file(_scheme_file(self._files), _SCHEME.dump_json(scheme))


def _scheme_file(files: LabFiles) -> Path:
    return files.dataplane / "scheme"
