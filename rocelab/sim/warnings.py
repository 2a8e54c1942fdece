"""What to know before one trusts the figures of a simulation, each as a sentence.

A rule gives the sentences of one subject. Those of `SETUP` need no run: places that the model does
not suit, and keys that the engine does not read; those of `OUTCOME` are of what a run shows, and
`figure_warnings` of its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rocelab.base import quantities
from rocelab.base.arrays import NONE, Bools, Floats, Ints
from rocelab.base.errors import InputError
from rocelab.base.quantities import whole_share
from rocelab.base.wording import counted, listed
from rocelab.jobs.collectives import Pattern, kind_of
from rocelab.jobs.merged_sends import MOST_IN_TURN, OVERTAKING, algorithm_of
from rocelab.jobs.messages import spread_evenly
from rocelab.jobs.patterns.base import PEERS_IN_FLIGHT
from rocelab.jobs.performance import jct_ratio, ran_ahead, wire_overhead_bytes
from rocelab.jobs.placement import Placement
from rocelab.jobs.workload import StepTiming
from rocelab.labfile.base import SECOND
from rocelab.labfile.schemes.base import Treatment
from rocelab.planning.limits import unreached_marks
from rocelab.planning.profiles import profile_conflicts
from rocelab.results.engines import Engine
from rocelab.results.simulation import JobOutcome, PacketCounts
from rocelab.routes.models import Model
from rocelab.sim.engine.program import Outcome
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.timeline import resolve
from rocelab.sim.model_figures import step_ends_s
from rocelab.sim.packets.pausing import pause_warnings
from rocelab.sim.placement import place_ranks, ring_cut
from rocelab.sim.rings import MOST_ERROR
from rocelab.sim.taken import other_gpus, rings_of_steps
from rocelab.sim.windows import round_trips_s
from rocelab.wire.vxlan import VXLAN_BYTES

if TYPE_CHECKING:
    from rocelab.sim.simulate import Simulation

MOST_SERVERS = 8
"""Servers that a warning names."""

NEGLIGIBLE = 0.02
"""The share of a job's bytes below which its way decides nothing."""

OUT_OF_STEP = 0.38
"""How much longer repeated AlltoAlls in rounds take than one: the most that was seen, of 16 ranks
with one send in flight each."""

HELD_BACK = 0.02
"""By how much windows lower a rate before a warning says so."""

_OF_PACKETS = (
    "ack_every",
    "out_of_order",
    "selective_repeat",
    "dscp",
    "ack_dscp",
    "cnp_dscp",
    "ecn",
    "dcqcn",
    "congestion",
)
"""The keys of `transport` that say what packets do, but for `window` (`_held_by_windows`) and
`admission`."""


def setup_warnings(simulation: Simulation) -> tuple[str, ...]:
    """What is known before a run."""
    engine = simulation.options.engine
    return tuple(
        sentence for engines, rule in SETUP if engine in engines for sentence in rule(simulation)
    )


def outcome_warnings(simulation: Simulation, outcome: Outcome) -> tuple[str, ...]:
    """What a run shows."""
    return tuple(sentence for rule in OUTCOME for sentence in rule(simulation, outcome))


def figure_warnings(jobs: Iterable[JobOutcome], packets: PacketCounts | None) -> Iterator[str]:
    """What the figures of a run show."""
    for job in jobs:
        times_ns = [time_ns for time_ns in job.iterations_ns if time_ns is not None]
        ratios = [jct_ratio(time_ns, job.roofline_ns) for time_ns in times_ns if job.roofline_ns]
        if ahead := ran_ahead(ratios):
            yield f"{job.name}: {ahead}"
    lossless = None if packets is None else packets.lossless
    if lossless is not None and (ring := lossless.deadlock):
        yield f"deadlock: {' waits for '.join((*ring, ring[0]))}"


def _stuck(simulation: Simulation, outcome: Outcome) -> list[str]:
    count = len(outcome.finish_s)
    stuck = count - int(np.isfinite(outcome.finish_s).sum())
    if not stuck:
        return []
    return [
        f"{stuck:,} of {count:,} transfers never end: no path is left to them, or their queue "
        "pairs gave up"
    ]


