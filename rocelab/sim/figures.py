"""The figures of a simulation: times and bandwidths of jobs, loads and balance of links.

`figures` makes a `SimulationReport` from a `Simulation` and its outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Bools, Floats
from rocelab.base.statistics import spread
from rocelab.fabrics.roles import tier_name
from rocelab.jobs.performance import PerformanceRow, jct_ratio
from rocelab.jobs.serving.rates import served_headlines
from rocelab.jobs.steps import roofline_s, shortest_iteration_s
from rocelab.jobs.workload import StepTiming, Workload
from rocelab.jobs.workloads import WorkloadRate
from rocelab.planning.fabric import Direction
from rocelab.results.engines import LEAVES_OUT
from rocelab.results.environment import Environment, environment_with
from rocelab.results.flowtimes import StepTimes, slowdown_by_size
from rocelab.results.job import Headline
from rocelab.results.simulation import (
    SCHEMA_VERSION,
    BusyLink,
    Cost,
    JobOutcome,
    Method,
    RateOverTime,
    SimulatedEvent,
    SimulationReport,
    TierUse,
)
from rocelab.routes.arrays.flows import Paths
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import flows_per_send
from rocelab.routes.arrays.routes import Mask
from rocelab.routes.balance import LinkLoad, TierBalance, balance, tier_balances
from rocelab.routes.models import Model
from rocelab.sim.engine.completion import (
    Completion,
    completion,
    flow_times,
    transfers_over_s,
)
from rocelab.sim.engine.program import Outcome
from rocelab.sim.events.timeline import EventOutage
from rocelab.sim.model_figures import (
    latencies_of,
    memory_of,
    parts_of,
    served_of,
)
from rocelab.sim.packets.figures import packet_counts
from rocelab.sim.packets.run import PacketRun
from rocelab.sim.placement import ring_cut
from rocelab.sim.slowest import slowest_flows
from rocelab.sim.warnings import figure_warnings, outcome_warnings, setup_warnings

if TYPE_CHECKING:
    from rocelab.jobs.job_spec import SimulatedJob
    from rocelab.sim.simulate import Simulation

Longs = npt.NDArray[np.intp]

WORST = 10
PARTS = 100
"""Points of the curve of finished transfers."""

NAMED_RANKS = 4096
NAMED_LINKS = 1024
"""Ranks whose NICs a document names; with more they would fill it."""

SHOWN_STEPS = 200
NS = 1e9


def figures(simulation: Simulation, outcome: Outcome, peak_memory_bytes: int) -> SimulationReport:
    """The report of an outcome."""
    network, compiled = simulation.network, simulation.compiled
    usable = simulation.usable_sends()
    uses, worst = _uses(network, simulation.whole_paths, outcome, usable)
    over_s = transfers_over_s(compiled.program, outcome)
    times = transfer_times(simulation, outcome)
    task = np.repeat(np.arange(compiled.program.tasks), np.diff(compiled.program.first_transfer))
    finished = over_s[np.isfinite(over_s)]
    jobs = tuple(
        _job(simulation, outcome, number, job, times) for number, job in enumerate(simulation.jobs)
    )
    packets = packet_counts(outcome, network) if isinstance(outcome, PacketRun) else None
    return SimulationReport(
        schema_version=SCHEMA_VERSION,
        lab=simulation.spec.model_dump(mode="json"),
        environment=simulation_environment(),
        method=Method(
            eps=simulation.eps,
            backend="numba",
            proven=simulation.options.prove,
            model=_model(simulation),
            flows=len(simulation.flows),
            transfers=compiled.program.transfers,
            tasks=compiled.program.tasks,
            solves=outcome.solves,
            latency_ns=float(np.median(simulation.latency_ns)),
            latencies_ns=_latencies_ns(simulation),
            leaves_out=LEAVES_OUT[simulation.options.engine],
            engine=simulation.options.engine,
            ports=simulation.options.ports if isinstance(outcome, PacketRun) else None,
            seed=simulation.options.seed if isinstance(outcome, PacketRun) else None,
            hosts=simulation.collectives_in_words,
        ),
        cost=Cost(dict(simulation.seconds), peak_memory_bytes),
        warnings=(
            *setup_warnings(simulation),
            *outcome_warnings(simulation, outcome),
            *figure_warnings(jobs, packets),
        ),
        jobs=jobs,
        tiers=_tiers(network, simulation.whole_paths, usable),
        uses=uses,
        worst=worst,
        finish_ns=_quantiles(finished),
        rate=RateOverTime(
            tuple((outcome.rate_times_s * NS).tolist()), tuple(outcome.rate_bps.tolist())
        ),
        events=tuple(_event(simulation.network, outage) for outage in simulation.outages()),
        flow_times=flow_times(times.of(~simulation.is_merged[compiled.job[task]])),
        packets=packets,
        slowest=slowest_flows(simulation, outcome, over_s, times),
    )


def _model(simulation: Simulation) -> str:
    if simulation.options.model is not Model.KERNEL:
        return f"{simulation.options.model} with modulo"
    return "Linux's hash and next-hop groups"


def simulation_environment() -> Environment:
    """This machine's environment now, without FRR, which a simulation does not need."""
    return environment_with("not used")


