"""`me@vm`: this machine as another one, through a real SSH server on a port of its loopback.

The user `me` has a key and sudo without a password, as on a VM from a provider's image. `vm` is a
name in root's SSH configuration, which the product reads.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocelab.lab.management import SEPARATION_FOLDER, sshd_path
from tests.helpers.openssh import make_key

PORT = 47022
USER = "me"
NAME = "vm"


@contextmanager
def virtual_machine() -> Iterator[None]:
    """`ssh me@vm` works in this context, for root. Meant for a machine made for tests."""
    ssh = Path.home() / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    folder = Path("/run/rocelab-test-sshd")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    _make_user(make_key(folder / "id_ed25519"))
    kind, key, *_ = make_key(folder / "host_key").split()
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{PORT} {kind} {key}\n")
    (ssh / "config").write_text(
        f"Host {NAME}\n  HostName 127.0.0.1\n  Port {PORT}\n  IdentityFile {folder}/id_ed25519\n"
    )
    configuration = folder / "sshd_config"
    configuration.write_text(
        f"ListenAddress 127.0.0.1:{PORT}\nHostKey {folder}/host_key\nPidFile none\n"
        f"AllowUsers {USER}\nAuthenticationMethods publickey\nUsePAM yes\nUseDNS no\n"
        "Subsystem sftp internal-sftp\n"
    )
    SEPARATION_FOLDER.mkdir(mode=0o755, exist_ok=True)
    with subprocess.Popen(
        [str(sshd_path()), "-D", "-e", "-f", str(configuration)],
        stderr=(folder / "log").open("wb"),
    ) as server:
        try:
            yield
        finally:
            server.terminate()


def _make_user(public_key: str) -> None:
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", USER], check=False)
    ssh = Path("/home", USER, ".ssh")
    ssh.mkdir(mode=0o700, exist_ok=True)
    (ssh / "authorized_keys").write_text(public_key)
    subprocess.run(["chown", "-R", f"{USER}:", str(ssh)], check=True)
    Path("/etc/sudoers.d", USER).write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