def _held_by_windows(simulation: Simulation, outcome: Outcome) -> list[str]:
    """Jobs whose queue pairs sent no more in a fluid than their windows let through."""
    if outcome.held is None or not len(outcome.held):
        return []
    sent, paths = simulation.windowed, simulation.whole_paths
    round_s = round_trips_s(sent, paths, simulation.capacity_bps)
    job = simulation.compiled.first_flow.searchsorted(outcome.held, side="right") - 1
    warnings = []
    for number in np.unique(job).tolist():
        flows = outcome.held[job == number]
        rate_bps = (sent.packet_bits * sent.window / round_s)[flows]
        if rate_bps.min() * (1 + HELD_BACK) < simulation.nic_bps(number):
            worst = int(flows[np.argmin(rate_bps)])
            warnings.append(
                f"{simulation.jobs[number].name}: transport.window holds back "
                f"{counted(len(flows), 'queue pair')}: {_window(simulation, worst, round_s)}; a "
                "larger window or more queue pairs send more"
            )
    return warnings


def _window(simulation: Simulation, flow: int, round_s: Floats) -> str:
    """The ends of a flow, and the rate of a window in a round trip, without headers."""
    flows, network, sent = simulation.flows, simulation.network, simulation.windowed
    ends = [network.nic_name(int(nics[flow])) for nics in (flows.source, flows.destination)]
    program, window, round_trip_s = simulation.program, int(sent.window[flow]), float(round_s[flow])
    payload = simulation.compiled.payload_bytes[program.flow == flow].sum() / sent.packets[flow]
    return (
        f"{ends[0]} to {ends[1]} sends {counted(window, 'packet')} of {payload:,.0f} bytes in a "
        f"round trip of {quantities.duration(round_trip_s * SECOND)}, "
        f"{quantities.rate(8 * window * payload / round_trip_s)}"
    )


def _unread(keys: Iterable[str], why: str) -> list[str]:
    """The sentence for keys that have other values than their defaults and are not read."""
    names = list(dict.fromkeys(keys))
    if not names:
        return []
    verb = "has" if len(names) == 1 else "have"
    return [f"{listed(names, 'and')} {verb} no effect here: {why}"]


def _transport_warnings(simulation: Simulation, *keys: str) -> list[str]:
    return [
        key
        for job in simulation.jobs
        if not job.transport.is_tcp
        for key in job.transport.changed("transport", *keys)
    ]


def _unread_by_a_fluid(simulation: Simulation) -> Iterator[str]:
    queues, scheme = simulation.spec.queues, simulation.spec.scheme
    yield from _unread(
        [
            *queues.changed("queues", "buffer", "dscp", "marked", "roles", "links"),
            *queues.ecn.changed("queues.ecn", "kmin", "kmax", "pmax"),
            *_transport_warnings(simulation, *_OF_PACKETS),
        ],
        "a fluid has no packets, queues, marks or drops, and rates are as if congestion "
        "control were perfect (--engine packets has them)",
    )
    if _transport_warnings(simulation, "admission"):
        yield (
            "transport.admission makes no message wait in a fluid: it adds a queue pair to "
            "each connection, so that flows have other source ports and paths"
        )
    pauses = queues.changed("queues", "pfc")
    yield from _unread(pauses, "a fluid has no queues that fill, so nothing is paused")
    if not simulation.options.timeline.events:
        retries = _transport_warnings(simulation, "ack_timeout", "retries")
        yield from _unread(retries, "a fluid without failures loses nothing")
    if "gap" in type(scheme).model_fields:
        gap = scheme.changed("scheme", "gap")
        yield from _unread(gap, "a fluid divides a flow evenly, as very many flowlets do")


def _classes_of_answers(simulation: Simulation) -> list[str]:
    return _unread(
        _transport_warnings(simulation, "ack_dscp", "cnp_dscp"),
        "acknowledgements and CNPs meet no other packets (--engine packets has them)",
    )


def _other_hash(simulation: Simulation) -> list[str]:
    spec, model = simulation.spec, simulation.options.model
    if model is Model.KERNEL:
        return []
    return _unread(
        [
            *(["scheme"] if spec.scheme.kind != "ecmp" else []),
            *spec.hashing.changed("hashing", "policy", "fields"),
        ],
        f"with --model {model} every switch hashes by a CRC of the 5-tuple",
    )


