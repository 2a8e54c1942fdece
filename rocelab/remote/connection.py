"""A connection to another machine over SSH: keys and agent only, host keys verified.

A `Connection` runs commands and copies files. A refusal by ssh becomes an error with advice. It
never prompts and never accepts an unknown host key.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import paramiko
from paramiko.auth_strategy import AuthFailure, AuthSource, AuthStrategy, InMemoryPrivateKey
from paramiko.hostkeys import HostKeyEntry

from rocelab.base.errors import InputError
from rocelab.remote.address import SSH_PORT, Destination, read_config, resolve
from rocelab.remote.answers import AN_EXIT_CODE, not_understood
from rocelab.remote.errors import (
    ConnectionLostError,
    HostKeyError,
    UnfitError,
    UnreachableError,
)

CONNECT_TIMEOUT_S = 15.0
KEEPALIVE_S = 10
SILENCE_MS = 30_000
"""How long sent data may stay unacknowledged before the connection counts as broken."""
MAX_ANSWER_BYTES = 1 << 24
"""The longest output of a command, and the longest file in one piece, that is read."""
_AT_MOST = f"at most {MAX_ANSWER_BYTES:,} bytes"
_CHUNK = 1 << 21
"""At once of an output: all that has arrived, as paramiko's window is no larger."""
_POLL_S = 0.02
_MOST_LATE_BYTES = 1 << 20
"""What is read of an output after the command's end: more than the pipe there holds."""
_PIECE = 1 << 20
"""Requested at once of a file: paramiko lists all requests for what it prefetches."""
_CLOSED = "Socket is closed"
"""All that paramiko says, without an errno, when the other machine has closed a channel."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command on the other machine, and its exit code."""

    exit_code: int
    out: bytes
    err: bytes

    @property
    def complaint(self) -> str:
        """The end of its stderr."""
        return self.err.decode(errors="replace").strip()[-2000:]


