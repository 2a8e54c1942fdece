"""Finds on which link, and in which direction, packets were lost, from several kernel counters.

Takes successive readings of ports, queues and impaired cables; gives packets lost per direction of
each link since the lab came up.

A veth counts a packet as received before traffic control sees it (drivers/net/veth.c), so packets
and bytes of two ends never differ. The loss between them is what the sender's veth could not hand
over (`tx_dropped`) plus what a program dropped behind the receiver's port. A port's clsact has one
counter for both of its sides (net/core/dev.c, mini_qdisc_qstats_cpu_drop), which includes drops of
the port's own queue: those are subtracted, as they are no loss of a link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocelab.dataplane.impairments.maps import ImpairmentCounters
from rocelab.linux.counters import Place, PortCounters
from rocelab.observe.health.ports import PortReading
from rocelab.planning.fabric import DirectedLink, Fabric


@dataclass(slots=True)
class _KnownDrops:
    """Drops of a port's clsact, and the most of them that did not belong to a queue."""

    tc_drops: int = 0
    others: int = 0


class LossTracker:
    """Adds losses up."""

    def __init__(self, fabric: Fabric, *, queues_in_clsact: bool) -> None:
        """`queues_in_clsact`: whether a full queue drops in the clsact, as with the engine
        `bpf`."""
        self._fabric = fabric
        self._queues_in_clsact = queues_in_clsact
        self._known: dict[Place, _KnownDrops] = {}
        self._by_programs: dict[DirectedLink, int] = {}
        self._not_taken: dict[DirectedLink, int] = {}
        self._impaired_lost: dict[DirectedLink, int] = {}

    def update(
        self,
        ports: Mapping[Place, PortReading],
        queues: PortCounters,
        impairments: Mapping[DirectedLink, ImpairmentCounters],
    ) -> dict[DirectedLink, int]:
        """Packets lost so far, by directed link. `queues` must be read after `ports`: drops in
        between are subtracted early rather than never, so no false loss appears."""
        on_wire = {
            link: max(0, counted.lost - self._impaired_lost.get(link, 0))
            for link, counted in impairments.items()
        }
        impaired = impairments.keys() | self._impaired_lost.keys()
        for outwards in self._fabric.directed_links:
            place = outwards.sender, outwards.port.interface
            reading = ports.get(place)
            if reading is None:
                continue
            inwards = DirectedLink(outwards.link, outwards.receiver)
            self._not_taken[outwards] = reading.lost
            gained = self._drop_increase(place, reading.tc_drops, queues)
            out = 0
            if outwards in impaired and not outwards.far.role.is_switch:
                both = inwards in impaired
                out = min(gained, on_wire.get(outwards, 0)) if both else gained
            self._add(outwards, out)
            self._add(inwards, gained - out)
        self._impaired_lost = {link: counted.lost for link, counted in impairments.items()}
        return {
            link: lost + self._by_programs.get(link, 0) for link, lost in self._not_taken.items()
        }

    def _drop_increase(self, place: Place, tc_drops: int, queues: PortCounters) -> int:
        """Drops of a port's programs since the last look, without those of its queues."""
        known = self._known.setdefault(place, _KnownDrops())
        if tc_drops < known.tc_drops:
            # A fault's clsact went with the fault; this one belongs to another fault.
            known.others = 0
        known.tc_drops = tc_drops
        others = tc_drops
        if self._queues_in_clsact:
            others -= sum(queue.dropped_packets for queue in queues.get(place, {}).values())
        gained = max(0, others - known.others)
        known.others += gained
        return gained

    def _add(self, link: DirectedLink, packets: int) -> None:
        self._by_programs[link] = self._by_programs.get(link, 0) + packets
