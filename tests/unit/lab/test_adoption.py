"""Labs that others made: what is found in a survey of them."""

from __future__ import annotations

import json
import os
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rocelab.base.errors import InputError
from rocelab.fabrics.roles import Role
from rocelab.jobs.placement import find_nic
from rocelab.lab.adoption import adopt, containers, graph
from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.base import safe_name
from rocelab.labfile.model import LabSpec
from rocelab.linux import namespaces, portstate
from rocelab.linux.rootfs import open_below
from rocelab.planning.build import build_fabric
from rocelab.planning.routes import expected_routes
from rocelab.routes.arrays.build import network_of
from tests.helpers.adopted_sample import FRR, leaf_spine, surveyed


def test_tiers_count_from_the_hosts() -> None:
    fabric = build_fabric(leaf_spine())
    roles = {node.name: node.role for node in fabric.nodes}
    assert {name for name, role in roles.items() if role is Role.LEAF} == {"leaf1", "leaf2"}
    assert {name for name, role in roles.items() if role is Role.SPINE} == {"spine1", "spine2"}
    assert {name for name, role in roles.items() if role is Role.SERVER} == {"host1", "host2"}


def test_a_link_has_the_end_nearer_the_hosts_first() -> None:
    fabric = build_fabric(leaf_spine())
    assert [link.name for link in fabric.links] == [
        *("host1:eth1", "host2:eth1"),
        *("leaf1:eth2", "leaf1:eth3", "leaf2:eth2", "leaf2:eth3"),
    ]
    assert [str(link.b) for link in fabric.links_of["leaf1"]] == [
        *("leaf1:eth1", "spine1:eth1", "spine2:eth1")
    ]


def test_four_tiers_and_more_end_at_the_core() -> None:
    chain = ("host", "a", "b", "c", "d", "e")
    nodes = surveyed(tuple(pairwise(chain)), dict.fromkeys(chain[1:], FRR))
    roles = graph.roles(nodes)
    assert [roles[name].tier for name in chain] == [0, 1, 2, 3, 3, 3]


def test_without_hosts_the_switches_with_the_fewest_neighbours_are_the_leaves() -> None:
    cables = [(f"l{leaf}", f"s{spine}") for leaf in (1, 2, 3) for spine in (1, 2)]
    names = {name for pair in cables for name in pair}
    roles = graph.roles(surveyed(cables, dict.fromkeys(names, FRR)))
    assert {name: role.tier for name, role in roles.items()} == {
        name: 1 if name.startswith("l") else 2 for name in names
    }


def test_routers_that_all_have_hosts_are_one_tier() -> None:
    cables = [("r1", "r2"), ("r1", "r3"), ("r2", "r3"), ("p1", "r1"), ("p2", "r2"), ("p3", "r3")]
    roles = graph.roles(surveyed(cables, dict.fromkeys(("r1", "r2", "r3"), ("zebra", "ospfd"))))
    assert {roles[f"r{number}"] for number in (1, 2, 3)} == {Role.LEAF}


def test_a_group_that_names_a_role_decides() -> None:
    groups = {"a": "rtsw", "b": "ctsw", "c": "server", "d": "whatever"}
    nodes = surveyed((("c", "a"), ("a", "b"), ("d", "a")), {}, groups=groups)
    roles = graph.roles(nodes)
    assert roles == {"a": Role.RTSW, "b": Role.CTSW, "c": Role.SERVER, "d": Role.SERVER}


def test_a_kind_that_is_no_plain_host_is_a_switch() -> None:
    nodes = surveyed((("h", "s"),), {}, kinds={"s": "nokia_srlinux"})
    assert graph.roles(nodes)["s"] is Role.LEAF


def test_a_session_is_found_by_address_or_by_interface_at_either_end() -> None:
    by_address = build_fabric(leaf_spine())
    assert [link.name for link in by_address.sessions] == ["leaf1:eth2", "leaf1:eth3", "leaf2:eth2"]
    nodes = surveyed(
        (("h", "l"), ("l", "s")),
        {"l": FRR, "s": FRR},
        unnumbered=True,
        neighbours={"l": ("eth2",)},
    )
    unnumbered = build_fabric(graph.lab_of("x", nodes))
    assert [link.name for link in unnumbered.sessions] == ["l:eth2"]
    assert not unnumbered.numbered


