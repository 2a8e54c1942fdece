"""A switch's memory for lossless classes, packet by packet and under load: the dynamic threshold,
what is reserved, and headroom that is too small and shared by too many."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rocelab.dataplane.pfc.maps import CLASSES, PauseMaps
from rocelab.dataplane.pfc.program import pins_folder
from rocelab.faults.kinds.pause_deaf import PauseDeaf
from rocelab.faults.kinds.pause_storm import PauseStorm
from rocelab.faults.kinds.rate_degrade import RateDegrade
from rocelab.faults.kinds.slow_receiver import SlowDrain
from rocelab.jobs.job import JobSpec
from rocelab.planning.pauses import BufferPool
from rocelab.runs.jobs import run_job
from tests.helpers.lossless import LOSSLESS, NEIGHBOUR, STORMED, Rig, Stream
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.few_at_once

LAB = """
name: t-lossless-memory
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 3}
links: {rate: 100G, server_rate: 100G}
dilation: 2500
queues:
  ecn: {kmin: 40MB, kmax: 60MB}
  pfc: {memory: 100KB, reserved: 10KB, headroom: 20KB, oversubscription: 100, xon_offset: 600KB}
"""


OTHER_NEIGHBOUR = "srv1-3"
LOSSY = 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig.of(LAB, tmp_path_factory.mktemp("memory")) as rig:
        yield rig


@pytest.fixture
def rig(made: Rig) -> Iterator[Rig]:
    with made.resting():
        yield made


def pool_of(rig: Rig) -> BufferPool:
    return next(pool for pool in rig.plan.pools if pool.node == "rtsw1")


def packets_to_xoff(rig: Rig, stream: Stream, held: int = 0) -> int:
    """Of a stream, until its port pauses; `held`: bytes that others hold of the shared memory."""
    pfc, shared = rig.plan.pfc, pool_of(rig).shared - held
    return next(
        packets
        for packets in range(1, shared)
        for beyond in (packets * stream.frame - pfc.reserved,)
        if beyond > 0 and beyond >= 2**pfc.dynamic_th * (shared - beyond)
    )


def lose_one_of_what_fits(rig: Rig) -> None:
    """The port pauses where the free memory says, takes what fits the pool, and loses the next.

    Pings that wait too fit what is reserved for their ports, and share nothing.
    """
    pool = pool_of(rig)
    deaf = PauseDeaf((rig.lab.fabric.nics(NEIGHBOUR)[0].links[0],), "rtsw1")
    with Stream(rig, 1000) as stream:
        assert pool.headroom < stream.port.headroom
        to_xoff = packets_to_xoff(rig, stream)
        in_headroom = pool.headroom // stream.frame
        with rig.storm():
            deaf.inject(rig.lab)
            try:
                stream.send(to_xoff - 1)
                stream.reach_the_switch()
                assert stream.count("xoffs") == stream.pauses == 0
                stream.send()
                wait_until(lambda: stream.pauses, "the sender's NIC hears a pause")
                stream.send(in_headroom)
                stream.reach_the_switch()
                assert stream.count("dropped_packets") == 0
                stream.send()
                stream.reach_the_switch()
                assert stream.count("dropped_packets") == 1
                assert stream.count("held") == (to_xoff + in_headroom) * stream.frame
            finally:
                deaf.restore(rig.lab)
        stream.receive(to_xoff + in_headroom)


def test_a_port_pauses_where_the_free_memory_says_and_its_switch_s_headroom_is_shared(
    rig: Rig,
) -> None:
    lose_one_of_what_fits(rig)


@contextmanager
def stopped_pauser(rig: Rig) -> Iterator[None]:
    """The process that pauses does not run: gates stay as they are, and events wait."""
    pauser = rig.processes().pauser
    os.kill(pauser, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pauser, signal.SIGCONT)


def test_late_packets_take_no_headroom_from_another_port_of_the_switch(rig: Rig) -> None:
    """One sender is not stopped in time, the other is deaf, so that its packets are never late."""
    pool = pool_of(rig)
    deaf = PauseDeaf((rig.lab.fabric.nics(OTHER_NEIGHBOUR)[0].links[0],), "rtsw1")
    with Stream(rig, 1000) as late, Stream(rig, 1000, OTHER_NEIGHBOUR) as other:
        before_other = packets_to_xoff(rig, late)
        to_xoff = packets_to_xoff(rig, other, before_other * late.frame - rig.plan.pfc.reserved)
        in_headroom = pool.headroom // late.frame
        with rig.storm():
            deaf.inject(rig.lab)
            try:
                with stopped_pauser(rig):
                    late.send(before_other)
                    late.reach_the_switch()
                    assert late.count("xoffs") == 1
                    time.sleep(2 * late.port.delay_ns / 1e9)
                    late.send(in_headroom + 3)
                    late.reach_the_switch()
                    with PauseMaps(pins_folder(rig.files), writable=True) as maps:
                        gate = late.port.peer * CLASSES + LOSSLESS
                        maps.egresses.set(gate, "gated", 1)
                        late.send()  # as one that was on its way when the sender stopped
                        late.reach_the_switch()
                        maps.egresses.set(gate, "gated", 0)
                    assert late.count("dropped_packets") == 0
                    assert late.count("late_packets") == 4
                    other.send(to_xoff + in_headroom)
                    other.reach_the_switch()
                    assert other.count("xoffs") == 1
                    assert other.count("dropped_packets") == 0
                    other.send()
                    other.reach_the_switch()
                    assert other.count("dropped_packets") == 1
                    assert other.count("late_packets") == 0
            finally:
                deaf.restore(rig.lab)
        late.receive(before_other + in_headroom + 4)
        other.receive(to_xoff + in_headroom)
    rig.wait_for_rest()
    lose_one_of_what_fits(rig)


def test_packets_of_a_queue_that_a_watchdog_has_freed_are_never_late(rig: Rig) -> None:
    """Its gate is open though its peer pauses."""
    in_headroom = pool_of(rig).headroom
    with Stream(rig, 1000) as stream, PauseMaps(pins_folder(rig.files), writable=True) as maps:
        in_headroom //= stream.frame
        gate, to_xoff = stream.port.peer * CLASSES + LOSSLESS, packets_to_xoff(rig, stream)
        with rig.storm(), stopped_pauser(rig):
            maps.egresses.set(gate, "freed", 1)
            try:
                stream.send(to_xoff)
                stream.reach_the_switch()
                time.sleep(2 * stream.port.delay_ns / 1e9)
                stream.send(in_headroom + 1)
                stream.reach_the_switch()
                assert stream.count("late_packets") == 0
                assert stream.count("dropped_packets") == 1
            finally:
                maps.egresses.set(gate, "freed", 0)
        stream.receive(to_xoff + in_headroom)


def test_late_packets_take_no_room_in_a_nic_from_packets_of_other_classes(rig: Rig) -> None:
    slow = SlowDrain((rig.nic_link,), 1)
    buffer = rig.plan.by_slot[rig.nic].buffer
    assert buffer is not None
    nic = rig.nic * CLASSES + LOSSLESS
    before = rig.maps.ingresses.get(nic, "late_packets")
    with Stream(rig, 8900) as late, Stream(rig, 1000, OTHER_NEIGHBOUR, LOSSY) as other:
        to_xoff = -(-buffer.full // late.frame)
        fitting = buffer.size // late.frame - to_xoff
        slow.inject(rig.lab)
        try:
            with stopped_pauser(rig):
                late.send(to_xoff)
                wait_until(lambda: rig.maps.ingresses.get(nic, "over"), "the NIC is at XOFF")
                time.sleep(2 * rig.plan.by_slot[rig.nic].delay_ns / 1e9)
                late.send(fitting + 3)
                late.receive(to_xoff + fitting + 3)
                assert rig.maps.ingresses.get(nic, "late_packets") - before == 3
                other.send()
                other.receive(1)
                assert rig.maps.ports.get(rig.nic, "late") > 0
        finally:
            slow.restore(rig.lab)
    rig.wait_for_rest()
    assert rig.maps.ports.get(rig.nic, "late") == 0, "a NIC that resumes begins anew"


def test_a_port_resumes_when_it_holds_the_offset_less_than_the_threshold_of_that_moment(
    rig: Rig,
) -> None:
    """Where a few packets have left and the port to the NIC is stopped again, the switch holds as
    much for a while. The threshold is dynamic: as packets leave, it rises."""
    pfc, shared = rig.plan.pfc, pool_of(rig).shared
    slow = RateDegrade((rig.nic_link,), 60_000, STORMED)
    storm = PauseStorm((rig.nic_link,), (LOSSLESS,))
    pauses_at: dict[int, bool] = {}
    with Stream(rig, 8900) as stream:

        def resumes(packets: int) -> bool:
            beyond = max(0, packets * stream.frame - pfc.reserved)
            return beyond <= 2.0**pfc.dynamic_th * (shared - beyond) - pfc.xon_offset

        def stands() -> bool:
            held = stream.count("held")
            time.sleep(0.05)
            return rig.is_gated(rig.gate) and held == stream.count("held")

        to_xoff = packets_to_xoff(rig, stream)
        to_xon = next(packets for packets in range(to_xoff, 0, -1) if resumes(packets))
        between = set(range(to_xon + 1, to_xoff - 1))
        assert len(between) > 3
        slow.inject(rig.lab)
        try:
            while not between & pauses_at.keys():
                storm.inject(rig.lab)
                wait_until(lambda: rig.is_gated(rig.gate), "the port to the NIC is stopped")
                stream.send(to_xoff)
                wait_until(lambda: stream.is_stopped, "the sender has stopped")
                while (packets := stream.count("held") // stream.frame) > to_xon - 3:
                    pauses_at[packets] = bool(stream.count("over"))
                    storm.restore(rig.lab)
                    storm.inject(rig.lab)
                    wait_until(stands, "the port to the NIC is stopped again")
                pauses_at[packets] = bool(stream.count("over"))
                storm.restore(rig.lab)
                wait_until(lambda: not stream.count("held"), "the switch has sent all")
        finally:
            storm.restore(rig.lab)
            slow.restore(rig.lab)
        stream.receive(stream.sent)
    assert pauses_at == {packets: not resumes(packets) for packets in pauses_at}


def test_a_headroom_that_is_too_small_loses_packets_of_senders_that_obey(rig: Rig) -> None:
    too_small = "a headroom of 20 kB cannot hold the 48.2 kB that may arrive after a pause"
    assert [note for note in rig.lab.notes if too_small in note]
    transport = {"ecn": "not-ect", "dcqcn": "off"}
    incast = {"pattern": "incast", "ranks": 4, "size": "512KB", "iterations": 1}
    job = JobSpec.model_validate({**incast, "warmup_iterations": 0, "transport": transport})
    report = run_job(rig.lab, job)
    assert report.lossless is not None
    assert report.lossless.dropped > 0
    assert report.roce.retransmitted > 0
    assert report.lossless.unbalanced == ()
    assert [text for text in report.warnings if too_small in text]
    switches = {port.node for port in report.lossless.ports if port.dropped_packets}
    assert switches and not switches & report.lossless.servers
