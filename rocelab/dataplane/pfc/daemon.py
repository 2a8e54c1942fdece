"""The process that sends a lab's pause frames and moves its gates.

`python -m rocelab.dataplane.pfc.daemon PINS CONFIGURATION JOURNAL PID_FILE READY_FD`. It runs in
the namespace of one of the lab's nodes, and has sockets in all. It has a supervisor, which opens
all gates when it ends, however it does, and starts it again: no class stays paused by a process
that is gone. If the supervisor is killed, it opens them itself and ends. If both are killed at
once, a third process, the guard, opens them: it waits for the end of a pipe that only these two
hold open. The kernel has no gate that opens by itself, so killing all three at once leaves gates
closed.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypedDict

from rocelab.dataplane.pfc import gates
from rocelab.dataplane.pfc.journal import PauseJournal
from rocelab.dataplane.pfc.maps import CLASSES, PauseMaps
from rocelab.dataplane.pfc.pauser import NEVER_NS, Pauser, PauserPort, Watchdog
from rocelab.linux import namespaces
from rocelab.linux.background import serving
from rocelab.linux.carrier import CarrierWatch
from rocelab.linux.priority import run_first, set_timer_slack
from rocelab.wire import pauseframe

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_SO_PRIORITY = 12
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RESTART_S = 0.1
"""How long a process that failed waits until it is started again."""

GUARD = "pfc-guard"
"""The guard's name in /proc/PID/comm; it has the supervisor's command line."""


class PortFields(TypedDict):
    """A port in the configuration; `pauser`: the fields of `PauserPort`."""

    interface: str
    mac: str
    pauser: tuple[int, int, float, bool]


class NodeFields(TypedDict):
    """A node: the path of its namespace, and its ports by slot."""

    netns: str
    ports: dict[str, PortFields]


class Configuration(TypedDict):
    """What `rocelab.dataplane.pfc.control` writes for this process; `watchdog`: the fields of
    `Watchdog`."""

    classes: list[int]
    watchdog: tuple[int, int, bool] | None
    nodes: dict[str, NodeFields]


class DaemonPort:
    """A port's sockets: for pause frames, and for kicks, beside its node's for gates."""

    def __init__(self, fields: PortFields, channel: socket.socket) -> None:
        """In the port's namespace. Raises OSError."""
        self.interface = fields["interface"]
        self._index = socket.if_nametoindex(self.interface)
        self._mac = bytes.fromhex(fields["mac"])
        self._channel = channel
        self._frames = _raw(self.interface)
        self._kicks = _raw(self.interface)
        self._kicks.setsockopt(socket.SOL_SOCKET, _SO_PRIORITY, gates.KICK_PRIORITY)
        self._moves: dict[tuple[int, bool], bytes] = {}

    def pause(self, traffic_class: int, quanta: int) -> bool:
        """Send a pause frame; False if the link is down."""
        try:
            self._frames.send(pauseframe.encode(self._mac, {traffic_class: quanta}))
        except OSError:
            return False
        return True

    def move(self, traffic_class: int, *, closed: bool) -> None:
        """Close or open the gate of a class."""
        key = traffic_class, closed
        if key not in self._moves:
            self._moves[key] = gates.moved(traffic_class, self._index, closed=closed)
        self._channel.send(self._moves[key])
        if not closed:
            # Refused by design, and on a link that is down there is nothing to send.
            with suppress(OSError):
                self._kicks.send(gates.KICK_FRAME)


class LabWire:
    """The ports of a lab, and the program's maps."""

    def __init__(self, configuration: Configuration, maps: PauseMaps) -> None:
        self._maps = maps
        self.ports: dict[int, DaemonPort] = {}
        self.slots: dict[tuple[str, str], int] = {}
        self.carriers: dict[str, CarrierWatch] = {}
        home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for node, fields in configuration["nodes"].items():
                namespaces.enter(Path(fields["netns"]))
                self._open(node, fields["ports"])
        finally:
            namespaces.enter(home)
            os.close(home)

    def _open(self, node: str, ports: dict[str, PortFields]) -> None:
        channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        channel.bind((0, 0))
        self.carriers[node] = CarrierWatch()
        for slot, fields in ports.items():
            port = self.ports[int(slot)] = DaemonPort(fields, channel)
            self.slots[node, port.interface] = int(slot)

    def pause(self, slot: int, traffic_class: int, quanta: int) -> bool:
        return self.ports[slot].pause(traffic_class, quanta)

    def move(self, slot: int, traffic_class: int, *, closed: bool) -> None:
        index = slot * CLASSES + traffic_class
        if not closed:
            self._maps.egresses.set(index, "gated", 0)
        self.ports[slot].move(traffic_class, closed=closed)
        if closed:
            self._maps.egresses.set(index, "gated", 1)

    def evaluate(self) -> None:
        self._maps.evaluate()