def _rounded_latencies(simulation: Simulation) -> list[str]:
    off_ns = np.abs(simulation.engine_latency_ns - simulation.latency_ns)
    if not off_ns.any():
        return []
    count = len(np.unique(simulation.latency_ns))
    return [
        f"links have {count:,} different delays, which this engine rounds by up to "
        f"{quantities.duration(float(off_ns.max()))}; --engine fluid takes each link's own"
    ]


def _valleys(simulation: Simulation) -> list[str]:
    if simulation.spec.routing.valley_free or simulation.network.details is not None:
        return []
    return [
        "routing.valley_free: false has no effect here: paths go up, then down, also around a "
        "failed link"
    ]


def _without_vxlan(simulation: Simulation) -> Iterator[str]:
    if simulation.network.tenants is not None:
        yield (
            f"the {VXLAN_BYTES} bytes that VXLAN adds to each packet between leaves are not in it: "
            "links between switches carry that much more in the lab"
        )


def _full_queues(simulation: Simulation) -> tuple[str, ...]:
    spec = simulation.spec
    return unreached_marks(spec) + pause_warnings(spec, simulation.network)


def _profiles(simulation: Simulation) -> tuple[str, ...]:
    return profile_conflicts(simulation.spec.queues)


def _workload_warnings(simulation: Simulation) -> list[str]:
    return [text for workload in simulation.workloads for text in workload.warnings]


def _across_servers(simulation: Simulation) -> Iterator[str]:
    for number in range(len(simulation.jobs)):
        yield from _tensor_over_network(simulation, number)
        yield from _within_servers(simulation, number)


def _tensor_over_network(simulation: Simulation, number: int) -> list[str]:
    """A warning if tensor parallel groups of a job leave their servers."""
    job, places = simulation.jobs[number], simulation.places[number]
    if job.workload is None:
        return []
    size = job.workload.server_ranks
    apart = simulation.place(number, places).apart(size)
    if not apart.any():
        return []
    first = int(np.argmax(apart))
    servers = _servers(simulation, places[first * size : (first + 1) * size])
    named = f"{listed(servers[:MOST_SERVERS], 'and')}" + (
        f" ({len(servers):,} servers)" if len(servers) > MOST_SERVERS else ""
    )
    return [
        f"{job.name}: {int(apart.sum()):,} of {len(apart):,} tensor parallel groups are not on one "
        f"server, so their all-reduces are simulated over the network instead of NVLink: ranks "
        f"{first * size:,} to {(first + 1) * size - 1:,} are on {named}. "
        f"{_kept_together(simulation, number, size)}"
    ]


def _kept_together(simulation: Simulation, number: int, size: int) -> str:
    """What keeps groups of `size` ranks of a job on one server each."""
    network, job = simulation.network, simulation.jobs[number]
    taken = np.zeros(network.nics, np.bool_)
    for before in simulation.places[:number]:
        taken[before] = True
    try:
        places = place_ranks(
            network, len(simulation.own_places(number)), Placement.CONTIGUOUS, job.seed, taken
        )
        whole = np.concatenate([places, *simulation.endpoints[number]])
        if not simulation.place(number, whole).apart(size).any():
            return f"`placement: contiguous` keeps each group of {size} on one server"
    except InputError:
        pass
    most = int(np.bincount(network.nic_server).max())
    if most < size:
        return (
            f"No placement keeps {size} GPUs together on servers with "
            f"{counted(most, 'NIC')}: take `tensor: {most}` or less, or servers with more NICs"
        )
    return f"A list of NICs can keep each group of {size} on one server"


def _assumed_hosts(simulation: Simulation) -> Iterator[str]:
    model = simulation.host_model
    if model is not None and model.assumed:
        figures = listed(model.assumed, "and")
        yield f"host model {model.name}: {figures} are assumed, not published: `sources` says how"


def _unposted(simulation: Simulation) -> Iterator[str]:
    model = simulation.host_model
    if model is not None and model.message_ns:
        yield (
            f"host model {model.name}: costs.message has no effect here: NICs of packets post "
            "messages at once; --engine fluid has it"
        )


