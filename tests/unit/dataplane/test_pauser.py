"""The rules of pauses, without frames or a kernel: what is sent, what is obeyed, how long."""

from __future__ import annotations

from collections import defaultdict

from rocelab.dataplane.pfc.journal import JournalAction
from rocelab.dataplane.pfc.maps import CLASSES, PAUSED, XOFF, XON, PauseEvent
from rocelab.dataplane.pfc.pauser import NEVER_NS, Pauser, PauserPort, Watchdog
from rocelab.wire.pauseframe import MAX_QUANTA

SWITCH, NIC = 1, 2
DELAY_NS, QUANTUM_NS = 1000, 2.0
PAUSE_NS = int(MAX_QUANTA * QUANTUM_NS)
REFRESH_NS = PAUSE_NS // 2
LOSSLESS = 3
INDEX = SWITCH * CLASSES + LOSSLESS


class Words(defaultdict[tuple[int, str], int]):
    """An array of the program."""

    def __init__(self) -> None:
        super().__init__(int)

    def get(self, index: int, name: str) -> int:  # type: ignore[override]
        return self[index, name]

    def set(self, index: int, name: str, value: int) -> None:
        self[index, name] = value


class Lab:
    """A switch's port and the NIC at its cable's other end; it is the wire, and the journal."""

    def __init__(self, watchdog: Watchdog | None = None, classes: tuple[int, ...] = (3,)) -> None:
        self.port_words, self.ingresses, self.egresses = Words(), Words(), Words()
        self.frames: list[tuple[int, int, int]] = []
        self.closed: set[tuple[int, int]] = set()
        self.notes: list[tuple[JournalAction, int, int]] = []
        self.lit = True
        self.evaluations = 0
        ports = {
            SWITCH: PauserPort(NIC, DELAY_NS, QUANTUM_NS, is_nic=False),
            NIC: PauserPort(SWITCH, DELAY_NS, QUANTUM_NS, is_nic=True),
        }
        tables = self.port_words, self.ingresses, self.egresses
        self.pauser = Pauser(ports, classes, watchdog, self, tables, self)

    def pause(self, slot: int, traffic_class: int, quanta: int) -> bool:
        if self.lit:
            self.frames.append((slot, traffic_class, quanta))
        return self.lit

    def move(self, slot: int, traffic_class: int, *, closed: bool) -> None:
        (self.closed.add if closed else self.closed.discard)((slot, traffic_class))

    def evaluate(self) -> None:
        self.evaluations += 1

    def note(
        self, t_ns: int, what: JournalAction, slot: int, traffic_class: int, value: int = 0
    ) -> None:
        self.notes.append((what, slot, value))

    def cross(self, slot: int, what: int, now_ns: int, traffic_class: int = LOSSLESS) -> None:
        """A port crosses its threshold, either way."""
        self.ingresses.set(slot * CLASSES + traffic_class, "over", what == XOFF)
        self.pauser.on_event(PauseEvent(what, slot, traffic_class, 0, now_ns, now_ns), now_ns)

    def hear(self, slot: int, quanta: int, t_ns: int, crossed_ns: int | None = None) -> None:
        """A pause frame reaches a port."""
        crossed_ns = t_ns if crossed_ns is None else crossed_ns
        self.pauser.on_event(PauseEvent(PAUSED, slot, LOSSLESS, quanta, t_ns, crossed_ns), t_ns)

    def run(self, until_ns: int) -> None:
        """Do what is due, each when it is, until a time."""
        while self.pauser.next_ns <= until_ns:
            self.pauser.run(self.pauser.next_ns)

    def said(self, *kinds: JournalAction) -> list[JournalAction]:
        return [what for what, _, _ in self.notes if what in kinds]

    @property
    def is_stopped(self) -> bool:
        return (SWITCH, LOSSLESS) in self.closed


def test_a_threshold_crossed_is_announced_once_and_its_end_too() -> None:
    lab = Lab()
    lab.cross(SWITCH, XOFF, 10)
    lab.cross(SWITCH, XOFF, 20)
    lab.cross(SWITCH, XON, 30)
    lab.cross(SWITCH, XON, 40)
    assert lab.frames == [(SWITCH, LOSSLESS, MAX_QUANTA), (SWITCH, LOSSLESS, 0)]
    assert [what for what, _, _ in lab.notes] == [
        JournalAction.PAUSE_SENT,
        JournalAction.RESUME_SENT,
    ]


