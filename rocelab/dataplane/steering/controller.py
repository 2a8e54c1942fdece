"""The controller of a lab's scheme as a process: its files, started and stopped from outside.

It runs in the namespace of the lab's first switch, so that taking the lab down ends it and nothing
runs in the machine's own network namespace. Its state is in files of the lab:

    /run/rocelab/<lab>/controller/pid      held by its process (`rocelab.linux.pidfile`)
    /run/rocelab/<lab>/controller/rounds   one JSON object per round (`controller.rounds`)
    /run/rocelab/<lab>/controller/errors   what it wrote to standard error
    /run/rocelab/<lab>/demand/*.json       what running traffic asks for (`rocelab.traffic.demand`)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.base.extras import need
from rocelab.base.files import make_folder
from rocelab.dataplane.steering import resilient
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.linux import background, namespaces, netlink, pidfile
from rocelab.linux.fib import read_objects, read_routes
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ControllerFiles:
    """The files of a lab's controller."""

    files: LabFiles

    @property
    def folder(self) -> Path:
        return self.files.dataplane / "controller"

    @property
    def pid(self) -> Path:
        return self.folder / "pid"

    @property
    def rounds(self) -> Path:
        return self.folder / "rounds"

    @property
    def errors(self) -> Path:
        return self.folder / "errors"

    @property
    def demands(self) -> Path:
        return self.files.root / "demand"

    def make(self) -> None:
        """Make the folders. Raises OSError."""
        make_folder(self.folder, exist_ok=True)
        make_folder(self.demands, exist_ok=True)


def start_controller(fabric: Fabric, files: LabFiles, scheme: SchemeSpec) -> int:
    """Start the lab's controller and return its process id once its first round is done.

    Raises InputError if one runs already, MachineError if it does not start or numba is missing.
    """
    need("numba")
    controller = ControllerFiles(files)
    running = controller_pid(files)
    if running is not None:
        raise InputError(
            f"lab {files.lab} has a controller (process {running})", hint="stop it first"
        )
    controller.make()
    return background.start(
        f"the controller of lab {files.lab}",
        "rocelab.dataplane.controller.process",
        (files.lab, files.network or "", scheme.model_dump_json()),
        pid_file=controller.pid,
        log=controller.errors,
        netns=files.netns_of(fabric.switches[0].name),
        timeout_s=START_TIMEOUT_S,
    )


def controller_pid(files: LabFiles) -> int | None:
    """The process of the lab's controller, None if it has none."""
    return pidfile.holder(ControllerFiles(files).pid)


def stop_controller(fabric: Fabric, files: LabFiles) -> None:
    """Stop the lab's controller, if it has one, and remove its groups and their routes.

    Entries stay: they are removed with the scheme (`rocelab.dataplane.steering`). Raises OSError,
    MachineError if the controller does not end.
    """
    pidfile.end(ControllerFiles(files).pid, STOP_TIMEOUT_S)
    for node in fabric.nodes:
        namespaces.inside(files.netns_of(node.name), _remove_groups)


def _remove_groups() -> None:
    with netlink.open_socket() as channel:
        present = resilient.own_state(read_routes(channel), *read_objects(channel))
        netlink.send_batch(channel, resilient.removal(present))
