"""The management network of a lab: a separate link and an sshd for every node.

As with real switches, nodes are reachable out of band: a port `mgmt0` that no route of the fabric
uses, on a bridge in a separate namespace (`netns/management`), so that nothing touches the
machine's own network. `start` runs an sshd per node that accepts the lab's key, and writes an ssh
configuration for users (`ssh -F FILE rtsw1`); `open_ssh` is for programs. `down` removes it all by
the lab's record.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocelab.base.errors import InputError, MachineError
from rocelab.base.extras import missing
from rocelab.base.files import make_folder, write_file
from rocelab.base.interpreter import module_command, module_environment
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.lab import hosts
from rocelab.linux import inotify, namespaces
from rocelab.record import LabFiles
from rocelab.routing.files import DaemonFiles

if TYPE_CHECKING:
    import paramiko

    from rocelab.planning.fabric import Fabric

NAMESPACE = "management"
MOST_NODES = 1023
"""A bridge has at most 1024 ports (BR_MAX_PORTS, net/bridge/br_private.h)."""
SSH_PORT = 22
START_TIMEOUT_S = 60.0
SEPARATION_FOLDER = Path("/run/sshd")
"""Debian's sshd uses it as chroot of its unprivileged process."""


@dataclass(frozen=True, slots=True)
class ManagementFiles:
    """The files of a lab's management network."""

    files: LabFiles

    @property
    def folder(self) -> Path:
        return self.files.root / "ssh"

    @property
    def key(self) -> Path:
        """The private key that every node accepts."""
        return self.folder / "id_ed25519"

    @property
    def authorized(self) -> Path:
        return self.folder / "authorized_keys"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def configuration(self) -> Path:
        """The configuration file for `ssh -F`."""
        return self.folder / "config"

    @property
    def netns(self) -> Path:
        return self.files.netns_of(NAMESPACE)

    def of_node(self, node: str, name: str) -> Path:
        return self.files.node(node) / name


def addresses(fabric: Fabric) -> dict[str, str]:
    """The management address of every node, in the fabric's order.

    Raises InputError if the fabric has more nodes than a bridge can have ports.
    """
    if len(fabric.nodes) > MOST_NODES:
        raise InputError(
            f"a management network has {MOST_NODES} nodes at most, lab {fabric.name} has "
            f"{len(fabric.nodes)}",
            hint="leave management out: `rocelab exec` and `vtysh` need none",
        )
    from rocelab.lab.management_link import FIRST_ADDRESS

    return {
        node.name: str(FIRST_ADDRESS + number) for number, node in enumerate(fabric.nodes, start=1)
    }


def sshd_configuration(files: ManagementFiles, node: str, address: str, *, pam: bool) -> str:
    """A node's sshd_config(5): root, by the lab's key, on the management port alone.

    `pam`: needed for root's login by key on a machine that locks root's password.
    """
    folder = files.files.node(node)
    programs = DaemonFiles(folder).programs
    path = f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return "\n".join(
        (
            f"ListenAddress {address}:{SSH_PORT}",
            f"HostKey {files.of_node(node, 'ssh_host_ed25519_key')}",
            f"PidFile {files.of_node(node, 'sshd.pid')}",
            f"AuthorizedKeysFile {files.authorized}",
            "AuthenticationMethods publickey",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "AllowUsers root",
            f"UsePAM {'yes' if pam else 'no'}",
            "UseDNS no",
            "PrintMotd no",
            "Subsystem sftp internal-sftp",
            # With this PATH, vtysh finds this node's daemons.
            f"SetEnv PATH={path} ROCELAB_LAB={files.files.lab} ROCELAB_NODE={node}",
            "",
        )
    )


def ssh_configuration(files: ManagementFiles, address_of: Mapping[str, str]) -> str:
    """An ssh_config(5) with which the machine's root reaches every node by name."""
    relay = shlex.join(
        (
            *("env", f"PYTHONPATH={module_environment()['PYTHONPATH']}"),
            *module_command("rocelab.lab.management", str(files.netns)),
        )
    )
    # ssh passes it to a shell, and a percent sign begins a token (ssh_config(5)).
    proxy = f"{relay.replace('%', '%%')} %h %p"
    lines = [
        "Host *",
        "  User root",
        f"  IdentityFile {files.key}",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {files.known_hosts}",
        "  StrictHostKeyChecking yes",
        f"  ProxyCommand {proxy}",
    ]
    for node, address in address_of.items():
        lines += [f"Host {node}", f"  HostName {address}", f"  HostKeyAlias {node}"]
    return "\n".join((*lines, ""))


def check(fabric: Fabric) -> None:
    """Raises MachineError if there is no sshd, InputError as `addresses`."""
    sshd_path()
    addresses(fabric)


