"""The ports that pause and obey: slots, peers, memory and times, against numbers done by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rocelab.base.errors import InputError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.model import LabSpec, LinksSpec
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.queues import QueuesSpec
from rocelab.planning import pauses
from rocelab.planning.build import plan
from rocelab.planning.pauses import PausePlan, PausePort, obedience_ns, plan_pauses
from rocelab.planning.queues import plan_queues

GIGA = 10**9
DILATION = 2500
FRAME = 4178 + 14
RESPONSE = 394 * 64
CABLE = 5_000
"""Bytes in 400 ns, 40 m there and back, at 100G."""
NEEDED = 2 * FRAME + CABLE + RESPONSE
SLACK = 4096 + 78 + 24
"""A RoCE frame on the wire: in 200 us the lab's 40 Mbit/s are 1,000 bytes only."""


def spec(pfc: PfcSpec | None, servers: int = 2, delay: str | None = None) -> LabSpec:
    """Two RTSWs with four ports, two CTSWs with two; 100G links of a 4 KiB RoCE MTU."""
    links = {"rate": "100G", "server_rate": "100G", "mtu": 4178, "delay": delay}
    return LabSpec(
        name="pauses",
        fabric=ClosSpec(racks=2, spines=2, servers_per_rack=servers),
        links=LinksSpec.model_validate(links),
        queues=QueuesSpec(pfc=pfc),
        dilation=DILATION,
    )


def planned(delay: str | None = None, **keys: Any) -> PausePlan:
    pauses = plan_pauses(plan(spec(PfcSpec.model_validate(keys), delay=delay)))
    assert pauses is not None
    return pauses


def port(plan: PausePlan, name: str) -> PausePort:
    (one,) = (port for port in plan.ports if str(port) == name)
    return one


def test_a_lab_without_lossless_classes_or_servers_has_no_plan() -> None:
    assert plan_pauses(plan(spec(None))) is None
    assert plan_pauses(plan(spec(PfcSpec(), servers=0))) is None


def test_ports_of_switches_have_the_slots_of_their_queues_and_nics_come_after() -> None:
    pauses = planned()
    queues = plan_queues(plan(spec(PfcSpec())))
    assert [port.slot for port in pauses.ports] == list(range(1, 17))
    assert [port.is_nic for port in pauses.ports] == [False] * 12 + [True] * 4
    for port in pauses.ports[:12]:
        assert queues.port_of[port.node, port.port.interface].slot == port.slot
    assert pauses.slots == {(port.node, port.port.interface): port.slot for port in pauses.ports}
    assert {node: len(ports) for node, ports in pauses.ports_of.items()} == {
        **dict.fromkeys(("rtsw1", "rtsw2"), 4),
        **dict.fromkeys(("ctsw1", "ctsw2"), 2),
        **dict.fromkeys(("srv1-1", "srv1-2", "srv2-1", "srv2-2"), 1),
    }


def test_the_peer_is_the_other_end_of_the_cable() -> None:
    pauses = planned()
    for port in pauses.ports:
        far = pauses.by_slot[port.peer]
        assert far.peer == port.slot
        assert far.node == port.port.interface
        assert port.node == far.port.interface


def test_each_switch_has_a_pool_and_a_nic_has_none() -> None:
    pauses = planned(memory="400KB", classes=[3, 4])
    for port in pauses.ports:
        assert port.is_nic == (port.buffer is not None)
        if not port.is_nic:
            assert pauses.pools[port.pool - 1].node == port.node
    pools = {pool.node: pool for pool in pauses.pools}
    for node, ports in (("rtsw1", 4), ("ctsw2", 2)):
        assert pools[node].headroom == ports * 2 * (NEEDED + SLACK)
        # What the lab adds is taken from no memory of the modelled switch.
        assert pools[node].shared == ports * (400_000 - 2 * NEEDED)


def test_a_headroom_has_the_lab_s_slack_beside_what_the_link_needs() -> None:
    assert NEEDED == 38_600
    assert {port.headroom for port in planned().ports} == {38_600 + 4_198}
    assert {port.headroom for port in planned(headroom="10KB").ports} == {10_000 + 4_198}