def test_routes_over_other_interfaces_than_links_are_not_expected() -> None:
    routes = {"l": {"10.9.0.0/24": ("eth2",), "0.0.0.0/0": ("eth0",), "10.8.0.0/24": ("eth2", "x")}}
    nodes = surveyed((("h", "l"), ("l", "s")), {"l": FRR, "s": FRR}, routes=routes)
    expected = expected_routes(build_fabric(graph.lab_of("x", nodes)))
    assert {prefix: [link.name for link in hops] for prefix, hops in expected["l"].items()} == {
        "10.9.0.0/24": ["l:eth2"]
    }
    assert expected["s"] == {}


def test_a_hosts_port_without_address_is_no_nic() -> None:
    nodes = surveyed((("h", "l"), ("l", "s")), {"l": FRR, "s": FRR}, unnumbered=True)
    fabric = build_fabric(graph.lab_of("x", nodes))
    assert fabric.nics("h") == ()
    with pytest.raises(InputError):
        find_nic(fabric, "h")


def test_its_network_has_the_links_of_its_fabric_in_order() -> None:
    spec = leaf_spine()
    fabric, network = build_fabric(spec), network_of(spec)
    names = network.node_names
    ends = [
        (names[low], names[high]) for low, high in zip(network.lower, network.upper, strict=True)
    ]
    assert ends == [(link.a.node, link.b.node) for link in fabric.links]
    assert [names[server] for server in network.nic_server] == ["host1", "host2"]


def test_a_record_keeps_it_and_a_lab_file_cannot_have_it() -> None:
    spec = leaf_spine()
    document = spec.model_dump(mode="json")
    assert recorded_spec(document) == spec
    assert build_fabric(recorded_spec(document)) == build_fabric(spec)
    with pytest.raises(ValueError, match="adopted"):
        LabSpec.model_validate(document)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("frr01", "frr01"),
        ("My_Lab", "my-lab"),
        ("3-stage clos", "stage-clos"),
        ("a" * 40, "a" * 24),
        ("___", ""),
    ],
)
def test_a_lab_gets_a_name_that_is_taken_here(text: str, name: str) -> None:
    assert safe_name(text) == name
    assert not name or leaf_spine(name).name == name


def test_what_was_kept_of_a_port_is_read_back_and_compared() -> None:
    body = bytes([socket.AF_INET, 24, 0x80, 0, 7, 0, 0, 0]) + b"\x08\0\x02\0\x0a\0\0\x01"
    state = portstate.from_json(f'{{"txqlen": 0, "kept": [[20, "{body.hex()}"]]}}')
    assert portstate.from_json(portstate.to_json(state)) == state
    assert portstate.missing(state.kept, state.kept) == ()
    assert portstate.missing(state.kept, ()) == state.kept


def test_a_link_in_a_containers_files_does_not_lead_out_of_them(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "run" / "frr").mkdir(parents=True)
    (root / "run" / "frr" / "x").write_text("inside")
    (root / "var").mkdir()
    (root / "var" / "run").symlink_to("/run")
    (tmp_path / "secret").write_text("outside")
    (root / "out").symlink_to("../secret")
    (root / "far").symlink_to("/etc/passwd")
    opened = open_below(root, "var/run/frr/x", os.O_RDONLY)
    try:
        assert os.read(opened, 100) == b"inside"
    finally:
        os.close(opened)
    for path in ("out", "far", "../secret"):
        with pytest.raises(FileNotFoundError):
            open_below(root, path, os.O_RDONLY)


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", "-x", "a\x1b[31m", "x" * 65])
def test_a_label_that_is_no_name_of_a_node_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="not the name of a node"):
        containers._container(described("1", name))


def described(container: str, name: str) -> dict[str, Any]:
    """As the engine describes a container of node `name`."""
    return {
        "Id": container,
        "Name": f"/{name}",
        "Config": {"Image": "x", "Labels": {"clab-node-name": name}},
        "State": {"Pid": 1},
    }


def running(pid: int, name: str, network: str) -> dict[str, Any]:
    """The same of one whose first process is `pid`, in that network."""
    state = {"State": {"Pid": pid}, "HostConfig": {"NetworkMode": network}}
    return {**described(str(pid), name), **state}