@dataclass(slots=True)
class Connection:
    """An open connection. Everything raises ConnectionLostError once it is broken."""

    destination: Destination
    client: paramiko.SSHClient
    _sftp: paramiko.SFTPClient | None = field(default=None, init=False)
    _asking: threading.Lock = field(default_factory=threading.Lock, init=False)
    """paramiko waits for one answer at a time."""

    @property
    def sftp(self) -> paramiko.SFTPClient:
        with self.watched():
            if self._sftp is None:
                self._sftp = self.client.open_sftp()
            return self._sftp

    def channel(self) -> paramiko.Channel:
        """A channel for one command."""
        with self.watched():
            return self._transport().open_session(timeout=CONNECT_TIMEOUT_S)

    def forwarded(self, to: tuple[str, int], origin: tuple[str, int]) -> paramiko.Channel:
        """A TCP connection from the other machine to a port, for one that came here from `origin`
        (RFC 4254, section 7.2). Raises UnfitError if its SSH server forwards none."""
        with self.watched():
            try:
                return self._transport().open_channel(
                    "direct-tcpip", to, origin, timeout=CONNECT_TIMEOUT_S
                )
            except paramiko.ChannelException as error:
                raise UnfitError(
                    f"the SSH server of {self.destination} forwards no connection to "
                    f"{to[0]}:{to[1]}: {error.text}",
                    hint="AllowTcpForwarding in its sshd_config allows it",
                ) from None

    def run(self, command: str, *, stdin: bytes = b"") -> Output:
        """Run a command line in the user's login shell to its end: a process that it leaves in the
        background may hold its outputs for hours. Raises UnfitError above MAX_ANSWER_BYTES."""
        out, err = bytearray(), bytearray()
        with self.watched(), self.channel() as channel:
            channel.exec_command(command)
            if stdin:
                channel.sendall(stdin)
            channel.shutdown_write()
            while not channel.status_event.wait(_POLL_S):
                self._take(channel, out, err)
            late = self._take(channel, out, err)
            # What a command wrote last may come after its exit code. An SSH server that has
            # answered since, and sent nothing else, had nothing else.
            while not channel.eof_received and late < _MOST_LATE_BYTES:
                self._round_trip()
                count = self._take(channel, out, err)
                if not count:
                    break
                late += count
            while channel.eof_received and self._take(channel, out, err):
                pass
            return Output(self.exit_code_of(channel), bytes(out), bytes(err))

    def _take(self, channel: paramiko.Channel, out: bytearray, err: bytearray) -> int:
        """Add what has arrived of a command's outputs, and return how many bytes that is."""
        before = len(out) + len(err)
        if channel.recv_ready():
            out += channel.recv(_CHUNK)
        if channel.recv_stderr_ready():
            err += channel.recv_stderr(_CHUNK)
        if max(len(out), len(err)) > MAX_ANSWER_BYTES:
            raise not_understood(self.destination, _AT_MOST)
        return len(out) + len(err) - before

    def _round_trip(self) -> None:
        """Wait until the SSH server has answered a request (RFC 4254, section 4)."""
        transport = self._transport()
        with self._asking:
            transport.global_request("keepalive@openssh.com", wait=True)
        if not transport.is_active():
            raise self.lost()

    def exit_code_of(self, channel: paramiko.Channel) -> int:
        """The exit code of a command at its end. Raises UnfitError for a number that is none."""
        code = channel.recv_exit_status()
        if code < 0:
            raise self.lost()
        if code > 255:
            raise not_understood(self.destination, AN_EXIT_CODE)
        return code

    @contextmanager
    def deadline(self, limit_s: float) -> Iterator[None]:
        """Close the connection if the block takes longer. Raises UnfitError then."""
        is_late = threading.Event()

        def stop() -> None:
            is_late.set()
            self.close()

        timer = threading.Timer(limit_s, stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        except ConnectionLostError:
            if is_late.is_set():
                raise not_understood(self.destination, f"an answer within {limit_s:g} s") from None
            raise
        finally:
            timer.cancel()

    def read(self, path: str) -> bytes:
        """A whole file there. Raises OSError, and UnfitError above MAX_ANSWER_BYTES.

        A failure leaves it open, here and in `pieces`: closing waits for the other machine.
        """
        with self.watched():
            file = self.sftp.open(path)
            data = file.read(MAX_ANSWER_BYTES + 1)
            if len(data) > MAX_ANSWER_BYTES:
                raise not_understood(self.destination, _AT_MOST)
            file.close()
        return data

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """A file there, in pieces. Raises OSError, and UnfitError unless it has `size` bytes."""
        with self.watched():
            file = self.sftp.open(path)
            for start in range(0, size, _PIECE):
                end = min(start + _PIECE, size)
                file.prefetch(end)
                piece = file.read(end - start)
                if len(piece) != end - start:
                    raise not_understood(self.destination, f"{size:,} bytes of {path}")
                yield piece
            if file.read(1):
                raise not_understood(self.destination, f"no more than {size:,} bytes of {path}")
            file.close()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Turn any exception of paramiko for a broken connection into ConnectionLostError."""
        try:
            yield
        except (paramiko.SSHException, EOFError, ConnectionError, TimeoutError):
            raise self.lost() from None
        except paramiko.SFTPError as error:
            raise not_understood(self.destination, "SFTP version 3") from error
        except OSError as error:
            # paramiko reports a closed socket in many ways, some of them a bare OSError.
            if str(error) == _CLOSED or not self._transport().is_active():
                raise self.lost() from None
            raise

    def close(self) -> None:
        """Close it: every thread that waits on it returns."""
        self.client.close()

    def lost(self) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self.destination} is lost")

    def _transport(self) -> paramiko.Transport:
        transport = self.client.get_transport()
        if transport is None:
            raise self.lost()
        return transport


@contextmanager
def connected(destination: Destination, home: Path) -> Iterator[Connection]:
    """An open connection for the duration of the context.

    Raises HostKeyError for an unknown machine or a changed host key, UnreachableError if it cannot
    be reached or accepts none of our keys.
    """
    # Otherwise paramiko logs a failed connection to stderr, as a traceback.
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    with ExitStack() as stack:
        yield _connect(destination, home, stack)


def _connect(
    destination: Destination, home: Path, stack: ExitStack, over: tuple[Destination, ...] = ()
) -> Connection:
    """`over`: the machines that are reached by way of this one, nearest last."""
    link = _link(destination, home, stack, (*over, destination))
    client = paramiko.SSHClient()
    stack.callback(client.close)
    client.set_missing_host_key_policy(_UnknownHostPolicy(destination))
    for path in destination.known_hosts:
        with suppress(OSError):
            _load_known_hosts(client, path)
    keys = _Keys(destination)
    try:
        client.connect(
            destination.key_alias or destination.host,
            SSH_PORT if destination.key_alias else destination.port,
            username=destination.user,
            sock=link,
            timeout=CONNECT_TIMEOUT_S,
            banner_timeout=CONNECT_TIMEOUT_S,
            auth_timeout=CONNECT_TIMEOUT_S,
            auth_strategy=keys,
        )
    except paramiko.BadHostKeyException as error:
        _refuse_changed(destination, error)
    except AuthFailure:
        raise UnreachableError(
            f"{destination} lets none of your keys in as {destination.user}: {keys.tried_keys()}",
            hint="add your public key there: ssh-copy-id; a key with a passphrase belongs in an "
            "agent: ssh-add",
        ) from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise UnreachableError(
            f"no SSH connection to {destination}: {str(error) or 'it was closed'}"
        ) from None
    transport = client.get_transport()
    assert transport is not None
    transport.set_keepalive(KEEPALIVE_S)
    return Connection(destination, client)


def _load_known_hosts(client: paramiko.SSHClient, path: Path) -> None:
    """Load the hosts of a file into a client. Invalid lines are skipped, as ssh does: paramiko
    would raise its parsers' exceptions. Raises OSError."""
    whole = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            entry = HostKeyEntry.from_line(line.strip())
            is_entry = entry is not None and bool(entry.key.asbytes())
        except Exception:  # noqa: S112 - of six undocumented kinds
            continue
        if is_entry:
            whole.append(line)
    descriptor = os.memfd_create("known_hosts")
    with os.fdopen(descriptor, "w") as kept:
        kept.write("".join(f"{line}\n" for line in whole))
        kept.flush()
        client.load_system_host_keys(f"/proc/self/fd/{descriptor}")


def _link(
    destination: Destination, home: Path, stack: ExitStack, seen: tuple[Destination, ...]
) -> socket.socket | paramiko.Channel:
    """A socket to the machine's SSH port: direct, through a command, or over jump hosts. Raises
    InputError if one of them is among those `seen`, which are to be reached by way of it."""
    if destination.jumps:
        config = read_config(home / ".ssh/config")
        *before, last = destination.jumps
        # A jump over several hosts is a jump to the last one over the others.
        over = resolve(last, config, home)
        if any((over.address, over.host) == (other.address, other.host) for other in seen):
            raise InputError(
                f"~/.ssh/config on {seen[0]}: jump host loop via {last}",
                hint=f"give {last} `ProxyJump none`, or leave it out: `Host * !{last.host}`",
            )
        if before:
            over = replace(over, jumps=tuple(before))
        transport = _connect(over, home, stack, seen).client.get_transport()
        assert transport is not None
        try:
            return transport.open_channel(
                "direct-tcpip", (destination.host, destination.port), ("127.0.0.1", 0)
            )
        except paramiko.SSHException as error:
            raise UnreachableError(f"{over} does not reach {destination}: {error}") from None
    if destination.proxy_command is not None:
        return _command_link(destination.proxy_command, stack)
    try:
        link = socket.create_connection((destination.host, destination.port), CONNECT_TIMEOUT_S)
    except OSError as error:
        reason = error.strerror or str(error) or "no answer"
        place = f"{destination.host} port {destination.port}"
        raise UnreachableError(f"{destination} cannot be reached: {place}: {reason}") from None
    stack.callback(link.close)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
    return link


def _command_link(command: str, stack: ExitStack) -> socket.socket:
    """A ProxyCommand's stdin and stdout as a socket, which closes when the command ends.

    (paramiko's own implementation spins after its command has ended.)
    """
    end, its = socket.socketpair()
    stack.callback(end.close)
    with its:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"], stdin=its.fileno(), stdout=its.fileno()
        )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return end


