"""What is measured of one fabric: rocelab from nothing to converged and down again, and Mininet
wiring the same fabric and starting the same daemons with the same configurations."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from labs.lab import Lab
from labs.render import frr
from labs.runtime import daemons, kernel
from labs.runtime.base import no_progress
from labs.runtime.convergence import ConvergenceWait, convergence_timeout_s
from labs.runtime.fibwatch import FibWatch
from labs.runtime.housing import RuntimeKind, housing_of

SYSTEM_PYTHON = "/usr/bin/python3"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Up:
    """One start and stop. Wiring is namespaces, settings, links and addresses; memory is the sum
    of the daemons' proportional set sizes, and what the machine's MemAvailable lost."""

    up_s: float
    wiring_s: float
    stages_s: Mapping[str, float]
    down_s: float
    daemons_pss_bytes: int
    machine_lost_bytes: int
    machine_cpu_s: float


@dataclass(frozen=True, slots=True)
class _Before:
    available_bytes: int
    busy_s: float

    @classmethod
    def now(cls) -> _Before:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        busy = sum(fields) - fields[3] - fields[4]
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable"))
        return cls(int(available.split()[1]) * 1024, busy / TICKS_PER_SECOND)


def spread(values: Sequence[float], form: str) -> str:
    """Median and range, for people."""
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):{form}} to {max(values):{form}})"


def measure_rocelab(lab_name: str, kind: RuntimeKind = RuntimeKind.NETNS) -> Up:
    """Bring a catalog lab up on a runtime and take it down."""
    lab = Lab.planned(lab_name, housing_of(kind))
    before = _Before.now()
    started = time.monotonic()
    stages = lab.up()
    up_s = time.monotonic() - started
    after = _Before.now()
    pss = sum(
        _pss_bytes(pid)
        for node in lab.fabric.switches
        for pid in lab.node(node.name).daemons().values()
    )
    started = time.monotonic()
    lab.down()
    return Up(
        up_s=up_s,
        wiring_s=stages["nodes"] + stages["links"],
        stages_s=stages,
        down_s=time.monotonic() - started,
        daemons_pss_bytes=pss,
        machine_lost_bytes=before.available_bytes - after.available_bytes,
        machine_cpu_s=after.busy_s - before.busy_s,
    )


def measure_mininet(lab_name: str, *, with_daemons: bool) -> Up:
    """The same fabric by Mininet's API, up to the same condition: every FIB complete.

    Without daemons only wiring and stopping are measured.
    """
    lab = Lab.planned(lab_name)
    fabric = lab.fabric
    with tempfile.TemporaryDirectory(prefix="rocelab-bench-") as scratch:
        Path(scratch).chmod(0o755)
        folders = {
            node.name: daemons.FrrFiles(Path(scratch, node.name)) for node in fabric.switches
        }
        for node in fabric.switches:
            files = folders[node.name]
            configuration = frr.frr_configuration(fabric, node, files.folder, interfaces=False)
            daemons.write_configuration(files, configuration, daemons.frr_owner())
        before = _Before.now()
        script = str(Path(__file__).with_name("mininet_fabric.py"))
        with subprocess.Popen(
            [SYSTEM_PYTHON, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            pipes = (process.stdin, process.stdout)
            wired = _ask(pipes, json.dumps(_document(lab, folders)))
            stages = {"wiring": wired["seconds"]}
            pss = 0
            if with_daemons:
                try:
                    stages |= _start_and_wait(lab, wired["pids"], pipes)
                except BaseException:
                    _kill_daemons(lab, folders)
                    raise
                pids = [
                    daemons.running_pid(name, files)
                    for files in folders.values()
                    for name in frr.daemons(fabric)
                ]
                pss = sum(_pss_bytes(pid) for pid in pids if pid is not None)
            after = _Before.now()
            started = time.monotonic()
            _kill_daemons(lab, folders)
            _ask(pipes, "stop")
            down_s = time.monotonic() - started
    return Up(
        up_s=sum(stages.values()),
        wiring_s=wired["seconds"],
        stages_s=stages,
        down_s=down_s,
        daemons_pss_bytes=pss,
        machine_lost_bytes=before.available_bytes - after.available_bytes,
        machine_cpu_s=after.busy_s - before.busy_s,
    )


def _start_and_wait(
    lab: Lab, pids: Mapping[str, int], pipes: tuple[IO[str], IO[str]]
) -> dict[str, float]:
    switches = [node.name for node in lab.fabric.switches]
    opened = {name: os.open(f"/proc/{pids[name]}/ns/net", os.O_RDONLY) for name in switches}
    try:
        with FibWatch(opened) as watch:
            started = time.monotonic()
            starting = _ask(pipes, "daemons")["seconds"]
            wait = ConvergenceWait(lab.fabric, lab.node)
            wait.run(watch, convergence_timeout_s(lab.fabric), no_progress)
            return {"daemons": starting, "convergence": time.monotonic() - started - starting}
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _kill_daemons(lab: Lab, folders: Mapping[str, daemons.FrrFiles]) -> None:
    """End the daemons started here: Mininet ends a node's shell and not what that started."""
    pids = [
        pid
        for files in folders.values()
        for daemon in frr.daemons(lab.fabric)
        if (pid := daemons.running_pid(daemon, files)) is not None
    ]
    left = daemons.crash_folders_of(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    daemons.remove_crash_folders(left)


def _ask(pipes: tuple[IO[str], IO[str]], line: str) -> dict[str, Any]:
    pipes[0].write(line + "\n")
    pipes[0].flush()
    answer: dict[str, Any] = json.loads(pipes[1].readline())
    return answer


def _document(lab: Lab, folders: Mapping[str, daemons.FrrFiles]) -> dict[str, Any]:
    fabric = lab.fabric
    return {
        "nodes": [
            {
                "name": node.name,
                "loopback": node.loopback,
                "sysctls": dict(kernel.node_settings(fabric, node)),
            }
            for node in fabric.nodes
        ],
        "links": [
            {
                end: {"node": port.node, "interface": port.interface, "address": port.address}
                for end, port in (("a", link.a), ("b", link.b))
            }
            for link in fabric.links
        ],
        "daemons": [
            {
                "node": name,
                "command": " ".join(daemons.start_arguments(program, daemon, files)),
            }
            for name, files in folders.items()
            for daemon in frr.daemons(fabric)
            for program in (str(daemons.frr_folder() / daemon),)
        ],
    }


def _pss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
