"""What pauses, and what they held, in a lab with lossless classes: counters and conservation.

Works from any process: the fabric gives the ports, the program's maps what was counted, and the
journal of the pausing process what it did and when.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rocelab.base.errors import InputError
from rocelab.dataplane.pfc import control, journal
from rocelab.dataplane.pfc.journal import JournalAction, JournalEntry
from rocelab.dataplane.pfc.maps import CLASSES, PauseMaps, held_now
from rocelab.dataplane.pfc.program import pins_folder
from rocelab.linux import bpf
from rocelab.linux.closing import Closing
from rocelab.planning.fabric import Fabric
from rocelab.planning.pauses import PausePlan, PausePort, plan_pauses
from rocelab.record import LabFiles

_ENDS = (JournalAction.STARTED, JournalAction.EXPIRED, JournalAction.CUT, JournalAction.FIRED)
_ENDS_OF_ALL = (JournalAction.TAKEN_OVER, JournalAction.LOST)
"""After LOST nobody knows."""


@dataclass(frozen=True, slots=True)
class ClassCounters:
    """A port and class since the lab came up. Sizes are bytes, times ns of the lab's clock.

    A port counts as a sender (`pauses_received` to `longest_ns`, and what it queued and sent) and
    as a receiver (`pauses_sent`, and what its switch held for it). A NIC has one receive buffer for
    all classes: `held` is what is in it, and what it had no room for is dropped of the NIC's first
    lossless class.
    """

    pauses_sent: int
    resumes_sent: int
    pauses_received: int
    """What its peer asked of it."""

    resumes_received: int
    """What its peer asked of it."""

    transitions: int
    paused_ns: int
    longest_ns: int
    is_paused: bool
    held: int
    """What its switch holds for it now."""

    held_max: int
    """What its switch held for it at most."""

    headroom_max: int
    """What its switch held for it in its headroom at most."""

    admitted_packets: int
    late_packets: int
    """Admitted beyond the memory only because this machine stopped the peer late."""

    dropped_packets: int
    """For which there was no room."""

    queued_packets: int
    """What joined its queue."""

    sent_packets: int
    """What reached the peer."""

    purged_packets: int
    """What the kernel freed on the way."""

    discarded_packets: int
    """What the watchdog discarded."""

    flushed_packets: int
    """Of the discarded ones, what had been in the queue, and counts as sent."""

    leaked_packets: int
    watchdog_fired: int

    @property
    def arrived_packets(self) -> int:
        """What this port sent that its peer goes on with."""
        return self.sent_packets - self.flushed_packets

    @property
    def taken_packets(self) -> int:
        """What came in by this port of a switch and was counted, or was discarded before it joined
        this port's queue: over all ports, what came in."""
        discarded = self.discarded_packets - self.flushed_packets
        return self.admitted_packets + self.dropped_packets + discarded


@dataclass(frozen=True, slots=True)
class ObservedPause:
    """A pause that a port obeyed: from `begin_ns` to `end_ns` (None: it lasts), CLOCK_MONOTONIC."""

    sender: PausePort
    """The port that stopped."""
    peer: str
    """The node that had asked it to."""
    traffic_class: int
    begin_ns: int
    end_ns: int | None
    ended_by: JournalAction | None