class _UnknownHostPolicy(paramiko.MissingHostKeyPolicy):
    """Refuses a machine that is not in known_hosts, with advice."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        asked = self._destination
        port = f"-p {asked.port} " if asked.port != SSH_PORT else ""
        raise HostKeyError(
            f"{asked.known_as} is not in {asked.known_hosts[0]}; it shows a {key.get_name()} key "
            f"of {fingerprint(key)}",
            hint="compare that with the machine's own (ssh-keygen -lf on its /etc/ssh/*.pub), then "
            f"connect once with `ssh {port}{asked.user}@{asked.host}`, which adds it",
        )


def _refuse_changed(destination: Destination, error: paramiko.BadHostKeyException) -> NoReturn:
    raise HostKeyError(
        f"the host key of {destination.known_as} has CHANGED: known_hosts has "
        f"{error.expected_key.get_name()} {fingerprint(error.expected_key)}, the machine that "
        f"answers has {error.key.get_name()} {fingerprint(error.key)}",
        hint="either the machine was reinstalled, or someone intercepts the connection; nothing "
        "was sent. "
        f"Once you know why: ssh-keygen -R '{destination.known_as}'",
    ) from None


def fingerprint(key: paramiko.PKey) -> str:
    """The fingerprint of a key as `ssh-keygen -l` shows it."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return f"SHA256:{b64encode(digest).decode().rstrip('=')}"


