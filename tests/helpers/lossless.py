"""A lab with lossless classes, for tests: its gates and processes, and whether it is at rest."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rocelab.faults.pauses import PauseStorm
from rocelab.kernel import namespaces, pidfile
from rocelab.plan.pauses import PausePort
from rocelab.runtime.lab import Lab
from rocelab.runtime.pfc import control
from rocelab.runtime.pfc.daemon import GUARD
from rocelab.runtime.pfc.maps import CLASSES, PauseMaps
from rocelab.runtime.pfc.program import pins_folder
from rocelab.runtime.pfc.reading import ClassCounters, PauseReader
from rocelab.runtime.record import LabFiles
from tests.helpers.waiting import wait_until

LOSSLESS = 3
SENDER, STORMED = "srv2-1", "srv1-1"


class Processes(NamedTuple):
    """The processes of lossless classes, by id."""

    supervisor: int
    pauser: int
    guard: int


def processes_of(files: LabFiles) -> Processes:
    """Waits until all three run."""
    found: list[Processes] = []

    def look() -> bool:
        supervisor = pidfile.holder(control.pid_file(files))
        assert supervisor is not None
        by_guarding: dict[bool, int] = {}
        # One that ends meanwhile is looked for again.
        with suppress(ProcessLookupError, FileNotFoundError):
            children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text()
            for each in children.split():
                name = Path(f"/proc/{each}/comm").read_text().strip()
                by_guarding[name == GUARD] = int(each)
        if len(by_guarding) == 2:
            found.append(Processes(supervisor, by_guarding[False], by_guarding[True]))
        return bool(found)

    wait_until(look, "the supervisor has a child that pauses, and a guard")
    return found[0]


class Rig:
    """A lab that is up, and its maps."""

    def __init__(self, lab: Lab) -> None:
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
            not each.is_paused and not each.in_queue and (port.is_nic or not each.held)
            for (port, _), each in self.counters().items()
        )

    def counters(self) -> dict[tuple[PausePort, int], ClassCounters]:
        """Every port's now, by class."""
        return self.reader.counters(time.monotonic_ns())

    def wait_for_rest(self) -> None:
        for each in self.plan.pfc.classes:
            wait_until(partial(self.passes, each), f"a packet of class {each} passes")
        wait_until(self.is_at_rest, "nothing is paused or held")
        assert self.reader.imbalance() == ()

    @contextmanager
    def storm(self, *classes: int) -> Iterator[None]:
        """A pause of each class, by default of LOSSLESS, that is open, with packets behind it."""
        stormed = classes or (LOSSLESS,)
        fault = PauseStorm((self.nic_link,), stormed)
        fault.prepare(self.lab)
        fault.inject(self.lab)

        def is_paused() -> bool:
            return all(self.is_gated(self.gate, each) and not self.passes(each) for each in stormed)

        try:
            wait_until(is_paused, "the switch is paused")
            yield
        finally:
            fault.restore(self.lab)
        wait_until(lambda: not fault.remains(self.lab), "the storm is over")

    def processes(self) -> Processes:
        """Those of its lossless classes."""
        return processes_of(self.files)
