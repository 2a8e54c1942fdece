"""RoCE packets between two servers of a lab, and the nodes that saw each, for tests of schemes.

The PSN identifies a packet. Packet sockets on the switches record the packets, independently of the
counters under test.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rocelab.agent.rc.frames import ip_checksum
from rocelab.jobs.flow import resolve_endpoints
from rocelab.lab.lab import RunningLab
from rocelab.linux import namespaces
from rocelab.linux.netlink import SO_RCVBUFFORCE
from rocelab.traffic.roce import Envelope, roce_frame
from rocelab.wire.headers import BTH_OFFSET, IP_OFFSET, PSN_OFFSET, ROCE_PORT, UDP_OFFSET, Opcode
from tests.helpers.waiting import LIMIT_S

ETH_P_IP = 0x0800
DATA, ACK = Opcode.RC_SEND_MIDDLE, Opcode.RC_ACKNOWLEDGE


@dataclass
class SchemeWire:
    """A sender on a server's NIC, and listeners on some nodes."""

    sender: socket.socket
    listeners: dict[str, socket.socket]
    template: bytes

    def frame(
        self,
        psn: int,
        *,
        qp: int = 1,
        sport: int = 49152,
        opcode: Opcode = DATA,
        source: str | None = None,
        destination: str | None = None,
    ) -> bytes:
        """A packet with a right IP checksum; switches do not check the ICRC."""
        frame = bytearray(self.template)
        frame[BTH_OFFSET] = opcode
        frame[BTH_OFFSET + 5 : PSN_OFFSET] = qp.to_bytes(3, "big")
        frame[PSN_OFFSET + 1 : PSN_OFFSET + 4] = psn.to_bytes(3, "big")
        struct.pack_into("!H", frame, UDP_OFFSET, sport)
        for offset, address in ((12, source), (16, destination)):
            if address is not None:
                frame[IP_OFFSET + offset : IP_OFFSET + offset + 4] = socket.inet_aton(address)
        struct.pack_into("!H", frame, IP_OFFSET + 10, 0)
        struct.pack_into("!H", frame, IP_OFFSET + 10, ip_checksum(frame[IP_OFFSET:UDP_OFFSET]))
        return bytes(frame)

    def send(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self.sender.send(frame)

    def seen(self, count: int, timeout_s: float = LIMIT_S) -> dict[str, list[int]]:
        """The PSNs that each node has received, once the last node has `count` of them or time is
        up."""
        numbers: dict[str, list[int]] = {name: [] for name in self.listeners}
        last = next(reversed(self.listeners))
        deadline = time.monotonic() + timeout_s
        over = False
        while not over:
            time.sleep(0.002)
            # Before the others are drained: what is there by now was seen on the way to it.
            numbers[last] += _drained(self.listeners[last])
            over = len(numbers[last]) >= count or time.monotonic() > deadline
            for name, listener in self.listeners.items():
                numbers[name] += _drained(listener)
        return numbers


def _drained(listener: socket.socket) -> Iterator[int]:
    while True:
        try:
            data = listener.recv(64)
        except BlockingIOError:
            return
        if len(data) > PSN_OFFSET + 4 and data[UDP_OFFSET + 2 : BTH_OFFSET - 4] == struct.pack(
            "!H", ROCE_PORT
        ):
            yield int.from_bytes(data[PSN_OFFSET + 1 : PSN_OFFSET + 4], "big")


@contextmanager
def scheme_wire(
    lab: RunningLab, source: str, destination: str, at: Iterable[str]
) -> Iterator[SchemeWire]:
    """Packets from one server's first NIC to another's, seen at the nodes `at` and at the end."""
    ends = resolve_endpoints(lab.fabric, source, destination)
    envelope = Envelope(
        source_mac=ends.source_mac,
        next_hop_mac=ends.next_hop_mac,
        source_ip=ends.source_ip,
        destination_ip=ends.destination_ip,
        sport=49152,
        dest_qp=1,
    )

    def sending() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.bind((ends.interface, 0))
        return made

    def listening() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        made.setblocking(False)
        return made

    with ExitStack() as stack:
        sender = stack.enter_context(namespaces.inside(lab.node(source).netns, sending))
        listeners = {
            name: stack.enter_context(namespaces.inside(lab.node(name).netns, listening))
            for name in (*at, destination)
        }
        template = roce_frame(envelope, DATA, psn=0, payload=bytes(64))
        yield SchemeWire(sender, listeners, template)
