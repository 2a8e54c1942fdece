"""Predicts the link loads of flows or jobs on a lab, from its kernels' tables or as planned.

Makes a `LinkLoads` and its document, for `rocelab predict` and `rocelab compare`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rocelab.base.arrays import NONE, Ints
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
from rocelab.results.prediction import Prediction
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.graph import routes_of
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Groups, NextHops
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


_Group = tuple[tuple[int, int], ...]
"""Sends and their weights, in the kernel's order."""


class TableGroups:
    """The groups of next hops in the tables of running switches, for many flows at once, instead of
    planned `rocelab.routes.arrays.routes.Routes`. Each is a range of `slots`."""

    def __init__(self, fabric: Fabric, network: Network, fib_of: FibOf) -> None:
        self._fabric = fabric
        self.network = network
        self.up = np.ones(network.links, np.bool_)
        self._fib_of = fib_of
        self._send_of = {
            (network.node_names[int(network.sender[send])], network.interface(send)): send
            for send in range(network.sends)
        }
        self._members: list[tuple[int, int]] = []
        self._start: dict[tuple[int, _Group], int] = {}

    @property
    def slots(self) -> Ints:
        return np.array([send for send, _ in self._members], np.int32)

    @property
    def weights(self) -> Ints:
        return np.array([weight for _, weight in self._members], np.int32)

    def next_hops(self, at: Ints, nic: Ints) -> NextHops:
        """The groups of switches `at` for `nic`, both m. Raises NoPathError where a table has no
        route, or one that does not lead on."""
        places, row = np.unique(at.astype(np.int64) * self.network.nics + nic, return_inverse=True)
        ranges = [self._range(*divmod(place, self.network.nics)) for place in places.tolist()]
        start, width = np.array(ranges, np.int32).reshape(-1, 2)[row].T
        none = np.empty(0, np.intp)
        return NextHops(start, width, width, none, np.empty((0, 0), np.bool_))

    def _range(self, node: int, nic: int) -> tuple[int, int]:
        group = self._group(node, nic)
        if (node, group) not in self._start:
            self._start[node, group] = len(self._members)
            self._members += group
        return self._start[node, group], len(group)

    def _group(self, node: int, nic: int) -> _Group:
        network = self.network
        name, ip = network.node_names[node], network.ip(nic)
        if network.tenants is not None and network.tenants.of_nic[nic] != NONE:
            if node == network.nic_leaf[nic]:
                return ((int(2 * network.nic_links[nic, 0] + 1), 1),)
            ip = socket.inet_ntop(socket.AF_INET, network.tenants.leaf_address[nic].tobytes())
        route = self._fib_of(name).lookup(ip) if self.network.tier[node] else None
        if route is None or not route.next_hops:
            raise no_route(self._fabric, name, ip)
        for hop in route.next_hops:
            if not hop.carrier:
                port = self._fabric.port_name(name, hop.interface)
                raise NoPathError(f"{name}: {route.prefix} still uses {port}, whose link is down")
            if (name, hop.interface) not in self._send_of:
                raise NoPathError(f"{name}: {hop.interface} leads out of the fabric")
        return tuple((self._send_of[name, hop.interface], hop.weight) for hop in route.next_hops)
