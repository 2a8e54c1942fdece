"""What is configured on a switch and not up: BGP sessions, and the adjacencies of OSPF and IS-IS on
links between switches, as its daemons report them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rocelab.planning.fabric import Fabric, Node
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr import peers
from rocelab.routing.frr.vty import vty_json

SHUT_DOWN = "Idle (Admin)"
"""The state of a session that the configuration keeps down."""


def missing(
    fabric: Fabric, node: Node, daemons: Sequence[str], files: DaemonFiles
) -> Iterator[str]:
    """Sentences about what is not up. Raises as `peers.bgp_peers` does."""
    if "bgpd" in daemons:
        for name, peer in peers.bgp_peers(files).items():
            if not peer.established and peer.state != SHUT_DOWN:
                yield f"{node.name}: the BGP session with {name} is {peer.state}"
    ports = {
        link.port(node.name).interface: link.far(node.name).node
        for link in fabric.links_of[node.name]
        if link.is_between_switches
    }
    for daemon, protocol, ready in (("ospfd", "OSPF", _ospf), ("isisd", "IS-IS", _isis)):
        if daemon not in daemons:
            continue
        for interface, adjacent in ready(files).items():
            if interface in ports and not adjacent:
                yield f"{node.name}: {protocol} has no neighbour on {interface}"


def _ospf(files: DaemonFiles) -> dict[str, bool]:
    """The interfaces that OSPF speaks on, and whether it has a neighbour there."""
    document = vty_json(files, "ospfd", "show ip ospf interface json", dict)
    answer = peers.DaemonAnswer(files, "ospfd")
    result = {}
    for name, interface in answer.mapping(document.get("interfaces", {})).items():
        fields = answer.mapping(interface)
        if fields.get("ospfEnabled") and "timerPassiveIface" not in fields:
            count = answer.number(fields.get("nbrAdjacentCount", 0))
            result[answer.text(name)] = count > 0
    return result


def _isis(files: DaemonFiles) -> dict[str, bool]:
    """The same of IS-IS."""
    answer = peers.DaemonAnswer(files, "isisd")
    speaks: dict[str, bool] = {}
    for area in _areas(files, answer, "show isis interface json"):
        for circuit in map(answer.mapping, answer.sequence(area.get("circuits", []))):
            if circuit.get("interface") is not None:
                fields = answer.mapping(circuit["interface"])
                if fields.get("is-passive") != "passive":
                    speaks[answer.text(fields.get("name"))] = False
    for area in _areas(files, answer, "show isis neighbor json"):
        for circuit in map(answer.mapping, answer.sequence(area.get("circuits", []))):
            if circuit.get("state") == "Up" and circuit.get("interface") in speaks:
                speaks[answer.text(circuit["interface"])] = True
    return speaks


def _areas(files: DaemonFiles, answer: peers.DaemonAnswer, command: str) -> list[dict[str, object]]:
    document = vty_json(files, "isisd", command, dict)
    areas = answer.sequence(document.get("areas", []))
    return [dict(answer.mapping(area)) for area in areas]
