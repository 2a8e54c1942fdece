"""Measures one fabric: rocelab from nothing to converged and down again, and Mininet, which wires
the same fabric and starts the same daemons with the same configurations."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bench.campaign.guard import busy_s
from rocelab import ExpectationError, Fabric, Lab, MachineError, RunningLab
from rocelab import RouteWatch as FibWatch
from rocelab.base.progress import no_progress
from rocelab.faults.running import release
from rocelab.lab.adoption.adopt import adopt
from rocelab.lab.adoption.containers import find_containers
from rocelab.lab.convergence import ConvergenceWait, convergence_timeout_s
from rocelab.lab.engine import find_engine
from rocelab.lab.image import built_image
from rocelab.lab.providers import provider_of
from rocelab.labfile.catalog import find_lab
from rocelab.linux import mounts, namespaces
from rocelab.linux.fib import read_fib
from rocelab.observe.timeline import expected_widths, narrow_routes
from rocelab.planning.settings import node_settings
from rocelab.render.containerlab import topology_file
from rocelab.render.files import write_containerlab
from rocelab.routing import daemons
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr.installation import find_installation
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.frr.stack import FRR
from rocelab.routing.stack import Installation

SYSTEM_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True, slots=True)
class Up:
    """One start and stop. Wiring is namespaces, settings, links and addresses; memory is the sum
    of the daemons' proportional set sizes, and the decrease of the machine's MemAvailable."""

    up_s: float
    wiring_s: float
    stages_s: Mapping[str, float]
    down_s: float
    daemons_pss_bytes: int
    machine_lost_bytes: int
    machine_cpu_s: float
    switches: int

    @classmethod
    def of(cls, samples: Iterable[Mapping[str, Any]]) -> list[Up]:
        """What was measured, as data has it."""
        return [cls(**sample) for sample in samples]


@dataclass(frozen=True, slots=True)
class _Before:
    available_bytes: int
    busy_s: float

    @classmethod
    def now(cls) -> _Before:
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable"))
        return cls(int(available.split()[1]) * 1024, busy_s())


def measure_rocelab(
    lab_name: str,
    kind: str = "netns",
    frr_memory: FrrMemory = FrrMemory.LEAN,
) -> Up:
    """Bring a lab of the catalog or of a file up on a runtime and take it down."""
    planned = Lab.planned(lab_name, provider_of(kind, frr_memory=frr_memory))
    before = _Before.now()
    started = time.monotonic()
    lab = planned.up()
    up_s = time.monotonic() - started
    after = _Before.now()
    pss = _daemons_pss_bytes(lab)
    started = time.monotonic()
    lab.down()
    return Up(
        up_s=up_s,
        wiring_s=lab.stage_seconds["nodes"] + lab.stage_seconds["links"],
        stages_s=dict(lab.stage_seconds),
        down_s=time.monotonic() - started,
        daemons_pss_bytes=pss,
        machine_lost_bytes=before.available_bytes - after.available_bytes,
        machine_cpu_s=after.busy_s - before.busy_s,
        switches=len(lab.fabric.switches),
    )


def measure_adopted(lab_name: str) -> Up:
    """Bring a catalog lab up as it is rendered, by `containerlab deploy`, and take it down."""
    before = _Before.now()
    with deployed_by_containerlab(find_lab(lab_name)) as stages:
        after = _Before.now()
        lab = RunningLab.open(adopt(lab_name).name)
        pss = _daemons_pss_bytes(lab)
        release(lab.name)
        started = time.monotonic()
    return Up(
        up_s=sum(stages.values()),
        wiring_s=stages["nodes"],
        stages_s=stages,
        down_s=time.monotonic() - started,
        daemons_pss_bytes=pss,
        machine_lost_bytes=before.available_bytes - after.available_bytes,
        machine_cpu_s=after.busy_s - before.busy_s,
        switches=len(lab.fabric.switches),
    )


@contextmanager
def deployed_by_containerlab(lab_file: Path) -> Iterator[Mapping[str, float]]:
    """A lab as it is rendered, deployed by containerlab itself, with every route at full width; the
    seconds of each stage. Destroyed at the end."""
    fabric = Lab.planned(lab_file).fabric
    image = built_image(find_engine(), no_progress)
    with tempfile.TemporaryDirectory(prefix="rocelab-bench-") as scratch:
        started = time.monotonic()
        write_containerlab(fabric, Path(scratch, "lab"), image)
        topology = Path(scratch, "lab", topology_file(fabric.name))
        rendered = time.monotonic()
        try:
            _containerlab("deploy", "-t", topology)
            deployed = time.monotonic()
            _wait_until_whole(fabric)
            yield {
                "render": rendered - started,
                "nodes": deployed - rendered,
                "convergence": time.monotonic() - deployed,
            }
        finally:
            _containerlab("destroy", "-t", topology, "--cleanup")


def _containerlab(*arguments: str | Path) -> None:
    command = ["containerlab", "--timeout", "10m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MachineError(f"containerlab {arguments[0]} failed: {done.stderr.strip()[-2000:]}")


def _wait_until_whole(fabric: Fabric) -> None:
    netns_of = {container.name: container.netns for container in find_containers(fabric.name)[2]}
    expected = expected_widths(fabric)
    deadline = time.monotonic() + convergence_timeout_s(fabric)
    while missing := narrow_routes(
        expected, {node.name: read_fib(netns_of[node.name]) for node in fabric.switches}
    ):
        if time.monotonic() > deadline:
            raise ExpectationError(f"containerlab's lab {fabric.name} lacks {missing[0]}")
        time.sleep(0.1)


def measure_mininet(lab_name: str, *, with_daemons: bool) -> Up:
    """Measure the same fabric with Mininet's API, up to the same condition: every FIB complete.

    Without daemons only wiring and stopping are measured.
    """
    lab = Lab.planned(lab_name).unstarted()
    fabric = lab.fabric
    installation = find_installation()
    # Of /run, daemons see the folder of their own switch and nothing else.
    with (
        tempfile.TemporaryDirectory(prefix="rocelab-bench-", dir=mounts.RUN) as scratch,
        _views(Path(scratch)) as views,
    ):
        Path(scratch).chmod(0o755)
        folders = {node.name: DaemonFiles(Path(scratch, node.name)) for node in fabric.switches}
        for node in fabric.switches:
            files = folders[node.name]
            names = installation.daemons(FRR.daemons(fabric, node))
            configuration = FRR.configuration(
                fabric, node, names, files.daemon_folder, interfaces=False
            )
            shell = installation.shell(files)
            daemons.write_configuration(installation, files, configuration, FRR.shell, shell)
            daemons.keep_view(installation, files, views / node.name)
        before = _Before.now()
        script = str(Path(__file__).with_name("mininet_fabric.py"))
        with subprocess.Popen(
            [SYSTEM_PYTHON, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            pipes = (process.stdin, process.stdout)
            wired = _ask(pipes, json.dumps(_document(lab, installation, folders, views)))
            stages = {"wiring": wired["seconds"]}
            pss = 0
            if with_daemons:
                try:
                    stages |= _start_and_wait(lab, wired["pids"], pipes)
                except BaseException:
                    _kill_daemons(lab, folders, wired["pids"])
                    raise
                pids = _running(lab, folders, wired["pids"])
                pss = sum(_pss_bytes(pid) for pid in pids)
            after = _Before.now()
            started = time.monotonic()
            _kill_daemons(lab, folders, wired["pids"])
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
        switches=len(lab.fabric.switches),
    )


@contextmanager
def _views(scratch: Path) -> Iterator[Path]:
    """A folder for the daemons' mount namespaces."""
    views = scratch / "mounts"
    views.mkdir()
    namespaces.mount_tmpfs(views)
    try:
        yield views
    finally:
        namespaces.detach_mount(views)


