"""The controller as a process: started and stopped from outside, running inside a lab.

It runs in the namespace of the lab's first switch, so that taking the lab down ends it and nothing
runs in the machine's own network namespace. Its state is in files of the lab:

    /run/rocelab/<lab>/controller/pid      held by its process (`rocelab.kernel.pidfile`)
    /run/rocelab/<lab>/controller/rounds   one JSON object per round (`controller.rounds`)
    /run/rocelab/<lab>/controller/errors   what it wrote to standard error
    /run/rocelab/<lab>/demand/*.json       what running traffic asks for (`rocelab.traffic.demand`)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from rocelab import compiling
from rocelab.errors import InputError
from rocelab.files import make_folder
from rocelab.kernel import background, namespaces, netlink, pidfile
from rocelab.kernel.fib import read_objects, read_routes
from rocelab.plan.build import plan
from rocelab.plan.fabric import Fabric
from rocelab.runtime.controller import resilient
from rocelab.runtime.controller.collector import Collector
from rocelab.runtime.controller.loop import ResilientRounds, TeRounds, period_s, run_rounds
from rocelab.runtime.controller.rounds import RoundLog
from rocelab.runtime.record import LabFiles, read_record
from rocelab.runtime.steering import Steering
from rocelab.spec.adopted import recorded_spec
from rocelab.spec.schemes import ResilientScheme, SchemeSpec, TeScheme

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0

ControllerScheme = TeScheme | ResilientScheme


@dataclass(frozen=True, slots=True)
class ControllerFiles:
    """The files of a lab's controller."""

    files: LabFiles

    @property
    def folder(self) -> Path:
        return self.files.root / "controller"

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

    Raises InputError if one runs already, MachineError if it does not start.
    """
    controller = ControllerFiles(files)
    running = controller_pid(files)
    if running is not None:
        raise InputError(
            f"lab {files.lab} has a controller (process {running})", hint="stop it first"
        )
    controller.make()
    return background.start(
        f"the controller of lab {files.lab}",
        "rocelab.runtime.controller.process",
        (files.lab, scheme.model_dump_json()),
        pid_file=controller.pid,
        log=controller.errors,
        netns=files.netns_of(fabric.switches[0].name),
        timeout_s=START_TIMEOUT_S,
    )


def controller_pid(files: LabFiles) -> int | None:
    """The process of the lab's controller, None if it has none."""
    return pidfile.holder(ControllerFiles(files).pid)


def stop_controller(files: LabFiles) -> None:
    """Stop the lab's controller, if it has one, and remove its groups and their routes.

    Entries stay: they are removed with the scheme (`rocelab.runtime.steering`). Raises OSError,
    MachineError if the controller does not end.
    """
    stop_process(files)
    for netns in sorted(files.netns.iterdir()):
        namespaces.inside(netns, _remove_groups)


def stop_process(files: LabFiles) -> None:
    """Stop the controller and keep what it programmed. Raises MachineError if it does not end."""
    pidfile.end(ControllerFiles(files).pid, STOP_TIMEOUT_S)


def _remove_groups() -> None:
    with netlink.open_socket() as channel:
        present = resilient.own_state(read_routes(channel), *read_objects(channel))
        netlink.send_batch(channel, resilient.removal(present))


def run_controller(
    fabric: Fabric, files: LabFiles, scheme: ControllerScheme, ready: Callable[[], None]
) -> None:
    """Run the lab's controller until killed; call `ready` when it is at work."""
    controller = ControllerFiles(files)
    log = RoundLog(controller.rounds)
    netns_of = {node.name: files.netns_of(node.name) for node in fabric.switches}
    with Collector(netns_of, controller.demands) as collector:
        rounds: TeRounds | ResilientRounds
        if isinstance(scheme, TeScheme):
            table = Steering(fabric, files)
            rounds = TeRounds(fabric, collector, scheme, controller.demands, table)
        else:
            rounds = ResilientRounds(collector, scheme)
        run_rounds(collector, rounds, period_s(scheme), log, ready)


def parse_scheme(text: str) -> ControllerScheme:
    """A scheme from its JSON. Raises InputError for a scheme that needs no controller."""
    scheme: object = TypeAdapter(SchemeSpec).validate_json(text)
    if not isinstance(scheme, TeScheme | ResilientScheme):
        raise InputError(f"scheme {text} needs no controller")
    return scheme


def main() -> None:
    """`python -m rocelab.runtime.controller.process LAB SCHEME_JSON PID_FILE READY_FD`: plan the
    fabric of the lab's record and be its controller."""
    # A lab's flows are placed in milliseconds as it is; compiling would delay the first round.
    os.environ[compiling.OFF] = "1"
    lab, scheme, *found_by = sys.argv[1:]
    record = read_record(lab)
    if record is None:
        raise InputError(f"lab {lab} is not up")
    with background.serving(*found_by) as ready:
        fabric = plan(recorded_spec(record.spec))
        run_controller(fabric, LabFiles(lab), parse_scheme(scheme), ready)


if __name__ == "__main__":
    main()
