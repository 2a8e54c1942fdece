"""Topologies that others drew, read as graphs and as lab files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from rocelab.base.errors import InputError, SpecError
from rocelab.importing.policy import kind_of
from rocelab.importing.readers import read_topology
from rocelab.importing.roles import drawn_of
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.planning.build import plan
from rocelab.planning.shape import clos_in
from rocelab.render.files import write_containerlab
from tests.unit.conftest import CommandLine

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
    imported = read_topology(tmp_path / "out" / f"{lab}.clab.yml", {})
    assert clos_in(drawn_of(imported)[0]) == spec.fabric
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
    imported = read_topology(file, {})
    assert drawn_of(imported)[0].tier == {"s1": 2, "s2": 2, "l1": 1, "l2": 1, "h1": 0, "h2": 0}
    fabric = clos_in(drawn_of(imported)[0])
    assert (fabric.racks, fabric.spines, fabric.servers_per_rack) == (2, 2, 1)
    assert imported.configured["l1"] == (
        *("ip address 10.0.0.1/32", "router bgp 65001", "timers bgp 1 3"),
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
    imported = read_topology(file, {})
    fabric = clos_in(drawn_of(imported)[0])
    assert (fabric.racks, fabric.spines, fabric.servers_per_rack) == (2, 2, 1)
    assert imported.configured["l1"] == ("router bgp 21", "ip address 10.0.0.21/32")


@pytest.mark.parametrize(
    "text",
    [
        "module: [bgp]\nnodes: {s1: , l1: }\nlinks: [{endpoints: []}]",
        "provider: clab\nnodes: {s1: , l1: }",
        "defaults.device: frr\nnodes: {s1: , l1: }",
        "nodes: [s1, l1]",
        "defaults: {device: frr}\nnodes: {s1: , l1: }\nlinks: [s1-l1]",
        "nodes: {s1: , l1: }\nlinks: [{s1: , l1: }]",
    ],
)
def test_netlabs_own_yaml_is_recognised(tmp_path: Path, text: str) -> None:
    file = tmp_path / "topology.yml"
    file.write_text(text)
    with pytest.raises(
        InputError, match=r"topology\.yml is a topology of netlab.*\n.*netlab create"
    ):
        read_topology(file, {})


def test_a_topology_of_containerlab_without_its_outer_key_is_not_taken_for_netlabs(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.clab.yml"
    file.write_text(
        "defaults: {kind: linux}\nnodes: {s1: , l1: }\nlinks: [{endpoints: [s1:eth1, l1:eth1]}]"
    )
    with pytest.raises(SpecError, match="nodes stands at the top"):
        read_topology(file, {})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.yml", "name: a", "no topology.nodes"),
        (
            "x.yml",
            "topology: {nodes: {a: {kind: linux}}, links: [{endpoints: [a]}]}",
            "1 end, expected 2",
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
    with pytest.raises((InputError, SpecError), match=said):
        read_topology(file, {})


@pytest.mark.parametrize(
    "changed",
    [
        ("group: routers", "group: [routers]"),
        ("kind: nokia_srlinux", "kind: {a: b}"),
        ('binds: ["l1:/etc/frr"]', "binds: 7"),
        ('binds: ["l1:/etc/frr"]', "startup-config: ' '"),
        ('binds: ["l1:/etc/frr"]', 'binds: ["~nobody-of-this-name/x:/etc/frr", ":/etc/frr", ":"]'),
        ('binds: ["l1:/etc/frr"]', f'binds: ["{"l" * 300}:/etc/frr", [7], "\\0.conf"]'),
        ("links:", "links: 7\n  others:"),
        ("h2: {kind: linux}", "h2: {kind: linux}\n    x1: {image: frr}\n    x2: {image: frr}"),
    ],
)
def test_a_topology_of_other_shapes_is_read_or_refused(
    rocelab: CommandLine, tmp_path: Path, changed: tuple[str, str]
) -> None:
    file = tmp_path / "theirs.clab.yml"
    file.write_text(LEAF_SPINE.replace(*changed, 1) + '    - endpoints: ["x1:a", "x2:a"]\n')
    assert rocelab("import", file).code in (0, 2)


def test_a_name_with_a_line_feed_adds_no_key(rocelab: CommandLine, tmp_path: Path) -> None:
    file, made = tmp_path / "x\nhashing: 0\n#.clab.yml", tmp_path / "mine.yaml"
    file.write_text(LEAF_SPINE)
    assert rocelab("import", file, "-o", made).code == 0
    assert yaml.safe_load(made.read_text()).keys() == {"name", "fabric"}


@pytest.mark.parametrize(
    ("name", "lab"), [("1e3", "e3"), ("2024", "imported"), ("My_Lab", "my-lab")]
)
def test_a_name_that_no_lab_can_have_is_changed_with_a_word(
    rocelab: CommandLine, tmp_path: Path, name: str, lab: str
) -> None:
    file = tmp_path / "x.clab.yml"
    file.write_text(topology(top=f"name: {name}\n").replace("$IMAGE", "frrouting/frr"))
    outcome = rocelab("import", file)
    assert f"the lab is called {lab}: {name} is no name of a lab" in outcome.err


def test_a_topology_that_is_missing_is_named(rocelab: CommandLine, tmp_path: Path) -> None:
    outcome = rocelab("import", tmp_path / "none.json")
    assert outcome.code == 2 and "none.json cannot be read: No such file" in outcome.err


def test_a_configuration_that_cannot_be_quoted_is_named(tmp_path: Path) -> None:
    file, configuration = tmp_path / "theirs.clab.yml", tmp_path / "l1" / "frr.conf"
    file.write_text(LEAF_SPINE)
    configuration.parent.mkdir()
    configuration.write_bytes(b"\n" * 2**20 + b"router bgp 7\n")
    (said,) = read_topology(file, {}).configured["l1"]
    assert said == f"{configuration} cannot be read: it is larger than 1,048,576 bytes"
    configuration.write_bytes(b"\n" * 2**19 + b"router bgp 7\n")
    assert read_topology(file, {}).configured["l1"] == ("router bgp 7",)


def test_the_command_writes_a_lab_file_that_plans(rocelab: CommandLine, tmp_path: Path) -> None:
    file, made = tmp_path / "theirs.clab.yml", tmp_path / "mine.yaml"
    file.write_text(LEAF_SPINE)
    outcome = rocelab("import", file, "-o", made)
    assert outcome.code == 0, outcome.err
    body = yaml.safe_load(made.read_text())
    assert body["name"] == "theirs" and body["fabric"]["racks"] == 2
    assert len(plan(load_spec(made)).switches) == 4
    assert rocelab("import", file, "-o", made).code == 2
    assert rocelab("import", file, "-o", made, "--force").code == 0


def test_the_command_names_what_is_no_clos(rocelab: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "theirs.clab.yml"
    file.write_text(LEAF_SPINE.replace('    - endpoints: ["l1:eth1", "s1:eth1"]\n', ""))
    outcome = rocelab("import", file)
    assert outcome.code == 0
    assert "no Clos: 0 cables join l1 and s1, others 1: it is written as a graph" in outcome.err
    assert "kind: graph" in outcome.out


NODES = """    s1: {kind: linux, image: frrouting/frr}
    s2: {kind: linux, image: frrouting/frr}
    l1: {kind: linux, image: frrouting/frr}
    l2: {kind: linux, image: frrouting/frr}
    h1: {kind: linux, image: alpine}
    h2: {kind: linux, image: alpine}
