"""The state of a lab as the page shows it: carriers, nodes, faults.

Events change it; the message `fabric` has all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rocelab.base.errors import InputError
from rocelab.base.wording import name_hint, printable
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.scheme_spec import scheme_kinds
from rocelab.linux.counters import Place
from rocelab.live.events import (
    CarrierEvent,
    Event,
    FaultEvent,
    NodeEvent,
    SchemeEvent,
    UseEvent,
    document,
)
from rocelab.observe.health.reading import Reading
from rocelab.planning.fabric import Fabric, Link, Node
from rocelab.planning.queues import lab_rate_bps
from rocelab.planning.zones import zone_titles

METRICS = ("load", "marks", "drops", "pauses", "errors")


class NodeState(StrEnum):
    """`REROUTED`: only routes have fewer next hops than planned, for a cause elsewhere.
    `DEGRADED`: a port without carrier, a session that is down. `DOWN`: no port has carrier, or none
    of its sessions is up."""

    OK = "ok"
    REROUTED = "rerouted"
    DEGRADED = "degraded"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Condition:
    """A node's state, and what it was derived from."""

    state: NodeState = NodeState.OK
    ports_down: int = 0
    sessions_down: int = 0
    routes_incomplete: int = 0


def find_link(fabric: Fabric, name: str) -> Link:
    """A link by the name in a request. Raises InputError if there is none."""
    link = fabric.link_by_name.get(name)
    if link is None:
        hint = name_hint(name, fabric.link_by_name)
        raise InputError(f"lab {fabric.name} has no link {printable(name)}", hint)
    return link


def condition(fabric: Fabric, node: str, reading: Reading) -> Condition | None:
    """A node's condition by a reading; None if the node could not be read."""
    ports = [(node, link.port(node).interface) for link in fabric.links_of[node]]
    seen = [reading.ports[port].carrier for port in ports if port in reading.ports]
    if not seen:
        return None
    sessions = [
        reading.sessions[link.name]
        for link in fabric.links_of[node]
        if link.name in reading.sessions
    ]
    incomplete = reading.routes_incomplete.get(node, 0)
    state = NodeState.REROUTED if incomplete else NodeState.OK
    if not all(seen) or not all(sessions):
        state = NodeState.DEGRADED
    if not any(seen) or (sessions and not any(sessions)):
        state = NodeState.DOWN
    return Condition(state, seen.count(False), sessions.count(False), incomplete)


@dataclass
class LabState:
    """What holds now. Under the lock of the hub that publishes its events."""

    fabric: Fabric
    read_only: bool
    terminal: bool = False
    dark: dict[Place, int] = field(default_factory=dict)
    """Ports without carrier, and when the change was read."""
    lit: dict[Place, int] = field(default_factory=dict)
    """When a port's carrier was read to have come back."""
    conditions: dict[str, Condition] = field(default_factory=dict)
    faults: dict[int, FaultEvent] = field(default_factory=dict)
    scheme: Mapping[str, object] = field(default_factory=lambda: EcmpScheme().model_dump())
    use: UseEvent | None = None

    def apply(self, event: Event) -> None:
        """Change what an event changes."""
        match event:
            case CarrierEvent():
                port = event.node, event.interface
                self.dark.pop(port, None)
                self.lit.pop(port, None)
                (self.lit if event.carrier else self.dark)[port] = event.t_ns
            case NodeEvent():
                self.conditions[event.node] = Condition(
                    NodeState(event.state),
                    event.ports_down,
                    event.sessions_down,
                    event.routes_incomplete,
                )
            case FaultEvent() if event.begins:
                self.faults[event.number] = event
            case FaultEvent():
                self.faults.pop(event.number, None)
            case SchemeEvent():
                self.scheme = event.scheme
            case UseEvent():
                self.use = event if event.user else None
            case _:
                pass

    def document(self) -> dict[str, object]:
        """The message `fabric`."""
        titles = zone_titles(self.fabric)
        zones = {
            part.network_name or "": zone_titles(part) for part in self.fabric.parts
        }  # of a lab with several networks
        return {
            "lab": self.fabric.name,
            "networks": list(zones),
            "read_only": self.read_only,
            "terminal": self.terminal,
            "metrics": METRICS,
            "scheme": self.scheme,
            "schemes": scheme_kinds(),
            "nodes": [self._node(node, titles, zones) for node in self.fabric.nodes],
            "links": [self._link(link) for link in self.fabric.links],
            "faults": [document(fault) for fault in self.faults.values()],
            "use": document(self.use) if self.use else None,
        }

    def _node(
        self, node: Node, titles: Mapping[str, str], zones: Mapping[str, Mapping[str, str]]
    ) -> Mapping[str, object]:
        networks = self.fabric.networks_of[node.name]
        return {
            "name": node.name,
            "role": node.role.name,
            "tier": node.role.tier,
            "zone": titles.get(node.name),
            "networks": {name: zones[name].get(node.name) for name in networks},
            "state": self.conditions.get(node.name, Condition()).state.value,
        }

    def _link(self, link: Link) -> Mapping[str, object]:
        ports = (link.a, link.b)
        return {
            "name": link.name,
            "network": self.fabric.network_of(link.b.node).network_name,
            "a": link.a.node,
            "b": link.b.node,
            "a_interface": link.a.name,
            "b_interface": link.b.name,
            "rate_bps": link.rate_bps,
            "lab_rate_bps": lab_rate_bps(link, self.fabric.spec.dilation),
            "carrier": [(port.node, port.interface) not in self.dark for port in ports],
        }
