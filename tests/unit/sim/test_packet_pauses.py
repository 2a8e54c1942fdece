"""The packet engine's lossless classes: headroom and pauses by closed forms, deadlocks, watchdogs,
and that thresholds are the plan's."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from rocelab.base.arrays import NONE
from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.headroom import headroom_of
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.queues import QueuesSpec
from rocelab.planning.build import plan
from rocelab.planning.pauses import plan_pauses
from rocelab.planning.pfc import carve, nic_headrooms, slack_of, warnings
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.report.simulation.document import simulation_document
from rocelab.results.engines import Engine, PortModel
from rocelab.results.simulation import SimulationReport, from_json
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.options import Options
from rocelab.sim.packets.figures import lossless_links
from rocelab.sim.packets.pausing import (
    BufferDrain,
    Pausing,
    WatchdogTimes,
    pause_warnings,
    pausing_of,
)
from rocelab.sim.packets.run import PacketRun, run_packets
from rocelab.sim.packets.sending import Gathering, Queues, queues_of
from rocelab.sim.simulate import Simulation, simulate
from tests.unit.sim.packet_runs import (
    ACK_PS,
    ENDLESS,
    FRAME,
    FULL_PS,
    LATENCY_PS,
    Flow,
    arranged,
    finish_ps,
    ran,
    there_and_back,
)

RESPONSE_PS = 2_017_280
"""Of 394 quanta at 100G."""

DELAY_PS = LATENCY_PS + RESPONSE_PS
PATIENT = {"timeout_ns": 10**12}


def lossless(switch_of: dict[int, int], sends: int, **keys: Any) -> Queues:
    """Endless queues whose class 3 is lossless: XOFF at 10 frames, XON one below. switch_of: the
    switch that each send enters, which has memory without end."""
    pool = np.array([switch_of.get(send, NONE) for send in range(sends)])
    switches = 1 + int(pool.max())
    made: dict[str, Any] = {
        "classes": (3,),
        "pool": pool,
        "headroom": np.full(sends, 10**12),
        "delay_ps": np.full(sends, DELAY_PS),
        "shared": np.full(switches, 10**13),
        "reserve": np.full(switches, 10**13),
        "reserved": 0,
        "xoff": 10 * FRAME,
        "dynamic_th": 0,
        "xon_offset": FRAME,
    }
    return replace(ENDLESS, pausing=Pausing(**(made | keys)))


def of(run: PacketRun, field: str, send: int) -> int:
    return int(run.pause[send, 0][field])


@pytest.mark.parametrize(("of_whom", "count"), [("headroom", 4), ("reserve", 1)])
@pytest.mark.parametrize("extra_ps", [0, FULL_PS - (2 * LATENCY_PS + RESPONSE_PS) % FULL_PS])
def test_a_headroom_holds_what_arrives_after_a_threshold_and_not_a_byte_less(
    extra_ps: int, of_whom: str, count: int
) -> None:
    """A port's, and that of its whole switch. Nothing leaves meanwhile: the next port takes seconds
    for a frame. The sender goes on for the pause's way, its response and the frame begun; what was
    on its way arrives."""
    after_ps = LATENCY_PS + DELAY_PS + extra_ps
    frames = after_ps // FULL_PS + 1
    assert extra_ps == 0 or after_ps % FULL_PS == 0, "a frame begins as the pause takes effect"
    result = []
    for size in (frames * FRAME, frames * FRAME - 1):
        memory = {of_whom: np.full(count, size)}
        queues = lossless({0: 0}, 4, delay_ps=np.full(4, DELAY_PS + extra_ps), **memory)
        done = ran([Flow([0, 2], 100 * 4096, retries=0)], queues, {2: 1e5, 3: 1e5}, **PATIENT)
        result.append(done)
    enough, short = result
    assert of(enough, "beyond_highest", 0) == frames * FRAME
    assert of(enough, "refused", 0) == enough.drops.sum() == enough.retransmitted.sum() == 0
    assert of(short, "refused", 0) == short.drops[2] > 0
    assert of(short, "beyond_highest", 0) == (frames - 1) * FRAME


def test_static_thresholds_that_promise_more_memory_than_there_is_pause_earlier() -> None:
    """Nothing leaves meanwhile. Each of two senders may have 10 frames, and 12 are there: the last
    frame that finds room may end beyond it, and the other sender's next one finds none."""
    queues = lossless({0: 0, 2: 0}, 22, shared=np.full(1, 12 * FRAME))
    flows = [Flow([0, 20], 100 * 4096, retries=0), Flow([2, 20], 100 * 4096, retries=0)]
    done = ran(flows, queues, {20: 1e5, 21: 1e5}, **PATIENT)
    shared = [of(done, "held_highest", send) - of(done, "beyond_highest", send) for send in (0, 2)]
    assert 12 * FRAME <= sum(shared) <= 13 * FRAME
    assert max(shared) < 10 * FRAME
    assert done.drops.sum() == 0


