"""A lab with two lossless classes whose maps and journal a test fills: no kernel, no process."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.dataplane.pfc import control, reading
from rocelab.dataplane.pfc.journal import JournalAction, PauseJournal
from rocelab.dataplane.pfc.maps import EGRESS_FIELDS, INGRESS_FIELDS, PORT_FIELDS
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.model import LabSpec
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.queues import QueuesSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.pauses import PausePlan, plan_pauses

FABRIC: Fabric = plan(
    LabSpec(
        name="t-reading",
        fabric=ClosSpec(racks=2, spines=1, servers_per_rack=1),
        queues=QueuesSpec(pfc=PfcSpec(classes=(3, 4))),
        dilation=1000,
    )
)


def planned() -> PausePlan:
    pauses = plan_pauses(FABRIC)
    assert pauses is not None
    return pauses


PLAN = planned()
SWITCH, NIC = PLAN.ports[0], PLAN.ports[-1]


class FakeMaps:
    """The program's arrays: rows of zeros, but for what a test sets."""

    def __init__(self) -> None:
        self.ports = FakeTable(PORT_FIELDS)
        self.ingresses = FakeTable(INGRESS_FIELDS)
        self.egresses = FakeTable(EGRESS_FIELDS)
        self.closed = False

    def close(self) -> None:
        self.closed = True


class FakeTable:
    def __init__(self, fields: tuple[str, ...]) -> None:
        self._zeros = dict.fromkeys(fields, 0)
        self.rows: dict[int, dict[str, int]] = {}

    def row(self, index: int) -> dict[str, int]:
        return self._zeros | self.rows.get(index, {})


class FakeLab:
    """A lab's maps and journal, and whether its process lives."""

    def __init__(self, folder: Path) -> None:
        self.maps = FakeMaps()
        self.file = folder / "pfc-journal"
        self.journal = PauseJournal(self.file)
        self.is_alive = True

    def did(
        self, *entries: tuple[int, JournalAction], slot: int = SWITCH.slot, value: int = 0
    ) -> None:
        """Of a port, by default the switch's; class 3."""
        for t_ns, what in entries:
            self.journal.note(t_ns, what, slot, 3, value)
        self.journal.flush()


def faked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    """What `PauseReader(FABRIC)` then reads."""
    made = FakeLab(folder)
    monkeypatch.setattr(reading, "PauseMaps", lambda _: made.maps)
    monkeypatch.setattr(control, "journal_file", lambda _: made.file)
    monkeypatch.setattr(control, "is_alive", lambda _: made.is_alive)
    return made
