"""Labs with several networks, as files: places, names, pools, and errors with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rocelab.base.errors import InputError, SpecError
from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import differing_keys
from rocelab.labfile.networks import NetworksLabSpec

CLOS = """name: two
networks:
  backend:
    fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2, nics_per_server: 2}
  frontend:
    fabric: {kind: clos, racks: 1, spines: 1, servers_per_rack: 4}
"""
GRAPH = """name: one-graph
fabric:
  kind: graph
  nodes:
    leaf*: {role: leaf, network: be}
    spine*: {role: spine, network: be}
    fsw*: {role: leaf, network: fe}
    s*: {role: server}
  links:
    - leaf1 -- spine1
    - leaf2 -- spine1
    - srv1 -- leaf1
    - srv2 -- leaf2
    - {a: srv1, b: fsw1, rate: 100G}
    - sto1 -- fsw1
networks:
  be: {queues: {pfc: {}}}
  fe: {links: {rate: 50G}}
"""


def lab(folder: Path, text: str) -> NetworksLabSpec:
    file = folder / "lab.yaml"
    file.write_text(text)
    spec = load_spec(file)
    assert isinstance(spec, NetworksLabSpec)
    return spec


def problem(folder: Path, text: str) -> tuple[int | None, str, str]:
    """The line, the key and the message of the one problem of a file."""
    with pytest.raises(SpecError) as caught:
        lab(folder, text)
    (one,) = caught.value.problems
    return one.line, one.key, one.message


def test_a_regular_network_has_the_servers_of_the_first_and_switches_of_its_own(
    tmp_path: Path,
) -> None:
    spec = lab(tmp_path, CLOS)
    first, second = (network.layout().sites for network in spec.networks.values())
    servers = [site.name for site in first if not site.role.is_switch]
    assert servers == ["srv1-1", "srv1-2", "srv2-1", "srv2-2"]
    assert [site.name for site in second] == ["frontend-ctsw1", "frontend-rtsw1", *servers]
    asns = {site.asn for sites in (first, second) for site in sites} - {None}
    assert len(asns) == len({4200000001, 4200000002, 4200000003}) + 2


def test_networks_have_parts_of_the_space_for_benchmarks(tmp_path: Path) -> None:
    pools = [network.addresses.servers for network in lab(tmp_path, CLOS).networks.values()]
    assert pools == [("198.18.0.0/16",), ("198.19.0.0/16",)]
    text = CLOS.replace(
        "servers_per_rack: 4}", "servers_per_rack: 4}\n    addresses: {family: ipv6}"
    )
    text = text.replace("nics_per_server: 2}", "nics_per_server: 2}\n    addresses: {family: ipv6}")
    pools = [network.addresses.links for network in lab(tmp_path, text).networks.values()]
    assert pools == [("2001:2::/49",), ("2001:2:0:8000::/49",)]


def test_the_first_network_is_taken_unless_another_is_named(tmp_path: Path) -> None:
    spec = lab(tmp_path, CLOS)
    assert spec.network() is spec.networks["backend"]
    assert spec.fabric is spec.networks["backend"].fabric
    assert spec.network("frontend") is spec.networks["frontend"]
    with pytest.raises(InputError, match="no network 'fronted'") as caught:
        spec.network("fronted")
    assert caught.value.hint == "did you mean frontend?"


def test_a_copy_changes_all_networks(tmp_path: Path) -> None:
    copy = lab(tmp_path, CLOS).model_copy(update={"name": "other", "dilation": 7.0})
    assert (copy.name, copy.dilation) == ("other", 7.0)
    assert {(part.name, part.dilation) for part in copy.networks.values()} == {("other", 7.0)}


def test_what_a_record_has_is_the_same_lab(tmp_path: Path) -> None:
    spec = lab(tmp_path, CLOS)
    recorded = recorded_spec(spec.model_dump(mode="json"))
    assert recorded == spec
    part = recorded_spec(spec.networks["frontend"].model_dump(mode="json", exclude_none=True))
    assert part == spec.networks["frontend"]
    other = lab(tmp_path, CLOS.replace("spines: 1", "spines: 2"))
    assert differing_keys(other, recorded) == ("networks.frontend.fabric.spines",)


def test_a_graph_is_split_by_the_networks_of_its_switches(tmp_path: Path) -> None:
    spec = lab(tmp_path, GRAPH)
    nodes = {
        name: {site.name for site in network.layout().sites}
        for name, network in spec.networks.items()
    }
    assert nodes == {
        "be": {"leaf1", "leaf2", "spine1", "srv1", "srv2"},
        "fe": {"fsw1", "srv1", "sto1"},
    }
    (first, _) = spec.networks["fe"].layout().attachments
    assert first.wiring_of(0).rate_bps == 100 * 10**9
    assert spec.networks["fe"].links.rate == 50 * 10**9


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "message"),
    [
        (
            CLOS,
            "name: none\nnetworks: {}\n",
            2,
            "networks",
            "expected 1 to 8 networks by name, got 0",
        ),
        (
            CLOS,
            "name: none\nnetworks: [a]\n",
            2,
            "networks",
            "expected 1 to 8 networks by name, got a list",
        ),
        (
            "    fabric: {kind: clos, racks: 1,",
            "    fabrik: {kind: clos, racks: 1,",
            6,
            "networks.frontend.fabrik",
            "unknown key",
        ),
        (
            "servers_per_rack: 4",
            "servers_per_rack: 3",
            6,
            "networks.frontend.fabric",
            "network frontend has 3 servers, and the first network 4",
        ),
        (
            "spines: 1",
            "spines: 0",
            6,
            "networks.frontend.fabric.spines",
            "expected a whole number from 1 to 128, got 0",
        ),
        (
            "name: two\n",
            "name: two\nqueues: {pfc: {}}\n",
            2,
            "queues",
            "expected no queues beside networks, each of which has its own",
        ),
        (
            "  frontend:\n",
            "  frontend:\n    dilation: 3\n",
            6,
            "networks.frontend.dilation",
            "expected no dilation of a network: all networks of a lab have one",
        ),
        (
            "  frontend:\n",
            "  frontend:\n    place: {network: backend, number: 0}\n",
            6,
            "networks.frontend.place",
            "unknown key",
        ),
        (
            "  frontend:\n",
            "  frontend:\n    addresses: {servers: 198.18.4.0/24}\n",
            6,
            "networks.frontend.addresses",
            "198.18.4.0/24 of network frontend overlaps 198.18.0.0/16 of backend",
        ),
        (
            "  frontend:\n",
            "  frontend:\n    addresses: {family: ipv6}\n",
            6,
            "networks.frontend.addresses.family",
            "network frontend is ipv6, and the first ipv4",
        ),
        (
            "  frontend:\n",
            "  frontend:\n    routing: {config: 'configs/{node}.conf'}\n",
            6,
            "networks.frontend.routing.config",
            "expected the kit's own policy: a lab with several networks does not run files, "
            "templates or a policy that decides routes",
        ),
    ],
)
def test_mistakes_have_their_line(
    tmp_path: Path, old: str, new: str, line: int, key: str, message: str
) -> None:
    assert problem(tmp_path, CLOS.replace(old, new, 1)) == (line, key, message)


def test_a_regular_network_has_servers_of_its_own_behind_those_of_the_first(tmp_path: Path) -> None:
    spec = lab(tmp_path, CLOS.replace("servers_per_rack: 4", "servers_per_rack: 6"))
    servers = [nic.server for nic in spec.networks["frontend"].layout().attachments]
    others = ["frontend-srv1-5", "frontend-srv1-6"]
    assert servers == ["srv1-1", "srv1-2", "srv2-1", "srv2-2", *others]


def test_two_networks_have_no_switch_of_one_name(tmp_path: Path) -> None:
    text = GRAPH.replace("fabric:\n", "x:\n").split("x:\n")[0] + (
        "networks:\n"
        "  a: {fabric: {kind: graph, nodes: {sw1: {role: leaf}, s1: {role: server}},"
        " links: [s1 -- sw1]}}\n"
        "  b: {fabric: {kind: graph, nodes: {sw1: {role: leaf}, s1: {role: server}},"
        " links: [s1 -- sw1]}}\n"
    )
    assert problem(tmp_path, text) == (
        4,
        "networks.b.fabric",
        "sw1 is in network a and, as another node, in b",
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            "- srv2 -- leaf2",
            "- leaf2 -- fsw1",
            13,
            "the link joins two networks: leaf2 in be and fsw1 in fe",
        ),
        ("- sto1 -- fsw1", "- sto1 -- other1", 15, "no network is known of the link"),
        ("network: fe}", "network: ff}", 14, "there is no network 'ff'"),
    ],
)
def test_links_of_a_graph_have_one_network(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        lab(tmp_path, GRAPH.replace(old, new, 1))
    first = caught.value.problems[0]
    assert (first.line, first.message) == (line, message)


def test_files_that_a_network_names_are_read(tmp_path: Path) -> None:
    (tmp_path / "cables.csv").write_text("a_node,a_port,b_node,b_port\nsrv1-1,e0,fsw1,e0\n")
    text = CLOS.replace(
        "{kind: clos, racks: 1, spines: 1, servers_per_rack: 4}",
        "{kind: graph, cables: cables.csv, nodes: {fsw1: {role: leaf}, srv*: {role: server}}}",
    )
    layout = lab(tmp_path, text).networks["frontend"].layout()
    assert [(nic.server, nic.switches) for nic in layout.attachments] == [("srv1-1", ("fsw1",))]
    (tmp_path / "cables.csv").write_text("a_node,a_port,b_node,b_port,rate\nsrv1-1,e0,fsw1,e0,4Q\n")
    with pytest.raises(SpecError) as caught:
        lab(tmp_path, text)
    (one,) = caught.value.problems
    assert (Path(one.file).name, one.line) == ("cables.csv", 2)


def test_the_schema_takes_both_forms() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from rocelab.labfile.schema import lab_schema

    schema = jsonschema.Draft202012Validator(lab_schema())
    shipped = yaml.safe_load(find_lab("two-networks").read_text())
    for document in (yaml.safe_load(CLOS), yaml.safe_load(GRAPH), shipped):
        assert not list(schema.iter_errors(document))
    assert list(schema.iter_errors({"name": "none"}))
    assert list(schema.iter_errors({"name": "one", "networks": {"a": {"spines": 3}}}))
