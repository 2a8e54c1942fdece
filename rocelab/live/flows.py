"""Flows of a lab: those that jobs and drills send now, the path of one, where it is seen, and which
servers reach each other.

A flow is seen by packet sockets at the links that it could take, for a second: nothing is sent, and
what a job measures stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice
from typing import Annotated

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.jobs.placement import find_nic
from rocelab.lab.inuse import Use, in_use
from rocelab.lab.lab import RunningLab
from rocelab.labfile.base import SpecModel
from rocelab.observe.timeline import opened_namespaces
from rocelab.planning.fabric import Nic
from rocelab.record import LabFiles
from rocelab.routes.path import possible_links, walk
from rocelab.routes.steering import ROCE_PORT
from rocelab.traffic.demand import PublishedFlow, read_published
from rocelab.traffic.reachability import failures, probe_reachability
from rocelab.traffic.taps import Taps
from rocelab.wire.filters import flow_filter

Document = Mapping[str, object]
MOST_FLOWS = 512
MOST_ROWS = 100
OBSERVED_S = 1.0


class FlowRequest(SpecModel):
    """A flow, as `rocelab path` takes it; `leaves_by` is the port of its NIC, from 0."""

    src: Annotated[str, Field(max_length=64)]
    dst: Annotated[str, Field(max_length=64)]
    sport: Annotated[int, Field(ge=0, le=65535)]
    dport: Annotated[int, Field(ge=0, le=65535)] = ROCE_PORT
    qp: Annotated[int | None, Field(ge=0, lt=1 << 24)] = None
    src_nic: Annotated[int, Field(ge=1, le=64)] = 1
    dst_nic: Annotated[int, Field(ge=1, le=64)] = 1
    leaves_by: Annotated[int, Field(ge=0, le=1)] = 0

    def ends(self, lab: RunningLab) -> tuple[Nic, Nic]:
        """The NICs. Raises InputError if the lab does not have them, or a server has both."""
        source = find_nic(lab.fabric, self.src, self.src_nic)
        destination = find_nic(lab.fabric, self.dst, self.dst_nic)
        if source.server == destination.server:
            raise InputError(f"source and destination are both on {source.server}")
        if self.leaves_by >= len(source.links):
            raise InputError(f"{self.src}'s NIC {self.src_nic} has no port {self.leaves_by + 1}")
        one, other = (lab.fabric.network_of(nic.links[0].b.node) for nic in (source, destination))
        if one is not other:
            raise InputError(
                f"{self.src}'s NIC {self.src_nic} is in network {one.network_name} and "
                f"{self.dst}'s NIC {self.dst_nic} in {other.network_name}",
                "nothing routes between networks",
            )
        return source, destination


def flows_document(lab: RunningLab) -> Document:
    """The flows that jobs and drills send now, whoever has started them: at most MOST_FLOWS, and
    how many there are."""
    nics = {nic.ip: nic for node in lab.fabric.servers for nic in lab.fabric.nics(node.name)}
    published = read_published(LabFiles(lab.name))

    def source_nic(flow: PublishedFlow) -> int:
        """The number among all NICs of its server; its own is that in the network."""
        network = lab.fabric.network_of(nics[flow.destination_ip].links[0].b.node)
        return nics[network.nics(flow.server)[flow.nic - 1].ip].number

    flows = [
        {
            "src": flow.server,
            "src_nic": source_nic(flow),
            "dst": nics[flow.destination_ip].server,
            "dst_nic": nics[flow.destination_ip].number,
            "sport": flow.source_port,
            "qp": flow.destination_qp,
            "leaves_by": flow.port,
        }
        for flow in published[:MOST_FLOWS]
        if flow.destination_ip in nics
    ]
    return {"flows": flows, "total": len(published)}


def path_document(name: str, asked: FlowRequest) -> Document:
    """The path of a flow by the kernels' tables now. Raises as `rocelab.routes.path.walk`."""
    lab = RunningLab.open(name)
    source, destination = asked.ends(lab)
    network = lab.network(lab.fabric.network_of(source.links[0].b.node).network_name)
    steering = network.steering.model()
    route = walk(
        network.fabric,
        lab.read_fibs(),
        source,
        destination,
        asked.sport,
        asked.dport,
        leaves_by=asked.leaves_by,
        destination_qp=asked.qp,
        steering=steering,
    )
    return {
        "lab": name,
        "scheme": steering.scheme.kind,
        "tables": "kernel",
        **route.document(asked.qp),
    }


def observed_document(name: str, asked: FlowRequest) -> Document:
    """How many packets of a flow came in at each link in OBSERVED_S, of the links that it could
    take. Raises InputError for another port than RoCE's, PortGoneError if one is gone."""
    if asked.dport != ROCE_PORT:
        raise InputError("only RoCE flows are observed", hint="leave dport out")
    lab = RunningLab.open(name)
    source, destination = asked.ends(lab)
    links = possible_links(lab.fabric, lab.read_fibs(), source, destination)
    names = {port.node for link in links for port in (link.a, link.b)}
    nodes = tuple(node for node in lab.fabric.nodes if node.name in names)
    program = flow_filter(source.ip, destination.ip, asked.sport, asked.qp)
    with (
        opened_namespaces(lab, nodes) as netns_of,
        Taps(lab.fabric, netns_of, links, program) as taps,
    ):
        began = time.monotonic()
        time.sleep(OBSERVED_S)
        counts = taps.read()
        span_s = time.monotonic() - began
    place = {link.name: number for number, link in enumerate(links)}
    seen = [
        {"link": way.link.name, "from": way.sender, "to": way.receiver, "packets": packets}
        for way, packets in sorted(counts.items(), key=lambda entry: place[entry[0].link.name])
        if packets
    ]
    return {"span_s": span_s, "links": seen}


def reach_document(lab: RunningLab) -> Document:
    """Which NICs reach which others of their network now, by a packet for each pair: the rows of
    `failures`. Raises
    InputError while a job or a drill uses the lab, whose counts the packets would spoil."""
    with in_use(LabFiles(lab.name), "a probe of all pairs", Use.UNSENT):
        results = [
            probe_reachability(network, lambda name: lab.node(name).netns)
            for network in lab.fabric.networks
        ]
    rows = [
        {"from": source, "to": to}
        for reachability in results
        for source, to in islice(failures(reachability), MOST_ROWS)
    ]
    pairs = sum(reachability.pairs for reachability in results)
    return {
        "pairs": pairs,
        "reached": pairs - sum(len(reachability.failed) for reachability in results),
        "failures": rows[:MOST_ROWS],
        "took_s": sum(reachability.took_s for reachability in results),
    }
