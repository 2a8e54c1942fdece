"""When a port's pauses are sent, obeyed, refreshed and given up: the rules of a lab's pauses.

Takes the program's events and the time, and tells a `Wire` what to send and which gates to move.
It keeps no packet and reads no clock.

Source: IEEE 802.1Qbb; IEEE 802.3 annexes 31B and 31D. The watchdog is that of SONiC (PFC
watchdog, doc/pfcwd): a queue that holds packets of which none leaves while pauses come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from rocelab.dataplane.pfc.journal import JournalAction
from rocelab.dataplane.pfc.maps import CLASSES, PAUSED, PauseEvent, held_now
from rocelab.wire.pauseframe import MAX_QUANTA

NEVER_NS = 1 << 62
REFRESH_SHARE = 0.5
"""A pause is sent again after this share of the longest time that a frame can ask for."""

WATCHDOG_STEPS = 8
"""How often a watchdog looks within its time of detection."""


@dataclass(frozen=True, slots=True)
class PauserPort:
    """A port as of `rocelab.planning.pauses.PausePort`."""

    peer: int
    delay_ns: int
    quantum_ns: float
    is_nic: bool


@dataclass(frozen=True, slots=True)
class Watchdog:
    """Times in ns of the lab's clock; `drops`: its action is to drop."""

    detection_ns: int
    restoration_ns: int
    drops: bool


class Wire(Protocol):
    """What a pauser acts on."""

    def pause(self, slot: int, traffic_class: int, quanta: int) -> bool:
        """Send a pause frame from a port; whether the port took it."""
        ...

    def move(self, slot: int, traffic_class: int, *, closed: bool) -> None:
        """Close or open a port's gate."""
        ...

    def evaluate(self) -> None:
        """Have the program look again at each port that pauses its peer; it reports an event of
        each that may resume."""
        ...


class MapWords(Protocol):
    """An array of the program."""

    def get(self, index: int, name: str) -> int: ...

    def set(self, index: int, name: str, value: int) -> None: ...


class PauserNote(Protocol):
    """Keeps what happened."""

    def note(
        self, t_ns: int, what: JournalAction, slot: int, traffic_class: int, value: int = 0
    ) -> None: ...


@dataclass(slots=True)
class _PauseObedience:
    """What a port does about its peer's pauses of one class."""

    closed: bool = False
    until_ns: int = 0
    heard_ns: int = 0
    """When the peer crossed the threshold that the last frame announced."""
    due_ns: int = 0
    """When the last frame takes effect: none takes effect before an earlier one."""
    cut_ns: int = -1
    """When the carrier was last lost: frames from before have no effect."""
    paused_ns: int = 0
    """When the last pause took effect, or would have."""
    fired: bool = False
    left: int = -1
    idle_since_ns: int = 0
    watched: bool = False