"""
LINKS = """    - endpoints: ["l1:eth1", "s1:eth1"]
    - endpoints: ["l1:eth2", "s2:eth1"]
    - endpoints: ["l2:eth1", "s1:eth2"]
    - endpoints: ["l2:eth2", "s2:eth2"]
    - endpoints: ["l1:eth3", "h1:eth1"]
    - endpoints: ["l2:eth3", "h2:eth1"]
"""


def topology(nodes: str = NODES, links: str = LINKS, top: str = "name: x\n", more: str = "") -> str:
    return f"{top}topology:\n{more}  nodes:\n{nodes}  links:\n{links}"


def imported_fabric(folder: Path, text: str, *roles: str) -> dict[str, object]:
    """The counts of the Clos in a topology."""
    file = folder / "x.clab.yml"
    file.write_text(text)
    drawn, _ = drawn_of(read_topology(file, {"IMAGE": "frrouting/frr", "EMPTY": ""}), roles)
    return clos_in(drawn).model_dump(include={"racks", "spines", "servers_per_rack", "atsws"})


TWO_BY_TWO = {"racks": 2, "spines": 2, "servers_per_rack": 1, "atsws": 0}
SWITCHES = ("s1", "s2", "l1", "l2")
SERVERS = "    h1: {kind: linux, image: alpine}\n    h2: {kind: linux, image: alpine}\n"


@pytest.mark.parametrize(
    "text",
    [
        topology(),
        topology(top='name: ${LAB:=x}\nprefix: ""\n'),
        topology(NODES.replace("frrouting/frr", '"${FRR:=quay.io/frrouting/frr:10.2}"')),
        topology(NODES.replace("frrouting/frr", "$IMAGE")),
        topology(
            NODES.replace("kind: linux", "startup-config: 'hash $6$8gN$Vj69', kind: linux", 1)
        ),
        topology(NODES.replace("kind: linux, image: alpine", '"kind": "${KIND:-linux}"')),
        topology(NODES.replace("kind: linux", "kind: Linux")),
        topology("    br-none: {kind: bridge}\n" + NODES),
        topology("    grafana: {kind: linux, image: grafana}\n" + NODES),
        topology("    tap: {kind: linux, image: frr, network-mode: container:h1}\n" + NODES),
        topology(links=LINKS + '    - endpoints: ["s1:eth9", "mgmt-net:s1-eth9"]\n'),
        topology(links=LINKS + '    - endpoints: ["host:s1-eth9", "s1:eth9"]\n'),
        topology(links=LINKS + '    - endpoints: ["s1:eth9", "macvlan:enp0s3"]\n'),
        *(
            topology(
                links=f"{LINKS}    - type: {kind}\n      endpoint: {{node: s1, interface: eth9}}\n"
            )
            for kind in ("host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy")
        ),
        topology(
            links=LINKS.replace(
                '- endpoints: ["l1:eth1", "s1:eth1"]',
                "- {type: veth, mtu: 9000, endpoints: [{node: l1, interface: eth1, mac: x}, "
                "{node: s1, interface: eth1}]}",
            )
        ),
        topology(links=LINKS.replace('"s1:eth1"]', '"s1:eth1"]\n      vars: {a: [1, 2]}', 1)),
        topology(
            SERVERS.replace("kind: linux, ", "")
            + "    s1: {group: fabric}\n    s2: {group: fabric}\n"
            + "    l1: {group: fabric, kind: nokia_srlinux}\n    l2:\n      group: fabric\n",
            more="  defaults: {kind: linux, image: busybox}\n"
            "  groups: {fabric: {kind: arista_ceos}}\n  kinds: {arista_ceos: {image: ceos:4}}\n",
        ),
        topology(
            "    1: *r\n    2: *r\n    l1: {<<: *r, cmd: x}\n    l2: {<<: [*r]}\n" + SERVERS,
            LINKS.replace("s1:", "1:").replace("s2:", "2:"),
            more="  kinds:\n    linux: &r {kind: linux, image: frr}\n",
        ),
        topology(
            "".join(f"    {name}: {{kind: linux, group: fabric}}\n" for name in SWITCHES)
            + "    h1: {kind: linux, group: plain}\n    h2: {kind: linux, group: plain}\n",
            more="  defaults: {binds: ['a:/b']}\n  kinds: {linux: {image: frrouting/frr}}\n"
            "  groups:\n    plain: {image: alpine}\n"
            "    fabric: {image: mine, binds: ['c:/etc/frr']}\n",
        ),
        topology(NODES.replace("h2: {", "h2: {network-mode: 'container:h1', ")),
        topology(
            "".join(f"    {name}: {{binds: ['{name}:/etc/frr']}}\n" for name in ("s1", "s2", "l1"))
            + "    l2: {exec: ['vtysh -c \"conf t\"']}\n    h1: {cmd: sleep infinity}\n"
            "    h2: {entrypoint: /bin/bash}\n",
            more="  defaults: {kind: linux, image: frrouting/frr}\n",
        ),
    ],
)
def test_what_is_certain_is_imported(tmp_path: Path, text: str) -> None:
    assert imported_fabric(tmp_path, text) == TWO_BY_TWO


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            topology(NODES.replace("h1: {", "h1: {group: edge, ")),
            "h1 is in a group of tier leaf and no router",
        ),
        (topology(top="name: lab-${LAB}\n"), "name has the variable LAB"),
        (topology(NODES.replace("frrouting/frr", "${IMG}")), "variable IMG, which is not set"),
        (topology(NODES.replace("kind: linux", "kind: $KIND", 1)), "kind of 's1' has the variable"),
        (topology(NODES.replace("kind: linux", "kind: linus", 1)), "s1 is of kind 'linus'"),
        (topology(NODES.replace("kind: linux, ", "", 1)), "node 's1' has no kind"),
        (topology(NODES.replace("kind: linux", "kind: generic_vm", 1)), "s1 is of kind"),
        (
            topology(
                NODES + "    br-oob: {kind: bridge}\n",
                LINKS
                + '    - endpoints: ["l1:eth9", "br-oob:a"]\n'
                + '    - endpoints: ["l2:eth9", "br-oob:b"]\n',
            ),
            "br-oob is no switch of a Clos: its kind is bridge",
        ),
        (
            topology(
                NODES + "    ovs: {kind: ovs-bridge}\n",
                LINKS + '    - endpoints: ["l1:eth9", "ovs:a"]\n',
            ),
            "ovs is no switch of a Clos",
        ),
        (
            topology(
                "".join(f"    {n}: {{binds: ['{n}:/etc/frr']}}\n" for n in ("s1", "s2", "l1", "l2"))
                + "    h1:\n    h2:\n",
                more="  defaults: {kind: linux, image: frrouting/frr}\n",
            ),
            "h1 runs the image of a router",
        ),
        (topology(links=LINKS.replace("s1:eth2", "spine1:eth2")), "'spine1', which is no node"),
        (topology(links=LINKS.replace("s1:eth2", "s1")), "the end 's1' of a link has no port"),
        (topology(links=LINKS.replace("s1:eth2", "s1:")), "has no port"),
        (
            topology(links=LINKS.replace("s1:eth2", "s1:eth1")),
            "the end of two links, first on line",
        ),
        (topology(links=LINKS + "    - endpoints: [s1:eth9]\n"), "a link has 1 end, expected 2"),
        (topology(links=LINKS + "    - type: veth\n"), "a link has 0 ends"),
        (topology(links=LINKS + "    - endpoints: [s1:a, s2:a, l1:a]\n"), "a link has 3 ends"),
        (
            topology(links=LINKS + "    - {type: veth, endpoints: [{node: s1}, {node: s2}]}\n"),
            "an end of a link has no interface",
        ),
        (
            topology(
                links=LINKS
                + "    - endpoints: [{node: s1, interface: a}, {node: s2, interface: b}]\n"
            ),
            "an end of a link without type is a block",
        ),
        (
            topology(links=LINKS + "    - {type: veht, endpoints: [s1:a, s2:a]}\n"),
            "'veht' is no type",
        ),
        (
            topology(links=LINKS + "    - {type: host, endpoint: {node: s9, interface: a}}\n"),
            "'s9', which is no node",
        ),
        (topology(NODES + "    l3: {kind: linux, image: frr}\n"), "l3 has no cable"),
        (topology(NODES.replace("h2:", "h1:")), "has 'h1' twice"),
        (topology().replace("  links:", "links:"), "links stands at the top"),
        (
            topology(NODES.replace("h1", "host"), LINKS.replace("h1:", "host:")),
            "a node is called host",
        ),
        (topology().replace("image: alpine", "image: {{ .x }}"), "Go template"),
    ],
)
def test_what_is_not_certain_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises((InputError, SpecError), match=said):
        imported_fabric(tmp_path, text)


def clos_of(leaves: int, spines: int, cores: int, servers: int, group: bool = False) -> str:
    """A topology of routers called l, s, c, in groups as `containerlab generate` names them or in
    none, with a server under each of the first `servers` leaves."""
    names = {
        tier: [f"n{tier}-{number}" for number in range(1, count + 1)]
        for tier, count in enumerate((leaves, spines, cores), start=1)
    }
    nodes = "".join(
        f"    {name}: {{kind: ceos{f', group: tier-{tier}' if group else ''}}}\n"
        for tier, of_tier in names.items()
        for name in of_tier
    ) + "".join(f"    h{number}: {{kind: linux, image: x}}\n" for number in range(servers))
    pairs = [(low, high) for low in names[1] for high in names[2]]
    pairs += [(low, high) for low in names[2] for high in names[3]]
    pairs += [(f"h{number}", names[1][number]) for number in range(servers)]
    links = "".join(f"    - endpoints: ['{a}:to-{b}', '{b}:to-{a}']\n" for a, b in pairs)
    return topology(nodes, links)


def test_three_tiers_as_containerlab_generates_them(tmp_path: Path) -> None:
    fabric = imported_fabric(tmp_path, clos_of(8, 4, 2, 0, group=True))
    assert fabric == {"racks": 8, "spines": 4, "servers_per_rack": 0, "atsws": 2}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({"s1": "leaf9"}, id="of one switch"),
        pytest.param({name: f"{name}-leaf-spine" for name in SWITCHES}, id="two tiers each"),
        pytest.param(
            {"s1": "x1-1", "s2": "x1-2", "l1": "y2-1", "l2": "y2-2"}, id="generated for two fabrics"
        ),
    ],
)
def test_names_that_say_no_tier_of_every_switch_say_none(
    tmp_path: Path, names: dict[str, str]
) -> None:
    text = topology()
    for name, other in names.items():
        text = re.sub(rf"\b{name}\b", other, text)
    for row in ("1", "2"):
        text = re.sub(rf"([xy]{row}-\d: {{)", rf"\1group: row-{row}, ", text)
    assert imported_fabric(tmp_path, text) == TWO_BY_TWO


@pytest.mark.parametrize(
    ("shape", "roles", "fabric"),
    [
        ((4, 2, 0, 2), ("n1-*=leaf",), None),
        ((4, 2, 2, 4), ("n3-*=core",), {"racks": 4, "servers_per_rack": 1, "atsws": 2}),
        ((4, 2, 2, 4), ("n3-*=none",), {"racks": 4, "servers_per_rack": 1, "atsws": 0}),
        ((3, 2, 0, 0), ("n1-*=leaf",), {"racks": 3, "spines": 2}),
        ((3, 2, 0, 0), ("*=leaf", "n1-*=spine", "n2-*=rtsw"), {"racks": 2, "spines": 3}),
    ],
)
def test_switches_that_may_be_two_things_are_asked_for(
    tmp_path: Path,
    shape: tuple[int, int, int, int],
    roles: tuple[str, ...],
    fabric: dict[str, int] | None,
) -> None:
    text = clos_of(*shape)
    with pytest.raises(InputError, match="not certain: wh") as caught:
        imported_fabric(tmp_path, text)
    assert caught.value.hint is not None and "--role NODE=leaf" in caught.value.hint
    if fabric is None:  # leaves, of which only some have servers
        with pytest.raises(InputError, match="leaf n1-3 has 0 servers"):
            imported_fabric(tmp_path, text, *roles)
        return
    assert fabric.items() <= imported_fabric(tmp_path, text, *roles).items()


def test_a_zone_wired_in_another_way_is_named(tmp_path: Path) -> None:
    pairs = [
        *((f"z{zone}l{leaf}", f"z{zone}s1") for zone in (1, 2) for leaf in (1, 2)),
        *((f"z2l{leaf}", "z2s1") for leaf in (1, 2)),
        *((f"z{zone}s1", "c1") for zone in (1, 2)),
        *((f"h{zone}{leaf}", f"z{zone}l{leaf}") for zone in (1, 2) for leaf in (1, 2)),
    ]
    names = dict.fromkeys(end for pair in pairs for end in pair)
    kinds = {True: "{kind: linux, image: x}", False: "{kind: ceos}"}
    nodes = "".join(f"    {name}: {kinds[name[0] == 'h']}\n" for name in names)
    links = "".join(
        f"    - endpoints: ['{a}:p{number}', '{b}:p{number}']\n"
        for number, (a, b) in enumerate(pairs)
    )
    with pytest.raises(InputError, match="cables from a leaf to a spine, others"):
        imported_fabric(tmp_path, topology(nodes, links))


@pytest.mark.parametrize("role", ["l1", "l1=", "=leaf", "l1=leef", "l9=leaf"])
def test_a_role_that_fits_nothing_is_refused(tmp_path: Path, role: str) -> None:
    with pytest.raises(InputError, match="--role"):
        imported_fabric(tmp_path, topology(), role)


POLICY = """frr version 10
hostname l1
interface eth1
 ip address 10.0.0.1/31
 ip ospf area 0
 description to s1