def test_what_was_over_and_is_not_any_more_when_its_event_is_read_needs_no_frame() -> None:
    lab = Lab()
    lab.pauser.on_event(PauseEvent(XOFF, SWITCH, LOSSLESS, 0, 10, 10), 10)
    assert lab.frames == []


def test_a_pause_is_refreshed_while_it_lasts_and_no_longer() -> None:
    lab = Lab()
    lab.cross(SWITCH, XOFF, 0)
    lab.run(3 * REFRESH_NS + 3)
    assert len(lab.said(JournalAction.REFRESHED)) == 3
    assert lab.evaluations == 3
    lab.cross(SWITCH, XON, 3 * REFRESH_NS + 4)
    lab.run(10 * REFRESH_NS)
    assert len(lab.said(JournalAction.REFRESHED)) == 3
    assert lab.pauser.next_ns == NEVER_NS


def test_a_pause_is_refreshed_at_its_own_times_however_many_were_before_it() -> None:
    lab = Lab()
    for start_ns in range(0, REFRESH_NS // 2, REFRESH_NS // 10):
        lab.cross(SWITCH, XOFF, start_ns)
        lab.cross(SWITCH, XON, start_ns + 10)
    lab.cross(SWITCH, XOFF, REFRESH_NS // 2)
    lab.run(2 * REFRESH_NS)
    assert len(lab.said(JournalAction.REFRESHED)) == 1


def test_a_resume_that_no_event_tells_of_is_sent_at_the_next_refresh() -> None:
    lab = Lab()
    lab.cross(SWITCH, XOFF, 0)
    lab.ingresses.set(INDEX, "over", 0)
    lab.run(2 * REFRESH_NS)
    assert lab.frames[-1] == (SWITCH, LOSSLESS, 0)


def test_a_sender_stops_when_the_peer_s_frame_has_had_its_modelled_time() -> None:
    lab = Lab()
    lab.hear(SWITCH, MAX_QUANTA, t_ns=150, crossed_ns=100)
    lab.pauser.run(100 + DELAY_NS - 1)
    assert not lab.is_stopped
    lab.pauser.run(100 + DELAY_NS + 7)
    assert lab.is_stopped
    assert lab.notes == [(JournalAction.STOPPED, SWITCH, 7)]


def test_a_resume_lets_it_send_again() -> None:
    lab = Lab()
    lab.hear(SWITCH, MAX_QUANTA, 100)
    lab.hear(SWITCH, 0, 200)
    lab.run(100 + DELAY_NS)
    assert lab.is_stopped
    lab.run(200 + DELAY_NS)
    assert not lab.is_stopped
    lab.run(10 * PAUSE_NS)
    assert lab.said(JournalAction.STOPPED, JournalAction.STARTED, JournalAction.EXPIRED) == [
        JournalAction.STOPPED,
        JournalAction.STARTED,
    ]


def test_a_pause_that_nobody_refreshes_runs_out() -> None:
    lab = Lab()
    lab.hear(SWITCH, 100, 0)
    lab.run(DELAY_NS + int(100 * QUANTUM_NS) - 1)
    assert lab.is_stopped
    lab.run(DELAY_NS + int(100 * QUANTUM_NS))
    assert not lab.is_stopped
    assert lab.said(JournalAction.EXPIRED)


def test_a_refreshed_pause_lasts_though_its_threshold_was_crossed_long_ago() -> None:
    lab = Lab()
    for number in range(20):
        lab.run(number * REFRESH_NS - 1)
        lab.hear(SWITCH, MAX_QUANTA, t_ns=50 + number * REFRESH_NS, crossed_ns=10)
    lab.run(20 * REFRESH_NS)
    assert lab.is_stopped
    assert lab.notes == [(JournalAction.STOPPED, SWITCH, 0)]


def test_a_storm_after_a_resume_and_its_end_are_not_late() -> None:
    lab = Lab()
    lab.hear(SWITCH, MAX_QUANTA, 100, crossed_ns=90)
    lab.hear(SWITCH, 0, 300, crossed_ns=290)
    later_ns = 100 * PAUSE_NS
    lab.run(later_ns)
    lab.hear(SWITCH, MAX_QUANTA, later_ns)
    # The program knows of no crossing since the one that the last resume told of.
    lab.hear(SWITCH, 0, later_ns + 500, crossed_ns=290)
    lab.run(later_ns + PAUSE_NS)
    assert not lab.is_stopped
    assert [value for _, _, value in lab.notes] == [0, 0, 0, 0]


def test_frames_take_effect_in_the_order_of_their_arrival() -> None:
    lab = Lab()
    # A resume that says nothing of a crossing, then a pause whose threshold was crossed before it.
    lab.hear(SWITCH, MAX_QUANTA, 0)
    lab.run(DELAY_NS)
    lab.hear(SWITCH, 0, t_ns=5000)
    lab.hear(SWITCH, MAX_QUANTA, t_ns=5020, crossed_ns=4990)
    lab.run(5020 + DELAY_NS)
    assert lab.is_stopped


def test_a_lost_carrier_ends_every_pause_and_those_on_their_way() -> None:
    lab = Lab()
    lab.hear(SWITCH, MAX_QUANTA, 0)
    lab.run(DELAY_NS)
    lab.hear(SWITCH, MAX_QUANTA, 2000)
    lab.pauser.on_carrier(SWITCH, False, 2100)
    assert not lab.is_stopped
    assert lab.said(JournalAction.CUT)
    lab.run(2 * PAUSE_NS)
    assert lab.said(JournalAction.STOPPED) == [JournalAction.STOPPED]


def test_with_its_carrier_a_port_says_again_what_holds() -> None:
    lab = Lab()
    lab.cross(SWITCH, XOFF, 0)
    lab.pauser.on_carrier(SWITCH, False, 10)
    lab.lit = False
    lab.run(REFRESH_NS)
    lab.lit = True
    lab.pauser.on_carrier(SWITCH, True, REFRESH_NS + 1)
    assert lab.frames[1:] == [(SWITCH, LOSSLESS, MAX_QUANTA)]
    lab.run(2 * REFRESH_NS + 1)
    assert lab.said(JournalAction.REFRESHED) == [JournalAction.REFRESHED]


def test_a_resume_that_a_dark_link_did_not_take_follows_with_the_carrier() -> None:
    lab = Lab()
    lab.cross(SWITCH, XOFF, 0)
    lab.lit = False
    lab.cross(SWITCH, XON, 10)
    lab.lit = True
    # The link was dark for so short a time that its loss was not seen.
    lab.pauser.on_carrier(SWITCH, True, 20)
    assert lab.frames[-1] == (SWITCH, LOSSLESS, 0)


def test_a_new_process_opens_every_gate_and_announces_what_holds() -> None:
    lab = Lab()
    lab.closed = {(SWITCH, LOSSLESS), (NIC, LOSSLESS)}
    lab.egresses.set(INDEX, "discards", 1)
    lab.ingresses.set(INDEX, "over", 1)
    lab.pauser.begin(0)
    assert lab.closed == set()
    assert lab.egresses.get(INDEX, "discards") == 0
    assert lab.frames == [(SWITCH, LOSSLESS, MAX_QUANTA)]


def test_a_storming_port_pauses_the_classes_it_is_told_to_until_it_is_told_otherwise() -> None:
    lab = Lab(classes=(3, 4))
    lab.port_words.set(NIC, "storms", 1 << 4)
    lab.pauser.announce(0)
    assert lab.frames == [(NIC, 4, MAX_QUANTA)]
    lab.run(5 * REFRESH_NS)
    assert len(lab.said(JournalAction.REFRESHED)) == 5
    lab.port_words.set(NIC, "storms", 0)
    lab.pauser.announce(6 * REFRESH_NS)
    assert lab.frames[-1] == (NIC, 4, 0)


def test_a_nic_s_pauses_are_noted_with_what_its_buffer_held_and_held_when_refreshed() -> None:
    lab = Lab()
    for name, value in (("drain", 10**9), ("held", 5000), ("held_ns", 0)):
        lab.port_words.set(NIC, name, value)
    lab.cross(NIC, XOFF, 1000)
    lab.port_words.set(NIC, "held", 1000 + REFRESH_NS + 7)
    lab.run(1000 + REFRESH_NS)
    assert lab.notes == [(JournalAction.PAUSE_SENT, NIC, 5000), (JournalAction.REFRESHED, NIC, 7)]


def test_a_storm_of_a_nic_whose_host_takes_packets_as_they_come_is_noted_with_an_empty_buffer() -> (
    None
):
    lab = Lab()
    lab.port_words.set(NIC, "held", 5000)
    lab.port_words.set(NIC, "storms", 1 << LOSSLESS)
    lab.pauser.announce(10)
    assert lab.notes == [(JournalAction.PAUSE_SENT, NIC, 0)]


def test_a_nic_looks_again_when_its_buffer_should_have_drained() -> None:
    lab = Lab()
    for name, value in (("drain", 10**6), ("held", 5000), ("empty", 2000), ("held_ns", 100)):
        lab.port_words.set(NIC, name, value)
    lab.cross(NIC, XOFF, 100)
    drained_ns = 100 + 3000 * 1000
    assert lab.pauser.next_ns == 100 + REFRESH_NS
    lab.run(drained_ns)
    before = lab.evaluations
    lab.run(drained_ns + 1000)
    assert lab.evaluations == before + 1


WATCHDOG = Watchdog(detection_ns=800, restoration_ns=5000, drops=True)


def stormed(lab: Lab, until_ns: int, every_ns: int = 400) -> None:
    """Pauses keep coming."""
    for now_ns in range(0, until_ns, every_ns):
        lab.run(now_ns)
        lab.hear(SWITCH, MAX_QUANTA, now_ns)
    lab.run(until_ns)


def test_the_watchdog_fires_where_packets_wait_and_none_leaves() -> None:
    lab = Lab(WATCHDOG)
    lab.egresses.set(INDEX, "packets", 5)
    stormed(lab, DELAY_NS + 799)
    assert lab.is_stopped
    lab.run(DELAY_NS + 1000)
    assert not lab.is_stopped
    assert lab.said(JournalAction.FIRED)
    assert lab.egresses.get(INDEX, "discards") == 1


def test_the_watchdog_does_not_fire_for_an_empty_queue_or_one_that_moves() -> None:
    lab = Lab(WATCHDOG)
    stormed(lab, 20_000)
    assert lab.is_stopped
    assert not lab.said(JournalAction.FIRED)
    for now_ns in range(20_000, 40_000, 400):
        lab.egresses.set(INDEX, "packets", now_ns + 5)
        lab.egresses.set(INDEX, "out_packets", now_ns)
        lab.run(now_ns)
    assert not lab.said(JournalAction.FIRED)


def test_the_watchdog_does_not_fire_for_a_pause_that_ran_out_while_nobody_looked() -> None:
    lab = Lab(WATCHDOG)
    lab.egresses.set(INDEX, "packets", 5)
    lab.hear(SWITCH, 100, 0)
    lab.run(DELAY_NS)
    assert lab.is_stopped
    lab.pauser.run(DELAY_NS + 10_000)
    assert lab.said(JournalAction.FIRED, JournalAction.EXPIRED) == [JournalAction.EXPIRED]
    assert not lab.is_stopped


def test_a_watchdog_that_forwards_drops_nothing() -> None:
    lab = Lab(Watchdog(800, 5000, drops=False))
    lab.egresses.set(INDEX, "packets", 5)
    stormed(lab, 4000)
    assert lab.said(JournalAction.FIRED)
    assert lab.egresses.get(INDEX, "discards") == 0
    assert lab.egresses.get(INDEX, "freed") == 1


def test_pauses_are_obeyed_again_after_the_time_of_restoration_without_any() -> None:
    lab = Lab(WATCHDOG)
    lab.egresses.set(INDEX, "packets", 5)
    stormed(lab, 20_000)
    assert lab.said(JournalAction.FIRED, JournalAction.RESTORED) == [JournalAction.FIRED]
    assert not lab.is_stopped
    lab.hear(SWITCH, 0, 20_000)
    for now_ns in range(20_000, 19_600 + DELAY_NS + 5000, 100):
        lab.run(now_ns)
    assert not lab.said(JournalAction.RESTORED)
    lab.run(19_600 + DELAY_NS + 5000)
    assert lab.said(JournalAction.RESTORED)
    assert lab.egresses.get(INDEX, "discards") == 0
    lab.egresses.set(INDEX, "out_packets", 5)
    lab.hear(SWITCH, MAX_QUANTA, 40_000)
    lab.run(40_000 + DELAY_NS)
    assert lab.is_stopped


def test_a_pause_that_has_not_run_out_keeps_a_watchdog_from_restoring() -> None:
    lab = Lab(WATCHDOG)
    lab.egresses.set(INDEX, "packets", 5)
    stormed(lab, 20_000)
    last_ns = 19_600 + DELAY_NS + PAUSE_NS
    for now_ns in range(20_000, last_ns, 1000):
        lab.run(now_ns)
    assert not lab.said(JournalAction.RESTORED)
    lab.run(last_ns)
    assert lab.said(JournalAction.RESTORED)
