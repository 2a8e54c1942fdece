"""Starts and ends the process of a lab's lossless classes, and makes its ports misbehave.

The process ends with the lab, as it is in a namespace of it. A fault writes what a port is to do
into the program's map of ports.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

from rocelab.base.files import write_file
from rocelab.dataplane.pfc.daemon import Configuration
from rocelab.dataplane.pfc.maps import CLASSES, PauseMaps
from rocelab.dataplane.pfc.program import pins_folder
from rocelab.linux import background, pidfile, processes
from rocelab.planning.pauses import PausePlan
from rocelab.record import LabFiles

START_TIMEOUT_S = 60.0


def pid_file(files: LabFiles) -> Path:
    """The file that the process's supervisor locks while it lives."""
    return files.dataplane / "pfc-daemon"


def log_file(files: LabFiles) -> Path:
    """The process's standard error."""
    return files.dataplane / "pfc-daemon.log"


def journal_file(files: LabFiles) -> Path:
    """What the process did (`rocelab.dataplane.pfc.journal`)."""
    return files.dataplane / "pfc-journal"


def start(plan: PausePlan, files: LabFiles) -> None:
    """Start the process; nothing is paused before. Raises MachineError if it does not start."""
    file = files.dataplane / "pfc.json"
    write_file(file, json.dumps(configuration(plan, files)), 0o600)
    background.start(
        "the process of lossless classes",
        "rocelab.dataplane.pfc.daemon",
        (str(pins_folder(files)), str(file), str(journal_file(files))),
        pid_file=pid_file(files),
        log=log_file(files),
        netns=files.netns_of(plan.ports[0].node),
        timeout_s=START_TIMEOUT_S,
    )


def is_alive(files: LabFiles) -> bool:
    """Whether the process and its supervisor run, and no signal has stopped them: without it
    nothing pauses."""
    supervisor = pidfile.holder(pid_file(files))
    if supervisor is None:
        return False
    return not any(map(processes.is_stopped, (supervisor, *processes.direct_children(supervisor))))


def configuration(plan: PausePlan, files: LabFiles) -> Configuration:
    """What the process reads."""
    watchdog = plan.pfc.watchdog
    return {
        "classes": list(plan.pfc.classes),
        "watchdog": None
        if watchdog is None
        else (
            round(watchdog.detection * plan.dilation),
            round(watchdog.restoration * plan.dilation),
            watchdog.action == "drop",
        ),
        "nodes": {
            node: {
                "netns": str(files.netns_of(node)),
                "ports": {
                    str(port.slot): {
                        "interface": port.port.interface,
                        "mac": port.port.mac.replace(":", ""),
                        "pauser": (port.peer, port.delay_ns, port.quantum_ns, port.is_nic),
                    }
                    for port in ports
                },
            }
            for node, ports in plan.ports_of.items()
        },
    }


def storm(files: LabFiles, slot: int, classes: int) -> None:
    """Have a port pause these classes (a bit each) until it is told 0. Raises BpfError."""
    with PauseMaps(pins_folder(files), writable=True) as maps:
        maps.ports.set(slot, "storms", classes)
    pidfile.tell(pid_file(files), signal.SIGHUP)


def set_pause_obedience(files: LabFiles, slot: int, *, deaf: bool) -> None:
    """Have a port ignore pauses, or obey them again. Raises BpfError."""
    with PauseMaps(pins_folder(files), writable=True) as maps:
        for traffic_class in range(CLASSES):
            maps.egresses.set(slot * CLASSES + traffic_class, "deaf", deaf)


def drain(files: LabFiles, slot: int, bytes_per_s: int) -> None:
    """Have a NIC's host take packets at this rate; 0: as they come. Raises BpfError."""
    with PauseMaps(pins_folder(files), writable=True) as maps:
        if not maps.ports.get(slot, "drain"):
            maps.ports.set(slot, "held", 0)  # all was taken as it came
        maps.ports.set(slot, "drain", bytes_per_s)
        maps.evaluate()
