"""A lab with lossless classes, for tests: its gates and processes, and whether it is at rest."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from rocelab.dataplane.pfc import control
from rocelab.dataplane.pfc.daemon import GUARD
from rocelab.dataplane.pfc.maps import CLASSES, PauseMaps
from rocelab.dataplane.pfc.program import pins_folder
from rocelab.dataplane.pfc.reading import ClassCounters, PauseReader
from rocelab.faults.kinds.pause_storm import PauseStorm
from rocelab.lab.lab import Lab, RunningLab
from rocelab.linux import namespaces, pidfile
from rocelab.linux.netlink import SO_RCVBUFFORCE
from rocelab.planning.pauses import PausePort
from rocelab.record import LabFiles
from rocelab.wire import pauseframe
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S, wait_until

LOSSLESS = 3
SENDER, STORMED, NEIGHBOUR = "srv2-1", "srv1-1", "srv1-2"
UDP_HEADERS = 14 + 20 + 8
PARTS = ("rocelab-pfc", " tbf ")
"""Words of tc: the program and the gates of a node."""


def in_queue(counters: ClassCounters) -> int:
    """Packets in the port's queue and on its cable."""
    return counters.queued_packets - counters.sent_packets - counters.purged_packets


class Processes(NamedTuple):
    """The processes of lossless classes, by id."""

    supervisor: int
    pauser: int
    guard: int


def processes_of(files: LabFiles) -> Processes:
    """Waits until all three run."""
    processes: list[Processes] = []

    def look() -> bool:
        supervisor = pidfile.holder(control.pid_file(files))
        assert supervisor is not None
        by_guarding: dict[bool, int] = {}
        # One that ends meanwhile is looked for again.
        with suppress(ProcessLookupError, FileNotFoundError):
            children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text()
            for word in children.split():
                name = Path(f"/proc/{word}/comm").read_text().strip()
                by_guarding[name == GUARD] = int(word)
        if len(by_guarding) == 2:
            processes.append(Processes(supervisor, by_guarding[False], by_guarding[True]))
        return bool(processes)

    wait_until(look, "the supervisor has a child that pauses, and a guard")
    return processes[0]


def parts_of(lab: RunningLab) -> set[str]:
    """What a lab that is up has for lossless classes, of its first switch and server."""
    files, parts = LabFiles(lab.name), set()
    if pidfile.holder(control.pid_file(files)) is not None:
        parts.add("process")
    if pins_folder(files).exists():
        parts.add("maps")
    for node in ("rtsw1", NEIGHBOUR):
        ports = [link.port(node).interface for link in lab.fabric.links_of[node]]
        sides = [(port, side) for port in ports for side in ("ingress", "egress")]
        asked = [["qdisc"], *(["filter", "show", "dev", *side] for side in sides)]
        text = "".join(lab.node(node).exec(["tc", *arguments]).stdout for arguments in asked)
        parts |= {f"{node} {part}" for part in PARTS if part in text}
        if node == NEIGHBOUR and " tbf " in text:
            parts.add("gates of NICs")
    return parts


