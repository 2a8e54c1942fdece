"""The queues of a lab's switch ports, on the best engine that this machine has.

While a fabric comes up, `SwitchQueues` makes the netlink messages that give each switch port its
rate and queues before it has carrier. The lab's folder records the engine, so that another command
reads the right counters.
"""

from __future__ import annotations

import socket
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Protocol

from rocelab.base.errors import MachineError
from rocelab.base.files import write_file
from rocelab.dataplane.queues.marker import Marker
from rocelab.dataplane.queues.red import RedQueues
from rocelab.labfile.queues import QueueEngine
from rocelab.linux import links, namespaces, probes, tc
from rocelab.linux.closing import Closing
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import QueuedPort, plan_queues
from rocelab.record import LabFiles

AUTO_PORTS = 2000
"""The most switch ports that get queues by default. For each new classifier block the kernel walks
a list of all blocks (net/core/flow_offload.c indir_dev_add), and a port has twelve: 1,100 ports
take 1 s, 2,200 take 3 s and 9,300 take 86 s."""

FEATURES = {
    QueueEngine.BPF: ("clsact", "cls_bpf", "htb"),
    QueueEngine.RED: ("htb", "red", "u32"),
}
"""The probes of `rocelab.linux.probes` that each engine needs."""


class PortQueues(Protocol):
    """An engine, which makes the queues of a port."""

    def messages(self, port: QueuedPort) -> list[bytes]:
        """The messages that make a port's queues, on interface index 0."""
        ...

    def host_messages(self, port: QueuedPort) -> list[bytes]:
        """The messages that make the queues of a server's NIC, on interface index 0."""
        ...

    def close(self) -> None:
        """Close what is only needed to make queues."""
        ...


def read_engine(files: LabFiles) -> QueueEngine:
    """The engine of a lab that is up; `off` if it has no queues."""
    try:
        return QueueEngine(_engine_file(files).read_text())
    except FileNotFoundError:
        return QueueEngine.OFF


class SwitchQueues(Closing):
    """Makes the queues of the switches of a lab's network while it comes up.

    `engine` is the one in use; `note` is what the user should know about it, or None.
    """

    def __init__(self, fabric: Fabric, files: LabFiles) -> None:
        """Choose the engine that the spec names, or the best that runs here.

        Raises MachineError if the spec names one that this machine does not have.
        """
        self.note: str | None = None
        self.engine = QueueEngine.OFF
        self._plan = plan_queues(fabric)
        self._files = files
        self._engine: PortQueues | None = None
        self._templates: dict[tuple[int, int, int, bool], list[bytes]] = {}
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

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """Each port that gets queues, by node and interface."""
        if self._engine is None:
            return frozenset()
        return frozenset(
            (port.node, port.interface) for port in (*self._plan.ports, *self._plan.nics)
        )

    def messages_of(self, node: str) -> list[bytes]:
        """The messages that give each port of a node its queues; the ports must be down."""
        if self._engine is None:
            return []
        return [
            tc.on_interface(request, port.index)
            for port in self._plan.ports_of.get(node, ())
            for request in self._template(port)
        ]

    def _template(self, port: QueuedPort) -> list[bytes]:
        assert self._engine is not None
        kind = (port.rate_bps, port.mtu, port.kind, port.slot == 0)
        if kind not in self._templates:
            make = self._engine.messages if port.slot else self._engine.host_messages
            self._templates[kind] = make(port)
        return self._templates[kind]

    def _take_best(self) -> None:
        ports = len(self._plan.ports)
        if ports > AUTO_PORTS:
            self.note = (
                f"switch ports have neither rate nor queue: {ports:,} of them would take minutes "
                "to create; set `queues: {engine: bpf}` to create them"
            )
            return
        reasons = []
        for engine in (QueueEngine.BPF, QueueEngine.RED):
            try:
                self._take(engine)
            except MachineError as error:
                reasons.append(error.message)
                namespaces.detach_mounts(self._files.bpf)
                continue
            if reasons:
                self.note = (
                    "ECN marks by sch_red, which has fewer counters and counts other traffic with "
                    f"RoCEv2: {reasons[0]}"
                )
            return
        self.note = "switch ports have neither rate nor queue: " + "; ".join(reasons)

    def _take(self, engine: QueueEngine) -> None:
        try:
            lacking = probes.missing(FEATURES[engine])
            if lacking:
                raise OSError(lacking)
            if engine is QueueEngine.BPF:
                self._engine = Marker(self._plan, self._files.bpf)
            else:
                self._engine = RedQueues(self._plan)
        except OSError as error:
            raise MachineError(
                f"queues.engine {engine.value} does not run here: {error}",
                "run `rocelab doctor` for what it needs, or set queues.engine: auto",
            ) from None
        self.engine = engine
        write_file(_engine_file(self._files), engine.value)


def keep_order(fabric: Fabric, node: str, queued: Container[tuple[str, str]]) -> None:
    """Set this node's interfaces so that packets from queued ports arrive in order.

    Sometimes the CPU that fills a queue sends from it, sometimes the CPU whose timer expired. A
    plain veth puts each packet into the backlog of that CPU, so the next switch may see a later
    packet first, and reliable connections then retransmit packets that were never lost. With NAPI
    the far end has one ring, which one CPU at a time empties in order. The kernel uses NAPI if the
    far end has GRO and the near end no TSO (drivers/net/veth.c, veth_xmit). This does not merge
    RoCE packets: the kernel merges UDP only if rx-udp-gro-forwarding or fraglist GRO is on
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
    return files.dataplane / "queues"