class Pauser:
    """The pauses of all ports of a lab."""

    def __init__(
        self,
        ports: Mapping[int, PauserPort],
        classes: Sequence[int],
        watchdog: Watchdog | None,
        wire: Wire,
        tables: tuple[MapWords, MapWords, MapWords],
        journal: PauserNote,
    ) -> None:
        """`tables`: the program's ports, ingresses and egresses."""
        self._ports = ports
        self._classes = classes
        self._watchdog = watchdog
        self._wire = wire
        self._port_words, self._ingresses, self._egresses = tables
        self._journal = journal
        self._announced: dict[tuple[int, int], int] = {}
        """The ports and classes whose peer is paused, each with the number of its announcement."""
        self._obeyed = {
            (slot, traffic_class): _PauseObedience() for slot in ports for traffic_class in classes
        }
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0

    @property
    def next_ns(self) -> int:
        """When something is due next."""
        return self._due[0][0] if self._due else NEVER_NS

    def begin(self, now_ns: int) -> None:
        """Take over from a process that has ended: nothing it had stopped stays so."""
        for slot, traffic_class in self._obeyed:
            self._wire.move(slot, traffic_class, closed=False)
            self._free(slot, traffic_class, discards=0, freed=0)
        self._journal.note(now_ns, JournalAction.TAKEN_OVER, 0, 0)
        self.announce(now_ns)

    def announce(self, now_ns: int) -> None:
        """Send what each port has to: something has changed of which no event came."""
        for slot, traffic_class in self._obeyed:
            self._announce(slot, traffic_class, now_ns)

    def on_event(self, event: PauseEvent, now_ns: int) -> None:
        """Take an event of the program."""
        place = event.slot, event.traffic_class
        if place not in self._obeyed:
            return
        if event.what != PAUSED:
            self._announce(*place, now_ns)
            return
        state = self._obeyed[place]
        # A second frame about a crossing refreshes a pause, or ends one of which it says nothing.
        crossed_ns = event.t_ns if event.crossed_ns == state.heard_ns else event.crossed_ns
        state.heard_ns = event.crossed_ns
        delay_ns = self._ports[self._ports[event.slot].peer].delay_ns
        due_ns = state.due_ns = max(crossed_ns + delay_ns, state.due_ns)
        self._at(due_ns, lambda t_ns: self._obey(event, due_ns, t_ns))

    def on_carrier(self, slot: int, present: bool, now_ns: int) -> None:
        """A port has lost its carrier, and with it every pause, or has it again."""
        for traffic_class in self._classes:
            self._announced.pop((slot, traffic_class), None)
            if present:
                # Also where it does not pause: if the carrier was gone only for a moment, the peer
                # may still obey an earlier frame.
                self._send(slot, traffic_class, self._pauses(slot, traffic_class), now_ns)
                continue
            state = self._obeyed[slot, traffic_class]
            state.until_ns = state.cut_ns = now_ns
            if state.closed:
                self._move(slot, traffic_class, False, now_ns, JournalAction.CUT)

    def run(self, now_ns: int) -> None:
        """Do everything that is due."""
        while self._due and self._due[0][0] <= now_ns:
            heappop(self._due)[2](now_ns)

    def _at(self, due_ns: int, action: Callable[[int], None]) -> None:
        self._count += 1
        heappush(self._due, (due_ns, self._count, action))

    def _pauses(self, slot: int, traffic_class: int) -> bool:
        over = self._ingresses.get(_index(slot, traffic_class), "over")
        return bool(over or self._port_words.get(slot, "storms") >> traffic_class & 1)

    def _announce(self, slot: int, traffic_class: int, now_ns: int) -> None:
        """Send a pause or a resume where the peer has not heard of it."""
        pauses = self._pauses(slot, traffic_class)
        if pauses != ((slot, traffic_class) in self._announced):
            self._send(slot, traffic_class, pauses, now_ns)

    def _send(self, slot: int, traffic_class: int, pauses: bool, now_ns: int) -> None:
        place = slot, traffic_class
        if not self._wire.pause(slot, traffic_class, MAX_QUANTA if pauses else 0):
            return
        if pauses:
            self._count += 1
            number = self._announced[place] = self._count
            # As of the last packet: a crossing may be read late, when some of it has drained.
            held = self._buffered(slot, 0)
            self._journal.note(now_ns, JournalAction.PAUSE_SENT, slot, traffic_class, held)
            self._refresh_later(slot, traffic_class, number, now_ns)
            self._await_drain(slot, now_ns)
        else:
            self._announced.pop(place, None)
            self._journal.note(now_ns, JournalAction.RESUME_SENT, slot, traffic_class)

    def _refresh_later(self, slot: int, traffic_class: int, number: int, now_ns: int) -> None:
        # Quanta are of the peer's rate, which is that of the link.
        pause_ns = MAX_QUANTA * self._ports[slot].quantum_ns
        self._at(
            now_ns + int(pause_ns * REFRESH_SHARE),
            lambda t_ns: self._refresh(slot, traffic_class, number, t_ns),
        )

    def _refresh(self, slot: int, traffic_class: int, number: int, now_ns: int) -> None:
        """Send a pause again; `number`: of the announcement that asked for it."""
        if self._announced.get((slot, traffic_class)) != number:
            return
        self._wire.evaluate()
        if self._pauses(slot, traffic_class):
            if self._wire.pause(slot, traffic_class, MAX_QUANTA):
                held = self._buffered(slot, now_ns)
                self._journal.note(now_ns, JournalAction.REFRESHED, slot, traffic_class, held)
            self._refresh_later(slot, traffic_class, number, now_ns)
        else:
            self._announce(slot, traffic_class, now_ns)

    def _buffered(self, slot: int, now_ns: int) -> int:
        """What the receive buffer of a NIC holds; 0 of a switch."""
        if not self._ports[slot].is_nic:
            return 0
        words = self._port_words
        held, held_ns = words.get(slot, "held"), words.get(slot, "held_ns")
        return held_now(held, held_ns, words.get(slot, "drain"), now_ns)

    def _await_drain(self, slot: int, now_ns: int) -> None:
        """A NIC's buffer drains without an event: look again when it will have reached XON."""
        if not self._ports[slot].is_nic:
            return
        drain = self._port_words.get(slot, "drain")
        if drain:
            words = self._port_words
            excess = words.get(slot, "held") - words.get(slot, "empty")
            due_ns = words.get(slot, "held_ns") + max(0, excess) * 10**9 // drain
            self._at(max(due_ns, now_ns) + 1000, lambda t: self._drained(slot, t))

    def _drained(self, slot: int, now_ns: int) -> None:
        self._wire.evaluate()
        if any((slot, traffic_class) in self._announced for traffic_class in self._classes) and any(
            self._ingresses.get(_index(slot, traffic_class), "over")
            for traffic_class in self._classes
        ):
            self._await_drain(slot, now_ns)

    def _obey(self, event: PauseEvent, due_ns: int, now_ns: int) -> None:
        slot, traffic_class, quanta = event.slot, event.traffic_class, event.quanta
        state = self._obeyed[slot, traffic_class]
        if event.t_ns <= state.cut_ns:
            return
        # The time of a pause runs from its frame, late as that may be.
        begins_ns = max(due_ns, event.t_ns)
        state.until_ns = begins_ns + int(quanta * self._ports[slot].quantum_ns) if quanta else 0
        if quanta:
            state.paused_ns = now_ns
        if state.fired:
            return
        if quanta:
            self._at(state.until_ns, lambda t: self._expire(slot, traffic_class, t))
        if state.closed != bool(quanta):
            what = JournalAction.STOPPED if quanta else JournalAction.STARTED
            self._move(slot, traffic_class, bool(quanta), now_ns, what, now_ns - due_ns)
            # It is the switches': what a NIC does about pauses is its own.
            watches = self._watchdog is not None and not self._ports[slot].is_nic
            if quanta and watches and not state.watched:
                state.watched = True
                state.left = -1
                self._watch(slot, traffic_class, now_ns)

    def _expire(self, slot: int, traffic_class: int, now_ns: int) -> None:
        state = self._obeyed[slot, traffic_class]
        if state.closed and now_ns >= state.until_ns:
            self._move(slot, traffic_class, False, now_ns, JournalAction.EXPIRED)

    def _move(
        self,
        slot: int,
        traffic_class: int,
        closed: bool,
        now_ns: int,
        what: JournalAction,
        late_ns: int = 0,
    ) -> None:
        self._wire.move(slot, traffic_class, closed=closed)
        self._obeyed[slot, traffic_class].closed = closed
        self._journal.note(now_ns, what, slot, traffic_class, late_ns)

    def _free(self, slot: int, traffic_class: int, *, discards: int, freed: int) -> None:
        """Tell the program what the watchdog does."""
        self._egresses.set(_index(slot, traffic_class), "discards", discards)
        self._egresses.set(_index(slot, traffic_class), "freed", freed)

    def _watch(self, slot: int, traffic_class: int, now_ns: int) -> None:
        """Fire where packets wait and none has left for the time of detection."""
        assert self._watchdog is not None
        state = self._obeyed[slot, traffic_class]
        if not state.closed:
            state.watched = False
            return
        index = _index(slot, traffic_class)
        left = self._egresses.get(index, "out_packets") + self._egresses.get(
            index, "purged_packets"
        )
        if left != state.left or self._egresses.get(index, "packets") == left:
            state.left = left
            state.idle_since_ns = now_ns
        elif now_ns - state.idle_since_ns >= self._watchdog.detection_ns and (
            now_ns < state.until_ns  # else the pause has run out, and nobody has looked since
        ):
            state.fired = True
            state.watched = False
            self._free(slot, traffic_class, discards=int(self._watchdog.drops), freed=1)
            self._move(slot, traffic_class, False, now_ns, JournalAction.FIRED)
            self._at(
                now_ns + self._watchdog.restoration_ns,
                lambda t: self._restore(slot, traffic_class, t),
            )
            return
        self._at(
            now_ns + self._watchdog.detection_ns // WATCHDOG_STEPS,
            lambda t: self._watch(slot, traffic_class, t),
        )

    def _restore(self, slot: int, traffic_class: int, now_ns: int) -> None:
        """Obey again where no pause has come for the time of restoration."""
        assert self._watchdog is not None
        state = self._obeyed[slot, traffic_class]
        # A pause that has not run out is one, though its next frame comes later.
        due_ns = max(state.paused_ns + self._watchdog.restoration_ns, state.until_ns)
        if now_ns < due_ns:
            # A resume may come before a pause has run out.
            next_ns = min(due_ns, now_ns + self._watchdog.restoration_ns)
            self._at(next_ns, lambda t: self._restore(slot, traffic_class, t))
            return
        state.fired = False
        self._free(slot, traffic_class, discards=0, freed=0)
        self._journal.note(now_ns, JournalAction.RESTORED, slot, traffic_class)


def _index(slot: int, traffic_class: int) -> int:
    return slot * CLASSES + traffic_class
