"""The packet engine beside a plain simulator with the lab's own queue pairs, in random networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from random import Random

import numpy as np
import pytest

from rocelab.agent.dcqcn import DcqcnParameters
from rocelab.base.arrays import NONE, Floats, Longs
from rocelab.jobs.dcqcn_profiles import PROFILES, parameters
from rocelab.jobs.messages import Messages
from rocelab.results.engines import PortModel
from rocelab.routes.arrays.flows import Paths, Ways
from rocelab.sim.engine.program import Program
from rocelab.sim.packets import run as run_module
from rocelab.sim.packets import state as at
from rocelab.sim.packets.control import marked
from rocelab.sim.packets.dcqcn import rule_with
from rocelab.sim.packets.hosts import with_wakes
from rocelab.sim.packets.pausing import BufferDrain, Pausing, WatchdogTimes
from rocelab.sim.packets.run import PacketRun, run_packets
from rocelab.sim.packets.sending import Gathering, Queues, Sending, class_order
from rocelab.sim.packets.wiring import Wiring
from tests.helpers.long import mostly_long
from tests.unit.sim.packet_oracle import Oracle
from tests.unit.sim.packet_runs import ENDLESS, Flow, arranged, messages

Case = tuple[Program, list[Wiring], Floats, Sending, Queues, Sequence[DcqcnParameters | None]]

LEAVES, SERVERS = 2, 3
ALONE, BESIDE, ACROSS = (0, 1, 2, 3, 4, 5), (0, 0, 1, 1, 2, 2), (0, 1, 2, 0, 1, 2)
"""The servers of the NICs' links, three of them at each leaf."""

CLASSES = [(3, 6, 5), (4, 6, 5), (3, 3, 3), (0, 4, 6)]
"""Of data, ACKs and CNPs."""

CORE_SEEDS = (*range(14), 63, 96)
"""With 63 a watchdog that fired looks again at a pause; with 96 one fires in all kinds of cases."""


def random_case(
    seed: int, with_pauses: bool, with_changes: bool, server: Sequence[int] = ALONE
) -> Case:
    """A fabric of two leaves, flows between its NICs, and tasks that wait for one another. Rates
    and delays are such that hardly any events fall on one instant. with_changes: packets have
    several ways, receivers take any order and answer by any port of their server, links fail and
    ways change."""
    random = Random(seed)
    spines = random.randint(1, 2)
    program = random_program(random)
    transport = {
        "window": random.choice([1, 6, 20, 60]),
        "ack_every": random.choice([1, 4, 16]),
        "retries": random.choice([1, 2, 7]),
        "any_order": with_changes and random.random() < 0.5,
    }
    ports = 2 * (LEAVES * SERVERS + LEAVES * spines)
    capacity_bps = np.array([1e9 * random.uniform(40, 100) for _ in range(ports)])
    paths = [random_path(random, spines) for _ in range(program.flow.max() + 1)]
    dcqcn = [
        # Ten times as fast, for runs as short as these.
        parameters(random.choice(list(PROFILES)), round(capacity_bps[path[0]])).dilated(0.1)
        if random.random() < 0.5
        else None
        for path in paths
    ]
    flows = [
        Flow(
            path,
            payload=1,
            mtu=random.choice([512, 1024]),
            ecn=random.choice([at.NOT_ECT, at.ECT, at.ECT, at.ECT, at.ALL_CE]),
            classes=random.choice(CLASSES),
            timeout_ns=random.randint(10_000, random.choice([20_000, 200_000])),
            rule=[]
            if control is None
            else marked("dcqcn", rule_with(control, capacity_bps[path[0]])),
            **transport,
        )
        for path, control in zip(paths, dcqcn, strict=True)
    ]
    frame = 1024 + 58
    kmin = random.choice([0, 1, 3]) * frame
    queues = Queues(
        buffer_bytes=random.choice([2, 5, 20]) * frame + random.choice([0, 500]),
        kmin=kmin,
        kmax=kmin + random.choice([1, 4, 9]) * frame,
        pmax=random.choice([0.1, 0.5, 1.0]),
        marked=random.choice([(3,), (3, 4), (0, 3, 4, 6)]),
        quantum=random.choice([600, 1082, 3000]),
        ports=random.choice(list(PortModel)),
        burst_bytes=random.choice([1106, 4000]),
        seed=seed,
        pausing=random_pausing(random, spines, frame) if with_pauses else None,
    )
    _, (wiring,), latency_s, sending, _ = arranged(
        flows, queues, latency_ps=random.randint(100_000, 2_000_000)
    )
    latency_s = np.full(ports, latency_s[0])
    if random.random() < 0.5:
        latency_s *= [random.choice([1, 1, 2, 2.5]) for _ in latency_s]
    sending = replace(sending, messages=random_messages(random, program.transfers))
    wirings = [replace(wiring, capacity_bps=capacity_bps)]
    if with_changes:
        wirings = random_wirings(random, spines, paths, capacity_bps, server)
    return program, wirings, latency_s, sending, queues, dcqcn


