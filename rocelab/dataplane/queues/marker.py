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

_SETTINGS = struct.Struct(f"=4Q{BINS}Q2Q64B")
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
        self._loaded = bpf.LoadedObject(file, {"queues": queues, "depths": queues, "ports": slots})
        try:
            settings_map = self._loaded.descriptor("settings")
            bpf.set_element(settings_map, bytes(4), settings(plan))
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
        return htb.tree(port.rate_bps, port.mtu, self._plan.classes) + self._filter

    def host_messages(self, port: QueuedPort) -> list[bytes]:
        """The messages that make the queues of a server's NIC, on interface index 0."""
        return (
            htb.host_tree(port.rate_bps, port.mtu, self._plan.lossless_classes) + self._host_filter
        )

    def close(self) -> None:
        """Close the program; ports and pins keep it."""
        self._loaded.close()


def settings(plan: QueuePlan) -> bytes:
    """The program's `struct settings`."""
    return _SETTINGS.pack(
        plan.buffer_bytes,
        plan.ecn.kmin,
        plan.ecn.kmax,
        round(plan.ecn.pmax * _PROBABILITY_ONE),
        *plan.bin_edges_bytes,
        sum(1 << number for number in plan.marked_classes),
        sum(1 << number for number in plan.lossless_classes),
        *plan.class_of_dscp,
    )