def _within_servers(simulation: Simulation, number: int) -> list[str]:
    """A warning if much of what a job sends goes from NIC to NIC of one server through spines."""
    if simulation.host_model is not None and simulation.host_model.local is not None:
        return []
    network, job = simulation.network, simulation.jobs[number]
    compiled, flows = simulation.compiled, simulation.flows
    first, last = compiled.first_flow[number : number + 2].tolist()
    payload = np.bincount(compiled.program.flow, compiled.payload_bytes, minlength=len(flows))[
        first:last
    ]
    source, destination = flows.source[first:last], flows.destination[first:last]
    inside = network.nic_server[source] == network.nic_server[destination]
    homes = network.nic_home[source[inside]], network.nic_home[destination[inside]]
    inside[inside] = ~_share_a_leaf(network.home_leaves, *homes)
    total = float(payload.sum())
    share = float(payload[inside].sum()) / total if total else 0.0
    if share < NEGLIGIBLE:
        return []
    example = int(np.flatnonzero(inside)[0])
    ends = [network.nic_name(int(nics[example])) for nics in (source, destination)]
    keeps_groups = job.workload is not None and job.workload.server_ranks > 1
    advice = (
        ""
        if keeps_groups or job.placement is Placement.TOPOLOGY_AWARE
        else ". On rails a ring of `placement: topology-aware` stays on its leaf"
    )
    return [
        f"{job.name}: {whole_share(share)} of its bytes go from one NIC to another of the same "
        f"server (as {ends[0]} to {ends[1]}) through leaves and spines, since these NICs are on "
        f"different leaves; real servers use NVLink there, which is not simulated{advice}"
    ]


def _share_a_leaf(leaves: Ints, one: Ints, other: Ints) -> Bools:
    """Of each two homes, whether some leaf is of both."""
    mine, theirs = leaves[one][:, :, None], leaves[other][:, None, :]
    shared: Bools = ((mine == theirs) & (mine != NONE)).any(axis=(1, 2))
    return shared


def _servers(simulation: Simulation, places: Ints) -> list[str]:
    network = simulation.network
    return list(dict.fromkeys(network.node_names[node] for node in network.nic_server[places]))


def _discarding_sprayed(simulation: Simulation) -> list[str]:
    """Jobs whose NICs take packets in order only, under a scheme that changes the order."""
    if Treatment.SPRAY not in simulation.spec.scheme.treatments:
        return []
    return [
        f"{job.name}: sprayed packets overtake each other, and its NICs discard what comes early: "
        "--out-of-order (transport.out_of_order) takes any order"
        for job in simulation.jobs
        if not (job.transport.out_of_order or job.transport.selective_repeat)
    ]


