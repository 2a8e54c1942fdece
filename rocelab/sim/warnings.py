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
from rocelab.base.arrays import NONE, Bools, Floats, Ints, Longs
from rocelab.base.errors import InputError
from rocelab.base.quantities import whole_share
from rocelab.base.wording import counted, listed
from rocelab.jobs.collectives import Pattern, kind_of
from rocelab.jobs.jobplan import message_bytes
from rocelab.jobs.merged_sends import MOST_IN_TURN, OVERTAKING, algorithm_of
from rocelab.jobs.messages import spread_evenly
from rocelab.jobs.patterns.base import PEERS_IN_FLIGHT
from rocelab.jobs.performance import jct_ratio, ran_ahead
from rocelab.jobs.placement import Placement
from rocelab.jobs.transport import Strategy, TransportSpec
from rocelab.labfile.base import SECOND
from rocelab.labfile.schemes.base import Treatment
from rocelab.planning.limits import unreached_marks
from rocelab.planning.profiles import profile_conflicts
from rocelab.results.engines import Engine
from rocelab.results.simulation import JobOutcome, PacketCounts
from rocelab.routes.models import Model
from rocelab.sim.engine.completion import transfers_over_s
from rocelab.sim.engine.program import Outcome
from rocelab.sim.packets.pausing import pause_warnings
from rocelab.sim.packets.sending import ack_bytes
from rocelab.sim.placement import place_ranks
from rocelab.sim.windows import Sent, held_back, round_trips_s
from rocelab.wire.vxlan import VXLAN_BYTES

if TYPE_CHECKING:
    from rocelab.sim.simulate import Simulation

MOST_SERVERS = 8
"""Servers that a warning names."""

NEGLIGIBLE = 0.02
"""The share of a job's bytes below which its way decides nothing."""

NO_WINDOW = 2**40
"""Packets: more than are sent."""

