"""The program of lossless classes in the kernel: loaded once per lab, on every port.

`PausePorts` is used while a lab comes up, after its queues are made: it adds a gate to each
lossless class of a port and puts the program in front of and behind every port.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from struct import Struct

from rocelab.base.errors import MachineError
from rocelab.base.files import make_folder
from rocelab.dataplane.pfc import gates
from rocelab.dataplane.pfc.maps import CLASSES, PINS, PORT_FIELDS
from rocelab.labfile.queues import QueueEngine
from rocelab.linux import bpf, probes, tc
from rocelab.linux.closing import Closing
from rocelab.planning.fabric import Fabric
from rocelab.planning.pauses import PausePlan, PausePort, plan_pauses
from rocelab.record import LabFiles

SOURCE = Path(__file__).parents[1] / "bpf" / "pfc.bpf.c"
NEEDS = ("clsact", "cls_bpf", "htb", "tbf")
"""The probes of `rocelab.linux.probes` that lossless classes need."""

INGRESS_PRIORITY = 1
"""Before impairments: what has reached the cable has left its switch."""
EGRESS_PRIORITY = 20
"""After the program of queues, which chooses a packet's class and may drop it."""

_SETTINGS = Struct("=Q64B")
_POOL = Struct("=II6q")
_WORD = Struct("=q")
_KEY = Struct("=I")


def pins_folder(files: LabFiles) -> Path:
    """Where the program's maps are pinned while the lab is up."""
    return files.bpf / "pfc"


class PausePorts(Closing):
    """Makes the lossless classes of a lab while it comes up; without any it does nothing."""

    def __init__(self, fabric: Fabric, files: LabFiles, engine: QueueEngine) -> None:
        """Load and pin the program. Raises MachineError if this machine cannot, or if the lab's
        queues are not those of the engine `bpf`."""
        self.plan = plan_pauses(fabric)
        self._loaded: bpf.LoadedObject | None = None
        if self.plan is None:
            return
        if engine is not QueueEngine.BPF:
            raise MachineError(
                "lossless classes need the queue engine bpf, which does not run here",
                "run `rocelab doctor` for what it needs, or leave queues.pfc out",
            )
        lacking = probes.missing(NEEDS)
        try:
            if lacking:
                raise OSError(lacking)
            self._load(self.plan, files)
        except OSError as error:
            raise MachineError(
                f"lossless classes do not run here: {error}",
                "run `rocelab doctor` for what they need, or leave queues.pfc out",
            ) from None

    def close(self) -> None:
        """Close the program; ports and pins keep it."""
        if self._loaded is not None:
            self._loaded.close()

    @property
    def slots(self) -> Mapping[tuple[str, str], int]:
        """The slot of each port, by node and interface."""
        return {} if self.plan is None else self.plan.slots

    def messages_of(self, node: str) -> list[bytes]:
        """The messages that make a node's ports pause and obey; the ports must be down, and have
        their queues."""
        if self.plan is None:
            return []
        return [
            tc.on_interface(request, port.port.index)
            for port in self.plan.ports_of.get(node, ())
            for request in self._requests(port)
        ]

    def _requests(self, port: PausePort) -> list[bytes]:
        assert self._loaded is not None and self.plan is not None
        classes = self.plan.pfc.classes
        kind = "nic" if port.is_nic else "switch"
        enter, leave = (self._loaded.descriptor(f"{way}_{kind}") for way in ("enter", "leave"))
        return [
            *gates.gate_messages(classes, port.mtu),
            tc.clsact(),
            tc.bpf_filter(enter, tc.CLSACT_INGRESS, INGRESS_PRIORITY, "rocelab-pfc"),
            tc.bpf_filter(leave, tc.CLSACT_EGRESS, EGRESS_PRIORITY, "rocelab-pfc"),
        ]

    def _load(self, plan: PausePlan, files: LabFiles) -> None:
        file = bpf.compiled(SOURCE)
        bpf.mount(files.bpf)
        slots = len(plan.ports) + 1
        sizes = {
            "ports": slots,
            "pools": len(plan.pools) + 1,
            "ingresses": slots * CLASSES,
            "egresses": slots * CLASSES,
        }
        self._loaded = loaded = bpf.LoadedObject(file, sizes)
        try:
            bpf.set_element(loaded.descriptor("settings"), _KEY.pack(0), settings(plan))
            for number, pool in enumerate(plan.pools, start=1):
                entry = _POOL.pack(0, 0, pool.shared, 0, pool.headroom, 0, 0, 0)
                bpf.set_element(loaded.descriptor("pools"), _KEY.pack(number), entry)
            for port in plan.ports:
                bpf.set_element(loaded.descriptor("ports"), _KEY.pack(port.slot), entry_of(port))
            folder = pins_folder(files)
            make_folder(folder, 0o700)
            loaded.pin(PINS, folder)
            loaded.attach("freed", folder / "freed")
        except BaseException:
            loaded.close()
            raise


def settings(plan: PausePlan) -> bytes:
    """The program's `struct settings`."""
    lossless = sum(1 << traffic_class for traffic_class in plan.pfc.classes)
    return _SETTINGS.pack(lossless, *plan.class_of_dscp)


def entry_of(port: PausePort) -> bytes:
    """The program's `struct port`."""
    words = dict.fromkeys(PORT_FIELDS, 0)
    words |= {
        "peer": port.peer,
        "pool": port.pool,
        "headroom": port.headroom,
        "delay_ns": port.delay_ns,
    }
    if port.pauses is not None:
        words |= {
            "xoff": port.pauses.xoff,
            "dynamic_th": port.pauses.dynamic_th,
            "xon": port.pauses.xon,
            "xon_offset": port.pauses.xon_offset,
            "reserved": port.pauses.reserved,
        }
    if port.buffer is not None:
        words |= {
            "drain": port.buffer.drain_bps // 8,
            "size": port.buffer.size,
            "full": port.buffer.full,
            "empty": port.buffer.empty,
        }
    return b"".join(_WORD.pack(words[name]) for name in PORT_FIELDS)
