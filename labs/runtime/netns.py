"""The runtime `netns`: every switch and server a network namespace, every link a veth pair.

Brings a `Fabric` up in stages (namespaces, links, daemons, carrier, convergence) and down again.
The record comes before all else (`labs.runtime.record`); a namespace lives by its mount in the
lab's own tmpfs, so taking that one mount away lets every namespace, interface and qdisc go.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from labs.errors import InputError, MachineError
from labs.plan.fabric import Fabric, Link
from labs.render import frr
from labs.runtime import (
    canary,
    daemons,
    kernel,
    namespaces,
    netlink,
    offloads,
    processes,
    wiring,
)
from labs.runtime.base import Counters, Progress, ProgressSink, no_progress
from labs.runtime.convergence import ConvergenceWait, convergence_timeout_s, wait_for_bfd
from labs.runtime.fibwatch import FibWatch
from labs.runtime.queues.engine import SwitchQueues
from labs.runtime.queues.engine import remove as remove_queues
from labs.runtime.record import (
    LabFiles,
    Record,
    State,
    add_left_outside,
    locked,
    read_left_outside,
    remove_files,
    write_record,
)
from labs.runtime.steering import Steering

RUNTIME = "netns"
CLEANUP_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class NetnsNode:
    """A node that is a namespace."""

    name: str
    files: LabFiles

    @property
    def netns(self) -> Path:
        return self.files.netns_of(self.name)

    @property
    def frr(self) -> daemons.FrrFiles:
        return daemons.FrrFiles(self.files.node(self.name))

    def exec(
        self, argv: Sequence[str], *, timeout_s: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` in the node. Raises InputError when there is no such command."""

        def run() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                argv, capture_output=True, text=True, timeout=timeout_s, check=False
            )

        try:
            return namespaces.inside(self.netns, run)
        except FileNotFoundError as error:
            if error.filename != argv[0]:
                raise
            raise InputError(f"there is no command {argv[0]!r} on this machine") from None

    def daemons(self) -> dict[str, int]:
        alive = {name: daemons.running_pid(name, self.frr) for name in daemons.DAEMONS}
        return {name: pid for name, pid in alive.items() if pid is not None}

    def processes(self) -> list[int]:
        """Ids of all processes that run in the node, its daemons and whatever was started."""
        return namespaces.processes_in([self.netns.stat().st_ino])

    def kill_daemons(self, names: Iterable[str]) -> None:
        """SIGKILL these routing daemons, where they run, and return when they are gone."""
        alive = self.daemons()
        doomed = [alive[name] for name in names if name in alive]
        folders = daemons.crash_folders_of(doomed)
        processes.kill_and_wait(doomed)
        daemons.remove_crash_folders(folders)

    def start_daemons(self, names: Iterable[str]) -> None:
        """Start those of these daemons that do not run, in this order, as `up` does.

        zebra takes no routes from a bgpd that outlived it (FRR 8.4: bgpd comes back after 10 s and
        announces only what changes then), so that without zebra all are ended first, as watchfrr
        does. Raises MachineError when one does not start.
        """
        if "zebra" not in self.daemons():
            self.kill_daemons(daemons.DAEMONS)
        for name in names:
            if name not in self.daemons():
                self._start_daemon(name)

    def _start_daemon(self, name: str) -> None:
        def start() -> None:
            descriptor = os.open(self.netns, os.O_RDONLY | os.O_CLOEXEC)
            try:
                daemons.start_daemon(name, self.frr, descriptor)
            finally:
                os.close(descriptor)

        try:
            namespaces.on_own_thread(start)
        except MachineError:
            # Whoever was killed while starting it may have started it all the same.
            if name not in self.daemons():
                raise

    def send(self, messages: Sequence[bytes]) -> None:
        """Ask all these of the node's kernel in one batch (rtnetlink). Raises OSError."""

        def send() -> None:
            with netlink.open_socket() as channel:
                netlink.send_batch(channel, messages)

        namespaces.inside(self.netns, send)


@dataclass(frozen=True, slots=True)
class NetnsLink:
    """A link that is a veth pair; its state is that of its lower end."""

    link: Link
    files: LabFiles
    indexes: Mapping[tuple[str, str], int]

    @property
    def name(self) -> str:
        return self.link.name

    def down(self) -> None:
        """Take the lower end down: both ends lose carrier at once."""
        index = self.indexes[self.link.a.node, self.link.a.interface]
        self._send([wiring.set_up(index, up=False)])

    def up(self) -> None:
        """Give the carrier back."""
        self._send(wiring.bring_up(self.link, self.link.a.node, self.indexes))

    def _send(self, messages: Sequence[bytes]) -> None:
        NetnsNode(self.link.a.node, self.files).send(messages)

    def counters(self) -> dict[str, Counters]:
        ports = (self.link.a, self.link.b)
        read = {
            port.node: namespaces.inside(self.files.netns_of(port.node), read_counters)
            for port in ports
        }
        return {port.node: read[port.node][port.interface] for port in ports}


