"""Reads the counters of the engine `red`: a dump of each switch's qdiscs.

Source: struct tc_red_xstats of include/uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

import socket
import struct

import numpy as np
import numpy.typing as npt

from rocelab.dataplane.queues import htb
from rocelab.labfile.queues import TRAFFIC_CLASSES
from rocelab.linux import namespaces, netlink, tc
from rocelab.linux.counters import Place, PortCounters, QueueCounters
from rocelab.planning.queues import QueuePlan
from rocelab.record import LabFiles

_RED = struct.Struct("=4I")


class RedReader:
    """The counters of a lab that is up."""

    def __init__(self, plan: QueuePlan, files: LabFiles) -> None:
        self._plan = plan
        self._files = files

    def close(self) -> None:
        """Nothing to close."""

    def forget_maximum(self) -> None:
        """Nothing to forget: sch_red does not count it."""

    def depths_bytes(self) -> npt.NDArray[np.uint64]:
        """Bytes in each queue now, by slot and class; row 0 is of no port."""
        depths = np.zeros((len(self._plan.ports) + 1, TRAFFIC_CLASSES), dtype=np.uint64)
        for place, queues in self.counters().items():
            for number, counters in queues.items():
                depths[self._plan.port_of[place].slot, number] = counters.depth_bytes
        return depths

    def counters(self) -> PortCounters:
        """Every queue's counters now."""
        queues: dict[Place, dict[int, QueueCounters]] = {
            (port.node, port.interface): {} for port in self._plan.ports
        }
        for node in self._plan.ports_of:
            for interface, number, counters in namespaces.inside(
                self._files.netns_of(node), read_queues
            ):
                if (node, interface) in queues:
                    queues[node, interface][number] = counters
        return queues


def read_queues() -> list[tuple[str, int, QueueCounters]]:
    """Interface, traffic class and counters of each queue in the calling thread's namespace."""
    names = dict(socket.if_nameindex())
    with netlink.open_socket() as channel:
        queues = map(queue_of, tc.read(channel, tc.RTM_GETQDISC))
    return [(names[queue[0]], *queue[1:]) for queue in queues if queue is not None]


def queue_of(qdisc: tc.InstalledFilter) -> tuple[int, int, QueueCounters] | None:
    """Interface index, traffic class and counters of a qdisc; None for other qdiscs."""
    number = qdisc.parent - htb.class_id(0)
    if not 0 <= number < TRAFFIC_CLASSES:
        return None
    counts, marked = qdisc.counts, 0
    if qdisc.kind == "red":
        *_, marked = _RED.unpack_from(qdisc.find(tc.TCA_XSTATS))
    counters = QueueCounters(
        counts.packets, counts.bytes, marked, counts.dropped, counts.backlog_bytes, None, None, None
    )
    return qdisc.interface, number, counters