def _unevenly_spread(simulation: Simulation) -> Iterator[str]:
    """Jobs whose queue pairs do not carry as much of each part of merged rings."""
    for job, workload in zip(simulation.jobs, simulation.workloads, strict=True):
        rings = [step.sends for step in workload.steps if step.sends and step.sends.tokens]
        parts = [-(-ring.size_bytes // ring.each_parts) for ring in rings]
        if not all(spread_evenly(part, job.transport) for part in parts):
            yield (
                f"{job.name}: merged sends keep all {job.transport.qps} queue pairs busy; in a "
                "lab those that get more of a chunk than others delay it, which takes longer "
                "(with transport.strategy: split all get as much)"
            )


def _overtaking(simulation: Simulation) -> Iterator[str]:
    """Jobs whose merged sends take another time than those in order would."""
    for number, job in enumerate(simulation.jobs):
        workload, spec = simulation.workloads[number], job.collective
        if workload.ordered or spec is None:
            continue
        algorithm = algorithm_of(spec)
        if spec.pattern is not Pattern.ALLREDUCE or algorithm not in OVERTAKING:
            error = simulation.ring_error(number)
            if error > MOST_ERROR:
                yield (
                    f"{job.name}: its chunks wait for latency and for links alike, and more than "
                    f"{MOST_IN_TURN:,} sends are not simulated one by one: it takes up to "
                    f"{whole_share(error)} more or less time"
                )
        elif (share := OVERTAKING.get(algorithm)) is not None:
            yield (
                f"{job.name}: more than {MOST_IN_TURN:,} sends are not simulated one by one; "
                f"merged, a {algorithm} allreduce takes up to {whole_share(share)} more or less "
                "time"
            )


def _uneven_servers(simulation: Simulation) -> Iterator[str]:
    """Collectives that are tuned although ranks do not fill domains evenly."""
    costs = zip(simulation.jobs, simulation.places, simulation.costs, strict=True)
    for job, places, cost in costs:
        hosts = simulation.rank_hosts(places)
        if cost is None or cost.protocol is None or hosts is None or hosts.local is None:
            continue
        if hosts.domain_ranks is None:
            yield (
                f"{job.name}: NVLink domains have other numbers of ranks, or not consecutive ones: "
                "its algorithm is chosen as for one GPU a server, and it is in one channel unless "
                "--channels says more"
            )


_ALL, _FLUID, _LINKS = frozenset(Engine), frozenset({Engine.FLUID}), frozenset({Engine.LINKS})


def _all_in_flight(simulation: Simulation) -> Iterator[str]:
    """Of AlltoAlls in which no send waits for another, as those of a lab do."""
    is_fluid = simulation.options.engine is Engine.FLUID
    for job, workload in zip(simulation.jobs, simulation.workloads, strict=True):
        spec = job.collective
        if spec is None or spec.in_flight is not None or spec.ranks - 1 <= PEERS_IN_FLIGHT:
            continue
        if kind_of(spec.pattern).is_exchange and (is_fluid or not workload.ordered):
            yield (
                f"{job.name}: each rank sends to all others at once, and not to {PEERS_IN_FLIGHT} "
                f"as in a lab: `--in-flight {PEERS_IN_FLIGHT}` simulates that, and takes minutes"
            )


def _placed_otherwise(simulation: Simulation) -> Iterator[str]:
    """Jobs that no scheduler and launcher would place so: not server by server."""
    network = simulation.network
    taken = np.zeros(network.nics, np.bool_)
    for number, job in enumerate(simulation.jobs):
        if job.workload is not None and job.workload.beside is not None:
            continue
        places, how = simulation.own_places(number), job.placement
        if isinstance(how, Placement) and how is not Placement.CONTIGUOUS:
            usual = place_ranks(network, len(places), Placement.CONTIGUOUS, job.seed, taken)
            cuts = [ring_cut(network, some) for some in (places, usual)]
            parts = [_neighbours(network.nic_server, some) for some in (places, usual)]
            if parts[0] < parts[1] or cuts[0].zones > cuts[1].zones:
                yield (
                    f"{job.name}: placement {how} is not what schedulers and launchers do: "
                    f"{parts[0]:,} of {len(places):,} ranks have the next one on their server, and "
                    f"a ring goes from zone to zone {counted(cuts[0].zones, 'time')}; with "
                    f"`placement: contiguous` it is {parts[1]:,} and "
                    f"{counted(cuts[1].zones, 'time')}"
                )
        taken[places] = True


def _neighbours(server: Ints, places: Ints) -> int:
    """How many ranks have the next one on their server."""
    return int(np.count_nonzero(server[places] == server[np.roll(places, -1)]))


def losses_in_words(simulation: Simulation, timeline: TimelineSpec) -> tuple[str, ...]:
    """What a failed link costs queue pairs of a fluid, beside those of packets."""
    if not any(outage.loses_packets for outage in resolve(simulation.network, timeline)):
        return ()
    rules = []
    for number, (job, waits) in enumerate(simulation.retransmissions_in(timeline).items()):
        transport = simulation.jobs[number].transport
        wire_bytes = transport.mtu + wire_overhead_bytes(simulation.network.family)
        window_s = 8 * transport.window * wire_bytes / simulation.nic_bps(number)
        timeout, window = (
            quantities.duration(seconds * SECOND) for seconds in (waits.ack_timeout_s, window_s)
        )
        rules.append(
            f"{job}: in a fluid a queue pair over a failed link sends nothing until its first "
            f"retry on a whole path, every {timeout} and {counted(waits.retries, 'time')} at most, "
            "however short the outage. With --engine packets a packet that comes after a gap asks "
            f"for what was lost at once: an outage of less than a window ({window} at the NIC's "
            "rate) costs a round trip where more is to be sent"
        )
    return tuple(rules)


def _losses(simulation: Simulation) -> tuple[str, ...]:
    return losses_in_words(simulation, simulation.options.timeline)


def _repeated_exchanges(simulation: Simulation) -> Iterator[str]:
    """Of AlltoAlls whose sends wait for one another: ranks get out of step."""
    is_fluid = simulation.options.engine is Engine.FLUID
    for job in simulation.jobs:
        spec = job.collective
        if spec is None or not kind_of(spec.pattern).is_exchange:
            continue
        if min(spec.in_flight or PEERS_IN_FLIGHT, spec.ranks) >= spec.ranks - 1:
            continue
        if is_fluid and spec.in_flight is not None:
            yield (
                f"{job.name}: each iteration begins when all ranks have finished the one before; "
                f"with --engine packets ranks get out of step, which took up to "
                f"{whole_share(OUT_OF_STEP)} longer"
            )
        elif not is_fluid and job.iterations == 1:
            yield (
                f"{job.name}: its ranks begin together, and get out of step when they repeat it, "
                f"which took up to {whole_share(OUT_OF_STEP)} longer: --iterations 20 reports what "
                "repeated ones take"
            )


def _shared_tcp(simulation: Simulation) -> Iterator[str]:
    names = [job.name for job in simulation.jobs if job.transport.is_tcp]
    if names:
        yield (
            f"{listed(names, 'and')}: TCP is simulated as fair shares of every link from the first "
            "byte on. No slow start, congestion window, loss or timeout is in these times, and "
            "headers are RoCEv2's; `rocelab traffic` runs the kernel's own TCP in a lab"
        )


SETUP: Sequence[tuple[frozenset[Engine], Callable[[Simulation], Iterable[str]]]] = (
    (_FLUID, _shared_tcp),
    (_ALL, _workload_warnings),
    (_ALL, _assumed_hosts),
    (_ALL, other_gpus),
    (_ALL - _FLUID, _unposted),
    (_ALL, _placed_otherwise),
    (_ALL, _across_servers),
    (_ALL, _unevenly_spread),
    (_ALL, _overtaking),
    (_FLUID, rings_of_steps),
    (_ALL, _all_in_flight),
    (_ALL, _uneven_servers),
    (_ALL, _repeated_exchanges),
    (_ALL - _FLUID, _full_queues),
    (_ALL - _FLUID, _profiles),
    (_ALL - _FLUID, _discarding_sprayed),
    (_FLUID, _unread_by_a_fluid),
    (_FLUID, _losses),
    (_LINKS, _classes_of_answers),
    (_ALL, _other_hash),
    (_ALL, _valleys),
    (_ALL - _FLUID, _rounded_latencies),
    (_ALL, _without_vxlan),
)
"""Rules about what is simulated, each with the engines that it is about, in the order of a page."""


def _goes_on_after_the_last(simulation: Simulation, outcome: Outcome) -> Iterator[str]:
    """Jobs with sends beside iterations, which go on when all these are over."""
    spans = simulation.iteration_spans(outcome)
    for number, (job, workload) in enumerate(
        zip(simulation.jobs, simulation.workloads, strict=True)
    ):
        beside = [step.counts is StepTiming.BESIDE for step in workload.steps]
        if not any(beside):
            continue
        last_s = float(np.array(step_ends_s(simulation, outcome, number))[beside].max())
        over_s = last_s - float(spans[number][1][-1])
        if np.isfinite(over_s) and over_s > 0:
            rest = quantities.duration(over_s * SECOND)
            yield (
                f"{job.name}: a checkpoint goes on {rest} after the last iteration: "
                "what it costs later ones is not in the figures; simulate more"
            )


OUTCOME: Sequence[Callable[[Simulation, Outcome], Iterable[str]]] = (
    _stuck,
    _held_by_windows,
    _goes_on_after_the_last,
)
"""Rules about what a run shows."""
