"""An invalid line in known_hosts only affects itself."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from rocelab.remote.connection import _load_known_hosts

KEY = paramiko.RSAKey.generate(2048)
GOOD = f"good {KEY.get_name()} {KEY.get_base64()}"


@pytest.mark.parametrize(
    "line",
    [
        "bad ssh-ed25519 AAA",
        "bad ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==",
        "bad ssh-rsa !!!!",
        "bad ssh-rsa AAAAB3NzaC1yc2EAAAAD",
        "bad ecdsa-sha2-nistp256 AAAAE2VjZHNh",
        "bad",
        "<<<<<<< HEAD",
        "\0\0\0",
        "@cert-authority *.example.org ssh-rsa AAAA",
        "bad ssh-unheard-of AAAA",
    ],
)
def test_a_line_that_is_no_entry_is_passed_over(line: str, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_bytes(f"# mine\n{line}\n{GOOD}\n".encode() + b"\xff\xfe\n")
    client = paramiko.SSHClient()
    _load_known_hosts(client, file)
    entry = client._system_host_keys.lookup("good")
    assert entry is not None
    assert entry[KEY.get_name()] == KEY
