"""Renders a fabric for clabernetes: Kubernetes objects for `kubectl apply`.

The objects are a namespace, ConfigMaps with every switch's files, and the `Topology` that mounts
them and holds the containerlab definition. No object exceeds the limit of the cluster's store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from rocelab.base.errors import InputError
from rocelab.planning.fabric import Fabric, Link
from rocelab.render.containerlab import topology_text
from rocelab.render.deployment import ContainerSpec, Deployment, deployment
from rocelab.render.frr_image import DEFAULT_IMAGE

API_VERSION = "clabernetes.containerlab.dev/v1alpha1"
STORE_BYTES = 1_572_864
"""Largest request that etcd accepts by default, 1.5 MiB (etcd.io, system limits)."""
CONFIG_MAP_BYTES = 1_048_576
"""Largest ConfigMap that Kubernetes accepts, 1 MiB of data (MaxSecretSize, pkg/apis/core)."""
_MARGIN = 0.03
"""Part of each limit that stays free: sizes of what clabernetes makes are estimated."""
_TOPOLOGY_BYTES_PER_NODE = 270
"""A node's share of a Topology's status and field ownership, beside its own topology (measured)."""
_LABELS = {"app.kubernetes.io/managed-by": "rocelab"}


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """An object that the cluster has to store for a lab, by its kind: its size and its limit."""

    kind: str
    size_bytes: int
    limit_bytes: int

    @property
    def fits(self) -> bool:
        """Whether the cluster surely accepts it."""
        return self.size_bytes <= (1 - _MARGIN) * self.limit_bytes


def namespace_name(lab: str) -> str:
    """The namespace of a lab."""
    return f"rocelab-{lab}"


def manifests(fabric: Fabric, image: str = DEFAULT_IMAGE) -> dict[str, str]:
    """Every object of a lab: files of YAML documents by name, in the order to apply them.

    Raises InputError if one file of a switch, or an object that clabernetes makes of the lab, is
    too large for a cluster.
    """
    containers = in_pods(deployment(short_names(fabric), image))
    config_maps, mounts = _configurations(containers)
    topology = _topology(containers, mounts)
    for made in made_objects(topology, containers):
        if not made.fits:
            raise InputError(
                f"lab {fabric.name} is too large for clabernetes: its {made.kind} would have "
                f"{made.size_bytes:,} bytes, and a cluster takes {made.limit_bytes:,}",
                hint="a fabric with fewer nodes or links: clabernetes keeps all of a lab's in one "
                "object",
            )
    namespace = _object("v1", "Namespace", namespace_name(fabric.name), None)
    return {
        "00-namespace.yaml": _text([namespace]),
        "10-configurations.yaml": _text(config_maps),
        "20-topology.yaml": _text([topology]),
    }


def short_names(fabric: Fabric) -> Fabric:
    """The fabric with interfaces named e1, e2, ... in each node.

    clabernetes makes an interface named `<node>-<interface>` for each end of a link
    (controllers/topology/definitioncontainerlab.go), and Linux allows 15 characters.
    """
    names = {
        (node, link.port(node).interface): f"e{number}"
        for node, links in fabric.links_of.items()
        for number, link in enumerate(links, start=1)
    }

    def renamed(link: Link) -> Link:
        a = replace(link.a, interface=names[link.a.node, link.a.interface])
        b = replace(link.b, interface=names[link.b.node, link.b.interface])
        return replace(link, a=a, b=b)

    return replace(fabric, links=tuple(renamed(link) for link in fabric.links))


def in_pods(made: Deployment) -> Deployment:
    """The deployment for one node per pod.

    clabernetes ignores MTUs of links, and connects each node to a management network, with a
    default route that the fabric must not fall back to.
    """
    by_mtu: dict[str, dict[int, list[str]]] = {container.name: {} for container in made.containers}
    for link in made.links:
        for port in (link.a, link.b):
            by_mtu[port.node].setdefault(link.mtu, []).append(port.interface)

    def alone(container: ContainerSpec) -> ContainerSpec:
        mtus = [
            # A command per interface would fill a third of the Topology.
            f"echo {' '.join(interfaces)} | xargs -n 1 ip link set mtu {mtu} dev"
            for mtu, interfaces in by_mtu[container.name].items()
        ]
        first = [] if container.entrypoint else ["ip route del default"]
        return replace(container, commands=(*first, *mtus, *container.commands))

    return replace(made, containers=tuple(alone(container) for container in made.containers))


def packed(files: Mapping[str, str], budget_bytes: int) -> list[dict[str, str]]:
    """Files, by key, in as few groups as possible in this order, none larger than the budget.

    Raises InputError for a file larger than the budget.
    """
    groups: list[dict[str, str]] = []
    room = 0
    for key, text in files.items():
        size = object_bytes({key: text})
        if size > budget_bytes:
            raise InputError(
                f"{key} has {size:,} bytes and a ConfigMap takes {budget_bytes:,}",
                hint="a fabric with fewer links per switch",
            )
        more = size - 1  # a comma, and not two braces, once it is in a group
        if more > room:
            groups.append({})
            room = budget_bytes - 1
        groups[-1][key] = text
        room -= more
    return groups


def object_bytes(value: object) -> int:
    """The size of an object as JSON, the form in which the cluster's store keeps custom
    resources."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _configurations(
    made: Deployment,
) -> tuple[list[dict[str, object]], dict[str, list[dict[str, str]]]]:
    """A ConfigMap for each switch, several if one is too small, and the mounts of each node."""
    config_maps: list[dict[str, object]] = []
    mounts: dict[str, list[dict[str, str]]] = {}
    for container in made.containers:
        sources = {container.source(path): text for path, text in container.files.items()}
        by_key = {source.rpartition("/")[2]: source for source in sources}
        texts = {key: sources[source] for key, source in by_key.items()}
        groups = packed(texts, int((1 - _MARGIN) * CONFIG_MAP_BYTES))
        for number, data in enumerate(groups, start=1):
            part = f"-{number}" if number > 1 else ""
            name = f"{made.name}-{container.name}-frr{part}"
            config_map = _object("v1", "ConfigMap", name, namespace_name(made.name))
            config_maps.append(config_map | {"data": data})
            mounts.setdefault(container.name, []).extend(
                {
                    "configMapName": name,
                    "configMapPath": key,
                    "filePath": by_key[key],
                    "mode": "read",
                }
                for key in data
            )
    return config_maps, mounts


