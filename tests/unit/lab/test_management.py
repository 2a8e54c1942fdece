"""The management network of a lab, as files: who listens where, and who is let in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import paramiko
import pytest

from rocelab.base import interpreter
from rocelab.base.errors import InputError, MachineError
from rocelab.lab import management
from rocelab.lab.lab import Lab
from rocelab.lab.management import (
    MOST_NODES,
    ManagementFiles,
    addresses,
    open_ssh,
    ssh_configuration,
    sshd_configuration,
)
from rocelab.linux import namespaces
from rocelab.record import LabFiles
from tests.helpers.labs import planned


@pytest.fixture
def files() -> ManagementFiles:
    return ManagementFiles(LabFiles("t-management"))


def test_every_node_has_an_address_of_its_own_outside_the_fabrics_space() -> None:
    fabric = Lab.planned("zone-small").fabric
    address_of = addresses(fabric)
    assert list(address_of) == [node.name for node in fabric.nodes]
    assert len(set(address_of.values())) == len(address_of)
    assert all(address.startswith("100.64.") for address in address_of.values())
    assert "100.64.0.1" not in address_of.values()


def test_a_fabric_beyond_a_bridges_ports_is_refused() -> None:
    with pytest.raises(InputError, match=str(MOST_NODES)):
        addresses(planned("llama3-24k"))


def test_an_sshd_listens_on_its_management_address_alone_and_takes_keys_alone(
    files: ManagementFiles,
) -> None:
    said = sshd_configuration(files, "rtsw1", "100.64.0.9", pam=False)
    lines = said.splitlines()
    assert [line for line in lines if line.startswith("Listen")] == ["ListenAddress 100.64.0.9:22"]
    assert "AuthenticationMethods publickey" in lines
    assert "PasswordAuthentication no" in lines
    assert "AuthorizedKeysFile /run/rocelab/t-management/ssh/authorized_keys" in lines
    assert "PATH=/run/rocelab/t-management/nodes/rtsw1/bin:" in said
    assert "UsePAM yes" in sshd_configuration(files, "rtsw1", "100.64.0.9", pam=True)


def test_an_sshd_that_does_not_start_in_time_is_an_error_with_the_end_of_its_log(
    files: ManagementFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object) -> None:
        (tmp_path / "sshd.log").write_text("no entropy\n")
        raise subprocess.TimeoutExpired("sshd", 60)

    monkeypatch.setattr(ManagementFiles, "of_node", lambda _, node, name: tmp_path / name)
    monkeypatch.setattr(namespaces, "on_own_thread", late)
    with pytest.raises(MachineError, match="sshd of rtsw1 did not start within 60 s: no entropy"):
        management._start_sshd("sshd", files, "rtsw1", tmp_path)


def test_ssh_reaches_a_node_by_its_name_and_verifies_its_key(
    files: ManagementFiles, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text(ssh_configuration(files, {"rtsw1": "100.64.0.9", "srv1-1": "100.64.0.10"}))
    entry = paramiko.SSHConfig.from_path(str(file)).lookup("srv1-1")
    assert entry["hostname"] == "100.64.0.10"
    assert entry["hostkeyalias"] == "srv1-1"
    assert entry["stricthostkeychecking"] == "yes"
    assert entry["identityfile"] == ["/run/rocelab/t-management/ssh/id_ed25519"]
    assert entry["proxycommand"].endswith("/netns/management 100.64.0.10 22")


def test_ssh_reaches_a_node_from_a_folder_whose_name_a_shell_would_read(
    files: ManagementFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "my kit; touch $(id) 100%h"
    odd.mkdir()
    python = odd / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$PYTHONPATH" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(interpreter, "HOME", odd)
    file = tmp_path / "config"
    file.write_text(ssh_configuration(files, {"rtsw1": "100.64.0.9"}))
    asked = ["ssh", "-G", "-F", str(file), "rtsw1"]
    text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    (proxy,) = (line for line in text.splitlines() if line.startswith("proxycommand "))
    command = proxy.removeprefix("proxycommand ")
    # As OpenSSH replaces tokens (ssh_config(5), TOKENS).
    for token, value in (("%h", "100.64.0.9"), ("%p", "22")):
        command = re.sub(rf"(?<!%){token}", value, command)
    command = command.replace("%%", "%")
    run = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    said = run.stdout.splitlines()
    assert said[:2] == [str(python), str(odd)]
    assert said[-3:] == [str(files.netns), "100.64.0.9", "22"]


def test_a_lab_without_management_says_how_to_have_it() -> None:
    with pytest.raises(InputError, match="no management network"):
        open_ssh("t-management", "rtsw1")
