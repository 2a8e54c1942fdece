"""Networks of others as labs of kind `graph`: what is taken, guessed and left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocelab.base.errors import InputError, SpecError
from rocelab.importing.labs import graph_lab, located
from rocelab.importing.readers import read_topology
from rocelab.labfile.load import validate
from rocelab.labfile.model import LabSpec
from rocelab.labfile.source import parse_source, written
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric

DRAWING = """\
graph G {
  graph [hostidtype="hostname", version="1:0"];
  "spine1":"swp1" -- "leaf1":"swp51";
  "spine1":"swp2" -- "leaf2":"swp51" [rate="100G"];
  subgraph pod { spine2:swp1 -- leaf1:swp52; }
  "leaf1":"swp1" -- "server1":"eth1";
}
"""


def _fabric(path: Path, *options: str, servers: int = 0) -> Fabric:
    lab = graph_lab("imported", read_topology(path, {}), options, servers)
    return plan(validate(parse_source(written(lab.body), "lab.yaml"), LabSpec))


def _written(folder: Path, name: str, content: str | dict[str, Any]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def _lldpd(**neighbours: tuple[str, str]) -> dict[str, Any]:
    return {
        "lldp": {
            "interface": [
                {
                    port: {
                        "chassis": {far: {"id": {"type": "mac", "value": "00:00:5e:00:53:01"}}},
                        "port": {"id": {"type": "ifname", "value": far_port}},
                    }
                }
                for port, (far, far_port) in neighbours.items()
            ]
        }
    }


def test_a_drawing_of_cabling_is_read_with_its_subgraphs(tmp_path: Path) -> None:
    fabric = _fabric(_written(tmp_path, "site.dot", DRAWING))
    assert {(str(link.a), str(link.b)) for link in fabric.links} == {
        ("leaf1:swp51", "spine1:swp1"),
        ("leaf2:swp51", "spine1:swp2"),
        ("leaf1:swp52", "spine2:swp1"),
        ("server1:eth1", "leaf1:swp1"),
    }
    assert fabric.link_by_name["leaf2:swp51"].rate_bps == 100 * 10**9


def test_what_is_no_drawing_is_refused_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"site\.dot:1: not a drawing of graphviz"):
        read_topology(_written(tmp_path, "site.dot", 'graph { "a -- b'), {})


def test_a_list_of_cables_gets_servers_where_it_has_none(tmp_path: Path) -> None:
    rows = "a_node,a_port,b_node,b_port,rate\nleaf1,e0,spine1,e0,100G\nleaf2,e0,spine1,e1,100G\n"
    path = _written(tmp_path, "cables.csv", rows)
    assert not _fabric(path).servers
    fabric = _fabric(path, servers=2)
    assert [server.name for server in fabric.servers] == ["srv1-1", "srv1-2", "srv2-1", "srv2-2"]
    assert {link.rate_bps for link in fabric.links} == {100 * 10**9}


_HEADER = "a_node,a_port,b_node,b_port,rate\n"


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_list_of_a_spreadsheet_has_other_marks_between_cells(tmp_path: Path, mark: str) -> None:
    rows = f"{_HEADER}leaf1,e0,spine1,e0,100G\n".replace(",", mark)
    assert len(_fabric(_written(tmp_path, "cables.csv", rows)).links) == 1


def test_names_of_nodes_are_text_also_where_yaml_has_numbers(tmp_path: Path) -> None:
    rows = f"{_HEADER}007,1_0,on,null,100G\n1e3,0,on,yes,100G\n"
    lab = graph_lab("lab", read_topology(_written(tmp_path, "cables.csv", rows), {}))
    assert lab.renamed == {"007": "n007", "1e3": "n1e3"}
    fabric = _fabric(tmp_path / "cables.csv")
    assert {(str(link.a), str(link.b)) for link in fabric.links} == {
        ("n007:1_0", "on:null"),
        ("n1e3:0", "on:yes"),
    }


def test_a_cable_that_is_listed_from_both_ends_is_one(tmp_path: Path) -> None:
    rows = f"{_HEADER}leaf1,e0,spine1,e4,\nspine1,e4,leaf1,e0,100G\nleaf1,,spine1,,\n"
    path = _written(tmp_path, "cables.csv", rows)
    assert _fabric(path).link_by_name["leaf1:e0"].rate_bps == 100 * 10**9
    assert len(_fabric(path).links) == 2
    assert read_topology(path, {}).left_out == ["1 cable that the list has already"]


def test_a_cable_that_is_listed_with_two_rates_is_refused_at_its_line(tmp_path: Path) -> None:
    rows = f"{_HEADER}leaf1,e0,spine1,e4,400G\nspine1,e4,leaf1,e0,100G\n"
    with pytest.raises(SpecError, match=r"cables\.csv:3: rate: the cable of line 2 again"):
        read_topology(_written(tmp_path, "cables.csv", rows), {})


def test_a_row_without_a_neighbour_is_left_out_and_named(tmp_path: Path) -> None:
    rows = f"{_HEADER}leaf1,e0,spine1,e4,400G\nleaf1,e1,,,400G\n,,spine1,e5,\n"
    imported = read_topology(_written(tmp_path, "cables.csv", rows), {})
    assert [str(text).partition(" (")[0] for text in imported.left_out] == ["line 3", "line 4"]
    assert len(imported.links) == 1


def test_what_a_lab_refuses_has_the_line_of_the_list(tmp_path: Path) -> None:
    rows = f"{_HEADER}leaf1,e0,spine1,e4,400G\nleaf1,e1,spine1,e5,2x100G\n"
    lab = graph_lab("lab", read_topology(_written(tmp_path, "cables.csv", rows), {}))
    with pytest.raises(SpecError, match=r"^cables\.csv:3: fabric\.links\[1\]\.rate"):
        validate(located(lab, written(lab.body), "cables.csv"), LabSpec)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("gpu-leaf-1", "leaf"),
        ("leaf1-gpu2", "server"),
        ("gpuX", "server"),
        ("GPUNODE07", "server"),
        ("storage-spine2.dc1", "spine"),
        ("gpuleaf1", "leaf"),
    ],
)
def test_the_last_word_of_a_name_says_what_a_node_is(tmp_path: Path, name: str, role: str) -> None:
    rows = f"{_HEADER}{name},e0,spine1,e4,400G\n"
    lab = graph_lab("lab", read_topology(_written(tmp_path, "cables.csv", rows), {}))
    assert lab.roles[name] == role


def test_names_that_a_lab_cannot_have_are_changed_and_shown(tmp_path: Path) -> None:
    long = "leaf-of-the-third-row-and-the-seventeenth-rack.dc1.example.net"
    short = f"leaf-{'of-row-' * 3}17.dc1.region.example.net"
    rows = f"{_HEADER}{long},e0,{short},e4,400G\nleaf--1_,e1,{short},e5,400G\n"
    lab = graph_lab("lab", read_topology(_written(tmp_path, "cables.csv", rows), {}))
    assert lab.renamed[short] == short.partition(".")[0]
    assert lab.renamed["leaf--1_"] == "leaf-1"
    assert len(lab.renamed[long]) == 40
    assert len(_fabric(tmp_path / "cables.csv").links) == 2


def test_two_names_that_become_one_are_refused_by_name(tmp_path: Path) -> None:
    rows = f"{_HEADER}leaf/1,e0,spine1,e4,400G\nleaf 1,e0,spine1,e5,400G\n"
    imported = read_topology(_written(tmp_path, "cables.csv", rows), {})
    with pytest.raises(InputError, match="leaf/1 and leaf 1 would both be leaf-1"):
        graph_lab("lab", imported)


def test_files_of_neighbours_may_be_named_by_their_folders(tmp_path: Path) -> None:
    folder = tmp_path / "switches"
    _written(folder, "leaf1/lldp.json", _lldpd(swp1=("spine1", "swp1")))
    _written(folder, "leaf2/lldp.json", _lldpd(swp1=("spine1", "swp2")))
    assert {link.a[0] for link in read_topology(folder, {}).links} == {"leaf1", "leaf2"}


def test_a_port_with_two_neighbours_is_named(tmp_path: Path) -> None:
    rows = [{"port": "e1", "neighborDevice": far, "neighborPort": "p1"} for far in ("s1", "s2")]
    path = _written(tmp_path, "leaf1.json", {"lldpNeighbors": rows})
    imported = read_topology(path, {})
    assert [link.b for link in imported.links] == [("s1", "p1")]
    assert list(imported.left_out) == ["s2:p1 (leaf1:e1 has another neighbour too)"]


def test_what_is_guessed_and_what_is_said_are_told_apart(tmp_path: Path) -> None:
    rows = "a_node,a_port,b_node,b_port\nleaf1,e0,x9,e0\nleaf2,e0,x9,e1\ngpu7,eth0,leaf1,e7\n"
    imported = read_topology(_written(tmp_path, "cables.csv", rows), {})
    lab = graph_lab("lab", imported, ["x*=core"])
    assert lab.roles == {"leaf1": "leaf", "x9": "core", "leaf2": "leaf", "gpu7": "server"}
    assert set(lab.guessed) == {"leaf1", "leaf2", "gpu7"}
    assert "x9 (--role)" in graph_lab("lab", imported, ["x9=none", "leaf2=none"]).left_out


def test_neighbours_by_lldp_are_cables_once(tmp_path: Path) -> None:
    folder = tmp_path / "switches"
    _written(folder, "leaf1.json", _lldpd(swp51=("spine1.example.net", "Ethernet1")))
    eos = [{"port": "Ethernet1", "neighborDevice": "leaf1", "neighborPort": "swp51", "ttl": 120}]
    _written(folder, "spine1.json", {"lldpNeighbors": eos})
    nxos = {"l_port_id": "Eth1/2", "chassis_id": "leaf1", "port_id": "swp52"}
    _written(folder, "spine2.json", {"TABLE_nbor": {"ROW_nbor": nxos}})
    junos = {
        "lldp-local-port-id": [{"data": "et-0/0/0"}],
        "lldp-remote-system-name": [{"data": "spine1"}],
        "lldp-remote-port-id": [{"data": "Ethernet2"}],
    }
    document = {"lldp-neighbors-information": [{"lldp-neighbor-information": [junos]}]}
    _written(folder, "leaf2.json", document)
    fabric = _fabric(folder, servers=1)
    assert {link.name for link in fabric.trunks} == {
        "leaf1:swp51",
        "leaf1:swp52",
        "leaf2:et-0/0/0",
    }
    assert fabric.link_by_name["leaf1:swp52"].b.interface == "Eth1-2"


def test_ends_that_disagree_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "switches"
    _written(folder, "leaf1.json", _lldpd(swp1=("spine1", "swp1")))
    _written(folder, "spine1.json", _lldpd(swp1=("leaf2", "swp1")))
    with pytest.raises(InputError, match="leaf1:swp1 says spine1:swp1, which says leaf2:swp1"):
        read_topology(folder, {})


def _switch(name: str, asn: int, loopback: str) -> dict[str, Any]:
    return {
        "DEVICE_METADATA": {"localhost": {"hostname": name, "bgp_asn": str(asn)}},
        "LOOPBACK_INTERFACE": {"Loopback0": {}, f"Loopback0|{loopback}/32": {}},
    }


def test_switches_of_sonic_keep_their_numbers(tmp_path: Path) -> None:
    leaf = _switch("leaf-01", 65101, "10.9.0.1") | {
        "DEVICE_NEIGHBOR": {"Ethernet0": {"name": "spine-01", "port": "Ethernet8"}},
        "PORT": {"Ethernet0": {"speed": "400000", "mtu": "9100"}},
        "INTERFACE": {"Ethernet0": {}, "Ethernet0|fe80::1/64": {}, "Ethernet0|10.1.0.0/31": {}},
        "BGP_NEIGHBOR": {
            "10.1.0.1": {"name": "spine-01", "asn": "65200", "local_addr": "10.1.0.0"},
            "fe80::2": {"name": "spine-01", "asn": "65200", "local_addr": "fe80::1"},
        },
        "VLAN": {"Vlan10": {}},
    }
    spine = _switch("spine-01", 65200, "10.9.0.2") | {
        "DEVICE_NEIGHBOR": {"Ethernet8": {"name": "leaf-01", "port": "Ethernet0"}}
    }
    _written(tmp_path, "sw/a/config_db.json", leaf)
    _written(tmp_path, "sw/b/config_db.json", spine)
    imported = read_topology(tmp_path / "sw", {})
    assert imported.configured["leaf-01"] == ("VLAN of 1",)
    fabric = _fabric(tmp_path / "sw", servers=1)
    (trunk,) = fabric.trunks
    assert (trunk.a.address, trunk.b.address) == ("10.1.0.0/31", "10.1.0.1/31")
    assert (trunk.rate_bps, trunk.mtu) == (400 * 10**9, 9100)
    assert [(node.asn, node.loopback) for node in fabric.switches] == [
        (65101, "10.9.0.1"),
        (65200, "10.9.0.2"),
    ]


def test_a_switch_without_cables_is_left_out(tmp_path: Path) -> None:
    leaf = _switch("leaf-01", 65101, "10.9.0.1") | {
        "DEVICE_NEIGHBOR": {"Ethernet0": {"name": "spine-01", "port": "Ethernet8"}}
    }
    _written(tmp_path, "sw/a/config_db.json", leaf)
    _written(tmp_path, "sw/b/config_db.json", _switch("leaf-02", 65102, "10.9.0.2"))
    lab = graph_lab("x", read_topology(tmp_path / "sw", {}))
    assert lab.left_out == ("leaf-02 (no cable)",)
    assert lab.roles.keys() == {"leaf-01", "spine-01"}


def test_networks_of_management_are_left_out_and_listed(tmp_path: Path) -> None:
    rows = """a_node,a_port,b_node,b_port