def test_each_port_pauses_at_its_own_threshold_and_resumes_at_its_own_xon() -> None:
    """Two senders share a slow port: one may have 10 frames, the other 30, and resumes at one."""
    per_port = {"xoff": np.zeros(22, np.int64), "xon_offset": np.zeros(22, np.int64)}
    per_port["xoff"][[0, 2]] = 10 * FRAME, 30 * FRAME
    per_port["xon_offset"][[0, 2]] = FRAME, 10**9
    flows = [Flow([0, 20], 200 * 4096), Flow([2, 20], 200 * 4096)]
    queues = lossless({0: 0, 2: 0}, 22, **per_port, xon=np.full(22, FRAME))
    done = ran(flows, queues, {20: 1e10, 21: 1e10}, **PATIENT)
    shared = [of(done, "held_highest", send) - of(done, "beyond_highest", send) for send in (0, 2)]
    assert shared == [10 * FRAME, 30 * FRAME]
    assert of(done, "stops", 0) > 2 * of(done, "stops", 2) > 0
    assert done.drops.sum() == 0


def test_the_plan_s_headroom_is_enough_and_what_it_used_less_a_byte_is_not() -> None:
    base = {"xoff": "100KB", "xon_offset": "5KB", "memory": "600KB"}

    def incast(**pfc: Any) -> SimulationReport:
        return report(lab({**base, **pfc}), "incast", 6)

    links = held(incast())
    used = max(link.headroom_max_bytes for link in links)
    needed = headroom_of(PfcSpec.model_validate(base), 400 * 10**9, 9000, 200).total
    assert 0 < used <= needed
    assert sum(link.dropped_packets for link in held(incast(headroom=f"{used}B"))) == 0
    assert sum(link.dropped_packets for link in held(incast(headroom=f"{used - 1}B"))) > 0


@pytest.mark.parametrize(("class_", "most"), [(3, 0), (4, 10 * FRAME)])
def test_what_a_host_sends_at_once_leaves_a_nic_at_its_rate_if_it_is_lossless(
    class_: int, most: int
) -> None:
    """A host wakes once in the time of 12 frames. Class 3 is lossless: the switch, which sends at
    the NIC's rate, never has a frame that waits; of class 4 all 12 come at once, and the last one
    finds 10 behind the first."""
    queues = replace(lossless({0: 0}, 4, xoff=10**9), ports=PortModel.LAB)
    flow = Flow([0, 3], 100 * 4096, classes=(class_, 6, 5))
    program, wirings, latency_s, sending, queues = arranged([flow], queues)
    host = Gathering(12 * FULL_PS / 1000, 0, np.array([0, NONE, 1, NONE]))
    sending = replace(sending, gathering=host)
    done = run_packets(program, wirings, latency_s, sending, queues)
    assert done.packets == 100
    assert done.highest_bytes[3] == most


