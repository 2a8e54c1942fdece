"""The links that some packet of a simulation could take. Pure."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from rocelab.base.arrays import Bools
from rocelab.labfile.schemes.spray import SprayScheme
from rocelab.routes.arrays.flows import Flows, Paths, selected_flows
from rocelab.routes.arrays.graph import routes_of
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import links_on_path, paths_of
from rocelab.sim.hosts import LocalPaths

USABLE_PIECE = 4096
EVERY_WAY = SprayScheme(kind="spray")


def usable_sends(network: Network, flows: Flows, paths: Paths, local: LocalPaths | None) -> Bools:
    """The sends that switches can choose for some flow with any hash, 2L, while all links are
    up."""
    if local is not None:
        paths = local.network_part(flows, paths)
        flows = selected_flows(flows, ~local.is_local(flows))
    ports = int(flows.port.max(initial=0)) + 1
    lengths, length = np.unique(links_on_path(paths), return_inverse=True)
    way = length * ports + flows.port
    ends = []
    for nics in (flows.source, flows.destination):
        kind = way + network.nic_home[nics].astype(np.int64) * (len(lengths) * ports)
        ends.append(np.unique(kind, return_index=True)[1])
    some = np.unique(np.concatenate(ends))
    mask = np.zeros(network.sends, np.bool_)
    routes = routes_of(network)
    for begin in range(0, len(some), USABLE_PIECE):
        piece = some[begin : begin + USABLE_PIECE]
        part = Flows(*(getattr(flows, column.name)[piece] for column in fields(Flows)))
        mask[paths_of(network, routes, part, scheme=EVERY_WAY).sends] = True
    return mask
