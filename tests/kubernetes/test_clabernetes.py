"""What clabernetes' own manager makes of a rendered lab, on a real Kubernetes API server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from rocelab.base.errors import InputError
from rocelab.lab.lab import Lab
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.render.clabernetes import (
    API_VERSION,
    ClusterObject,
    in_pods,
    made_objects,
    manifests,
    namespace_name,
    object_bytes,
    short_names,
)
from rocelab.render.deployment import deployment
from rocelab.render.frr_image import DEFAULT_IMAGE
from tests.helpers.waiting import wait_until
from tests.kubernetes.cluster import CORE, Api, RefusedError, cluster
from tests.kubernetes.prepare import programs
from tests.unit.render.test_containerlab import SMALL_LABS

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
MOUNTED_BELOW = "/clabernetes/"


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with cluster(programs(), tmp_path_factory.mktemp("cluster")) as running:
        yield running


@dataclass(frozen=True)
class Made:
    """A lab that was applied, and what the manager made of it."""

    fabric: Fabric
    applied: tuple[dict[str, Any], ...]
    deployments: dict[str, Any]
    topologies: dict[str, Any]
    tunnels: dict[str, list[dict[str, Any]]]
    names: tuple[str, ...]
    sizes: dict[str, int]


def applied(api: Api, files: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    """Apply every object, in the order of their files."""
    objects = tuple(manifest for text in files.values() for manifest in yaml.safe_load_all(text))
    for manifest in objects:
        api.apply(manifest)
    return objects


def made_of(api: Api, fabric: Fabric) -> Made:
    """Apply a lab and wait until the manager has made all that it makes."""
    objects = applied(api, manifests(fabric))
    place = f"namespaces/{namespace_name(fabric.name)}"
    paths = {
        "deployments": f"/apis/apps/v1/{place}/deployments",
        "services": f"{CORE}/{place}/services",
        "configmaps": f"{CORE}/{place}/configmaps",
        "connectivities": f"/apis/{API_VERSION}/{place}/connectivities",
    }

    def items(kind: str) -> list[Any]:
        return list(api.get(paths[kind])["items"])

    def topology() -> Any:
        return api.get(f"/apis/{API_VERSION}/{place}/topologies/{fabric.name}")

    wait_until(
        lambda: (
            len(items("deployments")) == len(fabric.nodes)
            and items("connectivities")
            and "configs" in topology().get("status", {})
        ),
        f"clabernetes makes a Deployment for each of {len(fabric.nodes)} nodes",
    )
    (connectivity,) = items("connectivities")
    (topologies,) = (
        item["data"] for item in items("configmaps") if item["metadata"]["name"] == fabric.name
    )
    return Made(
        short_names(fabric),
        objects,
        {
            item["metadata"]["labels"]["clabernetes/topologyNode"]: item
            for item in items("deployments")
        },
        {
            name: yaml.safe_load(text)
            for name, text in topologies.items()
            if name in fabric.node_by_name
        },
        connectivity["spec"]["pointToPointTunnels"],
        tuple(item["metadata"]["name"] for kind in paths for item in items(kind)),
        {
            "ConfigMap": sum(map(len, topologies.values())),
            "Topology": object_bytes(topology()),
            "Connectivity": object_bytes(connectivity),
        },
    )


@pytest.fixture(scope="module", params=SMALL_LABS)
def made(request: pytest.FixtureRequest, api: Api) -> Made:
    return made_of(api, Lab.planned(request.param).fabric)


def test_every_node_is_a_deployment_of_its_own(made: Made) -> None:
    nodes = {node.name for node in made.fabric.nodes}
    assert made.deployments.keys() == made.topologies.keys() == nodes
    for name, deployed in made.deployments.items():
        assert deployed["metadata"]["name"] == f"{made.fabric.name}-{name}"
        assert deployed["spec"]["replicas"] == 1


def test_every_file_is_mounted_where_its_node_binds_it(made: Made) -> None:
    texts = {
        (manifest["metadata"]["name"], key): text
        for manifest in made.applied
        if manifest["kind"] == "ConfigMap"
        for key, text in manifest["data"].items()
    }
    for container in deployment(made.fabric, DEFAULT_IMAGE).containers:
        pod = made.deployments[container.name]["spec"]["template"]["spec"]
        maps = {
            volume["name"]: volume["configMap"]["name"]
            for volume in pod["volumes"]
            if "configMap" in volume
        }
        mounts = pod["containers"][0]["volumeMounts"]
        mounted = {
            mount["mountPath"].removeprefix(MOUNTED_BELOW): texts[maps[mount["name"]], key]
            for mount in mounts
            if (key := mount.get("subPath")) and (maps.get(mount["name"]), key) in texts
        }
        expected = {container.source(path): text for path, text in container.files.items()}
        assert mounted == expected
        (node,) = made.topologies[container.name]["topology"]["nodes"].values()
        bound = {bind.partition(":")[0] for bind in node.get("binds") or ()}
        assert bound == expected.keys()


def test_every_link_is_one_tunnel_with_both_of_its_ends(made: Made) -> None:
    ends = [
        (tunnel["tunnelID"], tunnel["localNode"], tunnel["localInterface"])
        for tunnels in made.tunnels.values()
        for tunnel in tunnels
    ]
    assert len(ends) == len(set(ends)) == 2 * len(made.fabric.links)
    by_number: dict[int, set[tuple[str, str]]] = {}
    for number, *end in ends:
        by_number.setdefault(number, set()).add((end[0], end[1]))
    links = {
        frozenset((port.node, port.interface) for port in (link.a, link.b))
        for link in made.fabric.links
    }
    assert {frozenset(pair) for pair in by_number.values()} == links
    for node, tunnels in made.tunnels.items():
        for tunnel in tunnels:
            assert tunnel["localNode"] == node
            far = (tunnel["remoteNode"], tunnel["remoteInterface"])
            assert frozenset({(node, tunnel["localInterface"]), far}) in links


def test_a_node_s_own_topology_has_its_ports_and_its_settings(made: Made) -> None:
    definition = yaml.safe_load(made.applied[-1]["spec"]["definition"]["containerlab"])
    for name, topology in made.topologies.items():
        here = {
            tuple(end.split(":"))
            for link in topology["topology"]["links"]
            for end in link["endpoints"]
            if not end.startswith("host:")
        }
        links = made.fabric.links_of[name]
        assert here == {(name, link.port(name).interface) for link in links}
        # Linux allows 15 characters in the names of interfaces on the pod's side.
        others = [end for link in topology["topology"]["links"] for end in link["endpoints"]]
        assert all(len(end.partition(":")[2]) <= 15 for end in others)
        settings, merged = (
            definition["topology"]["nodes"][name],
            topology["topology"]["nodes"][name],
        )
        assert (merged.get("exec") or []) == settings.get("exec", [])
        assert (merged.get("sysctls") or {}) == settings.get("sysctls", {})


def test_names_are_what_kubernetes_allows(made: Made) -> None:
    assert len(made.names) > len(made.fabric.nodes)
    for name in made.names:
        assert DNS_LABEL.fullmatch(name), name


def test_a_lab_is_applied_again_without_a_change(made: Made, api: Api) -> None:
    place = f"namespaces/{namespace_name(made.fabric.name)}/topologies/{made.fabric.name}"
    before = api.get(f"/apis/{API_VERSION}/{place}")["spec"]
    for manifest in made.applied:
        api.apply(manifest)
    assert api.get(f"/apis/{API_VERSION}/{place}")["spec"] == before


def clos(name: str, racks: int, spines: int) -> Fabric:
    shape = {"racks": racks, "spines": spines, "servers_per_rack": 1}
    return plan(LabSpec.model_validate({"name": name, "fabric": shape}))


def estimates(planned: Fabric) -> dict[str, ClusterObject]:
    made = in_pods(deployment(short_names(planned), DEFAULT_IMAGE))
    (topology,) = yaml.safe_load_all(manifests(planned)["20-topology.yaml"])
    return {item.kind: item for item in made_objects(topology, made)}


@pytest.mark.parametrize(
    ("racks", "spines", "kind"), [(300, 2, "Topology"), (60, 70, "Connectivity")]
)
def test_the_largest_labs_that_are_rendered_are_made_whole(
    api: Api, racks: int, spines: int, kind: str
) -> None:
    planned = clos(f"whole-{racks}", racks, spines)
    expected = estimates(planned)
    assert expected[kind].size_bytes > 0.9 * expected[kind].limit_bytes
    made = made_of(api, planned)
    assert len(made.deployments) == len(planned.nodes)
    assert sum(map(len, made.tunnels.values())) == 2 * len(planned.links)
    for manifest in expected.values():
        assert (
            0.9 * manifest.size_bytes
            < made.sizes[manifest.kind]
            < 1.03 * manifest.size_bytes + 2000
        )


@pytest.mark.parametrize(("racks", "spines"), [(345, 2), (60, 76)])
def test_a_lab_that_is_refused_would_not_have_been_made(
    api: Api, racks: int, spines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = clos(f"refused-{racks}", racks, spines)
    with pytest.raises(InputError, match="too large for clabernetes"):
        manifests(planned)
    monkeypatch.setattr(ClusterObject, "fits", True)
    applied(api, manifests(planned))
    wait_until(
        lambda: any(
            "request is too large" in line and planned.name in line
            for line in api.manager_log.read_text(errors="replace").splitlines()
        ),
        "the cluster's store refuses an object",
    )
    api.delete(f"{CORE}/namespaces/{namespace_name(planned.name)}")


def test_a_key_that_clabernetes_does_not_have_is_refused(api: Api) -> None:
    *others, topology = (
        manifest
        for text in manifests(Lab.planned("tiny").fabric).values()
        for manifest in yaml.safe_load_all(text)
    )
    for other in others:
        api.apply(other)
    topology["spec"]["deployment"]["filesFromConfigMaps"] = {}
    with pytest.raises(RefusedError, match="filesFromConfigMaps"):
        api.apply(topology)