def read_counters() -> dict[str, Counters]:
    """Counters of every interface of the calling thread's namespace, by name (/proc/net/dev)."""
    found = {}
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]:
        name, _, text = line.partition(":")
        field = [int(word) for word in text.split()]
        found[name.strip()] = Counters(
            rx_packets=field[1],
            rx_bytes=field[0],
            tx_packets=field[9],
            tx_bytes=field[8],
            rx_dropped=field[3],
            tx_dropped=field[11],
        )
    return found


class NetnsRuntime:
    """Realises a fabric in namespaces of this machine."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.files = LabFiles(fabric.name)
        self.stage_seconds: dict[str, float] = {}
        self.notes: tuple[str, ...] = ()

    @cached_property
    def _indexes(self) -> dict[tuple[str, str], int]:
        return wiring.interface_indexes(self.fabric)

    def node(self, name: str) -> NetnsNode:
        """Raises KeyError when the fabric has no such node."""
        return NetnsNode(self.fabric.node(name).name, self.files)

    def link(self, name: str) -> NetnsLink:
        """Raises KeyError when the fabric has no such link."""
        link = self.fabric.link_by_name[name]
        return NetnsLink(link, self.files, self._indexes)

    def up(self, progress: ProgressSink = no_progress) -> None:
        """Create everything and return when every FIB is complete.

        Raises MachineError when this machine can not, ExpectationError when routing does not
        converge in time; either way nothing is left behind. Raises InputError when the lab is up
        already or another command works on it.
        """
        if os.geteuid() != 0:
            raise MachineError("a lab needs root", "run it with sudo")
        daemons.frr_folder()
        with locked(self.fabric.name) as files:
            if files.root.exists():
                raise InputError(
                    f"lab {self.fabric.name} is up or was left behind",
                    hint=f"take it down with `rocelab down {self.fabric.name}`",
                )
            try:
                self._write_record(State.STARTING)
                self._build(progress)
                self._write_record(State.RUNNING)
            except BaseException:
                tear_down(files)
                raise

    def down(self, progress: ProgressSink = no_progress) -> None:
        """Remove everything that `up` created. Idempotent."""
        take_down(self.fabric.name, progress)

    def _write_record(self, state: State) -> None:
        spec = self.fabric.spec.model_dump(mode="json")
        now_s = time.clock_gettime(time.CLOCK_REALTIME)
        write_record(
            self.files,
            Record(self.fabric.name, RUNTIME, state, now_s, version("rocelab"), spec),
        )

    def _build(self, progress: ProgressSink) -> None:
        _raise_descriptor_limit(3 * len(self.fabric.nodes) + 256)
        with self._stage("namespaces"):
            descriptors = self._make_namespaces(progress)
        try:
            with self._stage("links"), SwitchQueues(self.fabric, self.files) as queues:
                self.notes = (queues.note,) if queues.note else ()
                self._make_links(descriptors, queues, progress)
            switches = {node.name: descriptors[node.name] for node in self.fabric.switches}
            with FibWatch(switches) as watch:
                with self._stage("daemons"):
                    self._start_daemons(descriptors, progress)
                with self._stage("convergence"):
                    wait = ConvergenceWait(self.fabric, self.node)
                    wait.run(watch, convergence_timeout_s(self.fabric), progress)
                    self._end_start_up()
                    wait_for_bfd(
                        self.fabric, self.node, convergence_timeout_s(self.fabric), progress
                    )
            if self.fabric.spec.scheme.kind != "ecmp":
                with self._stage("scheme"):
                    Steering(self.fabric, self.files).set_scheme(self.fabric.spec.scheme, progress)
        finally:
            for descriptor in descriptors.values():
                os.close(descriptor)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.stage_seconds[name] = time.monotonic() - started

    def _make_namespaces(self, progress: ProgressSink) -> dict[str, int]:
        self.files.netns.mkdir(parents=True)
        self.files.nodes.mkdir()
        namespaces.mount_tmpfs(self.files.netns)
        nodes = self.fabric.nodes
        descriptors: dict[str, int] = {}

        def make_all() -> None:
            for done, node in enumerate(nodes, start=1):
                descriptors[node.name] = namespaces.create(self.files.netns_of(node.name))
                kernel.write_settings(kernel.node_settings(self.fabric, node))
                progress(Progress("namespaces", done, len(nodes)))

        namespaces.on_own_thread(make_all)
        return descriptors

    def _make_links(
        self, descriptors: Mapping[str, int], queues: SwitchQueues, progress: ProgressSink
    ) -> None:
        """Every veth pair, queue and address, and upper ends up: carrier is one step away."""
        fabric, links, slots = self.fabric, self.fabric.links, queues.slots
        with netlink.open_socket() as channel:
            step = 256
            for start in range(0, len(links), step):
                batch = links[start : start + step]
                netlink.send_batch(
                    channel, wiring.create_links(batch, self._indexes, descriptors, slots)
                )
                progress(Progress("links", min(start + step, len(links)), len(links)))

        def configure(name: str) -> None:
            node = fabric.node(name)
            ready = fabric.downlinks(name) if node.is_switch else fabric.links_of[name]
            messages = wiring.configure_node(fabric, node, self._indexes)
            messages += queues.messages_of(name, self._indexes)
            for link in ready:
                messages += wiring.bring_up(link, name, self._indexes)
            if not node.is_switch:
                messages.append(wiring.default_route(fabric, name, self._indexes))
            # The answers to one batch of small messages wait together.
            with netlink.open_socket(receive_buffer_bytes=8 << 20) as channel:
                netlink.send_batch(channel, messages)
            offloads.keep_order(fabric, name, slots)

        namespaces.inside_each(descriptors, configure)

    def _start_daemons(self, descriptors: Mapping[str, int], progress: ProgressSink) -> None:
        fabric = self.fabric
        names = frr.daemons(fabric)

        def start(node: str) -> None:
            files = self.node(node).frr
            configuration = frr.frr_configuration(
                fabric, fabric.node(node), files.folder, interfaces=False
            )
            daemons.write_configuration(files, configuration)
            for daemon in names:
                niceness = start_niceness(daemon, leaf=fabric.node(node).is_leaf)
                daemons.start_daemon(daemon, files, descriptors[node], niceness)
            self._raise_uplinks(node)

        total = len(fabric.switches)
        from_the_top = sorted(fabric.switches, key=lambda node: -node.role.tier)
        with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as pool:
            starts = [pool.submit(start, node.name) for node in from_the_top]
            for done, outcome in enumerate(as_completed(starts), start=1):
                try:
                    outcome.result()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
                progress(Progress("daemons", done, total))

    def _end_start_up(self) -> None:
        """Give all daemons equal priority again, before anything is measured."""
        for node in self.fabric.switches:
            for pid in self.node(node.name).daemons().values():
                daemons.set_niceness(pid, 0)

    def _raise_uplinks(self, node: str) -> None:
        """Give a switch's uplinks carrier. The calling thread must be inside its namespace."""
        messages = []
        for link in self.fabric.uplinks(node):
            messages += wiring.bring_up(link, node, self._indexes)
        with netlink.open_socket() as channel:
            netlink.send_batch(channel, messages)


