"""Resolves `user@host:port` to a machine and how to reach it.

The value of `--host` and ~/.ssh/config give a `Destination` with everything a connection needs. It
uses no network and reads no file but the configuration.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from rocelab.errors import InputError
from rocelab.wording import shown

SSH_PORT = 22
USAGE = "give user@host, host or user@host:port; a Host of ~/.ssh/config is a host too"
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_SHELLS = re.escape("""'"`$\\;&<>|(){}*?!#~,""")
"""Characters that a name may not have: a shell runs a ProxyCommand, with %h and %r replaced by the
typed names (OpenSSH, ssh.c, valid_hostname and valid_ruser)."""
_ADDRESS = re.compile(
    rf"(?:(?P<user>[^@:/\s{_SHELLS}]+)@)?"
    rf"(?:\[(?P<ipv6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^@:/\s\[\]{_SHELLS}]+))"
    r"(?::(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A machine as typed; None fields are left to ~/.ssh/config and the defaults."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user is not None else ""
        port = f":{self.port}" if self.port is not None else ""
        return f"{user}{host}{port}"


@dataclass(frozen=True, slots=True)
class Destination:
    """A machine and how to reach it, in the terms of ssh_config(5)."""

    address: Address
    host: str
    port: int
    user: str
    keys: tuple[Path, ...]
    known_hosts: tuple[Path, ...]
    only_these_keys: bool = False
    key_alias: str | None = None
    proxy_command: str | None = None
    jumps: tuple[Address, ...] = ()

    @property
    def known_as(self) -> str:
        """The machine's name in known_hosts (sshd(8), SSH_KNOWN_HOSTS)."""
        if self.key_alias is not None:
            return self.key_alias
        return self.host if self.port == SSH_PORT else f"[{self.host}]:{self.port}"

    def __str__(self) -> str:
        return str(self.address)


def parse_address(text: str) -> Address:
    """Parse `user@host:port`; user and port are optional. Raises InputError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or text.startswith("-"):
        if re.match(r"[^@\s]*:[^@\s]*@", text):
            raise InputError(
                f"{text.rpartition('@')[2]} is given with a password",
                hint="a password has no place on a command line: use a key, or an agent",
            )
        is_ipv6 = re.fullmatch(r"(.*@)?[0-9A-Fa-f:]*::?[0-9A-Fa-f:.]+(%\w+)?", text)
        hint = "an IPv6 address stands in brackets: [::1] or [::1]:22" if is_ipv6 else USAGE
        raise InputError(f"{shown(text)} names no machine", hint=hint)
    port = int(found["port"]) if found["port"] is not None else None
    if port is not None and not 0 < port < 1 << 16:
        raise InputError(f"{port} is not a port", hint="ports are 1 to 65535")
    return Address(found["ipv6"] or found["host"], found["user"], port)


def read_config(path: Path) -> paramiko.SSHConfig:
    """Read ~/.ssh/config; empty if missing. Raises InputError if it is invalid."""
    try:
        return paramiko.SSHConfig.from_path(str(path))
    except FileNotFoundError:
        return paramiko.SSHConfig()
    except (OSError, UnicodeDecodeError, paramiko.ConfigParseError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def resolve(address: Address, config: paramiko.SSHConfig, home: Path) -> Destination:
    """Apply HostName, User, Port, IdentityFile, IdentitiesOnly, HostKeyAlias, UserKnownHostsFile,
    ProxyJump and ProxyCommand of the configuration; typed values win.

    Raises InputError for unusable values.
    """
    try:
        options = config.lookup(address.host)
        port = address.port or int(options.get("port", SSH_PORT))
    except (ValueError, KeyError, paramiko.SSHException) as error:
        raise InputError(f"~/.ssh/config on {address.host}: {error}") from None
    _check_host(options["hostname"])
    keys = tuple(Path(path).expanduser() for path in options.get("identityfile", ()))
    return Destination(
        address=address,
        host=options["hostname"],
        port=port,
        user=address.user or options.get("user") or getpass.getuser(),
        keys=keys or tuple(home / ".ssh" / name for name in DEFAULT_KEYS),
        known_hosts=_known_hosts(options.get("userknownhostsfile"), home),
        only_these_keys=options.get("identitiesonly", "no").lower() == "yes",
        key_alias=options.get("hostkeyalias"),
        proxy_command=_unless_none(options.get("proxycommand")),
        jumps=_jumps(_unless_none(options.get("proxyjump"))),
    )


def _check_host(host: str) -> None:
    """Raises InputError for an invalid machine name, as the resolver would (RFC 3490)."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise InputError(
            f"{shown(host)} can be no machine's name",
            hint="between its dots a name has 1 to 63 characters",
        ) from None


def _known_hosts(text: str | None, home: Path) -> tuple[Path, ...]:
    own: Sequence[Path] = [home / ".ssh/known_hosts", home / ".ssh/known_hosts2"]
    if text is not None:
        own = [Path(path).expanduser() for path in text.split()]
    return (*own, Path("/etc/ssh/ssh_known_hosts"))


def _unless_none(text: str | None) -> str | None:
    return None if text is None or text.lower() == "none" else text


def _jumps(text: str | None) -> tuple[Address, ...]:
    if text is None:
        return ()
    return tuple(parse_address(hop.strip().removeprefix("ssh://")) for hop in text.split(","))
