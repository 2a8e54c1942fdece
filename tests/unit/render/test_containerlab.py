"""The folder for containerlab: against golden files, its published schema and the fabric itself.

`RECORD=1 pytest` writes the golden files anew.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from rocelab.base.errors import InputError
from rocelab.cli.main import main
from rocelab.lab.lab import Lab
from rocelab.labfile.addresses import AddressesSpec, Families
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.settings import node_settings
from rocelab.render.containerlab import container_name, mounted_files, topology_text
from rocelab.render.deployment import Deployment, deployment, warnings
from rocelab.render.files import MARKER, write_containerlab
from rocelab.routing.frr.configuration import frr_configuration
from tests.helpers.clab_check import topology_problems
from tests.helpers.limits import LIMIT_S
from tests.helpers.target_schemas import clab_schema

GOLDEN = Path(__file__).parents[2] / "golden"
SMALL_LABS = (
    *("tiny", "bfd", "unnumbered", "zone-small", "zones-small", "two-leaves"),
    *("hpn-small", "rail-small", "fat-tree-4"),
)


def fabric(name: str = "golden", **extra: object) -> Fabric:
    spec = {"name": name, "fabric": {"kind": "clos", "racks": 2, "spines": 1}, **extra}
    return plan(LabSpec.model_validate(spec))


@cache
def small(lab: str) -> Fabric:
    return Lab.planned(lab).fabric


def parsed(made: Deployment) -> dict[str, Any]:
    document = yaml.safe_load(topology_text(made))
    assert isinstance(document, dict)
    return document


def assert_as_recorded(text: str, name: str) -> None:
    golden = GOLDEN / name
    if os.environ.get("RECORD"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_topology_of_a_tiny_fabric_is_as_recorded() -> None:
    assert_as_recorded(topology_text(deployment(fabric())), "golden.clab.yml")


def test_a_switch_s_files_are_as_recorded() -> None:
    made = deployment(fabric(routing={"bfd": {"interval": "100ms", "multiplier": 3}}))
    files = {path: text for path, text in mounted_files(made) if path.startswith("rtsw1/")}
    text = "".join(f"# {path}\n{text}" for path, text in files.items())
    assert_as_recorded(text, "containerlab-rtsw1.conf")


@pytest.mark.parametrize("validator", [Draft7Validator, Draft202012Validator])
@pytest.mark.parametrize("lab", SMALL_LABS)
def test_a_topology_is_valid_against_containerlab_s_schema(lab: str, validator: Any) -> None:
    errors = validator(clab_schema()).iter_errors(parsed(deployment(small(lab))))
    assert [error.message for error in errors] == []


@pytest.mark.parametrize("validator", [Draft7Validator, Draft202012Validator])
def test_the_schema_refuses_what_is_not_a_topology(validator: Any) -> None:
    document = parsed(deployment(fabric()))
    document["topology"]["links"][0]["mtu"] = "jumbo"
    document["topology"]["nodes"]["rtsw1"]["network-mode"] = "nothing"
    paths = sorted(error.json_path for error in validator(clab_schema()).iter_errors(document))
    assert len(paths) == 2
    assert paths[0] == "$.topology.links[0]"
    assert paths[1].startswith("$.topology.nodes.rtsw1")


@pytest.mark.parametrize("lab", SMALL_LABS)
def test_a_topology_is_sound_and_has_the_fabric_s_nodes_and_links(lab: str) -> None:
    assert_sound_and_complete(small(lab))


@settings(max_examples=15)
@given(
    racks=st.integers(1, 4),
    spines=st.integers(1, 3),
    servers=st.integers(0, 2),
    parallel=st.integers(1, 3),
)
def test_any_clos_is_rendered_sound_and_complete(
    racks: int, spines: int, servers: int, parallel: int
) -> None:
    shape = {"kind": "clos", "racks": racks, "spines": spines, "servers_per_rack": servers}
    spec = {"name": "any", "fabric": shape | {"links_per_pair": parallel}}
    assert_sound_and_complete(plan(LabSpec.model_validate(spec)))


def assert_sound_and_complete(planned: Fabric) -> None:
    made = deployment(planned)
    document = parsed(made)
    assert topology_problems(document, dict(mounted_files(made))) == []
    topology = document["topology"]
    assert list(topology["nodes"]) == [node.name for node in planned.nodes]
    ends = [
        [(end["node"], end["interface"], end["mac"]) for end in link["endpoints"]]
        for link in topology["links"]
    ]
    assert ends == [
        [(end.node, end.interface, end.mac) for end in (link.a, link.b)] for link in planned.links
    ]
    assert [link["mtu"] for link in topology["links"]] == [link.mtu for link in planned.links]


def link_of(document: Any, number: int) -> Any:
    return document["topology"]["links"][number]


def use_an_interface_twice(document: Any) -> None:
    link_of(document, 1)["endpoints"][0] = dict(link_of(document, 0)["endpoints"][0], mac=None)


def lose_an_end(document: Any) -> None:
    del link_of(document, 0)["endpoints"][1]


def end_nowhere(document: Any) -> None:
    link_of(document, 0)["endpoints"] = ["rtsw1:a", "rtsw9:b"]


def name_an_interface_too_long(document: Any) -> None:
    link_of(document, 0)["endpoints"][0]["interface"] = "a-name-of-16-let"


def take_the_management_interface(document: Any) -> None:
    document["topology"]["nodes"]["rtsw1"]["network-mode"] = "host"
    link_of(document, 0)["endpoints"] = ["rtsw1:eth0", "rtsw2:eth0"]


def give_a_mac_twice(document: Any) -> None:
    first, second = link_of(document, 0)["endpoints"]
    second["mac"] = first["mac"]


def bind_what_is_not_there(document: Any) -> None:
    document["topology"]["nodes"]["rtsw1"]["binds"] = ["rtsw1/no.conf:/etc/frr/frr.conf"]


def bind_from_outside(document: Any) -> None:
    document["topology"]["nodes"]["rtsw1"]["binds"] = ["../x:/etc/frr/frr.conf"]


def bind_two_on_one(document: Any) -> None:
    binds = document["topology"]["nodes"]["rtsw1"]["binds"]
    binds.append("rtsw1/daemons:/etc/frr/frr.conf:ro")


def misname_a_node(document: Any) -> None:
    nodes = document["topology"]["nodes"]
    nodes["-rtsw"] = nodes["rtsw1"]


def remove_all(document: Any) -> None:
    document["topology"]["nodes"] = {}


@pytest.mark.parametrize(
    ("breaking", "problem"),
    [
        (use_an_interface_twice, "srv1-1:rtsw1 is an end of 2 links"),
        (lose_an_end, "link 1 has 1 ends"),
        (end_nowhere, "a link ends at 'rtsw9', which is no node"),
        (name_an_interface_too_long, "'a-name-of-16-let' cannot be an interface's name"),
        (take_the_management_interface, "rtsw1: eth0 is the management network's"),
        (give_a_mac_twice, "2 ends have the MAC 02:00:00:00:00:00"),
        (bind_what_is_not_there, "rtsw1: rtsw1/no.conf is not in the folder"),
        (bind_from_outside, "rtsw1: ../x is outside the folder"),
        (bind_two_on_one, "rtsw1: /etc/frr/frr.conf is mounted 2 times"),
        (misname_a_node, "'-rtsw' cannot be a node's name"),
        (remove_all, "there is no node"),
    ],
)
def test_a_broken_topology_is_told_what_is_wrong(
    breaking: Callable[[Any], None], problem: str
) -> None:
    made = deployment(fabric())
    document = copy.deepcopy(parsed(made))
    breaking(document)
    problems = topology_problems(document, dict(mounted_files(made)))
    assert len(problems) == 1
    assert problem in problems[0]


def test_eth0_is_free_where_there_is_no_management_network() -> None:
    made = deployment(fabric())
    document = parsed(made)
    link_of(document, 0)["endpoints"][0]["interface"] = "eth0"
    assert topology_problems(document, dict(mounted_files(made))) == []


@pytest.mark.parametrize("lab", ["tiny", "unnumbered"])
def test_a_container_gets_every_kernel_setting_that_a_namespace_gets(lab: str) -> None:
    planned = small(lab)
    for container in deployment(planned).containers:
        settings_ = {
            key.removeprefix("net.").replace(".", "/"): value
            for key, value in container.sysctls.items()
        }
        for command in container.commands:
            if written := re.fullmatch(r"echo (\d+) > /proc/sys/net/(\S+)", command):
                settings_[written[2]] = written[1]
        if settings_.get("ipv6/conf/all/disable_ipv6") == "0":
            del settings_["ipv6/conf/all/disable_ipv6"]
        if settings_.get("ipv6/conf/all/disable_ipv6") == "1":
            settings_["ipv6/conf/default/disable_ipv6"] = "1"
        assert settings_ == node_settings(planned, planned.node(container.name))


def test_nodes_with_ipv6_get_their_addresses_and_routes_of_both_families() -> None:
    made = deployment(fabric(addresses={"family": "dual"}))
    commands = {node.name: node.commands for node in made.containers}
    assert commands["srv1-1"] == (
        "ip address add 198.18.0.0/31 dev rtsw1",
        "ip address add 2001:2::/127 dev rtsw1",
        "ip route replace default via 198.18.0.1 dev rtsw1",
        "ip -6 route replace default via 2001:2::1 dev rtsw1",
    )
    # Those of a switch go when IPv6 is switched off for its link-local ones to come anew.
    off = commands["rtsw1"].index("echo 0 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
    assert commands["rtsw1"][off + 1 : off + 3] == (
        "ip address replace 2001:2::2/128 dev lo",
        "ip address replace 2001:2::1/127 dev srv1-1",
    )


def test_nics_of_two_ports_are_rendered_with_ipv4_alone() -> None:
    lab = Lab.planned("hpn-small").fabric.spec
    six = lab.model_copy(update={"addresses": AddressesSpec(family=Families.IPV6)})
    with pytest.raises(InputError, match="two ports"):
        deployment(plan(six))


def test_switches_with_sessions_over_link_local_addresses_get_these_anew() -> None:
    switches = [
        container for container in deployment(small("unnumbered")).containers if container.files
    ]
    assert switches
    for switch in switches:
        assert switch.commands[-2:] == (
            "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6",
            "echo 0 > /proc/sys/net/ipv6/conf/all/disable_ipv6",
        )


def test_nothing_that_containerlab_sets_otherwise_is_set_before_the_start() -> None:
    for container in deployment(small("tiny")).containers:
        assert "net.ipv6.conf.all.disable_ipv6" not in container.sysctls


def test_a_server_of_nics_with_two_ports_gets_addresses_and_a_route_over_both_of_each() -> None:
    made = {container.name: container for container in deployment(small("hpn-small")).containers}
    assert made["srv1-1"].entrypoint == "sleep infinity"
    assert made["srv1-1"].commands[1:] == (
        "ip address add 198.18.0.0 peer 198.18.0.14/32 dev s1-tor1a",
        "ip address add 198.18.0.0 peer 198.18.0.15/32 dev s1-tor1b",
        "ip address add 198.18.0.2 peer 198.18.0.16/32 dev s1-tor2a",
        "ip address add 198.18.0.2 peer 198.18.0.17/32 dev s1-tor2b",
        "ip route replace default nexthop via 198.18.0.14 dev s1-tor1a "
        "nexthop via 198.18.0.15 dev s1-tor1b",
        "ip route replace default table 102 nexthop via 198.18.0.16 dev s1-tor2a "
        "nexthop via 198.18.0.17 dev s1-tor2b",
        "ip rule add from 198.18.0.2 lookup 102 priority 102",
    )


@pytest.mark.parametrize("lab", ["bfd", "unnumbered", "hpn-small"])
def test_one_file_says_what_the_daemons_files_say(lab: str) -> None:
    planned = small(lab)
    for container in deployment(planned).containers:
        if not container.files:
            continue
        merged = container.files["/etc/frr/frr.conf"].splitlines()
        for text in frr_configuration(planned, planned.node(container.name)).values():
            lines = [
                line.replace("maximum-paths 128", "maximum-paths 64")
                for line in text.splitlines()
                if not line.startswith("log file")
            ]
            remaining = iter(merged)
            assert all(line in remaining for line in lines), container.name


@pytest.mark.parametrize("lab", ["bfd", "unnumbered", "hpn-small"])
def test_frr_s_own_shell_accepts_the_one_file(lab: str, tmp_path: Path) -> None:
    made = deployment(small(lab)).containers
    # One of each role: what others are told differs in numbers only.
    texts = {
        container.role: container.files["/etc/frr/frr.conf"]
        for container in made
        if container.files
    }
    for text in texts.values():
        wrong = text.replace("coalesce-time", "no-such")
        assert vtysh_refuses(text, tmp_path) == ""
        assert "Unknown command" in vtysh_refuses(wrong, tmp_path)


def vtysh_refuses(text: str, folder: Path) -> str:
    """The errors of `vtysh --dryrun` about a configuration."""
    vtysh = shutil.which("vtysh")
    if vtysh is None:
        pytest.skip("vtysh is not installed")
    file = folder / "frr.conf"
    file.write_text(text)
    # Not /etc/frr, where only some may read.
    (folder / "vtysh.conf").touch()
    command = [vtysh, "--config_dir", str(folder), "-C", "-f", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return (run.stdout + run.stderr) or ("" if run.returncode == 0 else f"exit {run.returncode}")


def test_bfdd_is_started_only_where_bfd_is_asked_for() -> None:
    for lab, wanted in (("tiny", "bfdd=no"), ("bfd", "bfdd=yes")):
        container = next(
            container for container in deployment(small(lab)).containers if container.files
        )
        assert wanted in container.files["/etc/frr/daemons"].splitlines()


def test_no_route_is_asked_to_be_wider_than_frr_s_image_takes() -> None:
    wide = deployment(fabric(routing={"max_paths": 200}))
    narrow = deployment(fabric(routing={"max_paths": 3}))
    for made, wanted in ((wide, "  maximum-paths 64"), (narrow, "  maximum-paths 3")):
        files = [text for path, text in mounted_files(made) if path.endswith("frr.conf")]
        assert len(files) == 3
        assert all(wanted in text.splitlines() for text in files)


def test_a_lab_that_fits_is_rendered_without_a_warning() -> None:
    assert warnings(small("zone-small")) == ()


def test_more_than_a_machine_is_likely_to_hold_is_warned_of() -> None:
    shape = {"kind": "clos", "racks": 70, "spines": 4, "servers_per_rack": 7}
    texts = warnings(plan(LabSpec.model_validate({"name": "large", "fabric": shape})))
    assert [text.partition(" ")[0] for text in texts] == ["564", "770"]
    assert "gc_thresh3=3080" in texts[1]


def test_a_fabric_wider_than_frr_s_image_takes_is_warned_of() -> None:
    shape = {"kind": "clos", "racks": 2, "spines": 65}
    wide = plan(LabSpec.model_validate({"name": "wide", "fabric": shape}))
    assert [text.partition(":")[0] for text in warnings(wide)] == ["routes of 65 next hops get 64"]
    assert warnings(fabric(routing={"max_paths": 200})) == ()


@pytest.mark.parametrize("name", ["null", "on", "e1"])
def test_a_lab_s_name_is_a_string_whatever_yaml_takes_it_for(name: str) -> None:
    assert parsed(deployment(fabric(name)))["name"] == name


def test_every_node_runs_the_image_that_is_asked_for() -> None:
    document = parsed(deployment(fabric(), "example/frr:1 #2"))
    assert document["topology"]["defaults"]["image"] == "example/frr:1 #2"
    assert all("image" not in node for node in document["topology"]["nodes"].values())


def test_a_container_is_named_as_containerlab_names_it() -> None:
    assert container_name("tiny", "rtsw1") == "clab-tiny-rtsw1"


def test_a_folder_has_what_its_topology_binds_and_nothing_else(tmp_path: Path) -> None:
    assert write_containerlab(fabric(), tmp_path) == ()
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    document = yaml.safe_load((tmp_path / "golden.clab.yml").read_text())
    nodes = document["topology"]["nodes"].values()
    bound = {bind.partition(":")[0] for node in nodes for bind in node.get("binds", ())}
    assert written == bound | {MARKER, "golden.clab.yml"}


def test_a_render_replaces_an_earlier_one_for_another_target(tmp_path: Path, capsys: Any) -> None:
    run("render", "tiny", "-o", str(tmp_path))
    (tmp_path / "rtsw4" / "notes.txt").write_text("mine")
    run("render", "two-leaves", "--target", "containerlab", "-o", str(tmp_path), "--force")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(MARKER, "ctsw1", "rtsw1", "rtsw2", "rtsw4", "two-leaves.clab.yml"),
    ]
    assert [path.name for path in (tmp_path / "rtsw4").iterdir()] == ["notes.txt"]
    assert sorted(path.name for path in (tmp_path / "rtsw1").iterdir()) == [
        *("daemons", "frr.conf", "vtysh.conf"),
    ]


def test_a_marker_that_names_files_outside_has_nothing_removed_there(tmp_path: Path) -> None:
    outside = tmp_path / "mine"
    outside.write_text("mine")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    (folder / MARKER).write_text(f"golden\n../mine\n{outside}\nlink/mine\na/../../mine\n")
    write_containerlab(fabric(), folder, overwrite=True)
    assert outside.read_text() == "mine"


def test_lines_of_a_marker_that_are_no_names_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "old").touch()
    (folder / MARKER).write_bytes(b"golden\n\xff\nmine\0\nold\n")
    write_containerlab(fabric(), folder, overwrite=True)
    assert not (folder / "old").exists()
    assert (folder / "golden.clab.yml").exists()


def test_a_marker_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    os.mkfifo(folder / MARKER)
    with pytest.raises(InputError, match="it is a pipe"):
        write_containerlab(fabric(), folder, overwrite=True)


def test_an_image_is_refused_where_no_container_is_rendered(tmp_path: Path, capsys: Any) -> None:
    assert run("render", "tiny", "--image", "x", "-o", str(tmp_path / "out")) == 2
    assert "--target containerlab" in capsys.readouterr().err


def test_a_warning_goes_to_stderr_and_the_files_are_written(tmp_path: Path, capsys: Any) -> None:
    lab = tmp_path / "wide.yaml"
    lab.write_text("name: wide\nfabric: {kind: clos, racks: 2, spines: 65}\n")
    assert run("render", lab, "--target", "containerlab", "-o", tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("warning: routes of 65 next hops")
    assert "67 switches" in captured.out
    assert (tmp_path / "out" / "wide.clab.yml").exists()


@pytest.mark.parametrize("target", ["containerlab", "clabernetes"])
def test_a_lossless_lab_is_written_with_a_warning_that_nothing_pauses(
    target: str, tmp_path: Path, capsys: Any
) -> None:
    assert run("render", "lossless", "--target", target, "-o", tmp_path / "out") == 0
    assert capsys.readouterr().err.startswith("warning: queues.pfc is left out")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code