def _job(
    simulation: Simulation, outcome: Outcome, number: int, job: SimulatedJob, times: Completion
) -> JobOutcome:
    network, workload = simulation.network, simulation.workloads[number]
    compiled = simulation.compiled
    (tasks,) = np.nonzero(compiled.job == number)
    transfers = slice(*compiled.program.first_transfer[[tasks[0], tasks[-1] + 1]])
    seconds = simulation.iteration_seconds(outcome)[number]
    roofline_ns = _roofline_s(simulation, number, transfers) * NS
    end_s = float(outcome.end_s[tasks].max())
    places = simulation.own_places(number)
    cut, merged = ring_cut(network, places), bool(simulation.is_merged[number])
    sample = places if len(places) <= NAMED_RANKS else places[:0]
    served = served_of(simulation, outcome, number)
    return JobOutcome(
        name=job.name,
        job=job.model_dump(mode="json", exclude_none=True),
        ranks=len(places),
        nics=tuple(map(network.nic_name, sample.tolist())),
        ordered=workload.ordered,
        cut_leaves=cut.leaves,
        cut_zones=cut.zones,
        payload_bytes=int(compiled.payload_bytes[transfers].sum()),
        headlines=_headlines(
            job,
            seconds if job.collective is not None else _ordinary(workload, seconds),
            roofline_ns,
            _latency_s(simulation, outcome, tasks) * NS,
            [*latencies_of(simulation, outcome, number, seconds), *served_headlines(served)],
        ),
        iterations_ns=tuple(None if np.isinf(second) else second * NS for second in seconds),
        roofline_ns=roofline_ns,
        end_ns=_ns(end_s),
        steps=_steps(simulation, outcome, number),
        slowdown=None
        if merged
        else slowdown_by_size(compiled.payload_bytes[transfers], times.slowdown[transfers]),
        merged=merged,
        parts=parts_of(simulation, outcome, number),
        memory=memory_of(simulation, number),
        basis=() if job.workload is None else job.workload.basis(job.seed),
        served=served,
    )


def transfer_times(simulation: Simulation, outcome: Outcome) -> Completion:
    """How long each transfer took, and the least time."""
    return completion(
        simulation.program,
        simulation.whole_paths,
        simulation.capacity_bps,
        simulation.flow_latency_s(simulation.engine_latency_ns / NS),
        outcome.start_s,
        transfers_over_s(simulation.program, outcome),
    )


def _latencies_ns(simulation: Simulation) -> tuple[float, float] | None:
    """The least and the most that a link adds to a send, None if all add the same."""
    low, high = float(simulation.latency_ns.min()), float(simulation.latency_ns.max())
    return None if low == high else (low, high)


def _latency_s(simulation: Simulation, outcome: Outcome, tasks: Longs) -> float:
    """The latency that rounds add to an iteration of one step; 0 if steps wait for each other, it
    sends nothing, or it never ends."""
    transfers = slice(*simulation.program.first_transfer[[tasks[0], tasks[0] + 1]])
    if len(tasks) > 1 or transfers.start == transfers.stop or np.isinf(outcome.end_s[tasks[0]]):
        return 0.0
    return float(outcome.end_s[tasks[0]] - outcome.finish_s[transfers].max())


def _roofline_s(simulation: Simulation, number: int, transfers: slice) -> float:
    """The least time of an iteration: that of the busiest NIC, headers included, and of jobs that
    compute also that of the longest chain of steps, each alone on the network.

    A collective has the lab's bound (`rocelab.jobs.performance.roofline_ns`): its iterations may
    overlap, so that no chain limits them, and its pauses are not in their times
    (`Simulation.iteration_seconds`).
    """
    workload, places = simulation.stepped[number], simulation.places[number]
    hosts = simulation.rank_hosts(places)
    is_collective = simulation.jobs[number].collective is not None
    if not (is_collective or workload.is_alike):
        return shortest_iteration_s(workload, simulation.nics_bps(places), hosts)
    compiled = simulation.compiled
    nics_bps = simulation.nics_bps(np.arange(simulation.network.nics, dtype=np.int32))
    flow, bits = compiled.program.flow[transfers], compiled.program.size_bits[transfers]
    ends = (compiled.flows.source[flow], compiled.flows.destination[flow])
    parts: list[tuple[Floats | float, Bools]] = [(nics_bps, np.ones(len(flow), np.bool_))]
    if hosts is not None and hosts.local is not None and simulation.local is not None:
        local = simulation.local.is_local(simulation.flows)[flow]
        parts = [(nics_bps, ~local), (hosts.local.bandwidth_bps, local)]
    busiest_s = max(
        float((np.bincount(end[chosen], bits[chosen], len(nics_bps)) / bps).max(initial=0.0))
        for bps, chosen in parts
        for end in ends
    )
    iterations = 1 + max(step.iteration for step in workload.steps)
    chain_s = 0.0 if is_collective else roofline_s(workload, simulation.nics_bps(places), hosts)
    return max(busiest_s, chain_s) / iterations