@pytest.mark.parametrize("dilation", [500, 1000, 5000])
def test_the_bursts_of_a_lab_s_hosts_fit_the_headroom_with_the_lab_s_slack(dilation: float) -> None:
    spec = LabSpec.model_validate(
        {
            "name": "bursts",
            "fabric": {"kind": "clos", "racks": 1, "spines": 1, "servers_per_rack": 8},
            "links": {"mtu": 4200},
            "dilation": dilation,
            "queues": {"pfc": {"xoff": "64KB"}},
        }
    )
    options = Options(engine=Engine.PACKETS, ports=PortModel.LAB, hop_latency_ns=2)
    report = simulate(spec, [job("incast", 8)], options)
    assert report.packets is not None
    assert sum(link.transitions for link in held(report)) > 0
    assert report.packets.drops == report.packets.retransmitted == 0
    needed = headroom_of(PfcSpec(), 400 * 10**9, 4200, 200)
    used = max(link.headroom_max_bytes for link in held(report))
    assert 0 < used <= needed.total + slack_of(needed, spec)


def test_an_incast_of_two_stops_each_sender_half_of_the_time_and_wastes_none() -> None:
    packets = 2000
    flows = [Flow([0, 20], packets * 4096), Flow([2, 20], packets * 4096)]
    done = ran(flows, lossless({0: 0, 2: 0}, 22), window=10**6, ack_every=10**6, **PATIENT)
    last_ps = FULL_PS + 2 * packets * FULL_PS + 2 * LATENCY_PS + 2 * (ACK_PS + LATENCY_PS)
    assert max(finish_ps(done)) == pytest.approx(last_ps, abs=0.5)
    assert done.drops.sum() == 0
    for send in (0, 2):
        stops, paused_ps = of(done, "stops", send), of(done, "paused_ps", send)
        # Of each pause a frame under way is sent, and at the end what is held is sent meanwhile.
        least_ps = packets * FULL_PS - 2 * of(done, "held_highest", send) // FRAME * FULL_PS
        assert least_ps <= paused_ps <= packets * FULL_PS + stops * FULL_PS
        assert stops > 10


def test_pauses_go_back_hop_by_hop_to_the_senders_of_a_slow_port() -> None:
    queues = lossless({0: 0, 2: 1}, 6)
    done = ran([Flow([0, 2, 4], 300 * 4096)], queues, {4: 10e9}, **PATIENT)
    assert of(done, "stops", 2) > 0 and of(done, "stops", 0) > 0 == of(done, "stops", 4)
    assert done.drops.sum() == done.retransmitted.sum() == 0
    assert of(done, "paused_ps", 2) > of(done, "paused_ps", 0), "the first switch filled later"


def test_a_class_that_waits_holds_up_neither_other_classes_nor_their_buffer() -> None:
    """A NIC sends to a slow port, and by its other class to a fast one."""
    other = Flow([0, 6], 100 * 4096, classes=(4, 6, 5))
    slow = [Flow([0, 2], 300 * 4096)]
    queues = lossless({0: 0}, 8)
    done = ran([*slow, other], queues, {2: 1e9}, **PATIENT)
    alone = ran([other], queues, **PATIENT)
    assert of(done, "stops", 0) > 0
    assert finish_ps(done)[1] < 1.5 * finish_ps(alone)[0] + 20 * FULL_PS
    same = ran([*slow, replace(other, classes=(3, 6, 5))], queues, {2: 1e9}, **PATIENT)
    assert finish_ps(same)[1] > 3 * finish_ps(alone)[0], "head of line"
    # Lossy packets behind a full lossless queue have a buffer of their own.
    filled = replace(lossless({0: 0, 4: 0}, 6), buffer_bytes=4 * FRAME)
    done = ran(
        [*slow, Flow([4, 2], 4 * 4096, classes=(4, 6, 5), retries=0)], filled, {2: 1e9}, **PATIENT
    )
    assert done.drops.sum() == 0


def test_a_slow_host_pauses_its_switch_and_gets_all_at_its_own_rate() -> None:
    sends, drain_bps = 4, 25 * 10**9
    level = np.full(sends, 1)
    rate = np.where(np.arange(sends) == 2, drain_bps, 0)
    drain = BufferDrain(rate, level * 60 * FRAME, level * 20 * FRAME, level * 10 * FRAME)
    done = ran([Flow([0, 2], 1000 * 4096)], lossless({0: 0}, sends, drain=drain), **PATIENT)
    assert done.buffer.overflows[2] == done.retransmitted.sum() == 0
    drained_ps = 1000 * FRAME * 8e12 / drain_bps
    room_ps = 60 * FRAME * 8e12 / drain_bps
    assert drained_ps - room_ps < finish_ps(done)[0] < 1.02 * drained_ps + 10**7
    assert of(done, "stops", 2) > 0 and of(done, "stops", 0) > 0
    tight = replace(drain, size=level * 21 * FRAME)
    done = ran([Flow([0, 2], 1000 * 4096)], lossless({0: 0}, sends, drain=tight))
    assert done.buffer.overflows[2]


