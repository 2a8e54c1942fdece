"""The paths of a simulation's flows, and the ways of their packets, in any state of the links.

Schemes are the lab's: hashes (`rocelab.routes.arrays.paths`), a controller's entries
(`rocelab.routes.arrays.te`), draws (`rocelab.routes.arrays.ways`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from rocelab.base.arrays import NONE, Bools, Floats
from rocelab.labfile.schemes.base import Treatment
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.labfile.schemes.te import TeScheme
from rocelab.routes.arrays.choice import divides
from rocelab.routes.arrays.flows import (
    Flows,
    Paths,
    Ways,
    joined_flows,
    joined_paths,
    joined_ways,
    selected_flows,
    ways_along,
)
from rocelab.routes.arrays.graph import routes_of
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import PlannedGroups
from rocelab.routes.arrays.ways import ways_of
from rocelab.routes.models import Model
from rocelab.sim.hosts import LocalPaths


@dataclass(frozen=True, eq=False)
class Routing:
    """A network under its scheme, or under an ASIC's hash model instead."""

    network: Network
    model: Model
    local: LocalPaths | None = None
    """Of flows that do not use the network; None: all do."""

    @property
    def _scheme(self) -> SchemeSpec:
        return self.network.spec.scheme

    @property
    def is_engineered(self) -> bool:
        """Whether a controller places the flows (`rocelab.routes.arrays.te`)."""
        return isinstance(self._scheme, TeScheme) and self.model is Model.KERNEL

    def paths(self, flows: Flows, link_up: Bools | None = None) -> Paths:
        """The paths of flows over these links, L, all by default, as a controller places them."""
        if self.local is not None:
            return self.local.paths(flows, partial(self._paths, link_up=link_up))
        return self._paths(flows, link_up)

    def _paths(self, flows: Flows, link_up: Bools | None = None) -> Paths:
        routes = routes_of(self.network, link_up)
        hashed = self._hashed(flows, routes)
        if not isinstance(self._scheme, TeScheme) or not self.is_engineered:
            return hashed
        # Here and not above: its solver and its compiled code take a second to load.
        from rocelab.routes.arrays.te import place_te

        rate_bps = _demands(self.network, flows)
        return place_te(self.network, routes, flows, rate_bps, self._scheme.engine, fallback=hashed)

    def rerouted(self, whole: Paths, flows: Flows, link_up: Bools) -> Paths:
        """The paths after BGP has moved from those of all links; a controller's entries stay where
        they can."""
        if self.local is None:
            return self._rerouted(flows, link_up, whole)
        over_network = self.local.network_part(flows, whole)
        return self.local.paths(flows, partial(self._rerouted, link_up=link_up, whole=over_network))

    def _rerouted(self, flows: Flows, link_up: Bools, whole: Paths) -> Paths:
        if not isinstance(self._scheme, TeScheme):
            return self._paths(flows, link_up)
        from rocelab.routes.arrays.te import fall_back

        routes = routes_of(self.network, link_up)
        return fall_back(whole, routes, self._hashed(flows, routes))

    def ways(
        self, whole: Paths, flows: Flows, control: Flows, answers: Flows, link_up: Bools
    ) -> Ways:
        """The ways of all packets over these links: those of flows, then of `control`, which no
        controller plans, then of the ACKs and CNPs of both. whole: the paths of flows over all
        links. Raises InputError if the ways are too many."""
        if self.local is None:
            return self._ways(whole, flows, control, answers, link_up)
        sent, cleared, answered = (
            selected_flows(some, ~self.local.is_local(some)) for some in (flows, control, answers)
        )
        part = self.local.network_part(flows, whole)
        over_network = self._ways(part, sent, cleared, answered, link_up)
        return self.local.ways(joined_flows([flows, control, answers]), over_network)

    def _ways(
        self, whole: Paths, flows: Flows, control: Flows, answers: Flows, link_up: Bools
    ) -> Ways:
        scheme, routes = self._scheme, routes_of(self.network, link_up)
        if divides(scheme, self.model):
            # Switches spray data only.
            sprays = Treatment.SPRAY in scheme.treatments
            of_answers = EcmpScheme() if sprays else scheme
            return joined_ways(
                ways_of(self.network, routes, joined_flows([flows, control]), scheme),
                ways_of(self.network, routes, answers, of_answers),
            )
        paths = whole if link_up.all() else self._rerouted(flows, link_up, whole)
        others = joined_flows([control, answers])
        rest = self._hashed(others, routes)
        if isinstance(scheme, TeScheme) and self.model is Model.KERNEL:
            from rocelab.routes.arrays.te import fall_back, unplanned_paths

            placed = unplanned_paths(self.network, flows, whole, others, rest)
            rest = fall_back(placed, routes, rest)
        return ways_along(joined_paths(paths, rest))

    def _hashed(self, flows: Flows, routes: PlannedGroups) -> Paths:
        return paths_of(self.network, routes, flows, scheme=self._scheme, model=self.model)


def _demands(network: Network, flows: Flows) -> Floats:
    """The rate that a controller plans for each flow: its NIC port's, shared by the port's
    flows."""
    links = network.nic_links[flows.source, flows.port]
    assert (links != NONE).all()
    sharing = np.bincount(links, minlength=network.links)
    rates: Floats = network.rate_bps[links] / sharing[links]
    return rates
