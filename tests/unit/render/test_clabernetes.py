"""The objects for clabernetes: against golden files, schemas and size limits.

`RECORD=1 pytest` writes the golden file anew.
"""

from __future__ import annotations

import os
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from rocelab.base.errors import InputError
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.render import clabernetes
from rocelab.render.clabernetes import (
    CONFIG_MAP_BYTES,
    STORE_BYTES,
    ClusterObject,
    in_pods,
    made_objects,
    manifests,
    node_topologies,
    object_bytes,
    packed,
    short_names,
)
from rocelab.render.deployment import deployment
from rocelab.render.files import MARKER, write_clabernetes
from tests.helpers.clab_check import topology_problems
from tests.helpers.target_schemas import clab_schema, topology_schema
from tests.unit.render.test_containerlab import SMALL_LABS, fabric, run, small

GOLDEN = Path(__file__).parents[2] / "golden"
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def objects(planned: Fabric) -> list[dict[str, Any]]:
    return [
        manifest
        for text in manifests(planned).values()
        for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader)
    ]


def topology_of(planned: Fabric) -> dict[str, Any]:
    (topology,) = (manifest for manifest in objects(planned) if manifest["kind"] == "Topology")
    return topology


@cache
def objects_of(lab: str) -> list[dict[str, Any]]:
    """The objects of a lab that ships, which tests read and leave as they are."""
    return objects(small(lab))


@cache
def definition_of(lab: str) -> dict[str, Any]:
    text = objects_of(lab)[-1]["spec"]["definition"]["containerlab"]
    definition = yaml.load(text, Loader=yaml.CSafeLoader)
    assert isinstance(definition, dict)
    return definition