def start(fabric: Fabric, files: LabFiles, progress: ProgressSink = no_progress) -> None:
    """Give every node of a running lab a management port and an sshd; return when all listen.

    Raises MachineError if there is no sshd or one does not start, InputError as `addresses`.
    """
    # ssh's relay, a process for each connection, loads this module and needs no fabric.
    from rocelab.lab.management_link import make_links

    address_of = addresses(fabric)
    sshd = sshd_path()
    management = ManagementFiles(files)
    make_folder(management.folder, 0o700)
    make_links(files, management.netns, address_of)
    public = _new_key(management.key)
    write_file(management.authorized, f"{public}\n", 0o600)
    host_keys = {
        node: _new_key(management.of_node(node, "ssh_host_ed25519_key")) for node in address_of
    }
    known = "".join(f"{node} {key}\n" for node, key in host_keys.items())
    write_file(management.known_hosts, known, 0o600)
    write_file(management.configuration, ssh_configuration(management, address_of), 0o600)
    make_folder(SEPARATION_FOLDER, exist_ok=True)
    pam = root_is_locked()
    for done, (node, address) in enumerate(address_of.items(), start=1):
        configuration = management.of_node(node, "sshd_config")
        write_file(configuration, sshd_configuration(management, node, address, pam=pam), 0o600)
        _start_sshd(sshd, management, node, configuration)
        progress(Progress("management", done, len(address_of)))


def sshd_path() -> str:
    """The full path of sshd, which it must be started by. Raises MachineError."""
    path = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if path is None:
        raise MachineError(
            "sshd is not installed", "install the package openssh-server; its service is not needed"
        )
    return path


def open_ssh(lab: str, node: str, *, timeout_s: float = 10.0) -> paramiko.SSHClient:
    """An SSH connection to a node over its management port.

    Raises InputError if the lab has no management network or no such node in it, MissingExtraError
    without paramiko, and paramiko's errors.
    """
    try:
        import paramiko
    except ImportError as error:
        raise missing(error) or error from None

    management = ManagementFiles(LabFiles(lab))
    address = _address_in(management, node)
    client = paramiko.SSHClient()
    client.load_host_keys(str(management.known_hosts))
    link = namespaces.inside(
        management.netns, lambda: socket.create_connection((address, SSH_PORT), timeout_s)
    )
    # known_hosts lists nodes by name.
    client.connect(
        node,
        username="root",
        pkey=paramiko.Ed25519Key.from_private_key_file(str(management.key)),
        sock=link,
        timeout=timeout_s,
        allow_agent=False,
        look_for_keys=False,
    )
    return client


def _address_in(management: ManagementFiles, node: str) -> str:
    try:
        lines = management.configuration.read_text().splitlines()
    except FileNotFoundError:
        raise InputError(
            f"lab {management.files.lab} has no management network",
            hint="write `management: true` into its file and bring it up again",
        ) from None
    if f"Host {node}" not in lines:
        raise InputError(f"lab {management.files.lab} has no node {node}")
    return lines[lines.index(f"Host {node}") + 1].split()[1]


def _new_key(path: Path) -> str:
    """Write a new Ed25519 key in OpenSSH's format; return the public key as a line."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_file(path, private, 0o600)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def root_is_locked() -> bool:
    """Whether root's password field begins with `!`, which marks a locked account for sshd without
    PAM (auth.c, LOCKED_PASSWD_PREFIX)."""
    try:
        shadow = Path("/etc/shadow").read_text()
    except OSError:
        return False
    return any(line.startswith("root:!") for line in shadow.splitlines())


def _start_sshd(sshd: str, management: ManagementFiles, node: str, configuration: Path) -> None:
    """Start a node's sshd; return when it listens. Raises MachineError."""
    log = management.of_node(node, "sshd.log")
    write_file(log, b"", 0o600)
    watch = inotify.watch(log)
    arguments = [sshd, "-f", str(configuration), "-E", str(log)]

    def run() -> subprocess.CompletedProcess[str]:
        hosts.enter(management.files, node)
        return subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=START_TIMEOUT_S,
        )

    try:
        done = namespaces.on_own_thread(run)
        deadline = time.monotonic() + START_TIMEOUT_S
        while "Server listening on" not in (text := log.read_text()):
            left_s = deadline - time.monotonic()
            if done.returncode != 0 or "fatal: " in text or left_s <= 0:
                last = f"{text}{done.stdout}{done.stderr}".strip()[-500:]
                raise MachineError(f"sshd of {node} does not listen: {last or 'it says nothing'}")
            if select.select([watch], [], [], left_s)[0]:
                os.read(watch, 1 << 12)
    except subprocess.TimeoutExpired:
        last = log.read_text().strip()[-500:]
        raise MachineError(
            f"sshd of {node} did not start within {START_TIMEOUT_S:g} s: {last or 'nothing said'}"
        ) from None
    finally:
        os.close(watch)


def relay(netns: Path, host: str, port: int) -> None:
    """Relay stdin and stdout to a TCP connection from inside a namespace until both ends are
    closed; for ssh's ProxyCommand. Raises OSError."""
    link = namespaces.inside(netns, lambda: socket.create_connection((host, port), 10.0))
    link.settimeout(None)
    open_ends = {0: link.fileno(), link.fileno(): 1}
    while open_ends:
        ready, _, _ = select.select(list(open_ends), [], [])
        for source in ready:
            data = os.read(source, 1 << 16)
            if not data:
                del open_ends[source]
                if source == 0:
                    link.shutdown(socket.SHUT_WR)
                else:
                    return
            while data:
                data = data[os.write(open_ends[source], data) :]


if __name__ == "__main__":
    relay(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
