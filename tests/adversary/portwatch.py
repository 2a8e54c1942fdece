"""`python -m tests.adversary.portwatch FD...`: records when rtnetlink reported each change of a
port.

FD are netlink sockets of namespaces, joined to RTMGRP_LINK. When standard input ends, it prints a
line per message with CLOCK_REALTIME ns, the index of its socket, the port, and whether it runs. A
separate process with the highest priority, so that no disturbance makes it late.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import time

_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")
_RTM_NEWLINK = 16
_IFLA_IFNAME = 3
_IFF_RUNNING = 0x40


def links(data: bytes) -> list[tuple[str, bool]]:
    """The port and whether it runs, of each RTM_NEWLINK in a datagram."""
    links, at = [], 0
    while at + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if kind == _RTM_NEWLINK:
            _, _, _, flags, _ = _LINK.unpack_from(data, at + _HEADER.size)
            place = at + _HEADER.size + _LINK.size
            while place + _ATTRIBUTE.size <= at + length:
                size, name = _ATTRIBUTE.unpack_from(data, place)
                if name == _IFLA_IFNAME:
                    text = data[place + 4 : place + size].split(b"\0")[0].decode()
                    links.append((text, bool(flags & _IFF_RUNNING)))
                place += (size + 3) & ~3
        at += (length + 3) & ~3
    return links


def main() -> None:
    os.sched_setscheduler(
        0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_max(os.SCHED_FIFO))
    )
    channels = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
    place_of = {channel.fileno(): place for place, channel in enumerate(channels)}
    messages: list[tuple[int, int, bytes]] = []
    poll = select.poll()
    poll.register(0, select.POLLIN)
    for channel in channels:
        poll.register(channel.fileno(), select.POLLIN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        ready = [number for number, _ in poll.poll()]
        now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        for number in ready:
            if number:
                place = place_of[number]
                messages.append((now_ns, place, channels[place].recv(1 << 17)))
        if 0 in ready:
            break
    for now_ns, place, data in messages:
        for interface, running in links(data):
            sys.stdout.write(f"{now_ns} {place} {interface} {int(running)}\n")


if __name__ == "__main__":
    main()
