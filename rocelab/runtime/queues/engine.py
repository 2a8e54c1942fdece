"""The queues of a lab's switch ports, on whichever engine this machine has.

In goes a fabric that is coming up; out come the netlink messages that give each switch port its
rate and queues, before it has carrier. Which engine was taken is written into the lab's folder, so
that another command reads the right counters.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Protocol

from rocelab.errors import MachineError
from rocelab.files import write_file
from rocelab.kernel import links, namespaces, probes, tc
from rocelab.kernel.closing import Closing
from rocelab.plan.fabric import Fabric
from rocelab.plan.queues import QueuedPort, plan_queues
from rocelab.runtime.queues.marker import Marker
from rocelab.runtime.queues.red import RedQueues
from rocelab.runtime.record import LabFiles
from rocelab.spec.queues import QueueEngine

LONGEST_PACKETS = 32767
"""A port's txqueuelen, the most that recent kernels take. Queues end at bytes; of packets too small
for that the engine `bpf` drops and counts what is beyond this."""

AUTO_PORTS = 2000
"""Switch ports up to which queues are made unasked. For each classifier block that it adds the
kernel walks a list of all (net/core/flow_offload.c indir_dev_add), and a port has twelve: 1,100
ports take 1 s, 2,200 take 3 s and 9,300 take 86 s."""

FEATURES = {
    QueueEngine.BPF: ("clsact", "cls_bpf", "htb"),
    QueueEngine.RED: ("htb", "red", "u32"),
}
"""What each engine needs of `rocelab.kernel.probes`."""


class PortQueues(Protocol):
    """An engine: makes the queues of any port."""

    def messages(self, port: QueuedPort) -> list[bytes]:
        """What makes a port's queues, on interface index 0."""
        ...

    def close(self) -> None:
        """Let go of what only making queues needs."""
        ...


def bpf_folder(files: LabFiles) -> Path:
    """A bpffs while the lab is up: where the engine `bpf` keeps its program and maps, and below
    it `rocelab.runtime.steering` its own."""
    return files.root / "bpf"


def read_engine(files: LabFiles) -> QueueEngine:
    """The engine of a lab that is up; `off` where it has no queues."""
    try:
        return QueueEngine(_engine_file(files).read_text())
    except FileNotFoundError:
        return QueueEngine.OFF


def remove(files: LabFiles) -> None:
    """Let all of the lab's programs and maps go. Idempotent."""
    while os.path.ismount(bpf_folder(files)):
        namespaces.detach_mount(bpf_folder(files))


class SwitchQueues(Closing):
    """Makes the queues of a lab's switches while it comes up.

    `note` says what the user should know about the engine, None where there is nothing to say.
    """

    def __init__(self, fabric: Fabric, files: LabFiles) -> None:
        """Take the engine that the spec names, or the best that runs here.

        Raises MachineError when the spec names one that this machine does not have.
        """
        self.note: str | None = None
        self._plan = plan_queues(fabric)
        self._files = files
        self._engine: PortQueues | None = None
        self._templates: dict[tuple[int, int], list[bytes]] = {}
        wanted = fabric.spec.queues.engine
        if not self._plan.ports or wanted is QueueEngine.OFF:
            return
        if wanted is QueueEngine.AUTO:
            self._take_best()
        else:
            self._take(wanted)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    @property
    def slots(self) -> Mapping[tuple[str, str], int]:
        """The slot of each port that gets queues, by node and interface."""
        if self._engine is None:
            return {}
        return {place: port.slot for place, port in self._plan.port_of.items()}

    def messages_of(self, node: str, indexes: Mapping[tuple[str, str], int]) -> list[bytes]:
        """What gives each port of a switch its queues; the ports must be down."""
        if self._engine is None:
            return []
        return [
            tc.on_interface(request, indexes[node, port.interface])
            for port in self._plan.ports_of.get(node, ())
            for request in self._template(port)
        ]

    def _template(self, port: QueuedPort) -> list[bytes]:
        assert self._engine is not None
        kind = (port.rate_bps, port.mtu)
        if kind not in self._templates:
            self._templates[kind] = self._engine.messages(port)
        return self._templates[kind]

    def _take_best(self) -> None:
        ports = len(self._plan.ports)
        if ports > AUTO_PORTS:
            self.note = (
                f"switch ports have neither rate nor queue: {ports:,} of them would take minutes "
                "to make; `queues: {engine: bpf}` makes them"
            )
            return
        reasons = []
        for engine in (QueueEngine.BPF, QueueEngine.RED):
            try:
                self._take(engine)
            except MachineError as error:
                reasons.append(error.message)
                remove(self._files)
                continue
            if reasons:
                self.note = f"ECN marks by sch_red, which counts less: {reasons[0]}"
            return
        self.note = "switch ports have neither rate nor queue: " + "; ".join(reasons)

    def _take(self, engine: QueueEngine) -> None:
        try:
            lacking = probes.missing(FEATURES[engine])
            if lacking:
                raise OSError(lacking)
            if engine is QueueEngine.BPF:
                self._engine = Marker(self._plan, bpf_folder(self._files))
            else:
                self._engine = RedQueues(self._plan)
        except OSError as error:
            raise MachineError(
                f"queues.engine {engine.value} does not run here: {error}",
                "run `rocelab doctor` for what it needs, or set queues.engine: auto",
            ) from None
        write_file(_engine_file(self._files), engine.value)


def keep_order(fabric: Fabric, node: str, queued: Container[tuple[str, str]]) -> None:
    """Have packets from every queued port arrive in order, as far as it takes this node's ends.

    A queue is emptied now by the CPU that fills it, now by the one whose timer let it send. A plain
    veth hands each packet to the backlog of whichever CPU that is, and the next switch may take a
    later packet first: reliable connections then send again what was never lost. With NAPI the far
    end has one ring, which one CPU at a time empties in order. The kernel uses NAPI where the far
    end has GRO and the near end no TSO (drivers/net/veth.c, veth_xmit). RoCE is not merged by that:
    the kernel merges UDP only where rx-udp-gro-forwarding or fraglist GRO is on
    (net/ipv4/udp_offload.c).

    The calling thread must be inside the node's namespace. Raises OSError.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        for link in fabric.links_of[node]:
            port, far = link.port(node), link.far(node)
            if (port.node, port.interface) in queued:
                links.set_offload(control, port.interface, links.ETHTOOL_STSO, 0)
            if (far.node, far.interface) in queued:
                links.set_offload(control, port.interface, links.ETHTOOL_SGRO, 1)


def _engine_file(files: LabFiles) -> Path:
    return files.root / "queues"
