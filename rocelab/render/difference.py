"""What the configuration of a lab's switches has otherwise than the kit's own would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import unified_diff

from rocelab.planning.fabric import Fabric, Node
from rocelab.routing.frr.configuration import configuration_bodies
from rocelab.routing.frr.own import INTEGRATED
from rocelab.routing.stack import RoutingStack, stack_for

OWN = ("policy", "templates", "config", "daemons", "expect")
"""The keys of `routing` that the kit's own configuration does without."""


def configuration_difference(fabric: Fabric) -> Iterator[str]:
    """The lines of a unified diff from the kit's configuration to that of the lab, by switch. A
    whole file is compared with all that the kit renders for its switch. Raises as
    `RoutingStack.configuration`."""
    for network in fabric.networks:
        yield from _difference(network)


def _difference(fabric: Fabric) -> Iterator[str]:
    stack, kits = stack_for(fabric), _kits(fabric)
    for node in fabric.switches:
        of_kit, of_lab = _texts(stack, kits, node), _texts(stack, fabric, node)
        if INTEGRATED in of_lab:
            bodies = configuration_bodies(kits, node) if node.asn is not None else {}
            of_kit, of_lab = (
                {INTEGRATED: "".join(bodies.values())},
                {INTEGRATED: of_lab[INTEGRATED]},
            )
        for daemon in dict.fromkeys((*of_kit, *of_lab)):
            before, after = of_kit.get(daemon, ""), of_lab.get(daemon, "")
            place = f"{node.name}/{daemon}.conf"
            yield from unified_diff(
                before.splitlines(), after.splitlines(), f"kit/{place}", place, lineterm=""
            )


def _kits(fabric: Fabric) -> Fabric:
    """The fabric without a configuration of the user's own, with the same addresses."""
    routing = fabric.spec.routing
    defaults = {
        key: type(routing).model_fields[key].get_default(call_default_factory=True) for key in OWN
    }
    return replace(
        fabric,
        spec=fabric.spec.model_copy(update={"routing": routing.model_copy(update=defaults)}),
        observed=None,
    )


def _texts(stack: RoutingStack, fabric: Fabric, node: Node) -> Mapping[str, str]:
    if node.asn is None and not (fabric.spec.routing.config or fabric.spec.routing.templates):
        return {}
    daemons = stack.daemons(fabric, node)
    return stack.configuration(fabric, node, daemons, None, interfaces=True)