HELD_BACK = 0.02
"""How much longer a transfer takes with its window before a warning says so."""

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
"""The keys of `transport` that say what packets do, but for `window` (`_beyond_windows`) and
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


def _beyond_windows(simulation: Simulation, outcome: Outcome) -> list[str]:
    """Jobs whose queue pairs sent more in a fluid than their windows let through."""
    if simulation.options.engine is not Engine.FLUID:
        return []
    sent = _sent(simulation, outcome)
    if not len(sent.flow):
        return []
    latency_s = simulation.latency_ns / SECOND
    if simulation.local is not None:
        latency_s = simulation.local.padded(latency_s)
    round_s = round_trips_s(sent, simulation.whole_paths, simulation.capacity_bps, latency_s)
    longer = held_back(sent, round_s)
    job = np.repeat(simulation.compiled.job, np.diff(simulation.program.first_transfer))
    warnings = []
    for number in range(len(simulation.jobs)):
        (beyond,) = np.nonzero((job == number) & (longer > 1 + HELD_BACK))
        if len(beyond):
            worst = int(beyond[np.argmax(longer[beyond])])
            flows = len(np.unique(sent.flow[beyond]))
            warnings.append(
                f"{simulation.jobs[number].name}: {counted(flows, 'queue pair')} sent faster than "
                f"transport.window lets one send: {_faster(simulation, sent, round_s, worst)}. A "
                f"fluid has no windows; with them this takes about {longer[worst]:.3g} times as "
                "long: use --engine packets, a larger window, or more queue pairs"
            )
    return warnings


def _faster(simulation: Simulation, sent: Sent, round_s: Floats, transfer: int) -> str:
    """The ends of a transfer, its rate, and that of a window in a round trip."""
    flows, network = simulation.flows, simulation.network
    flow, packets = int(sent.flow[transfer]), int(sent.packets[transfer])
    ends = [network.nic_name(int(nics[flow])) for nics in (flows.source, flows.destination)]
    window, round_trip_s = int(sent.window[transfer]), float(round_s[transfer])
    bits = 8 * int(simulation.compiled.payload_bytes[transfer])
    sent_bps = bits / float(sent.end_s[transfer] - sent.begin_s[transfer])
    return (
        f"{ends[0]} to {ends[1]} at {quantities.rate(sent_bps)}, where "
        f"{counted(window, 'packet')} of {bits // (8 * packets):,} bytes in a round trip of "
        f"{quantities.duration(round_trip_s * SECOND)} are "
        f"{quantities.rate(window * bits / packets / round_trip_s)}"
    )


def _most_acked(transport: TransportSpec) -> int:
    """The most packets that one ACK is for: the last of a message asks for one too."""
    pairs = transport.qps if transport.strategy is Strategy.SPLIT else 1
    part = -(-message_bytes(transport) // pairs)
    return min(transport.ack_every, -(-part // transport.mtu))


def _sent(simulation: Simulation, outcome: Outcome) -> Sent:
    """What a fluid sent. A merged send ends with the last of its rounds."""
    program, compiled = simulation.program, simulation.compiled
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    job = compiled.job[task]
    transports = [spec.transport for spec in simulation.jobs]
    merged, over_s = simulation.is_merged[job], transfers_over_s(program, outcome)
    return Sent(
        flow=program.flow.astype(np.int64),
        begin_s=outcome.start_s[task],
        end_s=np.where(merged, over_s, outcome.finish_s),
        over_s=over_s,
        packets=compiled.packets,
        bits=program.size_bits,
        window=_windows(simulation, transports, job),
        ack_every=np.array(list(map(_most_acked, transports)), np.int64)[job],
        ack_bits=8 * ack_bytes(simulation.network.family),
    )


def _unread(keys: Iterable[str], why: str) -> list[str]:
    """The sentence for keys that have other values than their defaults and are not read."""
    names = list(dict.fromkeys(keys))
    if not names:
        return []
    verb = "has" if len(names) == 1 else "have"
    return [f"{listed(names, 'and')} {verb} no effect here: {why}"]


def _transport_warnings(simulation: Simulation, *keys: str) -> list[str]:
    return [key for job in simulation.jobs for key in job.transport.changed("transport", *keys)]


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
            network, len(simulation.places[number]), Placement.CONTIGUOUS, job.seed, taken
        )
        if not simulation.place(number, places).apart(size).any():
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


def _windows(simulation: Simulation, transports: Sequence[TransportSpec], job: Ints) -> Longs:
    """Of each transfer, X; those that do not use the network have none that holds them back."""
    windows = np.array([transport.window for transport in transports], np.int64)[job]
    if simulation.local is not None:
        windows[simulation.local.is_local(simulation.flows)[simulation.program.flow]] = NO_WINDOW
    return windows


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
    for job, workload in zip(simulation.jobs, simulation.workloads, strict=True):
        spec = job.collective
        if workload.ordered or spec is None or spec.pattern is not Pattern.ALLREDUCE:
            continue
        algorithm = algorithm_of(spec)
        if (share := OVERTAKING.get(algorithm)) is not None:
            yield (
                f"{job.name}: more than {MOST_IN_TURN:,} sends are not simulated one by one; "
                f"merged, a {algorithm} allreduce takes up to {whole_share(share)} more or less "
                "time"
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


SETUP: Sequence[tuple[frozenset[Engine], Callable[[Simulation], Iterable[str]]]] = (
    (_ALL, _workload_warnings),
    (_ALL, _assumed_hosts),
    (_ALL - _FLUID, _unposted),
    (_ALL, _across_servers),
    (_ALL, _unevenly_spread),
    (_ALL, _overtaking),
    (_ALL, _all_in_flight),
    (_ALL - _FLUID, _full_queues),
    (_ALL - _FLUID, _profiles),
    (_ALL - _FLUID, _discarding_sprayed),
    (_FLUID, _unread_by_a_fluid),
    (_LINKS, _classes_of_answers),
    (_ALL, _other_hash),
    (_ALL, _valleys),
    (_ALL - _FLUID, _rounded_latencies),
    (_ALL, _without_vxlan),
)
"""Rules about what is simulated, each with the engines that it is about, in the order of a page."""

OUTCOME: Sequence[Callable[[Simulation, Outcome], Iterable[str]]] = (_stuck, _beyond_windows)
"""Rules about what a run shows."""
