"""Kind `adopted`: a fabric as it was found, with nothing assigned."""

from __future__ import annotations

from rocelab.fabrics.door import roles
from rocelab.labfile.adopted import AdoptedPort, AdoptedSpec
from rocelab.labfile.model import LabSpec
from rocelab.planning.fabric import Fabric, Link, Node, Observed, Port


def fabric(spec: LabSpec, adopted: AdoptedSpec) -> Fabric:
    """The fabric of a lab that was adopted. Its links have the rates of the spec, since a veth pair
    has none. Raises ValueError if a link ends at a node that is missing."""
    role_of = {node.name: roles()[node.role] for node in adopted.nodes}
    nodes = tuple(
        Node(node.name, role_of[node.name], None, node.asn, node.loopback, node.hash_seed)
        for node in adopted.nodes
    )

    def port(end: AdoptedPort) -> Port:
        if end.node not in role_of:
            raise ValueError(f"a link ends at {end.node}, which is no node")
        role = role_of[end.node]
        return Port(end.node, role, end.interface, end.index, end.address, end.mac)

    links = tuple(
        Link(
            port(link.a),
            port(link.b),
            spec.links.rate if role_of[link.a.node].is_switch else spec.links.server_rate,
            link.mtu,
        )
        for link in adopted.links
    )
    link_at = {(end.node, end.interface): link for link in links for end in (link.a, link.b)}
    routes = {
        node: {
            prefix: tuple(link_at[node, name] for name in interfaces)
            for prefix, interfaces in of_node.items()
        }
        for node, of_node in adopted.routes.items()
    }
    sessions = frozenset(
        made.name for made, link in zip(links, adopted.links, strict=True) if link.session
    )
    daemons = {node.name: node.daemons for node in adopted.nodes}
    trunks = [link for link in links if link.is_between_switches]
    numbered = all(link.a.address and link.b.address for link in trunks)
    peers = {node.name: node.peers for node in adopted.nodes}
    return Fabric(spec, nodes, links, (), numbered, Observed(routes, sessions, daemons, peers))
