"""Renders the files that FRR's own container image reads at its start: three files of /etc/frr.

They are `daemons` (which daemons run), `vtysh.conf` and `frr.conf`, the configuration of all
daemons in one file, addresses of interfaces included. The image's start-up runs watchfrr, which
starts the daemons and then has `vtysh -b` give each its part (FRR docker/alpine/docker-start,
tools/frrcommon.sh.in).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocelab.base.templates import template
from rocelab.planning.fabric import Fabric, Node
from rocelab.routing.frr.own import bodies_of, daemons_of

DEFAULT_IMAGE = "frrouting/frr:v8.4.1"
"""The same minor release as Debian 12's package, on which the kit's own tests run."""
IMAGE_PATHS = 64
"""Most next hops of a route in FRR's image: it is built with `--enable-multipath=64`
(alpine/APKBUILD.in), and a larger `maximum-paths` is an error there."""
LOG_FILE = Path("/var/run/frr/frr.log")
"""FRR's log, in the only folder that belongs to the daemons' user in every image."""


def fitted(fabric: Fabric) -> Fabric:
    """The fabric with next hops per route limited to those that FRR's image is built for."""
    routing = fabric.spec.routing
    if routing.max_paths <= IMAGE_PATHS:
        return fabric
    limited = routing.model_copy(update={"max_paths": IMAGE_PATHS})
    return replace(fabric, spec=fabric.spec.model_copy(update={"routing": limited}))


def frr_files(fabric: Fabric, node: Node) -> Mapping[str, str]:
    """The files of /etc/frr of a switch, by name. Raises ValueError for a server."""
    bodies, defaults = bodies_of(fabric, node)
    contexts: dict[str, dict[str, object]] = {
        "daemons": {"daemons": daemons_of(fabric, node)},
        "vtysh.conf": {},
        "frr.conf": {
            "name": node.name,
            "log_file": LOG_FILE,
            "bodies": bodies,
            "defaults": defaults,
        },
    }
    return {
        name: template(f"containerlab/{name}.j2").render(context)
        for name, context in contexts.items()
    }