class EngineOf:
    """An engine with these containers of any lab."""

    def __init__(self, *containers: dict[str, Any]) -> None:
        self._found = containers

    def run(self, command: str, *_: str) -> str:
        if command == "inspect":
            return json.dumps(self._found)
        return " ".join(container["Id"] for container in self._found)


def test_two_containers_that_say_they_are_one_node_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = EngineOf(described("1", "leaf1"), described("2", "leaf2"), described("3", "leaf1"))
    monkeypatch.setattr(containers, "find_engine", lambda: engine)
    with pytest.raises(InputError, match="two containers of lab mine are node leaf1: 1 and 3"):
        containers.find_containers("mine")


@pytest.mark.parametrize("written", ['""', "[a]", "x" * 256, "", "~"])
def test_a_topology_without_a_name_is_refused(tmp_path: Path, written: str) -> None:
    file = tmp_path / "mine.clab.yml"
    file.write_text(f"name: {written}\n")
    with pytest.raises(InputError, match="it has no name"):
        containers.find_containers(str(file))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("${LAB}", "the variable LAB, which is not set here"),
        ("'{{ .name }}'", "made when it is deployed: {{"),
        ("lab-__gitBranch__", "made when it is deployed: __gitBranch__"),
    ],
)
def test_a_name_that_only_its_deployment_knew_is_asked_for(
    tmp_path: Path, written: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAB", raising=False)
    file = tmp_path / "mine.clab.yml"
    file.write_text(f"name: {written}\n")
    with pytest.raises(InputError, match=said) as caught:
        containers.find_containers(str(file))
    assert "name the lab itself" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("name: ${LAB:=Bugs_Lab.1}", "Bugs_Lab.1"),
        ("name: Bugs_Lab.1\nx: &x {kind: linux}\ny: {<<: *x}\nz: 010", "Bugs_Lab.1"),
        ("name: 2026", "2026"),
    ],
)
def test_nothing_but_the_name_of_a_topology_is_read(
    tmp_path: Path, text: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAB", raising=False)
    monkeypatch.setattr(containers, "find_engine", lambda: EngineOf(described("1", "leaf1")))
    file = tmp_path / "mine.clab.yml"
    file.write_text(text)
    lab, _, nodes = containers.find_containers(str(file))
    assert (lab, [node.name for node in nodes]) == (name, ["leaf1"])


def _in_namespaces(monkeypatch: pytest.MonkeyPatch, of: dict[int, int]) -> None:
    """Processes are in these network namespaces, all others in the machine's, number 1."""
    monkeypatch.setattr(namespaces, "inode_of", lambda pid: of.get(pid, 1))
    monkeypatch.setattr(
        namespaces, "are_in_one", lambda one, other: of.get(one, 1) == of.get(other, 1)
    )


def test_a_sidecar_does_not_remove_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {"a-capture": "container:2", "host1": "bridge", "host2": "none", "in-machine": "host"}
    engine = EngineOf(
        *(
            {
                **described(str(pid), name),
                "State": {"Pid": pid},
                "HostConfig": {"NetworkMode": mode},
            }
            for pid, (name, mode) in enumerate(modes.items(), start=10)
        )
    )
    monkeypatch.setattr(containers, "find_engine", lambda: engine)
    _in_namespaces(monkeypatch, {10: 700, 11: 700, 12: 800, 13: 1})
    _, _, members = containers.find_containers("mine")
    nodes, sidecars = adopt._with_own_namespace(members)
    assert [node.name for node in nodes] == ["host1", "host2"]
    assert sidecars == {"a-capture": "host1"}
    notes = adopt._notes("mine", "mine", (), ["in-machine"], sidecars)
    assert "a-capture: part of host1, whose network namespace it shares" in notes
    assert "in-machine: left out, in the machine's own network namespace" in notes


def test_of_two_in_the_network_of_another_lab_one_is_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = EngineOf(*(running(pid, f"server{pid}", "container:99") for pid in (10, 11)))
    monkeypatch.setattr(containers, "find_engine", lambda: engine)
    _in_namespaces(monkeypatch, {10: 700, 11: 700})
    _, _, members = containers.find_containers("mine")
    nodes, sidecars = adopt._with_own_namespace(members)
    assert [node.name for node in nodes] == ["server10"] and sidecars == {"server11": "server10"}
