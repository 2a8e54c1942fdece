"""Resolves `user@host:port` to a machine and how to reach it.

The value of `--host` and ~/.ssh/config give a `Destination` with everything a connection needs.
`ssh -G` itself is asked what the configuration says, so that `Match`, `Include` and
`CanonicalizeHostname` mean what they mean to ssh; `Match exec` runs its command, as ssh does.
Without OpenSSH's client paramiko reads the file, which knows less.
"""

from __future__ import annotations

import getpass
import os
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from rocelab.base.errors import InputError
from rocelab.base.files import read_input
from rocelab.base.wording import shown

SSH_PORT = 22
USAGE = "give user@host, host or user@host:port; a Host of ~/.ssh/config is a host too"
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_SHELLS = re.escape("""'"`$\\;&<>|(){}*?!#~,""")
"""Characters that a name may not have: a shell runs a ProxyCommand, with %h and %r replaced by the
typed names (OpenSSH, ssh.c, valid_hostname and valid_ruser). One that begins with - would be an
option of the ProxyCommand's program."""
_ADDRESS = re.compile(
    rf"(?:(?P<user>(?!-)[^@:/\s{_SHELLS}]+)@)?"
    rf"(?:\[(?P<ipv6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>(?!-)[^@:/\s\[\]{_SHELLS}]+))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_INCLUDE = re.compile(r"(?im)^([ \t]*Include[ \t=]+)(.+)$")
_ASKED_WITHIN_S = 60


@dataclass(frozen=True, slots=True)
class HostAddress:
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

    address: HostAddress
    host: str
    port: int
    user: str
    keys: tuple[Path, ...]
    known_hosts: tuple[Path, ...]
    only_these_keys: bool = False
    key_alias: str | None = None
    proxy_command: str | None = None
    jumps: tuple[HostAddress, ...] = ()

    @property
    def known_as(self) -> str:
        """The machine's name in known_hosts (sshd(8), SSH_KNOWN_HOSTS)."""
        if self.key_alias is not None:
            return self.key_alias
        return self.host if self.port == SSH_PORT else f"[{self.host}]:{self.port}"

    def __str__(self) -> str:
        return str(self.address)


def parse_address(text: str) -> HostAddress:
    """Parse `user@host:port` or `ssh://user@host:port`; user and port are optional. Raises
    InputError."""
    uri = re.fullmatch(r"(?i:ssh)://([^/?#]*)/?", text)
    text = uri[1] if uri is not None else text
    match = _ADDRESS.fullmatch(text)
    if match is None:
        if re.match(r"[^@\s/]*:[^@\s]*@", text.partition("://")[2] or text):
            raise InputError(
                f"{text.rpartition('@')[2]} is given with a password",
                hint="a password has no place on a command line: use a key, or an agent",
            )
        is_ipv6 = re.fullmatch(r"(.*@)?[0-9A-Fa-f:]*::?[0-9A-Fa-f:.]+(%\w+)?", text)
        hint = "an IPv6 address stands in brackets: [::1] or [::1]:22" if is_ipv6 else USAGE
        raise InputError(f"{shown(text)} names no machine", hint=hint)
    port = int(match["port"]) if match["port"] is not None else None
    if port is not None and not 0 < port < 1 << 16:
        raise InputError(f"{port} is not a port", hint="ports are 1 to 65535")
    return HostAddress(match["ipv6"] or match["host"], match["user"], port)


@dataclass(frozen=True, slots=True)
class OpenSsh:
    """The configuration as OpenSSH's client reads it: `ssh -G`."""

    program: str
    """Its path."""
    config: Path

    def lookup(self, address: HostAddress) -> dict[str, Any]:
        """What it says of a machine, as paramiko's `lookup`: keywords in lower case.

        Raises InputError with ssh's own message.
        """
        typed = [f"-l{address.user}"] if address.user is not None else []
        typed += [f"-p{address.port}"] if address.port is not None else []
        configuration = _configuration(self.config)
        command = [self.program, "-G", *configuration.options, *typed, "--", address.host]
        try:
            with os.fdopen(os.memfd_create("ssh-config"), "w+b") as text:
                text.write(configuration.text)
                text.flush()
                answer = subprocess.run(
                    command,
                    check=False,
                    # ssh may read it twice (Match final), each time from its beginning.
                    stdin=text,
                    capture_output=True,
                    timeout=_ASKED_WITHIN_S,
                )
        except subprocess.TimeoutExpired:
            raise InputError(
                f"`ssh -G {address.host}` has not answered for {_ASKED_WITHIN_S} s",
                hint="a `Match exec` or a name server may hang: try it by hand",
            ) from None
        if answer.returncode:
            lines = answer.stderr.decode(errors="replace").splitlines()
            about = (line.strip() for line in lines if not line.startswith("Pseudo-terminal"))
            reason = " ".join(about)
            reason = configuration.named(reason) or "it gives no reason"
            raise InputError(f"ssh refuses its configuration of {address.host}: {reason}")
        options = configuration.at_home(_keywords(answer.stdout))
        return _expanded(address, options, self.config.parent.parent)


def _keywords(answer: bytes) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for line in answer.decode(errors="replace").splitlines():
        keyword, _, value = line.partition(" ")
        if keyword == "identityfile":
            options.setdefault(keyword, []).append(value)
        else:
            options.setdefault(keyword, value)
    return options


@dataclass(frozen=True, slots=True)
class _Configuration:
    """The options that make ssh read the file `config`, and what it gets on its standard input.

    ssh reads ~/.ssh/config of the home in the password database. If $HOME is another, ssh gets the
    text of the file there, with Include by absolute paths, and reads no file of the machine.
    """

    config: Path
    options: tuple[str, ...] = ()
    text: bytes = b""

    def named(self, text: str) -> str:
        """ssh's message with the file's own name."""
        return text.replace(self.options[1], str(self.config)) if self.options else text

    def at_home(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options without the default known_hosts of the other home."""
        path = f"{_home()}/.ssh/known_hosts"
        if self.options and options.get("userknownhostsfile") == f"{path} {path}2":
            options = {name: value for name, value in options.items() if name[:9] != "userknown"}
        return options


@dataclass(frozen=True, slots=True)
class _Absolute:
    """Include lines with absolute paths: relative ones are in `folder`, ~ is the folder above."""

    folder: Path

    def __call__(self, line: re.Match[str]) -> str:
        words = re.findall(r'[^\s"]+', line[2].partition(" #")[0])
        return line[1] + " ".join(f'"{self._path(word)}"' for word in words)

    def _path(self, word: str) -> Path:
        below_home = word.startswith("~/")
        return self.folder.parent / word[2:] if below_home else self.folder / word


def _home() -> Path:
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def _configuration(config: Path) -> _Configuration:
    if config == _home() / ".ssh/config":
        return _Configuration(config)
    try:
        text = read_input(config).decode(errors="surrogateescape")
    except FileNotFoundError:
        return _Configuration(config, ("-F", "none"))
    except OSError as error:
        raise InputError(f"{config} cannot be read: {error.strerror}") from None
    content = _INCLUDE.sub(_Absolute(config.parent), text).encode(errors="surrogateescape")
    return _Configuration(config, ("-F", "/dev/stdin"), content)


def read_config(path: Path) -> OpenSsh | paramiko.SSHConfig:
    """~/.ssh/config, as ssh reads it where it is installed. Without ssh, paramiko reads it; empty
    if missing. Raises InputError if it is invalid, or has what paramiko does not know."""
    program = shutil.which("ssh")
    if program is not None:
        return OpenSsh(program, path)
    install = "install openssh-client: `ssh -G` is then asked what the file says"
    try:
        text = path.read_text()
        config = paramiko.SSHConfig.from_text(text)
    except FileNotFoundError:
        return paramiko.SSHConfig()
    except (OSError, UnicodeDecodeError, paramiko.SSHException) as error:
        raise InputError(f"{path} cannot be read: {error}", hint=install) from None
    if include := _INCLUDE.search(text):
        line = text.count("\n", 0, include.start(1)) + 1
        raise InputError(f"{path}:{line}: Include needs OpenSSH's client", hint=install)
    return config


def resolve(address: HostAddress, config: OpenSsh | paramiko.SSHConfig, home: Path) -> Destination:
    """Apply HostName, User, Port, IdentityFile, IdentitiesOnly, HostKeyAlias, UserKnownHostsFile,
    ProxyJump and ProxyCommand of the configuration; typed values win.

    Raises InputError for unusable values.
    """
    try:
        options: Mapping[str, Any] = (
            config.lookup(address) if isinstance(config, OpenSsh) else config.lookup(address.host)
        )
        port = address.port or int(options.get("port", SSH_PORT))
    except (ValueError, KeyError, paramiko.SSHException) as error:
        raise InputError(f"~/.ssh/config on {address.host}: {error}") from None
    if options.get("proxyusefdpass", "no").lower() == "yes":
        raise InputError(
            f"~/.ssh/config on {address.host}: ProxyUseFdpass is not supported",
            hint="give a ProxyCommand that passes data, or a ProxyJump",
        )
    _check_host(options["hostname"])
    keys = tuple(Path(path).expanduser() for path in options.get("identityfile", ()))
    return Destination(
        address=address,
        host=options["hostname"],
        port=port,
        user=address.user or options.get("user") or getpass.getuser(),
        keys=keys or tuple(home / ".ssh" / name for name in DEFAULT_KEYS),
        known_hosts=_known_hosts(
            options.get("userknownhostsfile"), options.get("globalknownhostsfile"), home
        ),
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


def _known_hosts(text: str | None, all_users: str | None, home: Path) -> tuple[Path, ...]:
    files: Sequence[Path] = [home / ".ssh/known_hosts", home / ".ssh/known_hosts2"]
    if text is not None:
        files = [Path(path).expanduser() for path in text.split()]
    return (*files, *map(Path, (all_users or "/etc/ssh/ssh_known_hosts").split()))


def _unless_none(text: str | None) -> str | None:
    return None if text is None or text.lower() == "none" else text


def _jumps(text: str | None) -> tuple[HostAddress, ...]:
    if text is None:
        return ()
    return tuple(parse_address(hop.strip()) for hop in text.split(","))


def _expanded(address: HostAddress, options: dict[str, Any], home: Path) -> dict[str, Any]:
    """The options with the tokens of ssh_config(5), which `ssh -G` prints as they are written."""
    host = socket.gethostname()
    tokens = {
        "%": "%",
        "d": str(home),
        "h": options.get("hostname", address.host),
        "i": str(os.getuid()),
        "k": options.get("hostkeyalias", address.host),
        "L": host.partition(".")[0],
        "l": host,
        "n": address.host,
        "p": options.get("port", str(SSH_PORT)),
        "r": options.get("user", ""),
        "u": getpass.getuser(),
    }

    def written(text: str) -> str:
        return re.sub(r"%(.)", lambda token: tokens.get(token[1], token[0]), text)

    for keyword in ("proxycommand", "proxyjump", "userknownhostsfile", "globalknownhostsfile"):
        if keyword in options:
            options[keyword] = written(options[keyword])
    options["identityfile"] = [written(path) for path in options.get("identityfile", ())]
    return options
