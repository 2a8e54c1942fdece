"""A switch's memory for lossless classes, packet by packet and under load: the dynamic threshold,
what is reserved, and headroom that is too small and shared by too many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocelab.faults.pauses import PauseDeaf
from rocelab.jobs.job import JobSpec
from rocelab.measure.run import run_job
from tests.helpers.lossless import NEIGHBOUR, Rig, Stream
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.few_at_once

LAB = """
name: t-lossless-memory
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2}
links: {rate: 100G, server_rate: 100G}
dilation: 2500
queues:
  ecn: {kmin: 40MB, kmax: 60MB}
  pfc: {memory: 100KB, reserved: 10KB, headroom: 20KB, oversubscription: 100}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig.of(LAB, tmp_path_factory.mktemp("memory")) as rig:
        yield rig


@pytest.fixture
def rig(made: Rig) -> Iterator[Rig]:
    with made.resting():
        yield made


def test_a_port_pauses_where_the_free_memory_says_and_its_switch_s_headroom_is_shared(
    rig: Rig,
) -> None:
    """Pings that wait too fit what is reserved for their ports, and share nothing."""
    pfc, pool = rig.plan.pfc, rig.plan.pools[[each.node for each in rig.plan.pools].index("rtsw1")]
    deaf = PauseDeaf((rig.lab.fabric.nics(NEIGHBOUR)[0].links[0],), "rtsw1")
    with Stream(rig, 1000) as stream:
        assert pool.headroom < stream.port.headroom
        to_xoff = next(
            packets
            for packets in range(1, pool.shared)
            for beyond in (packets * stream.frame - pfc.reserved,)
            if beyond > 0 and beyond >= 2**pfc.dynamic_th * (pool.shared - beyond)
        )
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


def test_a_headroom_that_is_too_small_loses_packets_of_senders_that_obey(rig: Rig) -> None:
    too_small = "a headroom of 20 KB cannot hold the 48.2 KB that may arrive after a pause"
    assert [note for note in rig.lab.notes if too_small in note]
    transport = {"ecn": "not-ect", "dcqcn": "off"}
    incast = {"pattern": "incast", "ranks": 4, "size": "512KB", "iterations": 1}
    job = JobSpec.model_validate({**incast, "warmup_iterations": 0, "transport": transport})
    report = run_job(rig.lab, job)
    assert report.lossless is not None
    assert report.lossless.dropped > 0
    assert report.transport.retransmitted > 0
    assert report.lossless.unbalanced == ()
    assert [text for text in report.warnings if too_small in text]
    switches = {port.node for port in report.lossless.ports if port.dropped_packets}
    assert switches and not switches & report.lossless.servers