@pytest.mark.parametrize(("size", "overflows"), [(FRAME, 0), (FRAME - 1, 1)])
def test_a_receive_buffer_holds_a_frame_of_its_size_and_not_a_byte_more(
    size: int, overflows: int
) -> None:
    level = np.full(4, size)
    drain = BufferDrain(np.array([0, 25, 25, 0]) * 10**9, level, level, level)
    done = ran([Flow([0, 2], 4096, retries=0)], lossless({0: 0}, 4, drain=drain))
    assert done.buffer.overflows[2] == overflows


RING = {6: 1, 8: 2, 10: 0} | {2 * nic: nic for nic in range(3)}
"""Switches 0, 1 and 2 with a NIC each, by links 0 to 2, and links 3 to 5 around."""


def around(**keys: Any) -> PacketRun:
    """Each NIC sends to the one before it, the long way round."""
    ways = [[0, 6, 8, 5], [2, 8, 10, 1], [4, 10, 6, 3]]
    flows = [Flow(way, 500 * 4096, retries=3, timeout_ns=10**6) for way in ways for _ in range(2)]
    return ran(flows, lossless(RING, 12, **keys))


def test_buffers_that_wait_for_each_other_end_the_run_and_are_named() -> None:
    done = around()
    assert np.isinf(done.finish_s).all() and done.drops.sum() == 0
    network = SimpleNamespace(
        node_names=["rtsw1", "rtsw2", "rtsw3", "srv1", "srv2", "srv3"],
        sender=np.array([3, 0, 4, 1, 5, 2, 0, 1, 1, 2, 2, 0]),
        receiver=np.array([0, 3, 1, 4, 2, 5, 1, 0, 2, 1, 0, 2]),
        send_name=lambda send: f"port:{send}",
    )
    links = lossless_links(done, network)  # type: ignore[arg-type]
    assert sorted(links.deadlock) == ["rtsw1", "rtsw2", "rtsw3"]
    assert {link.port for link in links.links if link.is_paused} >= {"port:6", "port:8", "port:10"}


def test_a_pause_that_never_ends_lasts_to_the_end_of_the_run() -> None:
    """Which is when the last timer runs out that nothing can be sent for."""
    done = around()
    stuck = done.pause[done.pause.is_closed > 0]
    (end_ps,) = set((stuck.closed_ps + stuck.longest_ps).tolist())
    assert end_ps > 1e12 * done.idle_s
    assert (stuck.paused_ps >= stuck.longest_ps).all()


def test_a_ring_is_stuck_only_where_no_threshold_has_risen_meanwhile() -> None:
    """Two NICs of the first switch fill its memory, so that the ring stops; when they are done
    there is more, and no packet of the ring leaves to look at it."""
    ways = [[0, 6, 8, 5], [2, 8, 10, 1], [4, 10, 6, 3]]
    ring = [Flow(way, 60 * 4096) for way in ways for _ in range(2)]
    local = [Flow([nic, 17], 200 * 4096) for nic in (12, 14)]
    memory = {"xoff": 0, "dynamic_th": -2, "xon_offset": 0, "shared": np.full(3, 40 * FRAME)}
    switch_of = RING | {12: 0, 14: 0}
    done = ran([*ring, *local], lossless(switch_of, 18, **memory), **PATIENT)
    assert np.isfinite(done.finish_s).tolist() == [False] * 6 + [True] * 2
    shares = done.pause.held[:, 0] - done.pause.beyond[:, 0]
    for send, switch in switch_of.items():
        free = 40 * FRAME - sum(shares[i] for i, place in switch_of.items() if place == switch)
        if of(done, "is_over", send) and not of(done, "beyond", send):
            assert shares[send] > free >> 2