class Rig:
    """A lab that is up, and its maps."""

    @classmethod
    @contextmanager
    def of(cls, spec: str, folder: Path) -> Iterator[Self]:
        """Of a lab that is up while the block runs."""
        file = folder / "lab.yaml"
        file.write_text(spec)
        with running(Lab.planned(file)) as lab:
            yield cls(lab)

    def __init__(self, lab: RunningLab) -> None:
        self.lab = lab
        self.files = LabFiles(lab.name)
        self.reader = PauseReader(lab.fabric)
        self.plan = self.reader.plan
        self.maps = PauseMaps(pins_folder(self.files))
        self.nic_link = lab.fabric.nics(STORMED)[0].links[0]
        self.nic = self.plan.slots[STORMED, self.nic_link.port(STORMED).interface]
        self.gate = self.plan.slots["rtsw1", self.nic_link.port("rtsw1").interface]

    def is_gated(self, slot: int, traffic_class: int = LOSSLESS) -> bool:
        return bool(self.maps.egresses.get(slot * CLASSES + traffic_class, "gated"))

    def passes(self, traffic_class: int = LOSSLESS) -> bool:
        """Whether a packet of the class comes through, there and back."""
        address = self.lab.fabric.nics(STORMED)[0].ip
        tos = traffic_class << 5  # DSCP / 8 is the class
        command = ["ping", "-Q", str(tos), "-c", "1", "-W", "1", address]
        return (
            namespaces.inside(
                self.lab.node(SENDER).netns, lambda: subprocess.run(command, capture_output=True)
            ).returncode
            == 0
        )

    def is_at_rest(self) -> bool:
        """Whether no gate is closed and nothing is held or queued."""
        return all(
            not counter.is_paused and not in_queue(counter) and (port.is_nic or not counter.held)
            for (port, _), counter in self.counters().items()
        )

    def counters(self) -> dict[tuple[PausePort, int], ClassCounters]:
        """Every port's now, by class."""
        return self.reader.counters(time.monotonic_ns())

    def wait_for_rest(self) -> None:
        for traffic_class in self.plan.pfc.classes:
            wait_until(
                partial(self.passes, traffic_class), f"a packet of class {traffic_class} passes"
            )
        wait_until(self.is_at_rest, "nothing is paused or held")

    @contextmanager
    def resting(self) -> Iterator[Self]:
        """At rest when the block begins, and when it has ended without an error."""
        self.wait_for_rest()
        yield self
        self.wait_for_rest()
        assert self.reader.imbalance() == ()

    @contextmanager
    def storm(self, *classes: int) -> Iterator[None]:
        """A pause of each class, by default of LOSSLESS, that is open, with packets behind it."""
        stormed = classes or (LOSSLESS,)
        fault = PauseStorm((self.nic_link,), stormed)
        fault.prepare(self.lab)
        fault.inject(self.lab)

        def is_paused() -> bool:
            return all(
                self.is_gated(self.gate, traffic_class) and not self.passes(traffic_class)
                for traffic_class in stormed
            )

        try:
            wait_until(is_paused, "the switch is paused")
            yield
        finally:
            fault.restore(self.lab)
        wait_until(lambda: not fault.remains(self.lab), "the storm is over")

    def send_foreign_pause(self, quanta: Mapping[int, int]) -> None:
        """One frame for these classes from the NIC of STORMED that rocelab has not sent."""
        port = self.nic_link.port(STORMED)
        frame = pauseframe.encode(bytes.fromhex(port.mac.replace(":", "")), quanta)

        def send() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as opened:
                opened.bind((port.interface, 0))
                opened.send(frame)

        namespaces.inside(self.lab.node(STORMED).netns, send)

    def processes(self) -> Processes:
        """Those of its lossless classes."""
        return processes_of(self.files)


class Stream:
    """Datagrams of one size and class from a server of its rack to STORMED, and what their switch
    counts in the lossless class for the port they come in by, since the stream began."""

    def __init__(
        self, rig: Rig, payload: int, sender: str = NEIGHBOUR, traffic_class: int = LOSSLESS
    ) -> None:
        self.link = rig.lab.fabric.nics(sender)[0].links[0]
        self.port = rig.plan.by_slot[rig.plan.slots["rtsw1", self.link.port("rtsw1").interface]]
        self.payload, self.frame = payload, payload + UDP_HEADERS
        self.sent = self.arrived = 0
        self._rig, self._index = rig, self.port.slot * CLASSES + LOSSLESS
        self._nic = self.port.peer * CLASSES + LOSSLESS
        self._before = rig.maps.ingresses.row(self._index)
        self._pauses_before = rig.maps.egresses.get(self._nic, "pauses")
        address = rig.lab.fabric.nics(STORMED)[0].ip
        self._receiver, self._sender = (
            namespaces.inside(
                rig.lab.node(node).netns, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            )
            for node in (STORMED, sender)
        )
        self._receiver.bind((address, 0))
        self._receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 2**24)
        self._sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, traffic_class << 5)
        self._sender.connect(self._receiver.getsockname())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.close()
        self._receiver.close()

    def count(self, name: str) -> int:
        return self._rig.maps.ingresses.get(self._index, name) - self._before[name]

    @property
    def pauses(self) -> int:
        """Pause frames that the sender's NIC received."""
        return self._rig.maps.egresses.get(self._nic, "pauses") - self._pauses_before

    @property
    def is_stopped(self) -> bool:
        return self._rig.is_gated(self.port.peer)

    def send(self, packets: int = 1) -> None:
        for _ in range(packets):
            self._sender.send(bytes(self.payload))
        self.sent += packets

    def reach_the_switch(self) -> None:
        """Wait until the switch has taken or dropped all that was sent."""
        wait_until(
            lambda: self.count("packets") + self.count("dropped_packets") == self.sent,
            "the switch counts each packet",
        )

    def receive(self, packets: int) -> None:
        """Wait for the datagrams that are due at the receiver, and see that no other comes."""
        self._receiver.settimeout(LIMIT_S)
        for _ in range(packets):
            assert len(self._receiver.recv(2**16)) == self.payload
        self._receiver.settimeout(1)
        with pytest.raises(TimeoutError):
            self._receiver.recv(2**16)