def start_niceness(daemon: str, *, leaf: bool) -> int:
    """How far a daemon stands back while the fabric starts.

    The work of starting has an order that costs least: upper tiers announce, then the lowest
    decides, then zebras install. Each stage that runs before the one above has finished does its
    work again for every path that arrives later: an 18-way route would be installed up to 18 times.
    """
    if not leaf:
        return 0
    return 19 if daemon == "zebra" else 10


def take_down(lab: str, progress: ProgressSink = no_progress) -> None:
    """Remove whatever the lab of that name owns, from its record alone. Idempotent.

    Raises InputError when another command works on the lab.
    """
    with locked(lab) as files:
        tear_down(files, progress)


def tear_down(files: LabFiles, progress: ProgressSink = no_progress) -> None:
    """Kill what runs in the lab's namespaces and let the namespaces go. The lock must be held."""
    inodes = _namespace_inodes(files)
    killed = 0
    while doomed := namespaces.processes_in(inodes):
        add_left_outside(files, daemons.crash_folders_of(doomed))
        processes.kill_and_wait(doomed)
        killed += len(doomed)
        progress(Progress("processes", killed, killed))
    outside = read_left_outside(files) | daemons.recorded_crash_folders(files.nodes)
    daemons.remove_crash_folders(outside)
    remove_queues(files)
    remove_files(files)
    if inodes:
        progress(Progress("interfaces", 0, 1))
        canary.await_cleanup(CLEANUP_TIMEOUT_S)
        progress(Progress("interfaces", 1, 1))


def _namespace_inodes(files: LabFiles) -> list[int]:
    if not os.path.ismount(files.netns):
        return []
    tmpfs = files.netns.stat().st_dev
    mounts = [entry.stat() for entry in files.netns.iterdir()]
    return [mount.st_ino for mount in mounts if mount.st_dev != tmpfs]


def _raise_descriptor_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise MachineError(
            f"this fabric needs {wanted} open files and the limit is {hard}",
            "raise it with `ulimit -Hn`",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
