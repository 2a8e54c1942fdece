"""Reads the TCP connections of a network namespace, with the kernel's figures of each.

Source: sock_diag(7), include/uapi/linux/inet_diag.h and tcp.h. By `struct`, not pyroute2, for the
reason that `rocelab.linux.netlink` gives.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address

from rocelab.linux import netlink

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
SKNLGRPS_TCP_DESTROY = (1, 3)
"""Groups that hear of every TCP socket that ends, of IPv4 and of IPv6."""
INET_DIAG_INFO = 2
_CONNECTED = 0b1011_0011_0010
"""Of net/tcp_states.h, as bits: established, FIN wait 1 and 2, close wait, last ACK, closing."""

_REQUEST = struct.Struct("=BBBxI48x")
_MESSAGE = struct.Struct(">B3xHH16s16s4x8s20x")
_INFO = struct.Struct("=24xI28xI8xI48xQ16xII48xQQ")
"""tcpi_unacked, _last_ack_recv, _rtt, _bytes_acked, _notsent_bytes, _min_rtt, _bytes_sent,
_bytes_retrans of struct tcp_info (Linux 4.19)."""


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """One end of a TCP connection: its own address and port, and the other end's."""

    cookie: bytes
    """The kernel's identity of the socket, unique on a machine."""

    address: str
    port: int
    peer: str
    peer_port: int
    unacked_segments: int
    """Sent, and not acknowledged yet."""

    silent_ms: int
    """Since the last acknowledgement came."""

    unsent_bytes: int
    """In the socket, and never sent yet."""

    acked_bytes: int
    """Sent and acknowledged, since the connection began, with 1 or 2 of SYN and FIN."""

    sent_bytes: int
    """All that was sent, with what was retransmitted."""

    resent_bytes: int
    rtt_us: int
    """Smoothed (RFC 6298); 0 before the first sample."""

    min_rtt_us: int

    @property
    def delivered_bytes(self) -> int:
        """Payload that the other end has acknowledged: without SYN and FIN."""
        return min(self.acked_bytes, self.sent_bytes - self.resent_bytes)

    @property
    def waits(self) -> bool:
        """Whether it has something that the other end has not acknowledged."""
        return bool(self.unacked_segments or self.unsent_bytes)


def has_congestion_control(name: str) -> bool:
    """Whether the kernel has this congestion control of TCP; it loads a module that is there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except FileNotFoundError:
            return False
    return True


def open_socket() -> socket.socket:
    """A socket of the calling thread's namespace that `connections` asks. Raises OSError."""
    return socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
    )


def open_watch(receive_buffer_bytes: int = 1 << 20) -> socket.socket:
    """A socket that hears of every TCP socket of the calling thread's namespace that ends: its
    datagrams are for `parsed`. Raises OSError."""
    watch = open_socket()
    try:
        watch.setsockopt(socket.SOL_SOCKET, netlink.SO_RCVBUFFORCE, receive_buffer_bytes)
        watch.bind((0, 0))
        for group in SKNLGRPS_TCP_DESTROY:
            watch.setsockopt(netlink.SOL_NETLINK, netlink.NETLINK_ADD_MEMBERSHIP, group)
        watch.setblocking(False)
    except BaseException:
        watch.close()
        raise
    return watch


def connections(channel: socket.socket) -> list[ConnectionEnd]:
    """The TCP connections that exist now. Raises OSError."""
    ends = []
    for family in (socket.AF_INET, socket.AF_INET6):
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), _CONNECTED)
        for body in netlink.dump(channel, SOCK_DIAG_BY_FAMILY, request):
            if (end := _parsed_end(body)) is not None:
                ends.append(end)
    return ends


def parsed(datagram: bytes) -> Iterator[ConnectionEnd]:
    """The connections that a datagram of `open_watch` tells of."""
    for kind, body in netlink.messages(datagram):
        if kind == SOCK_DIAG_BY_FAMILY and (end := _parsed_end(body)) is not None:
            yield end


def _parsed_end(body: bytes) -> ConnectionEnd | None:
    """None of a socket without figures, or that was never connected."""
    family, port, peer_port, address, peer, cookie = _MESSAGE.unpack_from(body)
    info = netlink.find(body, _MESSAGE.size, INET_DIAG_INFO)
    if len(info) < _INFO.size or not peer_port:
        return None
    unacked, silent_ms, rtt_us, acked, unsent, min_rtt_us, sent, resent = _INFO.unpack_from(info)
    return ConnectionEnd(
        cookie,
        _address(family, address),
        port,
        _address(family, peer),
        peer_port,
        unacked,
        silent_ms,
        unsent,
        acked,
        sent,
        resent,
        rtt_us,
        min_rtt_us,
    )


def _address(family: int, packed: bytes) -> str:
    """An address as text; one of IPv4 in IPv6 as that of IPv4 (RFC 4291 2.5.5.2)."""
    if family == socket.AF_INET:
        return socket.inet_ntop(family, packed[:4])
    address = IPv6Address(packed)
    return str(address.ipv4_mapped or address)
