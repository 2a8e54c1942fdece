"""Links and switches that fail while packets are on their way, and what recovers."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from rocelab.base.documents import to_json
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.report.simulation.document import simulation_document
from rocelab.results.engines import Engine
from rocelab.results.simulation import SimulationReport, from_json
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.reaction import Breakage, shipped_table
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.options import Options
from rocelab.sim.packets import build
from rocelab.sim.packets.run import PacketRun, run_packets
from rocelab.sim.simulate import Simulation
from tests.unit.sim.packet_runs import (
    ACK_BYTES,
    ACK_PS,
    FULL_PS,
    LATENCY_PS,
    Flow,
    arranged,
    finish_ps,
    there_and_back,
)

TIMEOUT_PS = 50_000_000


def cut_run(flows: list[Flow], sends: list[int], begin_ps: int, end_ps: int) -> PacketRun:
    """A run in which sends carry nothing for a while."""
    flows = [replace(flow, timeout_ns=TIMEOUT_PS // 1000) for flow in flows]
    program, (whole,), *others = arranged(flows)
    capacity_bps = whole.capacity_bps.copy()
    capacity_bps[sends] = 0
    during = replace(whole, time_s=begin_ps / 1e12, capacity_bps=capacity_bps)
    return run_packets(program, [whole, during, replace(whole, time_s=end_ps / 1e12)], *others)


def test_what_is_on_a_link_that_fails_and_what_comes_then_is_sent_again_at_the_timeout() -> None:
    arrived, packets = 30, 100
    begin_ps = (arrived + 1) * FULL_PS + 2 * LATENCY_PS + FULL_PS // 2
    done = cut_run([Flow([0, 2], packets * 4096)], [2], begin_ps, TIMEOUT_PS)
    assert done.lost == packets - arrived
    last_ack = (arrived + 1) * FULL_PS + 2 * ACK_PS + 4 * LATENCY_PS
    again = (packets - arrived + 1) * FULL_PS + 2 * ACK_PS + 4 * LATENCY_PS
    assert finish_ps(done) == pytest.approx([last_ack + TIMEOUT_PS + again], abs=0.5)
    assert (done.timeouts[0], done.retransmitted[0]) == (1, packets - arrived)
    assert done.drops.sum() == done.naks.sum() == 0


def test_a_flap_empties_the_queue_of_its_port_and_the_next_packet_finds_it() -> None:
    flows = [Flow([2 * number, 20], 100 * 4096) for number in range(2)]
    begin_ps = 40 * FULL_PS + LATENCY_PS + FULL_PS // 2
    done = cut_run(flows, [20], begin_ps, begin_ps + 1)
    # In each time of a frame two come and one goes; one is under way, and some are on the link.
    queued, on_link = 40 - 1, 1 + LATENCY_PS // FULL_PS
    assert done.lost == pytest.approx(queued + on_link, abs=2)
    assert done.timeouts.tolist() == [0, 0] and done.naks.tolist() == [1, 1]
    assert np.isfinite(done.finish_s).all()


def test_all_that_is_at_a_switch_without_power_and_on_its_links_is_lost() -> None:
    """Data in its queue and on both sides of it, and ACKs on their way back."""
    packets = 100
    flows = [Flow([2 * number, 20], packets * 4096) for number in range(2)]
    begin_ps = 60 * FULL_PS + FULL_PS // 2
    done = cut_run(flows, [0, 1, 2, 3, 20, 21], begin_ps, TIMEOUT_PS)
    first_ack_ps = 2 * FULL_PS + 2 * ACK_PS + 4 * LATENCY_PS
    acknowledged = 1 + (begin_ps - first_ack_ps) // FULL_PS
    assert done.lost == 2 * packets - acknowledged
    assert done.timeouts.tolist() == [1, 1] and done.drops.sum() == done.naks.sum() == 0
    assert done.retransmitted.sum() == done.lost and np.isfinite(done.finish_s).all()


def test_a_nic_whose_only_link_failed_sends_into_the_void_until_its_queue_pairs_give_up() -> None:
    done = cut_run([Flow([0, 2], 100 * 4096, retries=3)], [0], 10 * FULL_PS, 10**12)
    assert done.failed == 1 and done.timeouts.tolist() == [4]
    arrived = 10 - 1 - LATENCY_PS // FULL_PS
    assert done.lost == done.packets - arrived


def test_queue_pairs_that_all_move_at_once_send_more_packets_than_there_was_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has a port of its own, two packets on the way, and a port that is free."""
    flows = [Flow([4 * number], 20 * 4096) for number in range(60)]
    program, (whole,), latency_s, *others = arranged(flows)
    others = [np.full(240, latency_s[0]), *others]
    capacity_bps = np.full(240, whole.capacity_bps[0])
    other_way = there_and_back(Paths(np.arange(61), np.arange(2, 242, 4, dtype=np.int32)))
    first = replace(whole, capacity_bps=capacity_bps)
    later = replace(first, time_s=1.5 * FULL_PS / 1e12, ways=other_way)
    expected = run_packets(program, [first, later], *others)
    monkeypatch.setattr(build, "FIRST_PACKETS", 128)
    outcome = run_packets(program, [first, later], *others)
    assert finish_ps(outcome) == finish_ps(expected)
    assert outcome.sent_bits.tolist() == expected.sent_bits.tolist()
    assert outcome.sent_bits[2::4].min() > 0