def test_times_are_the_lab_s() -> None:
    """A quantum is 5.12 ns at 100G; 40 m are 400 ns there and back."""
    place = port(planned(), "rtsw1:ctsw1")
    assert place.rate_bps == 40 * 10**6
    assert place.quantum_ns == pytest.approx(5.12 * DILATION)
    assert place.delay_ns == round((400 + 394 * 5.12) * DILATION) == 6_043_200
    assert port(planned("0ns", response=0), "rtsw1:ctsw1").delay_ns == 0


def test_a_pause_counts_once_what_the_lab_holds_on_a_cable() -> None:
    """What was on the cable arrives after the sender has stopped, as the lab holds it there.
    Towards a server it is held before the queue that stops, so that nothing arrives any more."""
    pauses = planned("5us", response=100)
    assert port(pauses, "rtsw1:ctsw1").delay_ns == (5_000 + 512) * DILATION
    assert port(pauses, "rtsw1:srv1-1").delay_ns == (5_000 + 512) * DILATION
    assert port(pauses, "srv1-1:rtsw1").delay_ns == (10_000 + 512) * DILATION


def test_a_headroom_has_what_is_on_the_cable_and_the_slack_what_the_lab_holds_before_a_queue() -> (
    None
):
    """5 us at 100G are 62,500 bytes."""
    place = port(planned("5us"), "rtsw1:ctsw1")
    assert place.headroom == 2 * FRAME + 2 * 62_500 + RESPONSE + SLACK + 62_500


def test_a_faster_link_has_shorter_quanta_and_its_own_response() -> None:
    link = plan(spec(PfcSpec()).model_copy(update={"links": LinksSpec()})).links[0]
    assert link.rate_bps == 400 * GIGA
    lab = spec(None).model_copy(update={"dilation": 1.0})
    still_link = replace(link, delay_ns=0)
    delay_ns, quantum_ns = obedience_ns(PfcSpec(), lab, still_link, link.b)
    assert (delay_ns, quantum_ns) == (round(905 * 1.28), 1.28)


@pytest.mark.parametrize(
    ("nic", "expected"),
    [
        ({}, (2_000_000, 2_000_000 - NEEDED, 1_980_000 - NEEDED, 0)),
        ({"buffer": "100KB", "drain": "10%"}, (100_000, 61_400, 41_400, 4_000_000)),
        ({"xoff": "50KB", "xon_offset": "1KB"}, (2_000_000, 50_000, 49_000, 0)),
        ({"buffer": "30KB", "drain": "100%"}, (30_000, 1, 1, 40_000_000)),
    ],
)
def test_a_nic_pauses_so_that_its_buffer_holds_what_still_comes(
    nic: dict[str, str], expected: tuple[int, ...]
) -> None:
    buffer = port(planned(nic=nic), "srv1-1:rtsw1").buffer
    assert buffer is not None
    size = buffer.size - SLACK  # of the lab
    assert (size, buffer.full, buffer.empty, buffer.drain_bps) == expected


def test_more_ports_than_a_packet_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pauses.MAX_SLOTS - 1 == 4_095
    monkeypatch.setattr(pauses, "MAX_SLOTS", 17)
    assert len(planned().ports) == 16
    monkeypatch.setattr(pauses, "MAX_SLOTS", 16)
    with pytest.raises(InputError, match="has 16 ports, and lossless classes work with at most 15"):
        planned()


def test_a_zone_of_4_096_ports_is_one_too_many() -> None:
    """64 racks of 16 servers under 16 spines: 2 x (1,024 + 1,024) ports."""
    fabric = plan(
        LabSpec(
            name="pauses",
            fabric=ClosSpec(racks=64, spines=16, servers_per_rack=16),
            queues=QueuesSpec(pfc=PfcSpec()),
        )
    )
    with pytest.raises(InputError, match=r"has 4,096 ports, and .* at most 4,095"):
        plan_pauses(fabric)
