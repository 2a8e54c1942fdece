"""The packets that arrived at a server, from its kernel and independent of the sender.

It reads an interface's packet count, and a sample of consecutive RoCEv2 frames whose ICRCs and PSNs
it checks.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.family import Family
from rocelab.linux import namespaces
from rocelab.linux.links import read_counters
from rocelab.wire.filters import NOTHING, attach_filter, roce_filter
from rocelab.wire.headers import BTH_OFFSET, PAYLOAD_OFFSET, PSN_MASK, PSN_OFFSET, UDP_OFFSET
from rocelab.wire.icrc import icrc_is_right

_ETH_P_IP = 0x0800
_SO_RCVBUFFORCE = 33
_SAMPLE_BUFFER_BYTES = 16 << 20
_LONGEST_FRAME = 1 << 16


@dataclass(frozen=True, slots=True)
class SampleCheck:
    """A sample of frames: how many have the right ICRC, and how many continue the sequence.

    `steps` are pairs of neighbours of one queue pair, `counted` those whose PSNs differ by one.
    """

    frames: int
    right_icrcs: int
    queue_pairs: int
    steps: int
    counted: int

    @property
    def icrcs_are_right(self) -> bool:
        return self.frames > 0 and self.right_icrcs == self.frames

    @property
    def psns_count(self) -> bool:
        return self.steps > 0 and self.counted == self.steps


def check_sample(frames: Sequence[bytes]) -> SampleCheck:
    """Check frames in order of arrival: complete RoCEv2 frames over IPv4."""
    last: dict[tuple[bytes, bytes], int] = {}
    steps = counted = 0
    for frame in frames:
        sport = frame[UDP_OFFSET : UDP_OFFSET + 2]
        queue_pair = (sport, frame[BTH_OFFSET + 5 : BTH_OFFSET + 8])
        psn = int.from_bytes(frame[PSN_OFFSET + 1 : PAYLOAD_OFFSET], "big")
        if queue_pair in last:
            steps += 1
            counted += psn == (last[queue_pair] + 1) & PSN_MASK
        last[queue_pair] = psn
    right = sum(map(icrc_is_right, frames))
    return SampleCheck(len(frames), right, len(last), steps, counted)


class Sample:
    """Captures frames until `close_off`; `frames` reads them later."""

    def __init__(self, netns: Path, interface: str) -> None:
        """Raises OSError."""

        def listen() -> socket.socket:
            tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _SAMPLE_BUFFER_BYTES)
            attach_filter(tap, roce_filter(Family.IPV4))
            tap.bind((interface, _ETH_P_IP))
            return tap

        self._tap = namespaces.inside(netns, listen)

    def close_off(self) -> None:
        """Stop the capture and keep the captured frames."""
        attach_filter(self._tap, NOTHING)

    def frames(self) -> list[bytes]:
        """Return the captured frames, in order, and close the sample."""
        taken = []
        with self._tap as tap:
            tap.setblocking(False)
            try:
                while True:
                    taken.append(tap.recv(_LONGEST_FRAME))
            except BlockingIOError:
                return taken


def received_packets(netns: Path, interface: str) -> int:
    """Packets received by the interface since it was made."""
    return namespaces.inside(netns, read_counters)[interface].rx_packets