def gathering_case(seed: int, with_pauses: bool, with_changes: bool) -> Case:
    """As `random_case`, but hosts of one or two NICs gather arrivals, and some tasks begin at
    once."""
    random = Random(-1 - seed)
    servers = random.choice([ALONE, BESIDE, ACROSS])
    program, wirings, latency_s, sending, queues, dcqcn = random_case(
        seed, with_pauses, with_changes, servers
    )
    server = np.full(len(wirings[0].capacity_bps), NONE)
    server[: 2 * len(servers) : 2] = servers
    moderation_ns = random.choice([random.uniform(20, 200), random.uniform(200, 2000)])
    gathering = Gathering(moderation_ns, random.uniform(0.1, 500), server)
    delay_s = np.where([random.random() < 0.5 for _ in program.delay_s], 0, program.delay_s)
    return (
        replace(program, delay_s=delay_s),
        wirings,
        latency_s,
        replace(sending, gathering=gathering),
        replace(queues, ports=PortModel.LAB),
        dcqcn,
    )


def selective_case(seed: int, with_pauses: bool, with_changes: bool) -> Case:
    """As the others, but most queue pairs send again only what is missing."""
    random = Random(10**6 + seed)
    case_of = random.choice([random_case, gathering_case])
    program, wirings, latency_s, sending, queues, dcqcn = case_of(seed, with_pauses, with_changes)
    selective = np.array([random.random() < 0.8 for _ in dcqcn], np.int64)
    reach = np.where(selective, sending.window, sending.reach)
    sending = replace(sending, selective=selective, reach=reach)
    return program, wirings, latency_s, sending, queues, dcqcn