def _raw(interface: str) -> socket.socket:
    """A socket that sends frames, and receives none."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    opened.bind((interface, 0))
    opened.setblocking(False)
    return opened


def work(configuration: Configuration, wire: LabWire, maps: PauseMaps, journal: Path) -> None:
    """Send pauses and move gates until SIGTERM; signals are blocked when it is called."""
    wakeup = _wakeup(signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    set_timer_slack()
    run_first(before_senders=True)
    gc.disable()  # nothing here makes reference cycles, and a collection would delay pauses
    noted = PauseJournal(journal)
    pauser = Pauser(
        _ports(configuration),
        configuration["classes"],
        _watchdog(configuration),
        wire,
        (maps.ports, maps.ingresses, maps.egresses),
        noted,
    )
    with select.epoll() as ready, maps.events() as events:
        for descriptor in (events.fileno(), wakeup):
            ready.register(descriptor, select.EPOLLIN)
        watches = {watch.fileno(): (node, watch) for node, watch in wire.carriers.items()}
        for descriptor in watches:
            ready.register(descriptor, select.EPOLLIN)
        for _ in events.read():
            pass  # of a time before: what still holds is announced anew
        pauser.begin(time.monotonic_ns())
        while True:
            for event in events.read():
                pauser.on_event(event, time.monotonic_ns())
            pauser.run(time.monotonic_ns())
            noted.flush()
            if noted.waiting != maps.ports.get(0, "unreported"):
                maps.ports.set(0, "unreported", noted.waiting)
            wait_ns = pauser.next_ns - time.monotonic_ns()
            timeout = None if pauser.next_ns == NEVER_NS else max(0, wait_ns) / 1e9
            # epoll itself counts in milliseconds.
            if not select.select([ready], [], [], timeout)[0]:
                continue
            for descriptor, _ in ready.poll(0):
                if descriptor in watches:
                    node, watch = watches[descriptor]
                    for interface, present in watch.read().items():
                        if (slot := wire.slots.get((node, interface))) is not None:
                            pauser.on_carrier(slot, present, time.monotonic_ns())
                elif descriptor == wakeup:
                    if signal.SIGTERM in os.read(wakeup, 64):
                        return
                    pauser.announce(time.monotonic_ns())


def _ports(configuration: Configuration) -> dict[int, PauserPort]:
    return {
        int(slot): PauserPort(*fields["pauser"])
        for node in configuration["nodes"].values()
        for slot, fields in node["ports"].items()
    }


def _watchdog(configuration: Configuration) -> Watchdog | None:
    fields = configuration["watchdog"]
    return None if fields is None else Watchdog(*fields)


def _open_all(wire: LabWire, maps: PauseMaps, classes: list[int]) -> None:
    for slot in wire.ports:
        for traffic_class in classes:
            for word in ("discards", "freed"):
                maps.egresses.set(slot * CLASSES + traffic_class, word, 0)
            with suppress(OSError):
                wire.move(slot, traffic_class, closed=False)


def _wakeup(*signals: signal.Signals) -> int:
    """A descriptor that these signals make readable, each a byte."""
    wakeup, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.set_wakeup_fd(tells)
    for number in signals:
        signal.signal(number, lambda *_: None)
    return wakeup


def supervise(configuration: Configuration, wire: LabWire, maps: PauseMaps, journal: Path) -> None:
    """Run `work` in a child and a guard beside it, anew whenever one ends, until SIGTERM."""
    pid = os.getpid()
    classes = configuration["classes"]
    held = os.pipe()
    child = guard = 0
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        if child:
            os.kill(child, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, lambda *_: os.kill(child, signal.SIGHUP) if child else None)
    while True:
        # Blocked until each of the two processes can handle them: none is lost in between.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        if stopped and not child:
            return
        if not guard and not (guard := os.fork()):
            _guard(held, wire, maps, classes)
        if not child and not (child := os.fork()):
            _work_as_child(pid, configuration, wire, maps, journal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        ended, _ = os.wait()
        if ended == guard:
            guard = 0
        else:
            child = 0
            _open_all(wire, maps, classes)


def _guard(held: tuple[int, int], wire: LabWire, maps: PauseMaps, classes: list[int]) -> NoReturn:
    """Open all gates when no process holds the other end of the pipe `held` any more."""
    ended, holding = held
    try:
        ctypes.CDLL(None).prctl(_PR_SET_NAME, GUARD.encode())
        os.setsid()  # not in the process group of the others, which may be killed as one
        os.close(holding)
        os.read(ended, 1)
        _open_all(wire, maps, classes)
    finally:
        os._exit(0)


def _work_as_child(
    parent: int, configuration: Configuration, wire: LabWire, maps: PauseMaps, journal: Path
) -> NoReturn:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        if os.getppid() == parent:
            work(configuration, wire, maps, journal)
    except BaseException:
        traceback.print_exc()
        time.sleep(RESTART_S)
    finally:
        _open_all(wire, maps, configuration["classes"])
        os._exit(0)


def main() -> None:
    """`python -m rocelab.dataplane.pfc.daemon PINS CONFIGURATION JOURNAL PID_FILE READY_FD`."""
    # Until there are handlers, SIGHUP would end this process.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    pins, file, journal, *found_by = sys.argv[1:]
    configuration = json.loads(Path(file).read_text())
    with serving(*found_by) as ready, PauseMaps(Path(pins), writable=True) as maps:
        wire = LabWire(configuration, maps)
        ready()
        supervise(configuration, wire, maps, Path(journal))


if __name__ == "__main__":
    main()