leaf1,e0,spine1,e0
leaf2,e0,spine1,e1
leaf1,mgmt0,oob-sw1,p1
spine1,mgmt0,rack1-mgmt,p2
pdu3,p,oob-sw1,p9
oobleaf7,e0,leaf2,e5
"""
    topology = read_topology(_written(tmp_path, "c.csv", rows), {})
    lab = graph_lab("x", topology, ["oobleaf7=leaf"])
    assert lab.roles == {"leaf1": "leaf", "spine1": "spine", "leaf2": "leaf", "oobleaf7": "leaf"}
    assert lab.left_out == tuple(
        f"{name} (of management: --role {name}=leaf takes it)"
        for name in ("oob-sw1", "pdu3", "rack1-mgmt")
    )


def test_a_switch_of_sonic_whose_type_is_management_is_left_out(tmp_path: Path) -> None:
    leaf = _switch("leaf-01", 65101, "10.9.0.1") | {
        "DEVICE_NEIGHBOR": {
            "Ethernet0": {"name": "spine-01", "port": "Ethernet8"},
            "Ethernet4": {"name": "str-m0-1", "port": "Ethernet8"},
        },
        "DEVICE_NEIGHBOR_METADATA": {
            "spine-01": {"type": "SpineRouter"},
            "str-m0-1": {"type": "MgmtToRRouter"},
        },
    }
    _written(tmp_path, "sw/a/config_db.json", leaf)
    lab = graph_lab("x", read_topology(tmp_path / "sw", {}))
    assert lab.roles.keys() == {"leaf-01", "spine-01"}
    assert [text.split(" ")[0] for text in lab.left_out] == ["str-m0-1"]


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"nodes": 3}'])
def test_a_document_of_no_form_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError):
        read_topology(_written(tmp_path, "x.json", content), {})
    with pytest.raises(InputError):
        read_topology(tmp_path, {})


def test_further_columns_and_unread_files_are_named(tmp_path: Path) -> None:
    rows = "a_node,a_port,length,b_node,b_port\nleaf1,e0,3m,spine1,e0\n"
    assert read_topology(_written(tmp_path, "c.csv", rows), {}).left_out == ["column length"]
    folder = tmp_path / "switches"
    _written(folder, "leaf1.json", _lldpd(swp1=("spine1", "swp1")))
    _written(folder, "notes.json", "[]")
    _written(folder, "other.json", {"a": 1})
    left_out = read_topology(folder, {}).left_out
    assert [Path(text.split(" ")[0]).name for text in left_out] == ["other.json", "notes.json"]


def test_an_edge_to_a_group_is_a_link_to_each(tmp_path: Path) -> None:
    path = _written(
        tmp_path, "x.dot", "graph { leaf1:p1:n -- spine1:p1; leaf2 -- {spine1 spine2} }"
    )
    assert [(link.a, link.b) for link in read_topology(path, {}).links] == [
        (("leaf1", "p1"), ("spine1", "p1")),
        (("leaf2", None), ("spine1", None)),
        (("leaf2", None), ("spine2", None)),
    ]


def test_an_end_of_sonic_that_is_turned_gives_its_addresses_to_the_right_ends(
    tmp_path: Path,
) -> None:
    """Only the second switch has the addresses, its own first."""
    leaf = _switch("leaf-01", 65101, "10.9.0.1") | {
        "DEVICE_NEIGHBOR": {"Ethernet0": {"name": "spine-01", "port": "Ethernet8"}},
        "PORT": {"Ethernet0": {"speed": "2500"}},
    }
    leaf["LOOPBACK_INTERFACE"] = {
        **{"Loopback1|10.9.9.9/32": {}, "Loopback1|2001:db8::9/128": {}},
        **leaf["LOOPBACK_INTERFACE"],
        "Loopback0|2001:db8::1/128": {},
    }
    spine = _switch("spine-01", 65200, "10.9.0.2") | {
        "DEVICE_NEIGHBOR": {"Ethernet8": {"name": "leaf-01", "port": "Ethernet0"}},
        "INTERFACE": {"Ethernet8|10.1.0.1/31": {}},
        "BGP_NEIGHBOR": {"10.1.0.0": {"name": "leaf-01", "local_addr": "10.1.0.1"}},
    }
    _written(tmp_path, "sw/a/config_db.json", leaf)
    _written(tmp_path, "sw/b/config_db.json", spine)
    fabric = _fabric(tmp_path / "sw", servers=1)
    (trunk,) = fabric.trunks
    assert (trunk.a.node, trunk.a.address) == ("leaf-01", "10.1.0.0/31")
    assert (trunk.b.node, trunk.b.address) == ("spine-01", "10.1.0.1/31")
    assert trunk.rate_bps == 2500 * 10**6
    node = fabric.node("leaf-01")
    assert (node.loopback, node.other_loopback) == ("10.9.0.1", "2001:db8::1")


def test_members_of_a_channel_are_links_and_the_first_has_its_addresses(tmp_path: Path) -> None:
    ports = {f"Ethernet{n}": {"name": "spine-01", "port": f"Ethernet{n}"} for n in (0, 4)}
    leaf = _switch("leaf-01", 65101, "10.9.0.1") | {
        "DEVICE_NEIGHBOR": ports,
        "PORTCHANNEL_MEMBER": {"PortChannel1|Ethernet0": {}, "PortChannel1|Ethernet4": {}},
        "PORTCHANNEL_INTERFACE": {"PortChannel1|10.1.0.0/31": {}},
        "BGP_NEIGHBOR": {
            "10.1.0.1": {"name": "spine-01", "asn": "65200", "local_addr": "10.1.0.0"}
        },
    }
    path = _written(tmp_path, "sw/leaf-01/config_db.json", leaf).parent.parent
    imported = read_topology(path, {})
    assert [link.addresses for link in imported.links] == [(("10.1.0.0/31", "10.1.0.1/31"),), ()]
    assert list(imported.left_out) == [
        "leaf-01:Ethernet4 as a member of PortChannel1: its own link here"
    ]
    assert imported.nodes["spine-01"].asn == 65200


def test_a_port_that_lldp_identifies_by_its_mac_is_called_as_described(tmp_path: Path) -> None:
    port = {"id": {"type": "mac", "value": "00:00:5e:00:53:02"}, "descr": "Ethernet7"}
    chassis = {"spine1.example.net": {"id": {"type": "mac", "value": "00:00:5e:00:53:01"}}}
    document = {"lldp": {"interface": [{"swp1": {"chassis": chassis, "port": port}}]}}
    (link,) = read_topology(_written(tmp_path, "leaf1.json", document), {}).links
    assert (link.a, link.b) == (("leaf1", "swp1"), ("spine1", "Ethernet7"))


def test_delays_of_a_list_of_cables_are_the_labs(tmp_path: Path) -> None:
    rows = "a_node,a_port,b_node,b_port,delay,mtu\nleaf1,e0,spine1,e0,2us,4200\n"
    (link,) = _fabric(_written(tmp_path, "c.csv", rows)).links
    assert (link.delay_ns, link.mtu) == (2000, 4200)


def test_speeds_of_a_drawing_are_rates(tmp_path: Path) -> None:
    path = _written(tmp_path, "x.dot", 'graph { leaf1 -- spine1 [speed="25G", mtu="4200"] }')
    (link,) = _fabric(path).links
    assert (link.rate_bps, link.mtu) == (25 * 10**9, 4200)


def test_a_lab_of_ipv6_alone_is_not_dual_and_nodes_get_names_that_a_lab_has(
    tmp_path: Path,
) -> None:
    leaf = _switch("1.leaf", 65101, "2001:db8::1")
    leaf["LOOPBACK_INTERFACE"] = {"Loopback0|2001:db8::1/128": {}}
    leaf["DEVICE_NEIGHBOR"] = {"Ethernet0": {"name": "spine 1", "port": "Ethernet8"}}
    path = _written(tmp_path, "config_db.json", leaf)
    fabric = _fabric(path, "spine*=spine", servers=1)
    assert fabric.family == "ipv6"
    assert not fabric.is_dual
    assert [node.name for node in fabric.switches] == ["n1.leaf", "spine-1"]


@pytest.mark.parametrize(
    ("servers", "spines", "dilation"),
    [("400G", "800G", 5000), ("100G", "400G", 1250), ("10G", "400G", 1000), ("10G", "", 1000)],
)
def test_slow_servers_have_a_dilation_that_carries_probes(
    tmp_path: Path, servers: str, spines: str, dilation: int
) -> None:
    rows = f"a_node,b_node,rate\nleaf1,spine1,{spines}\nsrv1,leaf1,{servers}\n"
    fabric = _fabric(_written(tmp_path, "cables.csv", rows))
    assert fabric.spec.dilation == dilation


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("Source;Source Port;Destination;Destination Port;Speed", "leaf1;e0;spine1;e1;100G"),
        ("A-Side Device,A-Side Port,Z-Side Device,Z-Side Port,Speed", "leaf1,e0,spine1,e1,100GbE"),
        ("side_a_device,side_a_name,side_b_device,side_b_name,rate", "leaf1,e0,spine1,e1,100 Gbps"),
        (
            "localHostname,localPort,remoteHostname,remotePort,bandwidth",
            "leaf1,e0,spine1,e1,100Gb/s",
        ),
    ],
)
def test_columns_have_the_names_of_others(tmp_path: Path, header: str, row: str) -> None:
    text = f"# cables of pod 1\n\n{header}\n  # a comment\n{row}\n"
    path = _written(tmp_path, "c.csv", text)
    assert read_topology(path, {}).left_out == []
    (link,) = _fabric(path).links
    assert (str(link.a), str(link.b), link.rate_bps) == ("leaf1:e0", "spine1:e1", 100 * 10**9)


def test_a_column_of_others_that_says_nothing_is_listed(tmp_path: Path) -> None:
    rows = "Source Device,Source Rack,Source Port,To,Cable ID\nleaf1,r1,e0,spine1,7\n"
    topology = read_topology(_written(tmp_path, "c.csv", rows), {})
    assert topology.left_out == ["column Source Rack", "column Cable ID"]
    assert [(link.a, link.b) for link in topology.links] == [(("leaf1", "e0"), ("spine1", None))]


@pytest.mark.parametrize(
    ("edges", "roles"),
    [
        (
            "L1 -- S1; L2 -- S1; H1 -- L1",
            {"L1": "leaf", "S1": "spine", "L2": "leaf", "H1": "server"},
        ),
        ("s1 -- s2; h1 -- s1", {"s1": "spine", "s2": "leaf", "h1": "leaf"}),
        (
            "L1 -- S1; X9 -- S1; leaf7 -- S1",
            {"L1": "leaf", "S1": "spine", "X9": "leaf", "leaf7": "leaf"},
        ),
    ],
)
def test_single_letters_are_roles_only_where_all_are(
    tmp_path: Path, edges: str, roles: dict[str, str]
) -> None:
    path = _written(tmp_path, "x.dot", f"graph {{ {edges} }}")
    lab = graph_lab("x", read_topology(path, {}))
    assert lab.roles == lab.guessed == roles
