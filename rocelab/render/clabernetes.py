"""Renders a fabric for clabernetes: Kubernetes objects for `kubectl apply`.

The objects are a namespace, ConfigMaps with every switch's files, and the `Topology` that mounts
them and holds the containerlab definition. No object exceeds the limit of the cluster's store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import yaml

from rocelab.errors import InputError
from rocelab.plan.fabric import Fabric, Link
from rocelab.render.containerlab import topology_text
from rocelab.render.deployment import Container, Deployment, deployment
from rocelab.render.frr_image import DEFAULT_IMAGE

API_VERSION = "clabernetes.containerlab.dev/v1alpha1"
STORE_BYTES = 1_572_864
"""Largest request that etcd accepts by default, 1.5 MiB (etcd.io, system limits)."""
CONFIG_MAP_BYTES = 1_048_576
"""Largest ConfigMap that Kubernetes accepts, 1 MiB of data (MaxSecretSize, pkg/apis/core)."""
_ROOM = 100_000
"""Reserved in every object for additions of the cluster: ownership of fields, status, names."""
_LABELS = {"app.kubernetes.io/managed-by": "rocelab"}


@dataclass(frozen=True, slots=True)
class Manifests:
    """Files of YAML documents by name, in the order to apply them, and what may go wrong."""

    files: Mapping[str, str]
    warnings: tuple[str, ...]


def namespace_name(lab: str) -> str:
    """The namespace of a lab."""
    return f"rocelab-{lab}"


def manifests(fabric: Fabric, image: str = DEFAULT_IMAGE) -> Manifests:
    """Every object of a lab.

    Raises InputError if the Topology, or one file of a switch, exceeds the store's limit.
    """
    containers = in_pods(deployment(short_names(fabric), image))
    config_maps, mounts = _configurations(containers)
    topology = _topology(containers, mounts)
    size = object_bytes(topology)
    if size > STORE_BYTES - _ROOM:
        raise InputError(
            f"lab {fabric.name} is too large for clabernetes: its Topology has {size:,} bytes and "
            f"a cluster's store takes {STORE_BYTES:,}",
            hint="a smaller fabric: all nodes and links of a lab are one object",
        )
    namespace = _object("v1", "Namespace", namespace_name(fabric.name), None)
    files = {
        "00-namespace.yaml": _text([namespace]),
        "10-configurations.yaml": _text(config_maps),
        "20-topology.yaml": _text([topology]),
    }
    return Manifests(files, tuple(_warnings(topology, containers)))


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

    def alone(each: Container) -> Container:
        mtus = [
            # One command: a switch's commands would otherwise fill a third of the Topology. No `$`,
            # which containerlab expands as a variable.
            f"sh -c 'echo {' '.join(interfaces)} | xargs -n 1 ip link set mtu {mtu} dev'"
            for mtu, interfaces in by_mtu[each.name].items()
        ]
        first = [] if each.entrypoint else ["ip route del default"]
        return replace(each, commands=(*first, *mtus, *each.commands))

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
        if size > room:
            groups.append({})
            room = budget_bytes
        groups[-1][key] = text
        room -= size
    return groups


def object_bytes(value: object) -> int:
    """The size of an object as JSON, the form in which the cluster's store keeps custom
    resources."""
    return len(json.dumps(value, ensure_ascii=False).encode())


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
        groups = packed(texts, CONFIG_MAP_BYTES - _ROOM)
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


def bytes_with_status(topology: Mapping[str, object], made: Deployment) -> int:
    """About how large a Topology gets once clabernetes has written its status.

    That holds, for each node, the node's part of the definition with its ends of links once more
    (controllers/topology/definitioncontainerlab.go).
    """
    per_node, per_link = 180, 40
    definition = topology_text(made, brief=True)
    again = object_bytes(definition) + per_node * len(made.containers)
    return object_bytes(topology) + again + per_link * len(made.links)


def _warnings(topology: Mapping[str, object], made: Deployment) -> Iterator[str]:
    size = bytes_with_status(topology, made)
    if size > STORE_BYTES:
        yield (
            f"with the status that clabernetes adds, the Topology will have about {size:,} bytes "
            f"and a cluster's store takes {STORE_BYTES:,}"
        )


class _Dumper(yaml.SafeDumper):
    """Dumps multi-line text literally, without folded lines or aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _text(objects: Iterable[object]) -> str:
    return yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, width=1 << 16, explicit_start=True
    )
