"""The process that `rocelab.dataplane.steering.controller` starts: runs the rounds inside a lab."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module

from pydantic import TypeAdapter

from rocelab.base import compiling
from rocelab.base.errors import InputError, PluginError
from rocelab.base.plugin_errors import plugins_named
from rocelab.dataplane.controller.collector import Collector
from rocelab.dataplane.controller.lab import ControlledLab, OneRound
from rocelab.dataplane.controller.loop import run_rounds
from rocelab.dataplane.controller.rounds import RoundLog
from rocelab.dataplane.steering import Steering
from rocelab.dataplane.steering.controller import ControllerFiles
from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.linux import background
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles, not_up, read_record


def run_controller(
    fabric: Fabric, files: LabFiles, scheme: SchemeSpec, ready: Callable[[], None]
) -> None:
    """Run the lab's controller until killed; call `ready` when it is at work. Raises InputError for
    a scheme without one."""
    period_s = scheme.controller_period_s
    if scheme.controller is None or period_s is None:
        raise InputError(f"scheme {scheme.kind} needs no controller")
    controller = ControllerFiles(files)
    log = RoundLog(controller.rounds)
    netns_of = {node.name: files.netns_of(node.name) for node in fabric.switches}
    module, name = scheme.controller.split(":")
    with Collector(netns_of, controller.demands) as collector:
        table = Steering(fabric, files)
        lab = ControlledLab(fabric, scheme, collector, controller.demands, table)
        one_round: OneRound = getattr(import_module(module), name)(lab)
        run_rounds(collector, one_round, period_s, log, ready)


def parse_scheme(text: str) -> SchemeSpec:
    """A scheme from its JSON."""
    scheme: SchemeSpec = TypeAdapter(SchemeSpec).validate_json(text)
    return scheme


def main() -> None:
    """`python -m rocelab.dataplane.controller.process LAB NETWORK SCHEME_JSON PID_FILE READY_FD`:
    plan the fabric of the lab's record and be its controller, or that of a network after the
    first."""
    # A lab's flows are placed in milliseconds as it is; compiling would delay the first round.
    os.environ[compiling.OFF] = "1"
    lab, network, scheme, *found_by = sys.argv[1:]
    record = read_record(lab)
    if record is None:
        raise not_up(lab)
    with background.serving(*found_by) as ready:
        fabric = plan(recorded_spec(record.spec, record.plugins)).network(network or None)
        try:
            with plugins_named():
                run_controller(fabric, LabFiles.of(fabric), parse_scheme(scheme), ready)
        except PluginError as error:
            raise SystemExit(error.message) from error


if __name__ == "__main__":
    main()