@pytest.mark.parametrize("discards", [True, False])
def test_a_watchdog_frees_them(discards: bool) -> None:
    watchdog = WatchdogTimes(200_000_000, 200_000_000, discards)
    done = around(watchdog=watchdog, headroom=np.full(12, 10 * FRAME))
    assert done.pause.firings.sum() > 0
    assert (done.pause.discards.sum() > 0) == discards
    assert np.isfinite(done.finish_s).any()
    assert not done.pause.is_closed.any() and not done.pause.held.any()


def test_a_nic_has_no_watchdog() -> None:
    """Its ACKs are in the class that is stopped, for longer than a switch's port would bear."""
    watchdog = WatchdogTimes(10_000_000, 10_000_000, True)
    flows = [Flow([0, 2], 100 * 4096), Flow([4, 1], 10 * 4096)]
    queues = lossless({0: 0, 4: 0}, 6, watchdog=watchdog)
    done = ran(flows, queues, {2: 1e9}, classes=(3, 3, 5), **PATIENT)
    assert of(done, "longest_ps", 0) > watchdog.detection_ps
    assert done.pause.firings.sum() == 0 and np.isfinite(done.finish_s).all()


LABS = [
    *("profile", "lossless", "lossless-incast", "two-leaves-lossless", "deadlock-watchdog"),
    "zone-small",
]


@pytest.mark.parametrize("name", LABS)
@pytest.mark.parametrize("changes", [{}, {"delay": "700ns"}])
def test_thresholds_and_times_are_those_of_the_lab_s_plan(
    name: str, changes: dict[str, Any]
) -> None:
    raw = load_spec(find_lab(name)).model_dump(mode="json")
    watchdog = {"detection": "300us", "restoration": "700us", "action": "forward"}
    raw["queues"]["pfc"] = (raw["queues"]["pfc"] or {}) | {
        "nic": {"drain": "25%"},
        "reserved": "1KB",
        "watchdog": watchdog,
    }
    spec = LabSpec.model_validate(raw | {"links": raw["links"] | changes})
    simulation = Simulation(spec, [job("incast", 2)], Options(engine=Engine.PACKETS))
    network = simulation.network
    latency_ns = np.full(network.sends, 500.0 if changes else 0.0)
    pausing = pausing_of(spec, network, PortModel.LAB, latency_ns)
    wanted = plan_pauses(plan(spec))
    assert pausing is not None and wanted is not None and pausing.watchdog is not None
    times_ps = pausing.watchdog.detection_ps, pausing.watchdog.restoration_ps
    assert (*times_ps, pausing.watchdog.discards) == (300_000_000, 700_000_000, False)
    without_slack = pausing_of(spec, network, PortModel.STORE_AND_FORWARD, latency_ns)
    assert without_slack is not None and (without_slack.headroom < pausing.headroom).all()
    peer = {(port.node, port.port.interface): wanted.by_slot[port.peer] for port in wanted.ports}
    for send in range(network.sends):
        node, interface = network.send_name(send).split(":")
        far = peer[node, interface]
        assert (pausing.pool[send] == NONE) == far.is_nic
        assert pausing.headroom[send] == far.headroom
        if not changes:
            assert pausing.delay_ps[send] == pytest.approx(far.delay_ns * 1000 / wanted.dilation)
        if far.is_nic:
            assert far.buffer is not None and pausing.drain is not None
            numbers = (pausing.drain.size[send], pausing.drain.xoff[send], pausing.drain.xon[send])
            assert numbers == (far.buffer.size, far.buffer.full, far.buffer.empty)
            drain_bps = pausing.drain.rate_bps[send] / wanted.dilation
            assert drain_bps == pytest.approx(far.buffer.drain_bps, abs=1)
        else:
            assert far.pauses is not None
            for key in ("reserved", "xoff", "dynamic_th", "xon_offset", "xon"):
                column = getattr(pausing, key)
                assert not isinstance(column, int) and column[send] == getattr(far.pauses, key)
            pool, planned = pausing.pool[send], wanted.pools[far.pool - 1]
            assert (pausing.shared[pool], pausing.reserve[pool]) == (
                planned.shared,
                planned.headroom,
            )
    if changes:
        first_ps = pausing.delay_ps[0] + 500_000
        assert first_ps == pytest.approx(2 * 700_000 + response_ps(network.rate_bps[0]), abs=1)


