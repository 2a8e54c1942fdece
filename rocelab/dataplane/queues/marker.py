"""The engine `bpf`: a program before each port's HTB tree classifies, drops and marks packets.

The program is loaded once per lab from a `QueuePlan` and pinned, with its maps, on a bpffs in the
lab's folder, so that other commands find them and they are removed with the lab. `Marker` makes the
messages that give a port its tree and its filter. The program is
rocelab/dataplane/bpf/queues.bpf.c.
"""

from __future__ import annotations

import struct
from pathlib import Path

from rocelab.dataplane.queues import htb
from rocelab.labfile.queues import TRAFFIC_CLASSES
from rocelab.linux import bpf, tc
from rocelab.planning.queues import BINS, QueuedPort, QueuePlan

SOURCE = Path(__file__).parents[1] / "bpf" / "queues.bpf.c"
PINS = ("queues", "depths", "sample")

QUEUE_FIELDS = (
    *("bytes", "ce_out", "dropped_packets", "dropped_bytes", "depth_max", "depth_sum"),
    *("others_bytes", "others_ce_out", "others_marked"),
    *("others_dropped_packets", "others_dropped_bytes"),
    *("others_held", "others_held_max", "crowded_out"),
    *("others_tcp", "others_udp", "others_icmp", "others_rest"),
)
QUEUE_WORDS = len(QUEUE_FIELDS) + 2 * BINS
"""64-bit words of the program's `struct queue`: these fields, packets by depth, marks by depth."""

_SETTINGS = struct.Struct(f"={4 * TRAFFIC_CLASSES}Q{BINS}Q2Q64B")
_PORT = struct.Struct(f"={2 + TRAFFIC_CLASSES}QQ")
_PROBABILITY_ONE = 1 << 31


class Marker:
    """The program of a lab while it comes up."""

    def __init__(self, plan: QueuePlan, folder: Path) -> None:
        """Load and pin the program for the ports of `plan`, on a bpffs mounted at `folder`.

        Raises OSError (BpfError is one) if this machine cannot; `folder` may then be mounted.
        """
        slots = len(plan.ports) + 1
        file = bpf.compiled(SOURCE)
        bpf.mount(folder)
        queues = slots * TRAFFIC_CLASSES
        sizes = {"queues": queues, "depths": queues, "ports": slots, "settings": len(plan.kinds)}
        self._loaded = bpf.LoadedObject(file, sizes)
        try:
            for number in range(len(plan.kinds)):
                key = struct.pack("=I", number)
                bpf.set_element(self._loaded.descriptor("settings"), key, settings(plan, number))
            for port in plan.ports:
                if port.kind:
                    entry = _PORT.pack(*bytes(2 + TRAFFIC_CLASSES), port.kind)
                    key = struct.pack("=I", port.slot)
                    bpf.set_element(self._loaded.descriptor("ports"), key, entry)
            self._loaded.pin(PINS, folder)
            program = self._loaded.descriptor("enqueue")
            host = self._loaded.descriptor("leave_host")
            self._filter, self._host_filter = (
                [tc.clsact(), tc.bpf_filter(descriptor, tc.CLSACT_EGRESS, 10, "rocelab")]
                for descriptor in (program, host)
            )
        except BaseException:
            self._loaded.close()
            raise
        self._plan = plan

    def messages(self, port: QueuedPort) -> list[bytes]:
        """The messages that make a port's queues, on interface index 0."""
        plan, quanta = self._plan, self._plan.quanta(port.kind, port.mtu)
        tree = htb.tree(port.rate_bps, port.mtu, plan.classes, plan.strict_classes, quanta)
        return tree + self._filter

    def host_messages(self, port: QueuedPort) -> list[bytes]:
        """The messages that make the queues of a server's NIC, on interface index 0."""
        return (
            htb.host_tree(port.rate_bps, port.mtu, self._plan.lossless_classes) + self._host_filter
        )

    def close(self) -> None:
        """Close the program; ports and pins keep it."""
        self._loaded.close()


def settings(plan: QueuePlan, number: int) -> bytes:
    """The program's `struct settings` of ports of a kind. Where a class is never marked its line is
    the lab's, and not used."""
    kind = plan.kinds[number]
    lines = [line or plan.ecn for line in kind.lines]
    return _SETTINGS.pack(
        *kind.buffer_bytes,
        *(line.kmin for line in lines),
        *(line.kmax for line in lines),
        *(round(line.pmax * _PROBABILITY_ONE) for line in lines),
        *plan.bin_edges_bytes,
        sum(1 << number for number, line in enumerate(kind.lines) if line is not None),
        sum(1 << number for number in plan.lossless_classes),
        *plan.class_of_dscp,
    )
