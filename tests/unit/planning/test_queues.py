"""The plan of queues: classes of DSCPs, the marking line, bins, and the plan of a fabric."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.labfile.model import LabSpec
from rocelab.labfile.queues import EcnSpec, QueuesSpec
from rocelab.planning.build import plan
from rocelab.planning.queues import (
    BINS,
    CLASS_ALPHA,
    QueuePlan,
    burst_bytes,
    class_of_dscp,
    dscp_blocks,
    full_classes_bytes,
    lab_rate_bps,
    plan_queues,
    port_bytes,
    strictness,
)
from tests.helpers.queue_lines import bin_of, mark_probability

CLASSES = st.lists(st.integers(0, 7), min_size=64, max_size=64).map(tuple)


def ecn_specs() -> st.SearchStrategy[EcnSpec]:
    def made(kmin: int, rise: int, pmax: float) -> EcnSpec:
        return EcnSpec.model_construct(kmin=kmin, kmax=kmin + rise, pmax=pmax)

    size = st.integers(1, 10**9)
    return st.builds(made, size, size, st.floats(0.001, 1))


def planned(queues: dict[str, object] | None = None, **fabric: int) -> QueuePlan:
    sizes = {"racks": 2, "spines": 2, **fabric}
    return plan_queues(
        plan(LabSpec.model_validate({"name": "lab", "fabric": sizes, "queues": queues or {}}))
    )


@pytest.mark.parametrize(
    ("mtu", "payload"), [(9000, 4096), (4160, 4096), (4159, 2048), (1500, 1024)]
)
def test_a_port_saves_up_one_roce_frame_whatever_the_mtu(mtu: int, payload: int) -> None:
    """Ethernet, IPv4, UDP, BTH, RETH, immediate data and ICRC: 78 bytes; 24 more on the wire."""
    assert burst_bytes(40 * 10**6, mtu) == payload + 78 + 24


def test_a_fast_port_saves_up_what_a_late_timer_costs() -> None:
    assert burst_bytes(10**9, 9000) == 25_000


def test_data_cnps_and_acks_are_in_the_classes_that_switch_teams_test() -> None:
    classes = class_of_dscp(QueuesSpec().dscp)
    assert [classes[dscp] for dscp in (24, 26, 32, 48, 46, 0, 8, 63)] == [3, 3, 4, 5, 6, 0, 1, 7]


def test_a_dscp_is_written_by_name_or_number_and_others_keep_their_class() -> None:
    queues = QueuesSpec.model_validate({"dscp": {"af31": 4, "3": 2}})
    classes = class_of_dscp(queues.dscp)
    assert (classes[26], classes[3], classes[46], classes[48], classes[27]) == (4, 2, 6, 5, 3)


def test_a_spec_with_queues_reads_back_from_its_record() -> None:
    queues = QueuesSpec.model_validate({"dscp": {"af31": 4}, "marked": [4, 3, 4], "engine": "red"})
    assert queues.marked == (3, 4)
    assert QueuesSpec.model_validate(queues.model_dump(mode="json")) == queues


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ({"dscp": {"64": 3}}, "expected a DSCP, got '64'"),
        ({"dscp": {"af31": 8}}, "expected a traffic class from 0 to 7, got 8"),
        ({"dscp": {"af31": True}}, "got true"),
        ({"dscp": [26]}, "got a list"),
        ({"marked": [8]}, "less than or equal to 7"),
    ],
)
def test_a_class_that_can_not_be_is_refused(queues: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        QueuesSpec.model_validate(queues)


@given(CLASSES)
def test_blocks_give_every_dscp_its_class_and_no_other(classes: tuple[int, ...]) -> None:
    blocks = dscp_blocks(classes)
    for dscp, expected in enumerate(classes):
        result = [block.traffic_class for block in blocks if dscp & block.mask == block.value]
        assert result == [expected]


def test_control_classes_go_first_and_data_classes_share() -> None:
    assert sorted(range(8), key=strictness) == [7, 6, 5, 0, 1, 2, 3, 4]
    assert len({strictness(number) for number in range(5)}) == 1


def test_the_line_is_nothing_at_kmin_pmax_at_kmax_and_certain_above() -> None:
    ecn = EcnSpec(kmin="800KB", kmax="3200KB", pmax=0.2)
    depths = (0, 800_000, 2_000_000, 3_200_000, 3_200_001)
    assert [mark_probability(ecn, depth) for depth in depths] == pytest.approx([0, 0, 0.1, 0.2, 1])


@given(ecn_specs(), st.integers(0, 3 * 10**9), st.integers(0, 3 * 10**9))
def test_the_line_never_falls(ecn: EcnSpec, one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 0 <= mark_probability(ecn, low) <= mark_probability(ecn, high) <= 1


@given(ecn_specs(), st.integers(1, 10**10), st.integers(0, 10**10))
def test_no_bin_mixes_the_parts_of_the_line(ecn: EcnSpec, buffer: int, depth: int) -> None:
    queues = QueuesSpec.model_construct(
        buffer=buffer, ecn=ecn, dscp={}, marked=(3,), engine=QueuesSpec().engine
    )
    edges = planned().bin_edges_bytes
    spec = LabSpec.model_validate({"name": "lab", "fabric": {"racks": 1}})
    made = plan_queues(plan(spec.model_copy(update={"queues": queues})))

    assert len(edges) == len(made.bin_edges_bytes) == BINS
    assert list(made.bin_edges_bytes) == sorted(made.bin_edges_bytes)
    low = made.bin_edges_bytes[bin_of(made, depth)]
    assert low <= depth
    for corner in (ecn.kmin, ecn.kmax):
        assert (low > corner) == (depth > corner)


def test_every_switch_port_has_a_slot_and_its_rate_on_the_machine() -> None:
    made = planned(servers_per_rack=1)
    assert [port.slot for port in made.ports] == list(range(1, 11))
    assert {port.node for port in made.ports} == {"rtsw1", "rtsw2", "ctsw1", "ctsw2"}
    assert {port.rate_bps for port in made.ports} == {80_000_000}
    assert made.port_of["rtsw1", "srv1-1"].mtu == 9000
    assert {node: len(ports) for node, ports in made.ports_of.items()} == {
        "rtsw1": 3,
        "rtsw2": 3,
        "ctsw1": 2,
        "ctsw2": 2,
        "srv1-1": 1,
        "srv2-1": 1,
    }
    assert [(port.node, port.slot, port.rate_bps) for port in made.nics] == [
        ("srv1-1", 0, 80_000_000),
        ("srv2-1", 0, 80_000_000),
    ]


@given(st.integers(1, 10**10), st.integers(1, 8))
def test_full_classes_hold_alike_what_the_threshold_gives_them_and_one_alone_the_buffer(
    buffer: int, classes: int
) -> None:
    packet = full_classes_bytes(buffer, classes)
    assert full_classes_bytes(buffer, 1) == buffer
    assert classes * packet <= port_bytes(buffer) + classes
    free = buffer + buffer / CLASS_ALPHA - classes * packet
    assert packet == pytest.approx(CLASS_ALPHA * free, abs=CLASS_ALPHA * classes + 2)


def test_a_fabric_without_servers_has_no_queues() -> None:
    assert planned(servers_per_rack=0).ports == ()


def test_a_link_has_a_rate_however_slow_a_lab_is() -> None:
    link = plan(LabSpec.model_validate({"name": "lab", "fabric": {"racks": 2, "spines": 2}})).links[
        0
    ]
    assert lab_rate_bps(link, link.rate_bps / 100) == 100
    assert lab_rate_bps(link, link.rate_bps * 10) == 8


def test_a_lossless_class_has_a_queue_though_no_dscp_is_of_it() -> None:
    """Its gate is in that queue."""
    dscp = {str(number): 1 for number in range(64)} | {"26": 3}
    made = planned({"dscp": dscp, "pfc": {"classes": [3, 4]}})
    assert set(made.class_of_dscp) == {1, 3}
    assert made.classes == (1, 3, 4)
