"""Obeys the pause frames that reach a server's NICs (IEEE 802.1Qbb).

The kernel stops what has left this process already, punctually (`rocelab.dataplane.pfc`); this
keeps queue pairs of a paused class from sending more. A port obeys after its own response time, and
goes on when the pause has run out unless it was refreshed. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rocelab.agent.nic import NEVER_NS, AgentNic
from rocelab.wire import pauseframe

_FRAME_BYTES = 64
_EXPIRY = -1
"""Replaces a frame's quanta: a pause may have run out."""


@dataclass(slots=True)
class PausedPort:
    """A port that obeys: `delay_ns` after a frame's arrival, for so many quanta."""

    nic: AgentNic
    delay_ns: int
    quantum_ns: float
    until_ns: dict[int, int] = field(default_factory=dict)
    """Until when each class is paused."""


class PauseTimers:
    """When ports stop and go on, by the frames that have reached them."""

    def __init__(self, ports: Mapping[str, PausedPort]) -> None:
        """`ports` by interface."""
        self._ports = ports
        self._due: list[tuple[int, int, str, int, int]] = []
        self._count = 0

    def take(self, interface: str, quanta_of: Mapping[int, int], now_ns: int) -> None:
        """A frame has arrived, with the quanta of some classes."""
        port = self._ports.get(interface)
        if port is None:
            return
        for traffic_class, quanta in quanta_of.items():
            self._at(now_ns + port.delay_ns, interface, traffic_class, quanta)

    def turn(self, now_ns: int) -> int:
        """Do what is due; return when something is due next."""
        while self._due and self._due[0][0] <= now_ns:
            due_ns, _, interface, traffic_class, quanta = heappop(self._due)
            port = self._ports[interface]
            if quanta != _EXPIRY:
                port.until_ns[traffic_class] = due_ns + int(quanta * port.quantum_ns)
            if quanta > 0:
                self._at(port.until_ns[traffic_class], interface, traffic_class, _EXPIRY)
            if due_ns < port.until_ns[traffic_class]:
                port.nic.paused |= 1 << traffic_class
            else:
                port.nic.paused &= ~(1 << traffic_class)
        return self._due[0][0] if self._due else NEVER_NS

    def _at(self, due_ns: int, interface: str, traffic_class: int, quanta: int) -> None:
        self._count += 1
        heappush(self._due, (due_ns, self._count, interface, traffic_class, quanta))


class PauseFrameWatch:
    """Receives the pause frames of the namespace where it is made."""

    def __init__(self, ports: Mapping[str, PausedPort]) -> None:
        """`ports` by interface. Raises OSError."""
        self._timers = PauseTimers(ports)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.setblocking(False)
        # Only frames of this ethertype, and only those that the kernel's own program has let
        # through: a deaf port gets none. Python's bind would need an interface.
        protocol = socket.htons(pauseframe.ETHERTYPE)
        address = struct.pack("HHiHBB8x", socket.AF_PACKET, protocol, 0, 0, 0, 0)
        if ctypes.CDLL(None, use_errno=True).bind(self._socket.fileno(), address, len(address)):
            errno = ctypes.get_errno()
            raise OSError(errno, f"bind packet socket: {os.strerror(errno)}")

    def fileno(self) -> int:
        """Readable when a frame has come."""
        return self._socket.fileno()

    def turn(self, now_ns: int) -> int:
        """Read what has come and do what is due; return when something is due next."""
        while True:
            try:
                frame, (interface, *_) = self._socket.recvfrom(_FRAME_BYTES)
            except BlockingIOError:
                return self._timers.turn(now_ns)
            except OSError:  # an interface went down
                continue
            self._timers.take(interface, pauseframe.decode(frame), now_ns)
