"""Topologies that others drew, read as graphs and as lab files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rocelab.errors import InputError
from rocelab.plan.build import plan
from rocelab.plan.shape import clos_in
from rocelab.render.files import write_containerlab
from rocelab.render.imported import read_topology
from rocelab.spec.catalog import find_lab
from rocelab.spec.load import load_spec

LEAF_SPINE = """name: theirs
topology:
  kinds: {linux: {image: host:1}}
  groups: {routers: {image: frrouting/frr:v10}}
  nodes:
    s1: {kind: linux, group: routers}
    s2: {kind: nokia_srlinux}
    l1: {kind: linux, binds: ["l1:/etc/frr"]}
    l2: {kind: linux, group: routers}
    h1: {kind: linux}
    h2: {kind: linux}
  links:
    - endpoints: ["l1:eth1", "s1:eth1"]
    - endpoints: ["l1:eth2", "s2:e1-1"]
    - endpoints: ["l2:eth1", "s1:eth2"]
    - type: veth
      endpoints: [{node: l2, interface: eth2}, {node: s2, interface: e1-2}]
    - endpoints: ["h1:eth1", "l1:eth9"]
    - endpoints: ["h2:eth1", "l2:eth9"]
    - {type: host, endpoint: {node: s1, interface: eth8}, host-interface: x}
    - endpoints: ["s1:eth7", "host:y"]