def random_wirings(
    random: Random,
    spines: int,
    paths: list[list[int]],
    capacity_bps: Floats,
    server: Sequence[int],
) -> list[Wiring]:
    """Up to three changes in which links fail, return or have other rates. Flows then have other
    ways, maybe by another port, or none."""

    def by(link: int, but: int) -> int:
        beside = [i for i, of in enumerate(server) if of == server[link] and i != but]
        return random.choice(beside or [link])

    gap_s = random.choice([0, 2e-7, 1e-6])
    ends = [(path[0] // 2, path[-1] // 2) for path in paths]
    wirings = []
    time_s = 0.0
    for change in range(1 + random.randint(1, 3)):
        parts = random.choices([1, 0, 0.3], [8, 1, 1] if change else [1, 0, 0], k=len(capacity_bps))
        if change and random.random() < 0.5:
            ends = [(random.choice([source, source, 3]), end) for source, end in ends]
        data, back = (
            [
                random_ways(random, spines, *pair, change > 0)
                for pair in (
                    ends if is_data else [(by(end, source), source) for source, end in ends]
                )
            ]
            for is_data in (True, False)
        )
        wirings.append(Wiring(time_s, capacity_bps * parts, ways_from(data + back, gap_s)))
        time_s += random.uniform(1e-6, 30e-6)
    return wirings


def random_ways(
    random: Random, spines: int, source: int, destination: int, is_changed: bool
) -> list[list[int]]:
    if source == destination or (is_changed and random.random() < 0.1):
        return [[]]
    ways = [path_between(random, spines, source, destination) for _ in range(2)]
    return random.choices(ways, k=random.randint(1, 3))


def ways_from(of_flows: list[list[list[int]]], gap_s: float) -> Ways:
    """Those of each flow."""
    every = [way for ways in of_flows for way in ways]
    paths = Paths(np.cumsum([0, *map(len, every)]), np.array([*chain(*every)], np.int32))
    return Ways(np.cumsum([0, *map(len, of_flows)]), np.arange(len(every)), paths, gap_s)


def random_pausing(random: Random, spines: int, frame: int) -> Pausing:
    """Lossless classes whose memory, headroom and receive buffers may be too small."""
    ups = LEAVES * spines
    into = [[i // SERVERS, NONE] for i in range(LEAVES * SERVERS)]
    into += [[LEAVES + i % spines, i // spines] for i in range(ups)]
    sends = 2 * len(into)
    is_nic = np.array(into).ravel() == NONE
    rate_bps = random.choice([10, 16, 20, 40]) * 10**9
    size = random.choice([8, 30]) * frame

    def levels(bytes_: int) -> Longs:
        return np.full(sends, bytes_, np.int64)

    drain = BufferDrain(
        np.where(is_nic, rate_bps, 0), levels(size), levels(size // 2), levels(size // 3)
    )
    watchdog = WatchdogTimes(
        random.randint(1_000_000, 5_000_000),
        random.randint(1_000_000, 20_000_000),
        random.random() < 0.5,
    )
    return Pausing(
        random.choice([(3,), (3, 4), (0,), (0, 3, 4)]),
        np.array(into).ravel(),
        np.array([random.choice([1, 4, 30]) * frame for _ in range(sends)]),
        np.array([random.randint(100_000, 3_000_000) for _ in range(sends)]),
        np.array([random.choice([5, 20]) * frame for _ in range(LEAVES + spines)]),
        np.array([random.choice([10, 300]) * frame for _ in range(LEAVES + spines)]),
        reserved=random.choice([0, 0, 2 * frame]),
        xoff=random.choice([0, 0, 1, 3]) * frame,
        dynamic_th=random.randint(-3, 3),
        xon_offset=random.choice([0, frame, 3 * frame]),
        watchdog=random.choice([None, watchdog]),
        drain=random.choice([None, drain]),
    )


def random_messages(random: Random, transfers: int) -> Messages:
    """Up to two sends for each transfer, of up to 50 kB, cut into messages. Some are empty."""
    sends = [
        [random.randint(1, random.choice([2000, 50_000])) for _ in range(random.choice([1, 1, 2]))]
        for _ in range(transfers)
    ]
    cut = messages(sends, random.choices([700, 4096, 10_000, 100_000], k=transfers))
    size_bytes = np.where([random.random() < 0.05 for _ in cut.size_bytes], 0, cut.size_bytes)
    return replace(cut, size_bytes=size_bytes)


def random_path(random: Random, spines: int) -> list[int]:
    """From one NIC to another: link i sends up by port 2i, down by port 2i + 1."""
    source = random.choice([1, 1, 2, 4, 4])
    destination = 0 if random.random() < 0.6 else (source + 1) % (LEAVES * SERVERS)
    return path_between(random, spines, source, destination)


def path_between(random: Random, spines: int, source: int, destination: int) -> list[int]:
    way = [2 * source, 2 * destination + 1]
    if source // SERVERS != destination // SERVERS:
        spine = random.randrange(spines)
        up, down = (
            LEAVES * SERVERS + spines * (server // SERVERS) + spine
            for server in (source, destination)
        )
        way[1:1] = [2 * up, 2 * down + 1]
    return way


def random_program(random: Random) -> Program:
    """Tasks of up to three transfers, each of which waits for up to two earlier ones."""
    tasks = random.randint(2, 8)
    after = [random.sample(range(task), min(task, random.randrange(3))) for task in range(tasks)]
    transfers = [random.choice([0, 1, 1, 3]) for _ in range(tasks - 1)] + [2]
    flows = random.randint(1, min(7, sum(transfers)))
    flow = [*range(flows), *(random.randrange(flows) for _ in range(sum(transfers) - flows))]
    random.shuffle(flow)
    return Program(
        np.cumsum([0, *map(len, after)]),
        np.array([*chain(*after)], np.int32),
        np.array([random.randint(1, 3_000_000) / 1e12 for _ in range(tasks)]),
        np.zeros(tasks),
        np.cumsum([0, *transfers]),
        np.array(flow, np.int32),
        np.ones(len(flow)),
    )


def figures_of_oracle(oracle: Oracle) -> dict[str, object]:
    oracle.run()
    order, _ = class_order(oracle.sending)
    lanes = [port.lanes[i] for port in oracle.ports for i in sorted(port.lanes) if i in order]
    senders = [flow.sender.requester for flow in oracle.flows]
    receivers = [flow.receiver.responder.counters for flow in oracle.flows]
    return {
        "start": [task.start_ps for task in oracle.tasks],
        "end": [task.end_ps for task in oracle.tasks],
        "finish": oracle.finish_ps,
        "carried": [port.carried for port in oracle.ports],
        "highest": [port.highest for port in oracle.ports],
        "marks": [port.marks for port in oracle.ports],
        "drops": [port.drops for port in oracle.ports],
        "marking": oracle.marking,
        "marked": [receiver.ce for receiver in receivers],
        "cnps": [receiver.cnps for receiver in receivers],
        "naks": [sender.counters.naks for sender in senders],
        "retransmitted": [sender.counters.retransmitted for sender in senders],
        "timeouts": [sender.counters.timeouts for sender in senders],
        "out of order": [receiver.out_of_order for receiver in receivers],
        "lost": oracle.lost,
        "failed": sum(sender.error is not None for sender in senders),
        "packets": sum(sender.counters.packets for sender in senders),
        "acks": sum(flow.acks for flow in oracle.flows),
        "hops": oracle.hops,
        "stops": [lane.stops for lane in lanes],
        "paused": [lane.paused_ps for lane in lanes],
        "longest": [lane.longest_ps for lane in lanes],
        "held": [lane.held_max for lane in lanes],
        "headroom": [lane.beyond_max for lane in lanes],
        "refused": [lane.refused for lane in lanes],
        "firings": [lane.firings for lane in lanes],
        "discards": [lane.discards for lane in lanes],
        "overflows": [port.buffer.refused if port.buffer else 0 for port in oracle.ports],
    }


def figures_of_engine(run: PacketRun) -> dict[str, object]:
    def pauses(field: str) -> list[int]:
        return getattr(run.pause, field).ravel().tolist()

    def ps(seconds: Floats) -> list[int]:
        return np.rint(np.where(np.isinf(seconds), -1e-12, seconds) * 1e12).astype(int).tolist()

    return {
        "start": ps(run.start_s),
        "end": ps(run.end_s),
        "finish": ps(run.finish_s),
        "carried": (run.sent_bits / 8).astype(int).tolist(),
        "highest": run.highest_bytes.tolist(),
        "marks": run.marks.tolist(),
        "drops": run.drops.tolist(),
        "marking": run.marking.tolist(),
        "marked": run.marked.tolist(),
        "cnps": run.cnps.tolist(),
        "naks": run.naks.tolist(),
        "retransmitted": run.retransmitted.tolist(),
        "timeouts": run.timeouts.tolist(),
        "out of order": run.out_of_order.tolist(),
        "lost": run.lost,
        "failed": run.failed,
        "packets": run.packets,
        "acks": run.acks,
        "hops": run.packet_hops,
        "stops": pauses("stops"),
        "paused": pauses("paused_ps"),
        "longest": pauses("longest_ps"),
        "held": pauses("held_highest"),
        "headroom": pauses("beyond_highest"),
        "refused": pauses("refused"),
        "firings": pauses("firings"),
        "discards": pauses("discards"),
        "overflows": run.buffer.overflows.tolist() or [0] * len(run.drops),
    }


@pytest.mark.parametrize("seed", mostly_long(range(120), CORE_SEEDS))
@pytest.mark.parametrize("with_pauses", [False, True])
@pytest.mark.parametrize("with_changes", [False, True])
@pytest.mark.parametrize("case_of", [random_case, gathering_case, selective_case])
def test_times_and_counts_are_those_of_a_plain_simulator(
    case_of: Callable[[int, bool, bool], Case], seed: int, with_pauses: bool, with_changes: bool
) -> None:
    case = case_of(seed, with_pauses, with_changes)
    assert figures_of_engine(run_packets(*case[:-1])) == figures_of_oracle(Oracle(*case))


@pytest.mark.parametrize("case_of", [random_case, gathering_case, selective_case])
def test_no_figure_is_zero_in_all_of_the_cases(
    case_of: Callable[[int, bool, bool], Case],
) -> None:
    seen: set[str] = set()
    for seed in CORE_SEEDS:
        figures = figures_of_engine(run_packets(*case_of(seed, True, True)[:-1]))
        seen |= {name for name, values in figures.items() if (np.array(values) > 0).any()}
    assert seen == figures.keys()


def test_what_is_sent_again_for_nothing_is_lost_at_a_change_after_the_last_task() -> None:
    case = gathering_case(46, with_pauses=False, with_changes=True)
    run = run_packets(*case[:-1])
    assert run.end_s.max() < case[1][-1].time_s
    assert run.lost > 0
    assert figures_of_engine(run) == figures_of_oracle(Oracle(*case))


def test_a_slow_sender_that_wakes_for_each_arrival_has_room_for_its_timers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flows = [Flow([0, 3], 12 * 4096), Flow([2, 1], 400 * 4096)]
    queues = replace(ENDLESS, ports=PortModel.LAB, burst_bytes=1106)
    program, wirings, latency_s, sending, queues = arranged(flows, queues, {0: 1e9})
    sending = replace(sending, gathering=Gathering(20, 1, np.array([0, NONE, 1, NONE])))
    grown = []
    monkeypatch.setattr(run_module, "with_wakes", lambda run: grown.append(1) or with_wakes(run))
    lossless = figures_of_engine(run_packets(program, wirings, latency_s, sending, queues))
    assert grown
    plain = Oracle(program, wirings, latency_s, sending, queues, [None, None])
    assert lossless == figures_of_oracle(plain)
