"""Access to nodes as to real switches: by SSH over a management port, independent of the fabric."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rocelab.lab.lab import RunningLab
from rocelab.lab.management import ManagementFiles, open_ssh
from rocelab.lab.status import known_labs
from rocelab.lab.teardown import take_down
from rocelab.record import LabFiles
from tests.helpers.command import PROGRAM, rocelab
from tests.helpers.waiting import RUN_LIMIT_S
from tests.integration.conftest import MakeLab

pytestmark = pytest.mark.side_by_side

LAB = "t-management"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("lab") / "lab.yaml"
    fabric = "{kind: clos, racks: 2, spines: 2}"
    file.write_text(f"name: {LAB}\nfabric: {fabric}\nmanagement: true\n")
    take_down(LAB)
    try:
        # Under an umask that gives nobody else anything FRR's user still reaches its own.
        subprocess.run([*PROGRAM, "up", file], check=True, umask=0o077, capture_output=True)
        yield RunningLab.open(LAB)
    finally:
        take_down(LAB)
        assert not Path("/run/rocelab", LAB).exists()


def said(node: str, command: str) -> str:
    with open_ssh(LAB, node) as client:
        _, out, errors = client.exec_command(command, timeout=RUN_LIMIT_S)
        answer = out.read().decode()
        assert out.channel.recv_exit_status() == 0, errors.read().decode()
    return answer


def test_ssh_ends_in_the_node_and_vtysh_is_that_switchs(lab: RunningLab) -> None:
    addresses = json.loads(said("rtsw1", "ip -json -4 address"))
    names = {address["ifname"] for address in addresses}
    assert {"mgmt0", "ctsw1", "ctsw2"} <= names
    summary = json.loads(said("rtsw1", "vtysh -c 'show bgp summary json'"))
    assert str(summary["ipv4Unicast"]["routerId"]) == lab.fabric.node("rtsw1").loopback
    assert said("srv1-1", "echo $ROCELAB_NODE; hostname").split() == ["srv1-1", "srv1-1"]
    assert said("srv1-1", "getent hosts rtsw2").split() == [
        lab.fabric.node("rtsw2").loopback,
        "rtsw2",
    ]


def test_openssh_itself_reaches_a_node_by_its_name(lab: RunningLab) -> None:
    configuration = ManagementFiles(LabFiles(LAB)).configuration
    done = subprocess.run(
        ["ssh", "-F", configuration, "ctsw2", "ip -json link show dev rtsw1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["ifname"] == "rtsw1"


def test_a_switch_that_is_cut_off_from_the_fabric_is_still_reached(lab: RunningLab) -> None:
    for link in lab.fabric.links_of["rtsw2"]:
        said("rtsw2", f"ip link set dev {link.port('rtsw2').interface} down")
    state = json.loads(said("rtsw2", "ip -json link show type veth"))
    assert {interface["ifname"] for interface in state if "UP" in interface["flags"]} == {"mgmt0"}


def test_the_fabric_knows_nothing_of_the_management_network(lab: RunningLab) -> None:
    routes = json.loads(said("ctsw1", "vtysh -c 'show bgp ipv4 unicast json'"))["routes"]
    assert routes
    assert not [prefix for prefix in routes if prefix.startswith("100.64.")]


def test_its_own_namespace_is_not_listed_as_a_node(lab: RunningLab) -> None:
    (listed,) = (lab for lab in known_labs() if lab.name == LAB)
    assert listed.nodes == len(lab.fabric.nodes)


def test_the_machines_own_network_has_nothing_of_it(lab: RunningLab) -> None:
    interfaces = Path("/proc/self/net/dev").read_text()
    assert "mgmt0" not in interfaces
    assert not any(f"{node.name}:" in interfaces for node in lab.fabric.nodes)


def test_the_inventory_for_ssh_is_the_one_that_gets_in(lab: RunningLab, tmp_path: Path) -> None:
    configuration = tmp_path / "config"
    configuration.write_text(rocelab("inventory", LAB, "--format", "ssh").stdout)
    outcome = subprocess.run(
        ["ssh", "-F", configuration, "rtsw1", "hostname"],
        capture_output=True,
        text=True,
        check=True,
        timeout=RUN_LIMIT_S,
    )
    assert outcome.stdout == "rtsw1\n"
    hosts = rocelab("inventory", LAB, "--format", "hosts").stdout.splitlines()
    assert len(hosts) == len(lab.fabric.nodes)
    address, name = hosts[0].split()
    assert f"Host {name}\n  HostName {address}\n" in configuration.read_text()


def test_the_inventory_for_ansible_has_a_group_for_each_role(lab: RunningLab) -> None:
    everything = yaml.safe_load(rocelab("inventory", LAB).stdout)["all"]
    assert set(everything["children"]) == {"rtsw", "ctsw", "server", "switches"}
    assert set(everything["children"]["rtsw"]["hosts"]) == {"rtsw1", "rtsw2"}
    assert set(everything["children"]["switches"]["children"]) == {"rtsw", "ctsw"}
    arguments = everything["vars"]["ansible_ssh_common_args"].split()
    outcome = subprocess.run(
        ["ssh", *arguments, "-l", everything["vars"]["ansible_user"], "srv1-1", "hostname"],
        capture_output=True,
        text=True,
        check=True,
        timeout=RUN_LIMIT_S,
    )
    assert outcome.stdout == "srv1-1\n"


@pytest.mark.long
def test_ansible_of_pypi_gets_in_and_its_modules_run_in_the_node(
    lab: RunningLab, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", "ansible-core"], check=True)
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(rocelab("inventory", LAB).stdout)

    def ansible(*words: str) -> str:
        return subprocess.run(
            [programs / "ansible", "-i", inventory, *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=RUN_LIMIT_S,
            env={**os.environ, "ANSIBLE_HOME": str(tmp_path), "ANSIBLE_REMOTE_TEMP": str(tmp_path)},
        ).stdout

    assert ansible("all", "-m", "ping").count('"ping": "pong"') == len(lab.fabric.nodes)
    summary = ansible("rtsw2", "-m", "command", "-a", "vtysh -c 'show bgp summary'")
    loopback = lab.fabric.node("rtsw2").loopback
    assert f"BGP router identifier {loopback}," in summary
    addresses = ansible("srv1-1", "-m", "raw", "-a", "hostname; ip -brief address")
    assert "srv1-1\n" in addresses.replace("\r", "")
    assert str(lab.fabric.links_of["srv1-1"][0].port("srv1-1").address) in addresses


def test_a_lab_without_management_has_no_inventory(make_lab: MakeLab) -> None:
    lab = make_lab("t-unmanaged", "fabric: {kind: clos, racks: 1, spines: 1}")
    lab.start()
    outcome = rocelab("inventory", "t-unmanaged")
    assert outcome.returncode == 2
    assert "lab t-unmanaged has no management network" in outcome.stderr
    assert "management: true" in outcome.stderr
