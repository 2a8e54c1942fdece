"""Which servers run a program, and what each copy is told."""

from __future__ import annotations

import pytest

from rocelab import load, plan
from rocelab.base.errors import InputError
from rocelab.planning.fabric import Fabric
from rocelab.programs.ranks import OPENMPI_PREFIXES, matching_servers, plan_programs


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return plan(load("two-networks"))


@pytest.mark.parametrize(
    ("patterns", "servers"),
    [
        (["srv1-*"], ["srv1-1", "srv1-2"]),
        (["srv2-2", "srv*"], ["srv2-2", "srv1-1", "srv1-2", "srv2-1"]),
        (["srv[12]-1", "srv2-1"], ["srv1-1", "srv2-1"]),
    ],
)
def test_servers_come_in_the_order_of_patterns_each_once(
    fabric: Fabric, patterns: list[str], servers: list[str]
) -> None:
    assert matching_servers(fabric, patterns) == servers


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("SRV1-1", "no server of lab two-networks matches 'SRV1-1'"),
        ("rtsw*", "no server of lab two-networks matches 'rtsw*'"),
        ("rtsw1", "rtsw1 is a switch, and programs run on servers"),
    ],
)
def test_a_pattern_without_a_server_is_refused(fabric: Fabric, pattern: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        matching_servers(fabric, ["srv1-1", pattern])
    assert refused.value.message == message


def test_programs_are_told_the_network_that_they_are_to_use(fabric: Fabric) -> None:
    frontend = fabric.network("frontend")
    first, second = plan_programs(frontend, ["sto1", "srv1-1"], ["x"])
    interface = frontend.nics("srv1-1")[0].links[0].a.interface
    assert second.variables["NCCL_SOCKET_IFNAME"] == interface
    assert first.variables["MASTER_ADDR"] == second.variables["MASTER_ADDR"] == "sto1.frontend"
    assert first.variables["SERVERS"].split()[0] == "sto1.frontend"
    assert (first.name, second.name) == ("sto1", "srv1-1")


def test_a_server_outside_of_the_network_is_refused(fabric: Fabric) -> None:
    with pytest.raises(InputError, match="sto1 has no NIC in network backend"):
        plan_programs(fabric.network("backend"), ["srv1-1", "sto1"], ["x"])


def test_ranks_of_a_server_follow_each_other_by_the_names_of_all_launchers(fabric: Fabric) -> None:
    programs = plan_programs(fabric, ["srv2-1", "srv1-1", "srv1-2"], ["x"], per_server=2)
    names = ["srv2-1/0", "srv2-1/1", "srv1-1/0", "srv1-1/1", "srv1-2/0", "srv1-2/1"]
    assert [program.name for program in programs] == names
    variables = programs[3].variables
    for value, group in {
        "3": ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"),
        "6": ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"),
        "1": ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "GROUP_RANK"),
        "2": ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    }.items():
        assert {variables[name] for name in group} == {value}
    group_ranks = [program.variables["GROUP_RANK"] for program in programs]
    assert group_ranks == [program.variables["SLURM_NODEID"] for program in programs]
    assert group_ranks == [*"001122"]
    assert variables["GROUP_WORLD_SIZE"] == variables["SLURM_NNODES"] == "3"


def test_a_variable_of_the_user_renames_no_program(fabric: Fabric) -> None:
    changed = {"LOCAL_WORLD_SIZE": "1"}
    programs = plan_programs(fabric, ["srv1-1"], ["x"], per_server=2, environment=changed)
    assert [program.name for program in programs] == ["srv1-1/0", "srv1-1/1"]


def test_a_variable_of_the_user_goes_before_those_of_the_run(fabric: Fabric) -> None:
    (program,) = plan_programs(fabric, ["srv1-1"], ["x"], environment={"MASTER_PORT": "1"})
    assert program.variables["MASTER_PORT"] == "1"


@pytest.mark.parametrize(("lab", "has_some"), [("two-networks", True), ("ipv6-only", False)])
def test_openmpi_is_told_prefixes_of_ipv4_alone(lab: str, has_some: bool) -> None:
    fabric = plan(load(lab)).networks[0]
    (program,) = plan_programs(fabric, ["srv1-1"], ["x"])
    prefixes = [program.variables.get(name, "") for name in OPENMPI_PREFIXES]
    assert ":" not in "".join(prefixes)
    assert all(prefixes) == has_some