def _start_and_wait(
    lab: RunningLab, pids: Mapping[str, int], pipes: tuple[IO[str], IO[str]]
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


def _running(
    lab: RunningLab, folders: Mapping[str, DaemonFiles], shells: Mapping[str, int]
) -> list[int]:
    """The daemons that run; `shells` is a process of each node."""
    pids = (
        daemons.running_pid(daemon, files, Path(f"/proc/{shells[node]}/ns/net"))
        for node, files in folders.items()
        for daemon in FRR.programs
    )
    return [pid for pid in pids if pid is not None]


def _kill_daemons(
    lab: RunningLab, folders: Mapping[str, DaemonFiles], shells: Mapping[str, int]
) -> None:
    """End the daemons started here, because Mininet ends only a node's shell and not its
    children."""
    pids = _running(lab, folders, shells)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _ask(pipes: tuple[IO[str], IO[str]], line: str) -> dict[str, Any]:
    pipes[0].write(line + "\n")
    pipes[0].flush()
    answer: dict[str, Any] = json.loads(pipes[1].readline())
    return answer


def _document(
    lab: RunningLab,
    installation: Installation,
    folders: Mapping[str, DaemonFiles],
    views: Path,
) -> dict[str, Any]:
    fabric = lab.fabric
    # Mininet's hosts have copies of this mount namespace, in which pinned ones are left out
    # (fs/namespace.c, copy_tree).
    pinned = f"/proc/{os.getpid()}/root{views}"
    return {
        "nodes": [
            {
                "name": node.name,
                "loopback": node.loopback,
                "sysctls": dict(node_settings(fabric, node)),
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
                "command": f"nsenter --mount={pinned}/{name} "
                + " ".join(installation.command(daemon, files)),
            }
            for name, files in folders.items()
            for daemon in installation.daemons(FRR.daemons(fabric, fabric.node(name)))
        ],
    }


def _daemons_pss_bytes(lab: RunningLab) -> int:
    return sum(
        _pss_bytes(pid)
        for node in lab.fabric.switches
        for pid in lab.node(node.name).daemons().values()
    )


def _pss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
