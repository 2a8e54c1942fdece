"""The process that `rocelab.dataplane.steering.controller` starts: runs the rounds inside a lab."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from pydantic import TypeAdapter

from rocelab.base import compiling
from rocelab.base.errors import InputError
from rocelab.dataplane.controller.collector import Collector
from rocelab.dataplane.controller.loop import ResilientRounds, TeRounds, run_rounds
from rocelab.dataplane.controller.rounds import RoundLog
from rocelab.dataplane.steering import Steering
from rocelab.dataplane.steering.controller import ControllerFiles
from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.schemes.resilient import ResilientScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.labfile.schemes.te import TeScheme
from rocelab.linux import background
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles, not_up, read_record

ControllerScheme = TeScheme | ResilientScheme


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
        run_rounds(collector, rounds, scheme.controller_period_s, log, ready)


def parse_scheme(text: str) -> ControllerScheme:
    """A scheme from its JSON. Raises InputError for a scheme that needs no controller."""
    scheme: object = TypeAdapter(SchemeSpec).validate_json(text)
    if not isinstance(scheme, TeScheme | ResilientScheme):
        raise InputError(f"scheme {text} needs no controller")
    return scheme


def main() -> None:
    """`python -m rocelab.dataplane.controller.process LAB SCHEME_JSON PID_FILE READY_FD`: plan the
    fabric of the lab's record and be its controller."""
    # A lab's flows are placed in milliseconds as it is; compiling would delay the first round.
    os.environ[compiling.OFF] = "1"
    lab, scheme, *found_by = sys.argv[1:]
    record = read_record(lab)
    if record is None:
        raise not_up(lab)
    with background.serving(*found_by) as ready:
        fabric = plan(recorded_spec(record.spec))
        run_controller(fabric, LabFiles(lab), parse_scheme(scheme), ready)


if __name__ == "__main__":
    main()
