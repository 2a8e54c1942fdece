"""What the engines of packets take of a simulation: what they refuse, transports where links fail,
and the wirings of a run. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rocelab.base.arrays import Bools, Floats
from rocelab.base.errors import InputError
from rocelab.hosts.model import HostModel
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.merged_sends import MOST_ORDERED
from rocelab.jobs.performance import wire_overhead_bytes
from rocelab.jobs.transport import TransportSpec
from rocelab.labfile.base import SECOND
from rocelab.planning.queues import MOST_LAB_MTU
from rocelab.results.engines import PortModel
from rocelab.routes.arrays.flows import Paths, Ways
from rocelab.routes.arrays.network import Network
from rocelab.sim.events.retransmission import Retransmission
from rocelab.sim.events.timeline import EventOutage, LinkStates, moments_of
from rocelab.sim.hosts import LocalPaths
from rocelab.sim.options import Options
from rocelab.sim.packets.wiring import Wiring


def check_packet_options(
    options: Options,
    host_model: HostModel | None,
    latency_ns: Floats,
    jobs: Sequence[SimulatedJob],
    is_merged: Bools,
    paths: Paths,
) -> None:
    """Raises InputError for what the packet engine does not simulate."""
    reasons = [
        (
            any(job.transport.is_tcp for job in jobs),
            "TCP",
            "use --engine fluid, which has fair shares, or a lab, which has the kernel's TCP",
        ),
        (
            options.prove or options.eps is not None,
            "--prove and --eps",
            "only --engine fluid has them",
        ),
        (
            options.ports is PortModel.LAB and host_model is not None,
            "ports of a lab and a host model",
            "hosts like a lab's take their own time: give other --ports, or no host model",
        ),
        (
            options.ports is PortModel.LAB and bool((latency_ns == 0).any()),
            "ports of a lab and a hop latency of 0",
            "give another --hop-latency or other --ports",
        ),
        (
            options.ports is PortModel.LAB
            and max(job.transport.mtu for job in jobs) > MOST_LAB_MTU,
            f"ports of a lab and a path MTU above {MOST_LAB_MTU:,}",
            "give another --mtu or other --ports",
        ),
        (
            bool(is_merged.any()),
            "merged or pipelined sends",
            f"use --engine fluid; the packet engine simulates collectives and workloads of at "
            f"most {MOST_ORDERED:,} sends per iteration",
        ),
        (
            bool((np.diff(paths.start) == 0).any()),
            "flows without a path",
            "use --engine fluid",
        ),
    ]
    for is_asked, what, hint in reasons:
        if is_asked:
            raise InputError(f"the packet engine does not simulate {what}", hint=hint)


def patient_transport(job: SimulatedJob, waits: Retransmission) -> TransportSpec:
    """A job's transport where links fail: its queue pairs wait as long as after any failure."""
    timeout_ns = round(waits.ack_timeout_s * SECOND)
    update = {"ack_timeout": timeout_ns, "retries": waits.retries}
    return job.transport.model_copy(update=update)


def wirings_of(
    network: Network,
    outages: Sequence[EventOutage],
    ways: Ways,
    ways_over: Callable[[Bools], Ways],
    port_rates_bps: Callable[[Floats], Floats],
) -> list[Wiring]:
    """The wirings of a run of packets through outages. ways: while all links are up; ways_over:
    while these are, L; port_rates_bps: of ports, of the capacities of sends, 2L."""
    links = LinkStates(network)
    wirings = [Wiring(0.0, port_rates_bps(links.capacity_bps), ways)]
    known = {links.up.tobytes(): ways}
    for now_s in moments_of(outages):
        if all(links.at(now_s, outages)):
            continue
        key = links.up.tobytes()
        if key not in known:
            known[key] = ways_over(links.up)
        rates_bps = port_rates_bps(links.capacity_bps)
        wirings.append(Wiring(now_s, rates_bps, known[key]))
    return wirings


def port_rates_bps(
    network: Network,
    local: LocalPaths | None,
    jobs: Sequence[SimulatedJob],
    capacity_bps: Floats,
) -> Floats:
    """Of each send, and of rows of hosts so that packets carry as much data there as a fluid,
    which has no headers in them."""
    if local is None:
        return capacity_bps
    overhead = wire_overhead_bytes(network.family)
    mtu = max(job.transport.mtu for job in jobs)
    rows_bps = local.capacity_bps * (mtu + overhead) / mtu
    return np.concatenate((capacity_bps, rows_bps))
