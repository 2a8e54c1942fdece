"""Predicts the link loads of flows or jobs on a lab, from its kernels' tables or as planned.

Makes a `LinkLoads` and its document, for `rocelab predict` and `rocelab compare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rocelab.base.errors import InputError
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.labfile.model import HashingSpec, HashWeights
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.linux.fibtable import FibOf
from rocelab.planning.build import plan
from rocelab.planning.fabric import DirectedLink, Fabric, RouteBasis
from rocelab.prediction.document import prediction
from rocelab.prediction.loads import LinkLoads, land
from rocelab.prediction.matrix import FlowRow, Matrix, matrix_of
from rocelab.prediction.tables import TableGroups
from rocelab.results.prediction import Prediction
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.graph import routes_of
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Groups
from rocelab.routes.models import Model
from rocelab.routes.path import NoPathError, no_route
from rocelab.routes.steering import EntryKey


@dataclass(frozen=True, slots=True)
class Setting:
    """The inputs that decide paths: the tables of running switches (None: planned ones), the model
    of their choice, and a running controller's entries."""

    fib_of: FibOf | None = None
    model: Model = Model.KERNEL
    entries: Mapping[EntryKey, int] | None = None


def asked_fabric(
    fabric: Fabric, scheme: SchemeSpec | None = None, hashing: HashingSpec | None = None
) -> Fabric:
    """The fabric under another scheme or other hashing; None keeps its own.

    Raises InputError for a scheme that the hashing does not allow.
    """
    changed = {"scheme": scheme, "hashing": hashing}
    update = {key: value for key, value in changed.items() if value is not None}
    return plan(fabric.spec.model_copy(update=update)) if update else fabric


def predict_loads(fabric: Fabric, rows: Sequence[FlowRow], setting: Setting) -> LinkLoads:
    """The link loads of flows. Raises InputError if they cannot be predicted, NoPathError if a flow
    does not arrive."""
    return _matrix_and_loads(fabric, rows, setting, no_progress)[1]


def predict_document(
    fabric: Fabric,
    rows: Sequence[FlowRow],
    setting: Setting,
    progress: ProgressSink = no_progress,
    notes: Sequence[str] = (),
) -> Prediction:
    """The document of flows' link loads, with further notes of what is inexact. Raises as
    `predict_loads` does."""
    matrix, loads = _matrix_and_loads(fabric, rows, setting, progress)
    notes = list(notes)
    if setting.fib_of is None and not fabric.numbered:
        notes.append(
            "links are unnumbered, so the order of next hops follows from the daemons' start: "
            "loads hold as a distribution, and which link has which does not"
        )
    tables = "kernel"
    if setting.fib_of is None:
        tables = "assumed" if fabric.basis is not RouteBasis.PLANNED else "planned"
    return prediction(fabric, matrix, loads, tables=tables, model=setting.model, notes=notes)


def paths_on(
    fabric: Fabric, rows: Sequence[FlowRow], setting: Setting
) -> list[tuple[DirectedLink, ...]]:
    """The links that each flow crosses, in order. Raises as `predict_loads` does."""
    network = network_of(fabric.spec)
    paths = _paths(
        fabric, _groups(fabric, network, setting), matrix_of(network, rows).flows, setting
    )
    links = [fabric.directed_links[send] for send in paths.sends.tolist()]
    return [tuple(links[begin:end]) for begin, end in pairwise(paths.start.tolist())]


def _paths(
    fabric: Fabric,
    routes: Groups,
    flows: Flows,
    setting: Setting,
    progress: ProgressSink = no_progress,
) -> Paths:
    network = routes.network
    scheme = network.spec.scheme
    is_placed = scheme.has_entries and setting.entries is not None
    if scheme.unpredictable and setting.model is Model.KERNEL and not is_placed:
        raise scheme.unpredictable.error("loads")
    paths = paths_of(
        network, routes, flows, model=setting.model, entries=setting.entries, progress=progress
    )
    (lost,) = np.nonzero(np.diff(paths.start) == 0)
    if len(lost):
        source, destination = flows.source[lost[0]], flows.destination[lost[0]]
        server, ip = network.node_names[network.nic_server[source]], network.ip(destination)
        first = fabric.links_of[server][0].far(server).node
        raise NoPathError(f"{server}: no route to {ip}", no_route(fabric, first, ip).hint)
    return paths


def _matrix_and_loads(
    fabric: Fabric, rows: Sequence[FlowRow], setting: Setting, progress: ProgressSink
) -> tuple[Matrix, LinkLoads]:
    network = network_of(fabric.spec)
    matrix, routes = matrix_of(network, rows), _groups(fabric, network, setting)
    paths = _paths(fabric, routes, matrix.flows, setting, progress)
    return matrix, land(fabric, routes, matrix, paths)


def _groups(fabric: Fabric, network: Network, setting: Setting) -> Groups:
    if setting.fib_of is not None:
        return TableGroups(fabric, network, setting.fib_of)
    if network.spec.hashing.weights is not HashWeights.EQUAL:
        raise InputError(
            "weights by paths are BGP's work and not planned",
            hint="bring the lab up, or ask with `--hashing per-node`",
        )
    return routes_of(network)