def _topology(made: Deployment, mounts: Mapping[str, object]) -> dict[str, object]:
    topology = _object(API_VERSION, "Topology", made.name, namespace_name(made.name))
    return topology | {
        "spec": {
            "definition": {"containerlab": topology_text(made, brief=True)},
            "naming": "prefixed",
            "connectivity": "vxlan",
            "deployment": {"filesFromConfigMap": mounts},
            # Nodes run no server for a load balancer or a probe.
            "expose": {"disableExpose": True},
            "statusProbes": {"enabled": False},
        }
    }


def _object(api_version: str, kind: str, name: str, namespace: str | None) -> dict[str, object]:
    place = {} if namespace is None else {"namespace": namespace}
    metadata = {"name": name, **place, "labels": dict(_LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def made_objects(topology: Mapping[str, Any], made: Deployment) -> Iterator[ClusterObject]:
    """The objects that grow with the lab once clabernetes' manager has read its Topology.

    The manager writes both ends of every link into one Connectivity (controllers/topology/
    connectivity.go), and a topology for each node into one ConfigMap (configmap.go) and once more
    into the Topology's status.
    """
    yield ClusterObject("Connectivity", object_bytes(_tunnels(made)), STORE_BYTES)
    texts = node_topologies(topology["spec"]["definition"]["containerlab"])
    yield ClusterObject("ConfigMap", sum(map(len, texts.values())), CONFIG_MAP_BYTES)
    with_status = object_bytes(topology) + object_bytes(texts)
    with_status += _TOPOLOGY_BYTES_PER_NODE * len(made.containers)
    yield ClusterObject("Topology", with_status, STORE_BYTES)


def node_topologies(definition: str) -> dict[str, str]:
    """The topology that clabernetes makes for each node, as long as it writes it
    (controllers/topology/definitioncontainerlab.go)."""
    topology = yaml.load(definition, Loader=yaml.CSafeLoader)["topology"]
    links: dict[str, list[str]] = {name: [] for name in topology["nodes"]}
    for link in topology["links"]:
        for end in link["endpoints"]:
            node, _, interface = end.partition(":")
            links[node] += [
                "        - endpoints:\n",
                f"            - {end}\n",
                f"            - host:{node}-{interface}\n",
            ]
    defaults = {**topology["defaults"], "ports": []}
    return {
        name: _node_text(
            {
                "name": f"clabernetes-{name}",
                "prefix": "",
                "topology": {"defaults": defaults, "nodes": {name: {**node, "ports": []}}},
            }
        )
        + "".join(("    links:\n", *links[name], "debug: false\n"))
        for name, node in topology["nodes"].items()
    }


def _tunnels(made: Deployment) -> dict[str, list[dict[str, object]]]:
    tunnels: dict[str, list[dict[str, object]]] = {
        container.name: [] for container in made.containers
    }
    for number, link in enumerate(made.links, start=1):
        for near, far in ((link.a, link.b), (link.b, link.a)):
            service = f"{made.name}-{far.node}-vx.{namespace_name(made.name)}.svc.cluster.local"
            tunnels[near.node].append(
                {
                    "tunnelID": number,
                    "destination": service,
                    "localNode": near.node,
                    "localInterface": near.interface,
                    "remoteNode": far.node,
                    "remoteInterface": far.interface,
                }
            )
    return tunnels


class _Dumper(yaml.SafeDumper):
    """Dumps multi-line text literally, without folded lines or aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class _NodeDumper(_Dumper):
    """Dumps as Go's yaml.v3: the items of a list are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _node_text(node: Mapping[str, object]) -> str:
    return yaml.dump(node, Dumper=_NodeDumper, sort_keys=False, width=1 << 16, indent=4)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _text(objects: Iterable[object]) -> str:
    return yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, width=1 << 16, explicit_start=True
    )