def test_the_topology_of_a_tiny_fabric_is_as_recorded() -> None:
    text = manifests(fabric())["20-topology.yaml"]
    golden = GOLDEN / "clabernetes-topology.yaml"
    if os.environ.get("RECORD"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("lab", SMALL_LABS)
def test_a_topology_is_valid_against_clabernetes_s_definition(lab: str) -> None:
    version, schema = topology_schema()
    topology = objects_of(lab)[-1]
    assert (topology["apiVersion"], topology["kind"]) == (version, "Topology")
    errors = Draft202012Validator(schema).iter_errors(topology)
    assert [error.message for error in errors] == []


def test_the_definition_refuses_a_key_that_it_does_not_have() -> None:
    _, schema = topology_schema()
    topology = topology_of(fabric())
    topology["spec"]["deployment"]["filesFromConfigMaps"] = {}
    del topology["spec"]["naming"]
    paths = sorted(error.json_path for error in Draft202012Validator(schema).iter_errors(topology))
    assert paths == ["$.spec", "$.spec.deployment"]


@pytest.mark.parametrize("validator", [Draft7Validator, Draft202012Validator])
@pytest.mark.parametrize("lab", SMALL_LABS)
def test_the_definition_inside_is_valid_against_containerlab_s_schema(
    lab: str, validator: Any
) -> None:
    errors = validator(clab_schema()).iter_errors(definition_of(lab))
    assert [error.message for error in errors] == []


@pytest.mark.parametrize("lab", SMALL_LABS)
def test_every_file_that_a_node_binds_is_mounted_from_a_config_map_that_is_applied(
    lab: str,
) -> None:
    made = objects_of(lab)
    texts = {
        (manifest["metadata"]["name"], key): text
        for manifest in made
        if manifest["kind"] == "ConfigMap"
        for key, text in manifest["data"].items()
    }
    mounts = made[-1]["spec"]["deployment"]["filesFromConfigMap"]
    definition = definition_of(lab)
    for name, node in definition["topology"]["nodes"].items():
        bound = [bind.partition(":")[0] for bind in node.get("binds", ())]
        mounted = {
            mount["filePath"]: texts[mount["configMapName"], mount["configMapPath"]]
            for mount in mounts.get(name, ())
        }
        assert sorted(bound) == sorted(mounted)
        if bound:
            assert f"hostname {name}" in mounted[f"{name}/frr.conf"].splitlines()
    every = {mount["filePath"] for files in mounts.values() for mount in files}
    assert topology_problems(definition, every) == []


@pytest.mark.parametrize("lab", SMALL_LABS)
def test_the_far_end_of_a_link_has_a_name_that_linux_takes(lab: str) -> None:
    for link in definition_of(lab)["topology"]["links"]:
        for end in link["endpoints"]:
            assert len(end.replace(":", "-")) <= 15


def test_interfaces_are_configured_by_the_names_that_links_have() -> None:
    planned = small("hpn-small")
    made = {container.name: container for container in deployment(short_names(planned)).containers}
    for node, links in planned.links_of.items():
        names = [f"e{number}" for number, _ in enumerate(links, start=1)]
        if made[node].files:
            lines = made[node].files["/etc/frr/frr.conf"].splitlines()
            configured = [line.split()[1] for line in lines if line.startswith("interface ")]
            assert configured == ["lo", *names]
        else:
            used = re.findall(r"dev (\S+)$", "\n".join(made[node].commands), re.MULTILINE)
            assert set(used) == set(names)


def test_a_node_has_its_links_mtu_and_no_way_out_but_the_fabric() -> None:
    nodes = definition_of("tiny")["topology"]["nodes"]
    (of_switch,), (of_server,) = nodes["rtsw1"]["exec"], nodes["srv1-1"]["exec"]
    assert of_switch.startswith(
        "sh -c 'ip route del default; echo e1 e2 e3 | xargs -n 1 ip link set mtu 9000 dev; "
    )
    first, *_, last = of_server.split("; ")
    assert first.endswith("mtu 9000 dev")
    assert last.startswith("ip route replace default via")


@pytest.mark.parametrize("lab", SMALL_LABS)
def test_nothing_in_a_definition_looks_like_a_variable(lab: str) -> None:
    definition = objects_of(lab)[-1]["spec"]["definition"]["containerlab"]
    assert "$" not in definition


def test_objects_come_in_the_order_in_which_they_need_each_other() -> None:
    kinds = [manifest["kind"] for manifest in objects(fabric())]
    assert kinds == ["Namespace", "ConfigMap", "ConfigMap", "ConfigMap", "Topology"]
    assert list(manifests(fabric())) == sorted(manifests(fabric()))


def test_every_object_is_in_the_lab_s_own_namespace() -> None:
    namespace, *others = objects(fabric())
    assert namespace["metadata"]["name"] == "rocelab-golden"
    assert {other["metadata"]["namespace"] for other in others} == {"rocelab-golden"}


@pytest.mark.parametrize("lab", [*SMALL_LABS, "zone-1-1"])
def test_no_object_is_larger_than_the_store_takes(lab: str) -> None:
    for manifest in objects_of(lab):
        limit = CONFIG_MAP_BYTES if manifest["kind"] == "ConfigMap" else STORE_BYTES
        assert object_bytes(manifest) < limit


def test_every_name_is_a_dns_label_with_the_longest_name_of_a_lab() -> None:
    longest = {"name": "a" * 24, "fabric": {"zones": 2, "racks": 2, "spines": 2, "atsws": 1}}
    planned = plan(LabSpec.model_validate(longest))
    names = [manifest["metadata"]["name"] for manifest in objects(planned)]
    # What clabernetes makes of them: a deployment and its two services.
    names += [f"{planned.name}-{node.name}{end}" for node in planned.nodes for end in ("", "-vx")]
    assert [name for name in names if not DNS_LABEL.fullmatch(name)] == []
    assert len(names) == len(set(names))


@given(
    sizes=st.lists(st.integers(0, 400), max_size=30),
    budget=st.integers(420, 1000),
)
def test_files_are_packed_whole_in_order_and_within_the_budget(
    sizes: list[int], budget: int
) -> None:
    files = {f"file{number}": "x" * size for number, size in enumerate(sizes)}
    groups = packed(files, budget)
    assert [manifest for group in groups for manifest in group.items()] == list(files.items())
    assert all(group for group in groups)
    assert all(object_bytes(group) <= budget for group in groups)
    for first, second in pairwise(groups):
        key, text = next(iter(second.items()))
        assert object_bytes(first) + object_bytes({key: text}) > budget


def test_a_file_larger_than_a_config_map_is_refused() -> None:
    with pytest.raises(InputError, match=r"frr\.conf has 1,0\d\d bytes"):
        packed({"frr.conf": "x" * 1000}, 900)


def test_a_switch_s_files_are_split_where_one_config_map_is_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = objects(fabric())
    monkeypatch.setattr(clabernetes, "packed", lambda texts, _: packed(texts, 1300))
    split = objects(fabric())
    assert len(split) > len(whole)
    names = [manifest["metadata"]["name"] for manifest in split if manifest["kind"] == "ConfigMap"]
    assert {"golden-rtsw1-frr", "golden-rtsw1-frr-2"} <= set(names)
    assert all_texts(split) == all_texts(whole)


def all_texts(made: list[dict[str, Any]]) -> dict[str, str]:
    """The text at every path of every node."""
    data = {
        manifest["metadata"]["name"]: manifest["data"] for manifest in made if "data" in manifest
    }
    return {
        mount["filePath"]: data[mount["configMapName"]][mount["configMapPath"]]
        for mounts in made[-1]["spec"]["deployment"]["filesFromConfigMap"].values()
        for mount in mounts
    }


def sizes(planned: Fabric) -> dict[str, ClusterObject]:
    made = in_pods(deployment(short_names(planned)))
    return {item.kind: item for item in made_objects(topology_of(planned), made)}


@pytest.mark.parametrize("kind", ["ConfigMap", "Topology", "Connectivity"])
def test_a_lab_of_which_an_object_would_be_too_large_is_refused_before_a_file_is_written(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    size = sizes(fabric())[kind].size_bytes
    monkeypatch.setattr(ClusterObject, "fits", property(lambda manifest: manifest.kind != kind))
    with pytest.raises(InputError, match=f"its {kind} would have {size:,} bytes"):
        write_clabernetes(fabric(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_object_fits_while_some_of_the_limit_stays_free() -> None:
    assert ClusterObject("ConfigMap", 970, 1000).fits
    assert not ClusterObject("ConfigMap", 971, 1000).fits


@pytest.mark.long
def test_the_objects_of_a_lab_with_many_links_and_of_one_with_many_nodes_are_refused() -> None:
    """Both were refused by a real API server, and the same with fewer nodes or links were not
    (tests/kubernetes)."""
    for shape, kind in (({"racks": 60, "spines": 76}, "Connectivity"), (NODES, "Topology")):
        planned = plan(LabSpec.model_validate({"name": "large", "fabric": shape}))
        with pytest.raises(InputError, match=f"its {kind} would have"):
            manifests(planned)


NODES = {"racks": 322, "spines": 2, "servers_per_rack": 1}


def test_the_topology_of_a_node_is_what_clabernetes_writes() -> None:
    """As its manager 0.6.0 wrote it, but for the order of keys and the style of quotes."""
    topologies = node_topologies(topology_of(small("tiny"))["spec"]["definition"]["containerlab"])
    recorded = (GOLDEN / "clabernetes-node.yaml").read_text()
    assert yaml.safe_load(topologies["ctsw1"]) == yaml.safe_load(recorded)
    assert len(topologies["ctsw1"]) == len(recorded)


def test_the_command_writes_what_kubectl_applies(tmp_path: Path) -> None:
    command = ("render", "tiny", "--target", "clabernetes", "--image", "example/frr:1")
    assert run(*command, "-o", tmp_path) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [MARKER, "00-namespace.yaml", "10-configurations.yaml", "20-topology.yaml"]
    assert 'image: "example/frr:1"' in (tmp_path / "20-topology.yaml").read_text()