"""


@pytest.mark.parametrize(
    "lab", ["tiny", "zone-small", "zones-small", "two-leaves", "four-ports", "unnumbered"]
)
def test_what_is_rendered_is_read_back(lab: str, tmp_path: Path) -> None:
    spec = load_spec(find_lab(lab))
    write_containerlab(plan(spec), tmp_path / "out")
    imported = read_topology(tmp_path / "out" / f"{lab}.clab.yml")
    assert clos_in(imported.drawn) == spec.fabric
    assert imported.name == lab
    for node in plan(spec).switches:
        assert f"router bgp {node.asn}" in imported.configured[node.name]


def test_a_topology_as_others_write_it(tmp_path: Path) -> None:
    (tmp_path / "l1").mkdir()
    (tmp_path / "l1" / "frr.conf").write_text(
        "interface lo\n ip address 10.0.0.1/32\nrouter bgp 65001\n timers bgp 1 3\n"
    )
    file = tmp_path / "theirs.clab.yml"
    file.write_text(LEAF_SPINE)
    imported = read_topology(file)
    assert imported.drawn.tier == {"s1": 2, "s2": 2, "l1": 1, "l2": 1, "h1": 0, "h2": 0}
    fabric = clos_in(imported.drawn)
    assert (fabric.racks, fabric.spines, fabric.servers_per_rack) == (2, 2, 1)
    assert imported.configured["l1"] == (
        *("router bgp 65001", "ip address 10.0.0.1/32", "timers bgp 1 3"),
    )
    assert imported.configured["h1"] == ()


def test_netlabs_transformed_topology(tmp_path: Path) -> None:
    def node(role: str | None, asn: int | None) -> dict[str, object]:
        return {
            **({"role": role} if role else {}),
            **({"bgp": {"as": asn}, "loopback": {"ipv4": f"10.0.0.{asn}/32"}} if asn else {}),
        }

    topology = {
        "name": "clos",
        "nodes": {
            **{f"s{number}": node(None, 10) for number in (1, 2)},
            **{f"l{number}": node("router", 20 + number) for number in (1, 2)},
            **{f"h{number}": node("host", None) for number in (1, 2)},
        },
        "links": [
            *(
                {"interfaces": [{"node": f"l{leaf}"}, {"node": f"s{spine}"}], "type": "p2p"}
                for leaf in (1, 2)
                for spine in (1, 2)
            ),
            *({"interfaces": [{"node": f"h{n}"}, {"node": f"l{n}"}]} for n in (1, 2)),
            {"interfaces": [{"node": "l1"}], "type": "stub"},
        ],
    }
    file = tmp_path / "netlab.json"
    file.write_text(json.dumps(topology))
    imported = read_topology(file)
    fabric = clos_in(imported.drawn)
    assert (fabric.racks, fabric.spines, fabric.servers_per_rack) == (2, 2, 1)
    assert imported.configured["l1"] == ("router bgp 21", "ip address 10.0.0.21/32")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.yml", "name: a", "no topology.nodes"),
        (
            "x.yml",
            "topology: {nodes: {a: {}}, links: [{endpoints: [a]}]}",
            "not have two endpoints",
        ),
        ("x.json", "[]", "no JSON object"),
        ("x.json", "{", "not JSON"),
        ("x.json", "{}", "no nodes and links"),
        ("x.json", '{"nodes": {"a": {}}, "links": [{"interfaces": [{}, {}, {}]}]}', "3 nodes"),
        ("x.json", '{"nodes": {"a": {}}, "links": [{"interfaces": [7]}]}', "'', which"),
        (
            "x.json",
            '{"nodes": {"a": {}}, "links": [{"interfaces": [{"node": "b"}]}]}',
            "'b', which",
        ),
    ],
)
def test_what_is_no_topology_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        read_topology(file)


@pytest.mark.parametrize(
    "changed",
    [
        ("group: routers", "group: [routers]"),
        ("kind: nokia_srlinux", "kind: {a: b}"),
        ('binds: ["l1:/etc/frr"]', "binds: 7"),
        ('binds: ["l1:/etc/frr"]', f'binds: ["{"l" * 300}:/etc/frr", [7], "\\0.conf"]'),
        ("links:", "links: 7\n  others:"),
        ("h2: {kind: linux}", "h2: {kind: linux}\n    x1: {image: frr}\n    x2: {image: frr}"),
    ],
)
def test_a_topology_of_other_shapes_is_read_or_refused(
    rocelab, tmp_path: Path, changed: tuple[str, str]
) -> None:
    file = tmp_path / "theirs.clab.yml"
    file.write_text(LEAF_SPINE.replace(*changed, 1) + '    - endpoints: ["x1:a", "x2:a"]\n')
    assert rocelab("import", file).code in (0, 2)


def test_a_name_with_a_line_feed_adds_no_key(rocelab, tmp_path: Path) -> None:
    file, made = tmp_path / "x\nhashing: 0\n#.clab.yml", tmp_path / "mine.yaml"
    file.write_text(LEAF_SPINE)
    assert rocelab("import", file, "-o", made).code == 0
    assert yaml.safe_load(made.read_text()).keys() == {"name", "fabric"}


def test_a_topology_that_is_missing_is_named(rocelab, tmp_path: Path) -> None:
    outcome = rocelab("import", tmp_path / "none.json")
    assert outcome.code == 2 and "none.json cannot be read: No such file" in outcome.err


def test_a_configuration_that_cannot_be_quoted_is_named(tmp_path: Path) -> None:
    file, configuration = tmp_path / "theirs.clab.yml", tmp_path / "l1" / "frr.conf"
    file.write_text(LEAF_SPINE)
    configuration.parent.mkdir()
    configuration.write_bytes(b"\n" * 2**20 + b"router bgp 7\n")
    (said,) = read_topology(file).configured["l1"]
    assert said == f"{configuration} cannot be read: it is larger than 1,048,576 bytes"
    configuration.write_bytes(b"\n" * 2**19 + b"router bgp 7\n")
    assert read_topology(file).configured["l1"] == ("router bgp 7",)


def test_the_command_writes_a_lab_file_that_plans(rocelab, tmp_path: Path) -> None:
    file, made = tmp_path / "theirs.clab.yml", tmp_path / "mine.yaml"
    file.write_text(LEAF_SPINE)
    outcome = rocelab("import", file, "-o", made)
    assert outcome.code == 0, outcome.err
    body = yaml.safe_load(made.read_text())
    assert body["name"] == "theirs" and body["fabric"]["racks"] == 2
    assert len(plan(load_spec(made)).switches) == 4
    assert rocelab("import", file, "-o", made).code == 2
    assert rocelab("import", file, "-o", made, "--force").code == 0


def test_the_command_names_what_is_no_clos(rocelab, tmp_path: Path) -> None:
    file = tmp_path / "theirs.clab.yml"
    file.write_text(LEAF_SPINE.replace('    - endpoints: ["l1:eth1", "s1:eth1"]\n', ""))
    outcome = rocelab("import", file)
    assert outcome.code == 2
    assert "0 cables join l1 and s1, others 1" in outcome.err