class _Keys(AuthStrategy):
    """The agent's keys and those of the configuration's files, in the order of ssh."""

    def __init__(self, destination: Destination) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._destination = destination
        self._tried: list[str] = []

    def tried_keys(self) -> str:
        """The keys that were tried, as text."""
        return ", ".join(self._tried) or "there are none, in no file and in no agent"

    def get_sources(self) -> Iterator[AuthSource]:
        user = self._destination.user
        held = _agent_keys()
        listed = {_public_of(path): path for path in self._destination.keys}
        for key in held:
            if key.asbytes() in listed or not self._destination.only_these_keys:
                self._tried.append(f"{key.comment or key.get_name()} (agent)")
                yield InMemoryPrivateKey(user, key)
        for path in self._destination.keys:
            key_of_file = self._load(path, {key.asbytes() for key in held})
            if key_of_file is not None:
                self._tried.append(str(path))
                yield InMemoryPrivateKey(user, key_of_file)

    def _load(self, path: Path, tried: set[bytes]) -> paramiko.PKey | None:
        """The key in a file; None if there is none, or if it was tried before or is locked."""
        if not path.is_file() or _public_of(path) in tried:
            return None
        try:
            return paramiko.PKey.from_path(path)
        except (paramiko.PasswordRequiredException, TypeError):
            self._tried.append(f"{path} (has a passphrase)")
        except (paramiko.SSHException, OSError, ValueError) as error:
            self._tried.append(f"{path} ({error})")
        return None


def _agent_keys() -> tuple[paramiko.AgentKey, ...]:
    try:
        return paramiko.Agent().get_keys()
    except (paramiko.SSHException, OSError):
        return ()


def _public_of(path: Path) -> bytes:
    """The public key beside a private one, empty if there is none."""
    try:
        _, text, *_ = Path(f"{path}.pub").read_text().split()
        return b64decode(text)
    except (OSError, ValueError):
        return b""
