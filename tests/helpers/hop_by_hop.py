"""The links of each flow found alone, hop by hop, as `rocelab path` does: what the arrays that lead
all flows at once are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

from bench.choices import crc_model
from rocelab.jobs.placement import find_nic
from rocelab.linux.fibtable import FibOf
from rocelab.planning.fabric import DirectedLink, Fabric, Nic
from rocelab.prediction.matrix import FlowRow
from rocelab.routes.asic import CRCS
from rocelab.routes.flows import columns_v4
from rocelab.routes.models import Model
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from rocelab.routes.steering import ROCE_PORT, SteeringModel
from tests.helpers.choices import Choice

Links = tuple[DirectedLink, ...]


def links_of(
    fabric: Fabric,
    rows: Sequence[FlowRow],
    model: Model = Model.KERNEL,
    *,
    fib_of: FibOf | None = None,
    steering: SteeringModel | None = None,
) -> list[Links]:
    """The links that each flow crosses, from planned tables by default."""
    fib_of = fib_of or planned_fibs(fabric, fabric.prefixes)
    steering = steering or SteeringModel(fabric, fabric.spec.scheme)
    links = []
    for row in rows:
        source = find_nic(fabric, row.source.server, row.source.nic)
        destination = find_nic(fabric, row.destination.server, row.destination.nic)
        if model is not Model.KERNEL:
            links.append(_by_crc(fabric, fib_of, source, destination, row, model))
            continue
        path = walk(
            fabric,
            fib_of,
            source,
            destination,
            row.sport,
            leaves_by=row.leaves_by,
            destination_qp=row.dest_qp,
            steering=steering,
        )
        links.append(tuple(hop.link for hop in path.hops))
    return links


def _by_crc(
    fabric: Fabric, fib_of: FibOf, source: Nic, destination: Nic, row: FlowRow, model: Model
) -> Links:
    ends = [int(IPv4Address(nic.ip)) for nic in (source, destination)]
    flow = columns_v4(ends[:1], ends[1:], row.sport, ROCE_PORT)
    links = [source.links[row.leaves_by].up]
    while (name := links[-1].receiver) != destination.server:
        route = fib_of(name).lookup(destination.ip)
        assert route is not None
        weights = [hop.weight for hop in route.next_hops]
        (taken,) = crc_model(CRCS[model]).choose(flow, fabric.node(name).hash_seed, weights)
        (link,) = (
            link
            for link in fabric.links_of[name]
            if link.port(name).interface == route.next_hops[taken].interface
        )
        links.append(DirectedLink(link, name))
    return tuple(links)


def choices_of(fabric: Fabric, row: FlowRow, links: Links) -> list[Choice]:
    """The choices of the switches on a flow's way; a group is a switch and its next hops."""
    nic = find_nic(fabric, row.destination.server, row.destination.nic)
    fib_of = planned_fibs(fabric, fabric.prefixes_holding(nic.ip))
    made = []
    for link in links[1:]:
        route = fib_of(link.sender).lookup(nic.ip)
        assert route is not None
        names = [hop.interface for hop in route.next_hops]
        stage = f"{link.port.role.name} {link.direction.value}"
        group = f"{link.sender} {names}"
        made.append(Choice(group, stage, names.index(link.port.interface), len(names)))
    return made