def simulation(
    events: list[str], lab: str = "zone-1-1", engine: Engine = Engine.PACKETS, **keys: object
) -> Simulation:
    """An AlltoAll through events; queue pairs wait for 100 us unless it says otherwise."""
    job = {
        "pattern": "alltoall",
        "ranks": 8,
        "size": "2MB",
        "transport": {"ack_timeout": "100us"},
    }
    job |= {} if "pattern" in keys else {"in_flight": 1}
    timeline = TimelineSpec(events=tuple(parse_event(event) for event in events))
    return Simulation(
        load_spec(find_lab(lab)),
        [collective_job(JobSpec.model_validate(job | keys))],
        Options(engine=engine, timeline=timeline),
    )


def test_packets_take_the_links_that_the_fluid_takes_once_routes_have_moved() -> None:
    """Routes move away from a drained switch before anything is sent: what data puts on each link
    is then the same, to the byte."""
    fluid, packets = (
        simulation(["drain ctsw1 at 0s reaction 0s"], engine=engine)
        for engine in (Engine.FLUID, Engine.PACKETS)
    )
    ran, ways = packets.run_packets(), packets.packet_inputs()[1][-1].ways
    assert ran.lost == ran.retransmitted.sum() == 0
    acks = ways.paths.sends[ways.paths.start[len(packets.flows)] :]
    ack_bits = np.bincount(acks, minlength=packets.network.sends) * (8.0 * ACK_BYTES)
    data_bits = ran.sent_bits - ack_bits * (ran.acks / len(packets.flows))
    assert data_bits.tolist() == pytest.approx(fluid.run().sent_bits.tolist())
    assert not ran.sent_bits[np.repeat(packets.outages()[0].links, 2) * 2].any()


@pytest.fixture(scope="module")
def failed() -> SimulationReport:
    return simulation(["fail rtsw1:ctsw1 at 10us for 1s reaction 30us"]).report()


def test_a_document_counts_what_died_by_a_failure(failed: SimulationReport) -> None:
    packets = failed.packets
    assert packets is not None and packets.lost > 0 and packets.drops == 0
    assert packets.timeouts > 0 and packets.failed_queue_pairs == 0
    assert None not in failed.jobs[0].iterations_ns
    (event,) = failed.events
    assert (event.start_ns, event.routed_ns) == (pytest.approx(10_000), pytest.approx(40_000))
    assert from_json(to_json(failed)) == failed
    console = Console(file=io.StringIO(), width=200)
    print_document(simulation_document(failed), console)
    for text in (console.file.getvalue(), html(simulation_document(failed))):  # type: ignore[attr-defined]
        assert "lost" in text and f"{packets.lost:,}" in text


def test_a_pulled_cable_costs_what_it_costs_in_the_fluid() -> None:
    """The time of a queue pair's timer, NCCL's unless the job says otherwise, and not of routes."""
    for transport, timeout_ns in (({}, 4096 * 2**20), ({"ack_timeout": "1ms"}, 10**6)):
        event = "fail rtsw1:ctsw1 at 10us reaction 30us"
        fluid, packets = (
            simulation([event], engine=engine, transport=transport)
            .report()
            .jobs[0]
            .headline("iteration_time")
            .modelled.median
            for engine in (Engine.FLUID, Engine.PACKETS)
        )
        assert timeout_ns < packets < 1.1 * timeout_ns
        assert packets == pytest.approx(fluid, rel=0.05)


def test_routes_leave_a_switch_without_power_after_the_time_that_the_lab_took() -> None:
    """Of the table that ships; until then the queue pairs whose way it was on send in vain."""
    timeout_ms = 1
    failing = simulation(["fail ctsw1 at 40us"], transport={"ack_timeout": f"{timeout_ms}ms"})
    (outage,) = failing.outages()
    (row,) = (
        row
        for row in shipped_table().rows
        if row.breakage is Breakage.POWER and row.fabric == "2-tier Clos"
    )
    assert outage.reaction_s == row.median_ns / 1e9 > 2 * timeout_ms / 1e3
    ran, whole = failing.run_packets(), simulation([]).run_packets()
    sent_bits, all_bits = (
        outcome.sent_bits.reshape(-1, 2)[outage.links].sum() for outcome in (ran, whole)
    )
    assert 0 < sent_bits < 0.7 * all_bits
    in_vain = math.ceil(row.median_ns / 1e6 / timeout_ms)
    assert set(ran.timeouts.tolist()) == {0, in_vain} and ran.lost > 0
    waited = ran.timeouts[failing.program.flow] > 0
    assert (outage.routed_s < ran.finish_s[waited]).all() and ran.failed == 0


def test_the_other_port_of_a_nic_takes_over() -> None:
    event = "fail port srv1-1:1:1 at 10us reaction 30us"
    failing = simulation([event], lab="hpn-small")
    (port,) = failing.outages()[0].links
    ran = failing.run_packets()
    assert np.isfinite(ran.end_s).all() and ran.lost > 0
    whole = simulation([], lab="hpn-small").run_packets()
    assert ran.sent_bits[2 * port] < whole.sent_bits[2 * port]
    other = next(link for link in failing.network.nic_links[0] if link != port)
    assert ran.sent_bits[2 * other] > whole.sent_bits[2 * other]


def test_a_link_at_half_its_rate_takes_twice_as_long() -> None:
    def took_ns(events: list[str]) -> float:
        report = simulation(events, pattern="pairs", ranks=2, size="10MB").report()
        return report.jobs[0].headline("iteration_time").modelled.median

    events = [f"degrade nic srv{rack}-1:1 to 50%" for rack in (1, 2, 3, 4)]
    assert took_ns(events) == pytest.approx(2 * took_ns([]), rel=0.02)


def test_a_job_without_a_path_for_good_never_ends() -> None:
    report = simulation(["fail nic srv1-1:1 at 10us"]).report()
    assert report.jobs[0].iterations_ns == (None,)
    assert report.packets is not None and report.packets.failed_queue_pairs > 0
    assert any("never end" in text for text in report.warnings)
