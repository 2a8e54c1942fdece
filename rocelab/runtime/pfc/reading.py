"""What pauses, and what they held, in a lab with lossless classes: counters and conservation.

Works from any process: the fabric gives the ports, the program's maps what was counted, and the
journal of the pausing process what it did and when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocelab.errors import InputError
from rocelab.kernel import bpf
from rocelab.kernel.closing import Closing
from rocelab.plan.fabric import Fabric
from rocelab.plan.pauses import PausePlan, PausePort, plan_pauses
from rocelab.runtime.pfc import control, journal
from rocelab.runtime.pfc.journal import Entry, What
from rocelab.runtime.pfc.maps import CLASSES, PauseMaps
from rocelab.runtime.pfc.program import pins_folder
from rocelab.runtime.record import LabFiles

_ENDS = (What.STARTED, What.EXPIRED, What.CUT, What.FIRED)


@dataclass(frozen=True, slots=True)
class ClassCounters:
    """A port and class since the lab came up. Sizes are bytes, times ns of the lab's clock.

    As a sender: what its peer asked of it (`pauses_received`, `resumes_received`) and what it did
    (`paused_ns`, `longest_ns`, `transitions`); `queued`: what joined its queue, `sent`: what
    reached the peer, `purged`: what the kernel freed on the way, `discarded`: by the watchdog. As a
    receiver: `pauses_sent`; what its switch held for it now and at most, also in its headroom;
    `late`: packets admitted beyond it only because this machine stopped the peer late; `dropped`:
    for which there was no room, or of a NIC, what its receive buffer had no room for.
    """

    pauses_sent: int
    resumes_sent: int
    pauses_received: int
    resumes_received: int
    transitions: int
    paused_ns: int
    longest_ns: int
    is_paused: bool
    held: int
    held_max: int
    headroom_max: int
    admitted_packets: int
    late_packets: int
    dropped_packets: int
    queued_packets: int
    sent_packets: int
    purged_packets: int
    discarded_packets: int
    leaked_packets: int
    watchdog_fired: int

    @property
    def in_queue(self) -> int:
        """Packets in the port's queue and on its cable."""
        return self.queued_packets - self.sent_packets - self.purged_packets


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause that a port obeyed: from `begin_ns` to `end_ns` (None: it lasts), CLOCK_MONOTONIC."""

    sender: PausePort
    """The port that stopped."""
    peer: str
    """The node that had asked it to."""
    traffic_class: int
    begin_ns: int
    end_ns: int | None
    ended_by: What | None


class PauseReader(Closing):
    """Reads the lossless classes of a lab as often as wanted."""

    def __init__(self, fabric: Fabric) -> None:
        """Raises InputError if the lab is not up or has none."""
        self._files = LabFiles(fabric.name)
        plan = plan_pauses(fabric)
        if plan is None:
            raise InputError(
                f"lab {fabric.name} has no lossless classes", "set queues.pfc in its file"
            )
        self.plan: PausePlan = plan
        try:
            self._maps = PauseMaps(pins_folder(self._files))
        except bpf.BpfError as error:
            raise InputError(f"the lab's lossless classes cannot be read: {error}") from None

    def close(self) -> None:
        self._maps.close()

    def is_alive(self) -> bool:
        """Whether the process that pauses runs."""
        return control.is_alive(self._files)

    def entries(self, since: int = 0) -> list[Entry]:
        """What the pausing process did, from its `since`-th record on."""
        return list(journal.read(control.journal_file(self._files), since))

    def counters(self, now_ns: int) -> dict[tuple[PausePort, int], ClassCounters]:
        """Every port's counters by class, at a time of CLOCK_MONOTONIC that has come."""
        entries = self.entries()
        counted = _counts(entries)
        paused: dict[tuple[int, int], list[tuple[int, int | None]]] = defaultdict(list)
        for pause in pauses(self.plan, entries):
            paused[pause.sender.slot, pause.traffic_class].append((pause.begin_ns, pause.end_ns))
        return {
            (port, each): self._of(port, each, counted, paused[port.slot, each], now_ns)
            for port in self.plan.ports
            for each in self.plan.pfc.classes
        }

    def _of(
        self,
        port: PausePort,
        traffic_class: int,
        counted: Mapping[tuple[int, int, What], int],
        paused: Iterable[tuple[int, int | None]],
        now_ns: int,
    ) -> ClassCounters:
        index = port.slot * CLASSES + traffic_class
        into, out = self._maps.ingresses.row(index), self._maps.egresses.row(index)
        buffer = self._maps.ports.row(port.slot)
        lengths = [(now_ns if end is None else end) - begin for begin, end in paused]

        def count(what: What) -> int:
            return counted.get((port.slot, traffic_class, what), 0)

        return ClassCounters(
            pauses_sent=count(What.PAUSE_SENT) + count(What.REFRESHED),
            resumes_sent=count(What.RESUME_SENT),
            pauses_received=out["pauses"],
            resumes_received=out["resumes"],
            transitions=count(What.STOPPED),
            paused_ns=sum(lengths),
            longest_ns=max(lengths, default=0),
            is_paused=bool(out["gated"]),
            held=buffer["held"] if port.is_nic else into["held"],
            held_max=buffer["held_max"] if port.is_nic else into["held_max"],
            headroom_max=into["headroom_max"],
            admitted_packets=into["packets"],
            late_packets=into["late_packets"],
            dropped_packets=buffer["overflow_packets"] if port.is_nic else into["dropped_packets"],
            queued_packets=out["packets"],
            sent_packets=out["out_packets"],
            purged_packets=out["purged_packets"],
            discarded_packets=out["discarded_packets"],
            leaked_packets=out["leaked_packets"],
            watchdog_fired=count(What.FIRED),
        )

    def imbalance(self) -> tuple[str, ...]:
        """Where packets that came in are neither out, dropped, purged nor held; empty where all
        are accounted for. True of a lab at rest."""
        found = []
        for port in self.plan.ports:
            for each in self.plan.pfc.classes:
                index = port.slot * CLASSES + each
                into, out = self._maps.ingresses.row(index), self._maps.egresses.row(index)
                if into["bytes"] - into["left_bytes"] - into["purged_bytes"] != into["held"]:
                    found.append(f"{port} class {each}: held for it")
                if out["packets"] < out["out_packets"] + out["purged_packets"]:
                    found.append(f"{port} class {each}: more left its queue than joined it")
        return tuple(found)


def pauses(plan: PausePlan, entries: Iterable[Entry]) -> list[Pause]:
    """The pauses that ports obeyed, in order of their beginnings."""
    found: list[Pause] = []
    begun: dict[tuple[int, int], int] = {}

    def peer_of(port: PausePort) -> str:
        return plan.by_slot[port.peer].node

    for entry in entries:
        place = entry.slot, entry.traffic_class
        if entry.what is What.STOPPED:
            begun.setdefault(place, entry.t_ns)
        elif entry.what in _ENDS and place in begun:
            port = plan.by_slot[entry.slot]
            begin_ns = begun.pop(place)
            found.append(
                Pause(port, peer_of(port), entry.traffic_class, begin_ns, entry.t_ns, entry.what)
            )
    for (slot, traffic_class), begin_ns in begun.items():
        port = plan.by_slot[slot]
        found.append(Pause(port, peer_of(port), traffic_class, begin_ns, None, None))
    return sorted(found, key=lambda pause: pause.begin_ns)


def _counts(entries: Iterable[Entry]) -> dict[tuple[int, int, What], int]:
    found: dict[tuple[int, int, What], int] = defaultdict(int)
    for entry in entries:
        found[entry.slot, entry.traffic_class, entry.what] += 1
    return found