!
router bgp 65001
 neighbor eth1 interface remote-as external
 neighbor 10.0.0.0 bfd
 neighbor 10.0.0.0 password s3cret
 neighbor 10.0.0.0 timers 1 3
 address-family ipv4 unicast
  aggregate-address 10.0.0.0/8 summary-only
  neighbor 10.0.0.0 route-map RM out
  maximum-paths 16
 exit-address-family
 address-family l2vpn evpn
  advertise-all-vni
ip prefix-list P seq 5 permit any
ip route 0.0.0.0/0 blackhole
bgp community-list standard C permit 1:1
route-map RM permit 10
 set community 1:1
router isis 1
line vty
"""


def test_policy_that_is_not_taken_over_is_listed(rocelab: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "l1").mkdir()
    (tmp_path / "l1" / "frr.conf").write_text(POLICY)
    (tmp_path / "l2").mkdir()
    (tmp_path / "l2" / "bgpd.conf").write_text("router bgp 65002\n")
    nodes = NODES.replace("l1: {", "l1: {binds: ['__clabNodeName__/frr.conf:/etc/frr/frr.conf'], ")
    nodes = nodes.replace("l2: {", "l2: {binds: ['l2:/etc/frr'], ")
    nodes = nodes.replace("h1: {", "h1: {exec: ['ip route add default via 10.0.0.2'], ")
    nodes = nodes.replace("s1: {kind: linux", "s1: {kind: ceos, startup-config: s1.cfg")
    nodes = nodes.replace("s2: {", "s2: {group: routers, ")
    file = tmp_path / "x.clab.yml"
    file.write_text(topology(nodes))
    outcome = rocelab("import", file)
    assert outcome.code == 0, outcome.err
    for statement in (
        *("aggregate-address 10.0.0.0/8", "neighbor 10.0.0.0 bfd", "timers 1 3", "maximum-paths"),
        *("route-map RM out", "set community 1:1", "bgp community-list", "ip prefix-list P"),
        *("neighbor eth1 interface", "l2vpn evpn", "router isis 1", "ip ospf area", "ip route 0"),
        *("password (not shown)", "router bgp 65001, router bgp 65002", "startup-config 's1.cfg'"),
        "exec: ip route add default",
    ):
        assert statement in outcome.err, statement
    for silent in ("hostname", "s3cret", "description", "line vty"):
        assert silent not in outcome.err
    assert "taken as leaf: l1, l2" in outcome.err and "taken as server: h1, h2" in outcome.err


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("neighbor 10.0.0.0 route-map RM out", "neighbor route-map"),
        ("no neighbor 10.0.0.0 activate", "no neighbor activate"),
        ("no bgp ebgp-requires-policy", "no bgp ebgp-requires-policy"),
        ("maximum-paths 16", "maximum-paths"),
        ("no", "no"),
    ],
)
def test_statements_are_summed_up_by_what_they_are_about(statement: str, kind: str) -> None:
    assert kind_of(statement) == kind


def test_what_is_left_out_is_said(rocelab: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "x.clab.yml"
    links = LINKS + '    - endpoints: ["s1:eth9", "mgmt-net:x"]\n'
    links += '    - endpoints: ["s2:eth9", "oob:x"]\n'
    nodes = NODES + "    grafana: {kind: linux, image: x}\n    oob: {kind: bridge}\n"
    file.write_text(topology(nodes, links))
    outcome = rocelab("import", file, "--role", "oob=none")
    assert outcome.code == 0, outcome.err
    assert "left out: s1:eth9 (mgmt-net), oob (--role), grafana (no cable)" in outcome.err


def test_a_large_topology_is_read(tmp_path: Path) -> None:
    fabric = imported_fabric(tmp_path, clos_of(96, 24, 0, 96))
    assert fabric == {"racks": 96, "spines": 24, "servers_per_rack": 1, "atsws": 0}


@pytest.mark.parametrize("lab", ["hpn-small", "rail-small", "fat-tree-4"])
def test_what_is_rendered_and_no_clos_is_refused(lab: str, tmp_path: Path) -> None:
    write_containerlab(plan(load_spec(find_lab(lab))), tmp_path / "out")
    imported = read_topology(tmp_path / "out" / f"{lab}.clab.yml", {})
    with pytest.raises(InputError, match="no Clos"):
        clos_in(drawn_of(imported)[0])


def test_whoever_has_files_of_frr_hears_how_they_run(rocelab: CommandLine, tmp_path: Path) -> None:
    file, configuration = tmp_path / "theirs.clab.yml", tmp_path / "l1" / "frr.conf"
    file.write_text(LEAF_SPINE)
    configuration.parent.mkdir()
    for text, is_said in (("hostname l1\n", False), ("router bgp 7\n", True)):
        configuration.write_text(text)
        said = rocelab("import", file).err
        assert ("routing: {config: 'configs/{node}.conf'}" in said) is is_said


def test_links_without_a_rate_get_the_default_and_are_counted(
    rocelab: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "cables.csv"
    rows = "leaf1,e1,spine1,e1,100G\nleaf2,e1,spine1,e2,\n"
    file.write_text(f"a_node,a_port,b_node,b_port,rate\n{rows}")
    outcome = rocelab("import", file, "--servers", "1")
    assert outcome.code == 0
    assert "no rate: 2 links at 400 Gb/s" in outcome.err