class PauseReader(Closing):
    """Reads the lossless classes of a lab's network as often as wanted."""

    def __init__(self, fabric: Fabric) -> None:
        """Raises InputError if the lab is not up or has none."""
        self._files = LabFiles.of(fabric)
        plan = plan_pauses(fabric)
        if plan is None:
            raise InputError(
                f"lab {fabric.name} has no lossless classes", "set queues.pfc in its file"
            )
        self.plan: PausePlan = plan
        self._history = PauseHistory()
        try:
            self._maps = PauseMaps(pins_folder(self._files))
        except bpf.BpfError as error:
            raise InputError(f"the lab's lossless classes cannot be read: {error}") from None

    def close(self) -> None:
        self._maps.close()

    def is_alive(self) -> bool:
        """Whether the PFC process runs."""
        return control.is_alive(self._files)

    def entries(self, since: int = 0) -> list[JournalEntry]:
        """What the pausing process did, from its `since`-th record on."""
        return list(journal.read(control.journal_file(self._files), since))

    @property
    def is_complete(self) -> bool:
        """Whether the journal had room for all that was done, as far as it was read."""
        return self._history.is_complete

    def counters(self, now_ns: int) -> dict[tuple[PausePort, int], ClassCounters]:
        """Every port's counters by class, at a time of CLOCK_MONOTONIC that has come.

        Of the journal, only what is new is read. If the process that pauses is gone, pauses that
        it has not ended count until its last record.
        """
        file = control.journal_file(self._files)
        self._history.add(journal.read(file, self._history.entries))
        until_ns = now_ns if self.is_alive() else self._history.last_ns
        return {
            (port, traffic_class): self._counters(port, traffic_class, now_ns, until_ns)
            for port in self.plan.ports
            for traffic_class in self.plan.pfc.classes
        }

    def _counters(
        self, port: PausePort, traffic_class: int, now_ns: int, until_ns: int
    ) -> ClassCounters:
        index = port.slot * CLASSES + traffic_class
        into, out = self._maps.ingresses.row(index), self._maps.egresses.row(index)
        held, held_max, dropped = into["held"], into["held_max"], into["dropped_packets"]
        if port.is_nic:
            buffer = self._maps.ports.row(port.slot)
            held = held_now(buffer["held"], buffer["held_ns"], buffer["drain"], now_ns)
            held_max = buffer["held_max"]
            is_first = traffic_class == self.plan.pfc.classes[0]
            dropped = buffer["overflow_packets"] if is_first else 0
        did = self._history.of(port.slot, traffic_class)
        lasting_ns = 0 if did.begun_ns is None else max(0, until_ns - did.begun_ns)
        return ClassCounters(
            pauses_sent=did.counts[JournalAction.PAUSE_SENT] + did.counts[JournalAction.REFRESHED],
            resumes_sent=did.counts[JournalAction.RESUME_SENT],
            pauses_received=out["pauses"],
            resumes_received=out["resumes"],
            transitions=did.counts[JournalAction.STOPPED],
            paused_ns=did.paused_ns + lasting_ns,
            longest_ns=max(did.longest_ns, lasting_ns),
            is_paused=bool(out["gated"]),
            held=held,
            held_max=held_max,
            headroom_max=into["headroom_max"],
            admitted_packets=into["packets"],
            late_packets=into["late_packets"],
            dropped_packets=dropped,
            queued_packets=out["packets"],
            sent_packets=out["out_packets"],
            purged_packets=out["purged_packets"],
            discarded_packets=out["discarded_packets"],
            flushed_packets=out["flushed_packets"],
            leaked_packets=out["leaked_packets"],
            watchdog_fired=did.counts[JournalAction.FIRED],
        )

    def unreported(self) -> int:
        """How many events the process that pauses never got, as it had not read those before."""
        return sum(self._maps.ports.row(port.slot)["unreported"] for port in self.plan.ports)

    def unrecorded(self) -> int:
        """How many records of pauses wait for room in the journal."""
        return self._maps.ports.row(0)["unreported"]

    def imbalance(self) -> tuple[str, ...]:
        """Where queues hold packets that no pause stops, and where switches hold more or less for
        their ports than is in their queues; empty where all is accounted for. True of a lab at
        rest, also of one whose pauses last."""
        places = []
        held: Counter[tuple[str, int]] = Counter()
        queued: Counter[tuple[str, int]] = Counter()
        for port in self.plan.ports:
            for traffic_class in self.plan.pfc.classes:
                index = port.slot * CLASSES + traffic_class
                into, out = self._maps.ingresses.row(index), self._maps.egresses.row(index)
                waiting = out["packets"] - out["out_packets"] - out["purged_packets"]
                if waiting < 0 or (waiting and not out["gated"]):
                    places.append(
                        f"{port} class {traffic_class} ({waiting:,} packets in its queue)"
                    )
                if not port.is_nic:
                    held[port.node, traffic_class] += into["held"]
                    queued[port.node, traffic_class] += (
                        out["bytes"] - out["out_bytes"] - out["purged_bytes"]
                    )
        places += [
            f"{node} class {number} ({size:,} bytes held, {queued[node, number]:,} queued)"
            for (node, number), size in held.items()
            if size != queued[node, number]
        ]
        return tuple(places)


