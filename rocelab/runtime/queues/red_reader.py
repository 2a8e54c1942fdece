"""Reads what qdiscs count where the engine is `red`: a dump of each switch's queues.

Source: include/uapi/linux/gen_stats.h and struct tc_red_xstats of pkt_sched.h.
"""

from __future__ import annotations

import socket
import struct

import numpy as np
import numpy.typing as npt

from rocelab.kernel import htb, namespaces, netlink, tc
from rocelab.kernel.counters import Place, PortCounters, QueueCounters
from rocelab.plan.queues import QueuePlan
from rocelab.runtime.record import LabFiles
from rocelab.spec.queues import TRAFFIC_CLASSES

TCA_XSTATS = 4
_BASIC = struct.Struct("=QI")
_QUEUE = struct.Struct("=5I")
_RED = struct.Struct("=4I")


class RedReader:
    """A lab's counters while it is up."""

    def __init__(self, plan: QueuePlan, files: LabFiles) -> None:
        self._plan = plan
        self._files = files

    def close(self) -> None:
        """Nothing is held."""

    def depths_bytes(self) -> npt.NDArray[np.uint64]:
        """Bytes in each queue now, by slot and class; row 0 is of no port."""
        depths = np.zeros((len(self._plan.ports) + 1, TRAFFIC_CLASSES), dtype=np.uint64)
        for place, queues in self.counters().items():
            for each, counters in queues.items():
                depths[self._plan.port_of[place].slot, each] = counters.depth_bytes
        return depths

    def counters(self) -> PortCounters:
        """Every queue's counters now."""
        found: dict[Place, dict[int, QueueCounters]] = {
            (port.node, port.interface): {} for port in self._plan.ports
        }
        for node in self._plan.ports_of:
            for interface, each, counters in namespaces.inside(
                self._files.netns_of(node), read_queues
            ):
                if (node, interface) in found:
                    found[node, interface][each] = counters
        return found


def read_queues() -> list[tuple[str, int, QueueCounters]]:
    """Interface, traffic class and counters of each queue in the calling thread's namespace."""
    names = dict(socket.if_nameindex())
    found: list[tuple[str, int, QueueCounters]] = []
    with netlink.open_socket() as channel:
        for body in netlink.dump(channel, tc.RTM_GETQDISC, bytes(tc.TCMSG.size)):
            queue = parse_queue(body)
            if queue is not None:
                index, each, counters = queue
                found.append((names[index], each, counters))
    return found


def parse_queue(body: bytes) -> tuple[int, int, QueueCounters] | None:
    """Interface index, traffic class and counters in a qdisc's message; None for other qdiscs."""
    _, index, _, parent, _ = tc.TCMSG.unpack_from(body)
    each = parent - htb.class_id(0)
    if not 0 <= each < TRAFFIC_CLASSES:
        return None
    told = tc.attributes(body[tc.TCMSG.size :])
    stats = tc.attributes(told[tc.TCA_STATS2])
    size, packets = _BASIC.unpack_from(stats[1])
    _, backlog, drops, _, _ = _QUEUE.unpack_from(stats[3])
    marked = 0
    if told[tc.TCA_KIND].startswith(b"red\0"):
        *_, marked = _RED.unpack_from(told[TCA_XSTATS])
    return index, each, QueueCounters(packets, size, marked, drops, backlog, None, None, None)
