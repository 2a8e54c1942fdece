"""TCP of a server's ranks: connections of its kernel to other servers, and what they carried.

A rank sends to another over connections of its own, on which only acknowledgements come back: what
others send never waits behind its data. A send is cut into a part for each connection. A part is a
header and so many bytes, which the receiver takes without copying them, and acknowledges as a whole
once it has all. Standard library only.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import termios
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HELLO = struct.Struct("!I")
"""The number of the connection."""
_PART = struct.Struct("!IQ")
"""The immediate of its send, and its bytes."""
_ACK = struct.Struct("!IQ")
"""The same, of a part that has arrived."""

_MOST_AT_ONCE_BYTES = 1 << 20
"""The most that a connection writes or reads before others get their turn."""
_ZEROS = memoryview(bytes(_MOST_AT_ONCE_BYTES))
_SCRATCH = memoryview(bytearray(_MOST_AT_ONCE_BYTES))
"""Nothing is ever copied into it."""
_RTO_MIN = Path("/proc/sys/net/ipv4/tcp_rto_min_us")
"""Of this process's network namespace (Linux 6.11)."""
_BACKLOG = 1024
_OUTQ = struct.Struct("=i")

Arrived = Callable[[int, int, int, int], None]
"""Called with the connection's number, the immediate and the bytes of a part, and the time."""
Acknowledged = Callable[[int, int], None]
"""Called with the immediate of a send, all of which has arrived, and the time."""


class Sender:
    """The sending end of a connection."""

    def __init__(self, number: int, opened: socket.socket, address: tuple[str, int]) -> None:
        self.number = number
        self.socket = opened
        self.address = address
        self.posted_bytes = 0
        """Payload."""
        self.acked_bytes = 0
        """Payload of parts that the receiver has acknowledged."""
        self.error: str | None = None
        self.blocked = True
        """Whether the kernel takes no more for now, as before it is connected."""
        self._written_bytes = 0
        self._head = bytearray(_HELLO.pack(number))
        self._left = 0
        self._waiting: deque[tuple[int, int]] = deque()
        self._answer = bytearray()

    def post(self, size_bytes: int, imm: int) -> None:
        """Send a part when all before it are written."""
        self.posted_bytes += size_bytes
        self._waiting.append((imm, size_bytes))

    @property
    def idle(self) -> bool:
        """Whether all parts are acknowledged."""
        return self.posted_bytes == self.acked_bytes

    def write(self) -> None:
        """Write what the kernel takes. Raises OSError."""
        before = self._written_bytes
        while self._written_bytes - before < _MOST_AT_ONCE_BYTES:
            if not self._head and not self._left:
                if not self._waiting:
                    self.blocked = False
                    return
                imm, self._left = self._waiting.popleft()
                self._head += _PART.pack(imm, self._left)
            body = _ZEROS[: min(self._left, _MOST_AT_ONCE_BYTES)]
            try:
                written = self.socket.sendmsg((self._head, body))
            except BlockingIOError:
                self.blocked = True
                return
            of_head = min(written, len(self._head))
            del self._head[:of_head]
            self._left -= written - of_head
            self._written_bytes += written
        self.blocked = True

    def read(self) -> list[tuple[int, int]]:
        """The parts that are acknowledged now: immediates and bytes. Raises OSError."""
        try:
            piece = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        if not piece:
            raise ConnectionResetError("the other end closed it")
        self._answer += piece
        whole = len(self._answer) - len(self._answer) % _ACK.size
        parts = list(_ACK.iter_unpack(self._answer[:whole]))
        del self._answer[:whole]
        self.acked_bytes += sum(size for _, size in parts)
        return parts

    def delivered_bytes(self) -> int:
        """What the other kernel has, with the headers of parts, 16 bytes a send or less."""
        try:
            waiting = fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(_OUTQ.size))
        except OSError:
            return self._written_bytes
        return int(self._written_bytes - _OUTQ.unpack(waiting)[0])