def _ordinary(workload: Workload, seconds: Sequence[float]) -> list[float]:
    """The times of iterations without steps that only some have, such as checkpoints; all if one
    never ends."""
    steps = Counter(step.iteration for step in workload.steps if step.counts is StepTiming.WITHIN)
    if np.isinf(seconds).any():
        return list(seconds)
    fewest = min(steps.values())
    return [time_s for number, time_s in enumerate(seconds) if steps[number] == fewest]


def _headlines(
    job: SimulatedJob,
    seconds: Sequence[float],
    roofline_ns: float,
    latency_ns: float,
    latencies: Sequence[WorkloadRate],
) -> tuple[Headline, ...]:
    """The headlines of a lab's job, as far as a fluid model has them; none if an iteration never
    ends."""
    if any(np.isinf(seconds)) or not roofline_ns:
        return ()
    times_ns = [second * NS for second in seconds]
    rows: list[tuple[str, str, str, list[float]]] = [
        ("iteration_time", "time of an iteration", "ns", times_ns)
    ]
    if job.collective is not None and job.collective.size is not None:
        spec = job.collective
        results = [
            PerformanceRow(spec.pattern, spec.ranks, job.collective.size, time_ns)
            for time_ns in times_ns
        ]
        rows += [
            ("algbw", "algbw", "GB/s", [row.algbw_gbs for row in results]),
            ("busbw", "busbw", "GB/s", [row.busbw_gbs for row in results]),
        ]
    if job.workload is not None:
        rows += [*job.workload.rates(seconds), *latencies]
    ratios = [jct_ratio(time_ns, roofline_ns) for time_ns in times_ns]
    rows.append(("jct_ratio", "time over its lower bound (JCT ratio)", "", ratios))
    if latency_ns:
        rows.append(("latency", "latency in an iteration", "ns", [latency_ns]))
    return tuple(
        Headline(name, title, unit, "iterations", spread(values), None)
        for name, title, unit, values in rows
    )


def _steps(simulation: Simulation, outcome: Outcome, number: int) -> tuple[StepTimes, ...]:
    """Steps of the last iteration; none for a schedule's single sends."""
    workload = simulation.workloads[number]
    if workload.ordered:
        return ()
    first = sum(len(earlier.steps) for earlier in simulation.workloads[:number])
    tasks = simulation.compiled.first_task[first : first + len(workload.steps) + 1]
    last = max(step.iteration for step in workload.steps)
    return tuple(
        StepTimes(step.name, _ns(float(outcome.start_s[begin])), _ns(float(outcome.end_s[end - 1])))
        for step, (begin, end) in zip(workload.steps, pairwise(tasks.tolist()), strict=True)
        if step.iteration == last and step.sends is not None
    )[:SHOWN_STEPS]


def _tier_sends(network: Network) -> Iterator[tuple[str, Direction, Longs, Longs]]:
    """The links between each two roles of switches, of each rate if they have several, grouped by
    lower node, and their sends in each direction."""
    roles = list(dict.fromkeys(network.roles))
    number = {role: index for index, role in enumerate(roles)}
    role_of = np.array([number[role] for role in network.roles], np.int64)
    switch = network.tier[network.lower] > 0
    pair = role_of[network.lower] * len(roles) + role_of[network.upper]
    rates = network.rate_bps
    several = {key for key in set(pair[switch].tolist()) if np.ptp(rates[switch & (pair == key)])}
    kinds = zip(pair[switch].tolist(), rates[switch].astype(np.int64).tolist(), strict=True)
    for key, rate_bps in dict.fromkeys(
        (key, bps if key in several else None) for key, bps in kinds
    ):
        mask = switch & (pair == key)
        (links,) = np.nonzero(mask if rate_bps is None else mask & (rates == rate_bps))
        links = links[np.argsort(network.lower[links], kind="stable")]
        lower, upper = divmod(key, len(roles))
        tier = tier_name(roles[lower], roles[upper], rate_bps)
        for way, direction in enumerate((Direction.UP, Direction.DOWN)):
            yield tier, direction, links, 2 * links + way


