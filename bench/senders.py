"""The senders that the agent is compared with, each a process in a server's namespace.

`python -m bench.senders NAME NETNS` with a JSON document on standard input: the interface and one
prebuilt RoCEv2 frame. It sends that frame, or the payload of the frame's UDP datagram, repeatedly,
as fast as it can, until it is interrupted (SIGINT). Temporary files go to TMPDIR.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from rocelab.linux.namespaces import enter
from rocelab.wire.headers import BTH_OFFSET, IP_OFFSET, ROCE_PORT, UDP_OFFSET

PREBUILT = 64
"""Packets that Scapy sends in turn."""

C_SOURCE = Path(__file__).with_name("send_loop.c")


class Sender(StrEnum):
    """Ways of sending one frame repeatedly."""

    SENDP = "scapy-sendp"
    SENDPFAST = "scapy-sendpfast"
    UDP_LOOP = "udp-sendto"
    UDP_LOOP_IN_C = "udp-sendto-c"
    FRAME_LOOP_IN_C = "packet-send-c"


def _sendp(interface: str, frame: bytes) -> None:
    from scapy.layers.l2 import Ether
    from scapy.sendrecv import sendp

    # Dissected packets keep their bytes: sendp does not build them again.
    sendp([Ether(frame) for _ in range(PREBUILT)], iface=interface, loop=1, verbose=False)


def _sendpfast(interface: str, frame: bytes) -> None:
    from scapy.layers.l2 import Ether
    from scapy.sendrecv import sendpfast

    # `realtime=None` is tcpreplay's --topspeed, `file_cache` its --preload-pcap.
    packets = [Ether(frame) for _ in range(PREBUILT)]
    sendpfast(packets, realtime=None, loop=1, file_cache=True, iface=interface)


def _udp_loop(interface: str, frame: bytes) -> None:
    udp, datagram, destination = _udp(frame)
    while True:
        udp.sendto(datagram, destination)


def _udp_loop_in_c(interface: str, frame: bytes) -> None:
    udp, datagram, (address, port) = _udp(frame)
    family = socket.AF_INET.to_bytes(2, sys.byteorder)
    name = family + port.to_bytes(2, "big") + socket.inet_aton(address) + bytes(8)
    _become_c_loop(udp, name, datagram)


def _frame_loop_in_c(interface: str, frame: bytes) -> None:
    outlet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    outlet.bind((interface, 0))
    _become_c_loop(outlet, b"", frame)


def _become_c_loop(outlet: socket.socket, address: bytes, data: bytes) -> None:
    """Replace this process by the compiled send_loop.c; does not return."""
    program = compiled(C_SOURCE)
    outlet.set_inheritable(True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = [C_SOURCE.stem, str(outlet.fileno()), address.hex(), data.hex()]
    os.execve(program, arguments, os.environ)


def compiled(source: Path) -> int:
    """A descriptor of the program of a C source. It is compiled in a private folder: root runs it,
    and in TMPDIR anybody can put another one in its place."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, source.stem)
        subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
        return os.open(program, os.O_RDONLY | os.O_CLOEXEC)


def _udp(frame: bytes) -> tuple[socket.socket, bytes, tuple[str, int]]:
    """A socket bound to the frame's source port, the datagram's payload, and its destination."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("", int.from_bytes(frame[UDP_OFFSET : UDP_OFFSET + 2], "big")))
    destination = socket.inet_ntoa(frame[IP_OFFSET + 16 : IP_OFFSET + 20])
    return udp, frame[BTH_OFFSET:], (destination, ROCE_PORT)


NEEDED = {
    Sender.SENDPFAST: "tcpreplay",
    Sender.UDP_LOOP_IN_C: "cc",
    Sender.FRAME_LOOP_IN_C: "cc",
}
"""The program that a sender needs."""

SEND: dict[Sender, Callable[[str, bytes], None]] = {
    Sender.SENDP: _sendp,
    Sender.SENDPFAST: _sendpfast,
    Sender.UDP_LOOP: _udp_loop,
    Sender.UDP_LOOP_IN_C: _udp_loop_in_c,
    Sender.FRAME_LOOP_IN_C: _frame_loop_in_c,
}


def main() -> None:
    sender, netns = Sender(sys.argv[1]), Path(sys.argv[2])
    what: dict[str, Any] = json.load(sys.stdin)
    enter(netns)
    # A shell starts background jobs deaf to it, and scapy ends tcpreplay on a KeyboardInterrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        SEND[sender](what["interface"], bytes.fromhex(what["frame"]))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