def test_links_have_the_queues_that_they_name() -> None:
    spec = LabSpec.model_validate(
        {
            "name": "t",
            "fabric": {"racks": 2, "spines": 2, "servers_per_rack": 1},
            "queues": {
                "pfc": {},
                "links": {"far": {"buffer": "3MB", "pfc": {"xoff": "60KB", "xon_offset": "1KB"}}},
            },
            "overrides": {"links": {"rtsw1:ctsw1": {"queues": "far"}}},
        }
    )
    network = Simulation(spec, [job("incast", 2)], Options(engine=Engine.PACKETS)).network
    queues = queues_of(spec, network, PortModel.STORE_AND_FORWARD, np.zeros(network.sends), 1)
    assert queues.pausing is not None
    xoff, kind = queues.pausing.xoff, queues.kind
    assert not isinstance(xoff, int) and not isinstance(kind, int)
    ends = {"rtsw1:ctsw1", "ctsw1:rtsw1"}
    named = [send for send in range(network.sends) if network.send_name(send) in ends]
    assert len(named) == 2
    for send in range(network.sends):
        assert xoff[send] == (60_000 if send in named else 0)
        if network.roles[network.sender[send]].is_switch:
            size = queues.kinds[kind[send]].buffer_bytes[0]
            assert size == (3 * 10**6 if send in named else 16 * 10**6)


def response_ps(rate_bps: float) -> float:
    quanta = {100e9: 394, 400e9: 905, 800e9: 1810}[rate_bps]
    return quanta * 512 * 1e12 / rate_bps


def test_a_hop_latency_that_pauses_cannot_keep_up_with_is_refused() -> None:
    options = Options(engine=Engine.PACKETS, hop_latency_ns=5_000)
    with pytest.raises(InputError, match="hop latency of 5 us is longer"):
        simulate(lab({}), [job("incast", 2)], options)
    assert simulate(lab({}, delay="5us"), [job("incast", 2)], options).packets is not None


def lab(pfc: dict[str, Any], **links: str) -> LabSpec:
    return LabSpec.model_validate(
        {
            "name": "paused",
            "fabric": {"kind": "clos", "racks": 2, "spines": 1, "servers_per_rack": 3},
            "links": links,
            "queues": {"ecn": {"kmin": "40MB", "kmax": "60MB"}, "pfc": pfc, "buffer": "100MB"},
        }
    )


def job(pattern: str, ranks: int, size: str = "1MB") -> SimulatedJob:
    keys = {"pattern": pattern, "ranks": ranks, "size": size, "transport": {"dcqcn": "off"}}
    return collective_job(JobSpec.model_validate(keys))


def report(spec: LabSpec, pattern: str, ranks: int) -> SimulationReport:
    return simulate(spec, [job(pattern, ranks)], Options(engine=Engine.PACKETS))


def held(of: SimulationReport) -> Any:
    assert of.packets is not None and of.packets.lossless is not None
    return of.packets.lossless.links


def test_a_document_a_terminal_and_a_page_say_who_was_stopped_by_whom() -> None:
    paused = report(lab({"memory": "300KB", "xon_offset": "5KB"}), "incast", 6)
    links = held(paused)
    assert paused.packets is not None and paused.packets.lossless is not None
    lossless = paused.packets.lossless
    assert lossless.transitions == sum(link.transitions for link in links) > 0
    assert lossless.paused_ns == pytest.approx(sum(link.paused_ns for link in links))
    assert lossless.dropped_packets == paused.packets.drops == 0 and not lossless.deadlock
    assert [link.paused_ns for link in links] == sorted(
        (link.paused_ns for link in links), reverse=True
    )
    assert {(link.port, link.peer) for link in links} >= {("srv1-2:rtsw1", "rtsw1")}
    assert not any("queues.pfc" in text for text in paused.warnings)
    assert from_json(to_json(paused)) == paused
    console = Console(file=io.StringIO(), width=200)
    print_document(simulation_document(paused), console)
    for text in (console.file.getvalue(), html(simulation_document(paused))):  # type: ignore[attr-defined]
        assert "Pauses of lossless classes" in text and links[0].port in text
    # The same without: lossy classes lose packets.
    fluid = simulate(lab({}), [job("incast", 6)])
    assert any("queues.pfc has no effect" in text for text in fluid.warnings)