def _tiers(network: Network, paths: Paths, usable: Mask) -> tuple[TierBalance, ...]:
    """The balance of flows over the links that they could take, beside random hashing, as in
    predictions; none if switches divide flows, as hashing then decides nothing."""
    if paths.share is not None:
        return ()
    flows = flows_per_send(network, paths)
    loads: list[LinkLoad] = []
    crossing: dict[tuple[str, Direction, str], int] = {}
    for tier, direction, links, sends in _tier_sends(network):
        taken = _job_mask(usable[sends])
        counts = flows[sends[taken]].astype(np.int64).tolist()
        nodes = [network.node_names[node] for node in network.lower[links[taken]].tolist()]
        for node, count in zip(nodes, counts, strict=True):
            key = (tier, direction, node)
            crossing[key] = crossing.get(key, 0) + count
            loads.append(LinkLoad("", tier, direction, node, count))
    return tier_balances(loads, crossing)


def _uses(
    network: Network, paths: Paths, outcome: Outcome, usable: Mask
) -> tuple[tuple[TierUse, ...], tuple[BusyLink, ...]]:
    flows = flows_per_send(network, paths)
    last_s = _last_s(outcome)
    with_data = outcome.sent_bits[: network.sends] > 0
    if isinstance(outcome, PacketRun):
        with_data &= outcome.data_sends[: network.sends]
    usable = usable | with_data
    uses: list[TierUse] = []
    busy: list[tuple[float, int]] = []
    for tier, direction, links, sends in _tier_sends(network):
        bits = outcome.sent_bits[sends]
        nodes = network.lower[links]
        heads = np.flatnonzero(np.diff(nodes, prepend=-1))
        widths = np.diff(heads, append=len(nodes)).tolist()
        use = bits / (network.capacity_bps[sends] * last_s) if last_s else np.zeros(len(bits))
        taken = _job_mask(usable[sends])
        whole = balance(bits[taken].tolist())
        uses.append(
            TierUse(
                tier=tier,
                direction=direction,
                nodes=tuple(network.node_names[node] for node in nodes[heads].tolist()),
                width=max(widths),
                rate_bps=float(network.capacity_bps[sends[0]]),
                bytes=tuple(np.rint(bits / 8).astype(np.int64).tolist()),
                flows=tuple(flows[sends].tolist()),
                balance=whole,
                utilisation_mean=float(use[taken].mean()),
                utilisation_max=float(use.max()),
                widths=tuple(widths) if len(set(widths)) > 1 else (),
            )
        )
        if whole.total:
            ratios = bits / float(bits[taken].mean())
            top = np.argsort(-bits, kind="stable")[:WORST].tolist()
            busy += [(float(ratios[place]), int(sends[place])) for place in top]
    busy.sort(key=lambda link: (-link[0], link[1]))
    return tuple(uses), tuple(
        BusyLink(
            link=network.link_name(send // 2),
            sender=network.node_names[int(network.sender[send])],
            bytes=round(outcome.sent_bits[send] / 8),
            flows=float(flows[send]),
            of_mean=ratio,
        )
        for ratio, send in busy[:WORST]
    )


def _last_s(outcome: Outcome) -> float:
    """When the last byte was carried; packet by packet, if a transfer never ends, when nothing more
    was to happen."""
    if isinstance(outcome, PacketRun):
        return max(float(outcome.rate_times_s[-1]), outcome.idle_s)
    if np.isfinite(outcome.end_s).all():
        return float(outcome.end_s.max(initial=0.0))
    # Sums of rates leave less than a bit per second where there is none.
    (carrying,) = np.nonzero(outcome.rate_bps >= 1)
    return float(outcome.rate_times_s[carrying[-1] + 1]) if len(carrying) else 0.0


def _job_mask(usable: Mask) -> Mask:
    """The links that a tier's figures cover: the usable ones, or all if no job can use any."""
    return usable if usable.any() else np.ones_like(usable)


def _quantiles(values: Floats) -> tuple[float, ...]:
    if not len(values):
        return ()
    shares = np.linspace(0, 1, PARTS + 1)
    # Each of them is one of the values.
    times_ns: list[float] = (np.quantile(values, shares, method="inverted_cdf") * NS).tolist()
    return tuple(times_ns)


def _event(network: Network, outage: EventOutage) -> SimulatedEvent:
    return SimulatedEvent(
        outage.what,
        outage.begins_s * NS,
        _ns(outage.routed_s),
        _ns(outage.ends_s),
        tuple(network.link_name(link) for link in outage.links[:NAMED_LINKS].tolist()),
    )


def _ns(seconds: float) -> float | None:
    return seconds * NS if np.isfinite(seconds) else None