def pauses(plan: PausePlan, entries: Iterable[JournalEntry]) -> list[ObservedPause]:
    """The pauses that ports obeyed, in order of their beginnings."""
    begun: dict[_PlaceKey, int] = {}

    def pause(
        place: _PlaceKey, begin_ns: int, end_ns: int | None, what: JournalAction | None
    ) -> ObservedPause:
        port = plan.by_slot[place[0]]
        return ObservedPause(port, plan.by_slot[port.peer].node, place[1], begin_ns, end_ns, what)

    pauses = [pause(*span) for span in _ended(entries, begun)]
    pauses += [pause(place, begin_ns, None, None) for place, begin_ns in begun.items()]
    return sorted(pauses, key=lambda pause: pause.begin_ns)


_PlaceKey = tuple[int, int]
"""A slot and a class."""


def _ended(
    entries: Iterable[JournalEntry], begun: dict[_PlaceKey, int]
) -> Iterator[tuple[_PlaceKey, int, int, JournalAction]]:
    """Every pause that ends in these entries: its place, beginning, end, and what ended it.
    `begun` has those that last before, and after."""
    for entry in entries:
        place = entry.slot, entry.traffic_class
        if entry.what is JournalAction.STOPPED:
            begun.setdefault(place, entry.t_ns)
        elif entry.what in _ENDS and place in begun:
            yield place, begun.pop(place), entry.t_ns, entry.what
        elif entry.what in _ENDS_OF_ALL:
            for key in list(begun):
                yield key, begun.pop(key), entry.t_ns, entry.what


@dataclass(slots=True)
class PortActions:
    """What the pausing process did at a port to a class. `begun_ns`: of a pause that lasts."""

    counts: dict[JournalAction, int] = field(default_factory=lambda: defaultdict(int))
    paused_ns: int = 0
    longest_ns: int = 0
    begun_ns: int | None = None


class PauseHistory:
    """Adds the journal's entries up, as they come. Times are CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self.entries = 0
        self.last_ns = 0
        self.is_complete = True
        self._places: dict[_PlaceKey, PortActions] = {}
        self._begun: dict[_PlaceKey, int] = {}

    def add(self, entries: Iterable[JournalEntry]) -> None:
        """Add the entries after those added before."""
        before = list(self._begun)
        for place, begin_ns, end_ns, _ in _ended(self._counted(entries), self._begun):
            actions = self._port_actions(place)
            actions.paused_ns += end_ns - begin_ns
            actions.longest_ns = max(actions.longest_ns, end_ns - begin_ns)
        for place in before:
            self._port_actions(place).begun_ns = None
        for place, begin_ns in self._begun.items():
            self._port_actions(place).begun_ns = begin_ns

    def of(self, slot: int, traffic_class: int) -> PortActions:
        """What was done at a port to a class so far."""
        return self._places.get((slot, traffic_class)) or PortActions()

    def _counted(self, entries: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
        for entry in entries:
            self.entries += 1
            self.last_ns = max(self.last_ns, entry.t_ns)
            self.is_complete &= entry.what is not JournalAction.LOST
            self._port_actions((entry.slot, entry.traffic_class)).counts[entry.what] += 1
            yield entry

    def _port_actions(self, place: _PlaceKey) -> PortActions:
        return self._places.setdefault(place, PortActions())