def test_the_lab_that_deadlocks_does_here_too_on_the_paths_that_it_takes() -> None:
    """Those of docs/deadlocks.md, after rtsw1 lost ctsw1 and rtsw2 lost ctsw2."""
    spec = load_spec(find_lab("deadlock"))
    every = {"pattern": "permutation", "ranks": 8, "seed": 1193, "size": "4MB"}
    keys = {"qps": 8, "window": 2048, "ecn": "not-ect", "dcqcn": "off"}
    simulation = Simulation(
        spec,
        [collective_job(JobSpec.model_validate({**every, "transport": keys}))],
        Options(engine=Engine.PACKETS),
    )
    network, paths = simulation.network, simulation.whole_paths
    names = network.node_names
    send_of = {
        (names[network.sender[send]], names[network.receiver[send]]): send
        for send in range(network.sends)
    }
    ways = {(1, 2): ("ctsw2", "rtsw3", "ctsw1"), (2, 1): ("ctsw1", "rtsw4", "ctsw2")}
    ways |= {(3, 4): ("ctsw1",), (4, 3): ("ctsw2",)}
    result: list[list[int]] = []
    for first, last in zip(paths.start[:-1], paths.start[1:], strict=True):
        ends = paths.sends[first], paths.sends[last - 1]
        source, destination = names[network.sender[ends[0]]], names[network.receiver[ends[1]]]
        racks = int(source[3]), int(destination[3])
        hops = [source, f"rtsw{racks[0]}", *ways[racks], f"rtsw{racks[1]}", destination]
        result.append([send_of[pair] for pair in pairwise(hops)])
    sends = np.array([send for way in result for send in way], np.int32)
    simulation.ways = there_and_back(Paths(np.cumsum([0, *map(len, result)]), sends))
    stuck = simulation.report(simulation.run_packets())
    assert stuck.packets is not None and stuck.packets.lossless is not None
    assert set(stuck.packets.lossless.deadlock) == {"ctsw2", "rtsw3", "ctsw1", "rtsw4"}
    (text,) = (warning for warning in stuck.warnings if warning.startswith("deadlock: "))
    assert text.count(" waits for ") == 4
    assert None in stuck.jobs[0].iterations_ns and stuck.packets.drops == 0


@pytest.mark.parametrize("lab", ["zone-1-1", "hpn-small", "fat-tree-4"])
@pytest.mark.parametrize(
    "pfc", [{"headroom": "10KB"}, {"xoff": "40MB", "oversubscription": 4}, {"classes": [2, 3]}]
)
def test_a_simulation_warns_as_the_plan_does(lab: str, pfc: dict[str, Any]) -> None:
    result = PfcSpec.model_validate(pfc)
    spec = load_spec(find_lab(lab)).model_copy(update={"queues": QueuesSpec(pfc=result)})
    fabric = plan(spec)
    planned = warnings(spec.queues, result, carve(fabric, result), nic_headrooms(fabric, result))
    assert planned
    assert pause_warnings(spec, network_of(spec)) == planned


def test_a_fabric_that_no_lab_can_address_is_warned_of_too() -> None:
    racks = {"zones": 64, "racks": 128, "spines": 1, "servers_per_rack": 2, "nics_per_server": 8}
    spec = LabSpec.model_validate(
        {"name": "t", "fabric": {**racks, "atsws": 1}, "queues": {"pfc": {"headroom": "10KB"}}}
    )
    with pytest.raises(InputError):
        plan(spec)
    assert "a headroom of 10 kB cannot hold" in pause_warnings(spec, network_of(spec))[0]