class Receiver:
    """The receiving end of a connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.number: int | None = None
        self.bytes = 0
        """Payload."""
        self.blocked = False
        self._head = bytearray()
        self._part: tuple[int, int] | None = None
        self._left = 0
        self._answer = bytearray()

    def read(self) -> list[tuple[int, int]]:
        """Read what has come, and acknowledge the parts that are whole: immediates and bytes.
        Raises OSError."""
        whole: list[tuple[int, int]] = []
        room = _MOST_AT_ONCE_BYTES
        try:
            while room > 0:
                if self._part is None:
                    size = _PART.size if self.number is not None else _HELLO.size
                    piece = self.socket.recv(size - len(self._head))
                    if not piece:
                        raise EOFError
                    self._head += piece
                    if len(self._head) == size:
                        self._begin()
                    continue
                size = min(self._left, room)
                # The kernel drops so many bytes and copies none (tcp(7)).
                taken = self.socket.recv_into(_SCRATCH, size, socket.MSG_TRUNC)
                if not taken:
                    raise EOFError
                room -= taken
                self.bytes += taken
                self._left -= taken
                if not self._left:
                    whole.append(self._part)
                    self._answer += _ACK.pack(*self._part)
                    self._part = None
        except BlockingIOError:
            pass
        self.write()
        return whole

    def write(self) -> None:
        """Write the acknowledgements that the kernel takes. Raises OSError."""
        try:
            if self._answer:
                del self._answer[: self.socket.send(self._answer)]
        except BlockingIOError:
            pass
        self.blocked = bool(self._answer)

    def _begin(self) -> None:
        if self.number is None:
            (self.number,) = _HELLO.unpack(self._head)
        else:
            imm, self._left = _PART.unpack(self._head)
            self._part = imm, self._left
        self._head.clear()


class TcpWay:
    """The connections from a rank to another."""

    def __init__(self, senders: Sequence[Sender], write: Callable[[Sender], None]) -> None:
        self.senders = senders
        self._write = write
        self._parts: dict[int, int] = {}

    def send(self, size_bytes: int, imm: int) -> None:
        """Send `size_bytes`, 1 or more, identified by `imm`, an even part over each connection."""
        part, more = divmod(size_bytes, len(self.senders))
        sizes = [part + (index < more) for index in range(len(self.senders))]
        self._parts[imm] = self._parts.get(imm, 0) + sum(map(bool, sizes))
        for sender, size in zip(self.senders, sizes, strict=True):
            if size:
                sender.post(size, imm)
                if not sender.blocked:
                    self._write(sender)

    def acknowledge_part(self, imm: int) -> bool:
        """Handle the acknowledgement of a part; return whether its whole send is finished."""
        left = self._parts[imm] - 1
        if left:
            self._parts[imm] = left
            return False
        del self._parts[imm]
        return True


class TcpPort:
    """All TCP of one server's jobs."""

    def __init__(
        self, fields: Mapping[str, Any], arrived: Arrived, tell: Callable[[dict[str, object]], None]
    ) -> None:
        """`fields` as `rocelab.traffic.tcpparts` writes them. Raises OSError."""
        self._arrived, self._tell = arrived, tell
        self._epoll = select.epoll()
        self._senders: dict[int, Sender] = {}
        self._listeners: dict[int, socket.socket] = {}
        self._receivers: dict[int, Receiver] = {}
        self._way_of: dict[int, tuple[TcpWay, Acknowledged]] = {}
        self._by_number: dict[int, Sender] = {}
        for kind in fields["kinds"]:
            with _least_timeout(kind["rto_min_us"]):
                for address, port in kind["listeners"]:
                    self._listen(kind, address, port)
                for number, source, destination, port in kind["connections"]:
                    self._open(kind, number, source, (destination, port))
        self.sampled_bytes = {number: array("q") for number in self._by_number}

    def fileno(self) -> int:
        return self._epoll.fileno()

    @property
    def delivered_bytes(self) -> int:
        """What all connections have delivered, with the headers of parts."""
        return sum([sender.delivered_bytes() for sender in self._by_number.values()])

    def way(self, numbers: Sequence[int], acknowledged: Acknowledged) -> TcpWay:
        """The connections of these numbers, from a rank to another."""
        way = TcpWay([self._by_number[number] for number in numbers], self._write)
        for number in numbers:
            self._way_of[number] = way, acknowledged
        return way

    def start(self) -> None:
        """Connect to the others, who all listen by now."""
        for sender in self._by_number.values():
            sender.socket.connect_ex(sender.address)
            self._epoll.register(sender.socket, select.EPOLLIN | select.EPOLLOUT)

    @property
    def idle(self) -> bool:
        """Whether all that was posted on working connections has been acknowledged."""
        return all(sender.idle or sender.error for sender in self._by_number.values())

    def turn(self, now_ns: int) -> None:
        """Accept, read and write what can be."""
        if not self._listeners and not self._senders:
            return  # no system call on the way of RoCE packets
        for descriptor, events in self._epoll.poll(0):
            if descriptor in self._listeners:
                self._accept(self._listeners[descriptor])
            elif descriptor in self._receivers:
                self._receive(self._receivers[descriptor], events, now_ns)
            else:
                self._serve(self._senders[descriptor], events, now_ns)

    def sample(self) -> None:
        """Note what each connection has delivered."""
        for number, column in self.sampled_bytes.items():
            column.append(self._by_number[number].delivered_bytes())

    def report(self) -> dict[str, object]:
        """What each connection sent and received."""
        return {
            "rto_is_scaled": _RTO_MIN.exists(),
            "senders": [
                {
                    "number": sender.number,
                    "posted_bytes": sender.posted_bytes,
                    "acked_bytes": sender.acked_bytes,
                    "error": sender.error,
                }
                for sender in self._by_number.values()
            ],
            "receivers": [
                {"number": receiver.number, "bytes": receiver.bytes}
                for receiver in self._receivers.values()
                if receiver.number is not None
            ],
        }

    def _listen(self, kind: Mapping[str, Any], address: str, port: int) -> None:
        listener = _tcp_socket(kind, address)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
        self._listeners[listener.fileno()] = listener
        self._epoll.register(listener, select.EPOLLIN)

    def _open(
        self, kind: Mapping[str, Any], number: int, source: str, destination: tuple[str, int]
    ) -> None:
        opened = _tcp_socket(kind, source)
        opened.setsockopt(socket.SOL_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
        opened.bind((source, 0))
        sender = Sender(number, opened, destination)
        self._by_number[number] = self._senders[opened.fileno()] = sender

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:  # it was reset before
            return
        accepted.setblocking(False)
        self._receivers[accepted.fileno()] = Receiver(accepted)
        self._epoll.register(accepted, select.EPOLLIN)

    def _receive(self, receiver: Receiver, events: int, now_ns: int) -> None:
        was_blocked = receiver.blocked
        try:
            if events & select.EPOLLOUT:
                receiver.write()
            parts = receiver.read()
        except (OSError, EOFError):
            # Its sender knows why, and says it.
            self._epoll.unregister(receiver.socket)
            return
        if receiver.blocked != was_blocked:
            self._epoll.modify(receiver.socket, _interest(blocked=receiver.blocked))
        for imm, size in parts:
            assert receiver.number is not None
            self._arrived(receiver.number, imm, size, now_ns)

    def _serve(self, sender: Sender, events: int, now_ns: int) -> None:
        if sender.error is not None:
            return
        parts: list[tuple[int, int]] = []
        try:
            if events & ~select.EPOLLOUT:
                parts = sender.read()
        except OSError as error:
            self._fail(sender, error)
            return
        if events & select.EPOLLOUT:
            self._write(sender)
        way, acknowledged = self._way_of[sender.number]
        for imm, _ in parts:
            if way.acknowledge_part(imm):
                acknowledged(imm, now_ns)

    def _write(self, sender: Sender) -> None:
        was_blocked = sender.blocked
        if sender.error is not None:
            return
        try:
            sender.write()
        except OSError as error:
            self._fail(sender, error)
            return
        if sender.blocked != was_blocked:
            self._epoll.modify(sender.socket, _interest(blocked=sender.blocked))

    def _fail(self, sender: Sender, error: OSError) -> None:
        sender.error = error.strerror or str(error)
        self._epoll.unregister(sender.socket)
        self._tell({"connection": sender.number, "error": sender.error})


def _interest(*, blocked: bool) -> int:
    return select.EPOLLIN | (select.EPOLLOUT if blocked else 0)


@contextmanager
def _least_timeout(rto_min_us: int) -> Iterator[None]:
    """Sockets that are made within have this least retransmission timeout, where the kernel has
    such a setting. A socket keeps what it began with (net/ipv4/tcp.c, tcp_init_sock), and its own
    option only lets it be less than 200 ms."""
    if not _RTO_MIN.exists():
        yield
        return
    before = _RTO_MIN.read_text()
    _RTO_MIN.write_text(str(rto_min_us))
    try:
        yield
    finally:
        _RTO_MIN.write_text(before)


def _tcp_socket(kind: Mapping[str, Any], address: str) -> socket.socket:
    is_ipv6 = ":" in address
    opened = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_STREAM)
    opened.setblocking(False)
    control = kind["congestion_control"].encode()
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control)
    if is_ipv6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, kind["tos"])
    else:
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, kind["tos"])
    return opened
