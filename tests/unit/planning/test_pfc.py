"""The memory of switches with lossless classes: headroom, thresholds, and marks before pauses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.roles import Role
from rocelab.labfile.headroom import headroom_of, response_quanta
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec, LinksSpec
from rocelab.labfile.pfc import NicSpec, PfcSpec, WatchdogSpec
from rocelab.labfile.queues import EcnSpec, QueuesSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.pfc import Carving, carve, nic_headrooms, slack_of, too_small, warnings

LABS = Path(__file__).parents[3] / "labs"
GIGA = 10**9


def clos(ecn: EcnSpec | None = None) -> Fabric:
    """Two RTSWs with four ports, two CTSWs with two."""
    return plan(
        LabSpec(
            name="pfc",
            fabric=ClosSpec(racks=2, spines=2, servers_per_rack=2),
            queues=QueuesSpec(ecn=ecn or EcnSpec()),
        )
    )


def warned(fabric: Fabric, pfc: PfcSpec) -> tuple[str, ...]:
    return warnings(fabric.spec.queues, pfc, carve(fabric, pfc), nic_headrooms(fabric, pfc))


def test_the_headroom_of_a_link_term_by_term() -> None:
    """40 m at 100G: 2 x 40 m x 5 ns/m x 12.5 bytes/ns = 5,000 bytes on the cable, and 394 quanta of
    64 bytes."""
    needed = headroom_of(PfcSpec(), 100 * GIGA, 4178, 200)
    assert (needed.frame, needed.begun, needed.cable, needed.response) == (4192, 4192, 5000, 25216)
    assert needed.total == 4192 + 4192 + 5000 + 25216
    assert headroom_of(PfcSpec(cell_factor=2), 100 * GIGA, 4178, 200).total == 4192 + 2 * 34408


def test_a_lab_that_delays_packets_adds_half_of_the_cable_to_the_headroom() -> None:
    """Of both directions it is the way to a server."""
    needed = headroom_of(PfcSpec(), 100 * GIGA, 4178, 200)
    at_once, delayed = (
        slack_of(needed, LabSpec(name="pfc", fabric=ClosSpec(), links=links))
        for links in (LinksSpec(), LinksSpec.model_validate({"delay": "200ns"}))
    )
    assert delayed - at_once == needed.cable / 2 == 2500


def test_longer_cables_need_what_a_switch_vendor_gives_them() -> None:
    """SONiC's table of one chip at 100G has 8,192 bytes more for 40 m than for 5 m, and 65,536 more
    for 300 m than for 40 m, in cells that are about half full."""

    def needed(metres: int) -> int:
        return headroom_of(PfcSpec(cell_factor=2), 100 * GIGA, 9000, 5 * metres).total

    assert needed(40) - needed(5) == pytest.approx(8192, rel=0.1)
    assert needed(300) - needed(40) == pytest.approx(65536, rel=0.02)


@pytest.mark.parametrize(
    ("rate_bps", "quanta"),
    [
        (25 * GIGA, 118),
        (40 * GIGA, 118),
        (50 * GIGA, 394),
        (100 * GIGA, 394),
        (200 * GIGA, 453),
        (400 * GIGA, 905),
        (800 * GIGA, 1810),
    ],
)
def test_a_paused_sender_stops_within_the_usual_time(rate_bps: int, quanta: int) -> None:
    assert response_quanta(PfcSpec(), rate_bps) == quanta
    assert response_quanta(PfcSpec(response=0), rate_bps) == 0


def test_the_memory_of_a_switch_is_divided_whole() -> None:
    rtsw, ctsw = carve(clos(), PfcSpec(classes=(3, 4), reserved="1KB", oversubscription=2))
    needed = headroom_of(PfcSpec(), 400 * GIGA, 9000, 200).total
    assert (rtsw.role, rtsw.switches, rtsw.ports) == (Role.RTSW, 2, 4)
    assert (ctsw.role, ctsw.switches, ctsw.ports) == (Role.CTSW, 2, 2)
    assert rtsw.memory == 4 * 2_000_000
    assert rtsw.reserved == 4 * 2 * 1000
    assert rtsw.headroom_pool == 4 * 2 * needed / 2
    assert rtsw.shared == rtsw.memory - rtsw.reserved - rtsw.headroom_pool
    assert [(headroom.rate_bps, count) for headroom, count in rtsw.headroom] == [(400 * GIGA, 4)]


@given(st.integers(-7, 8))
def test_a_dynamic_threshold_is_a_share_of_what_it_leaves_free(dynamic_th: int) -> None:
    """A class that alone holds q bytes is paused where q = 2^dynamic_th x (shared - q)."""
    for carving in carve(clos(), PfcSpec(dynamic_th=dynamic_th)):
        free = carving.shared - carving.xoff
        assert carving.xoff == pytest.approx(2.0**dynamic_th * free, abs=2.0**dynamic_th + 1)


@pytest.mark.parametrize(
    ("keys", "xoff", "xon"),
    [
        # 2 q = 3,600,000 and 2 q = 3,600,000 - 100,000.
        ({"dynamic_th": 0, "xon_offset": "100KB"}, 1_800_000, 1_750_000),
        # 9 q = 8 x 3,600,000 and 9 q = 8 x 3,600,000 - 90,000.
        ({"xon_offset": "90KB"}, 3_200_000, 3_190_000),
        # 5 q = 3,600,000, and nothing is far enough below it.
        ({"dynamic_th": -2, "xon_offset": "900KB"}, 720_000, 0),
        ({"xoff": "1MB", "xon_offset": "100KB"}, 1_000_000, 900_000),
        # No more than there is.
        ({"xoff": "4MB", "xon_offset": "100KB"}, 3_600_000, 3_500_000),
        ({"xoff": "4MB", "xon_offset": "3700KB"}, 3_600_000, 0),
    ],
)
def test_a_resume_comes_below_the_threshold_of_that_moment(
    keys: dict[str, Any], xoff: int, xon: int
) -> None:
    """As a class drains, the free memory and with it a dynamic threshold rise."""
    spine = carve(clos(), PfcSpec.model_validate({"headroom": "200KB", **keys}))[-1]
    assert spine.shared == 2 * (2_000_000 - 200_000)
    assert (spine.xoff, spine.xon) == (xoff, xon)


def test_marks_begin_before_pauses_where_the_paper_says() -> None:
    """DCQCN, section 4: 12 MB, 32 ports of 40G, 8 classes, 22.4 kB of headroom, beta 8: t_ECN below
    21.75 kB, as the paper has it."""
    shared = 12_000_000 - 8 * 32 * 22_400
    lab = plan(LabSpec(name="pfc", fabric=ClosSpec(racks=32, spines=1, servers_per_rack=0)))
    # One lossless class with the headroom of eight: what is left to share is the same.
    pfc = PfcSpec(memory="375KB", headroom="179200B")
    spine = carve(lab, pfc)[-1]
    assert (spine.ports, spine.shared) == (32, shared)
    assert spine.marked_below / 8 == pytest.approx(21_750, rel=1e-3)


@pytest.mark.parametrize(
    ("keys", "marked_below"),
    [
        # beta (B - n t_flight) / ((1 + beta) n): 8 x 11,283,200 / (9 x 32).
        ({"classes": (3,)}, 313_422),
        # The same of two classes: 8 x 10,566,400 / (9 x 32 x 2).
        ({"classes": (3, 4)}, 146_756),
        # beta 1/2: 10,566,400 / (3 x 32 x 2).
        ({"classes": (3, 4), "dynamic_th": -1}, 55_033),
        # t_PFC / n, of however many classes: 352,600 / 32.
        ({"classes": (3,), "xoff": "352600B"}, 11_018),
        ({"classes": (3, 4), "xoff": "352600B"}, 11_018),
    ],
)
def test_how_deep_a_queue_may_be_before_it_is_marked(
    keys: dict[str, Any], marked_below: int
) -> None:
    """DCQCN, section 4, of its switch: B 12 MB, n 32 ports, t_flight 22.4 kB, beta 8 by default."""
    pfc = PfcSpec.model_validate({"memory": "375KB", "headroom": "22400B", **keys})

    def said(kmin: int) -> list[str]:
        ecn = EcnSpec.model_validate({"kmin": f"{kmin}B"})
        lab = plan(
            LabSpec(
                name="pfc",
                fabric=ClosSpec(racks=32, spines=1, servers_per_rack=0),
                queues=QueuesSpec(ecn=ecn),
            )
        )
        assert carve(lab, pfc)[-1].marked_below == marked_below
        return [text for text in warned(lab, pfc) if text.startswith("ctsw: pauses may come")]

    assert said(marked_below)
    assert not said(marked_below - 1)


@pytest.mark.parametrize("classes", [(3,), (3, 4)])
def test_the_defaults_mark_before_they_pause_and_lose_nothing(classes: tuple[int, ...]) -> None:
    for name in ("tiny", "zone-small", "hpn-small", "rail-small", "zone-252x18"):
        pfc = PfcSpec(classes=classes)
        spec = load_spec(LABS / f"{name}.yaml")
        fabric = plan(spec.model_copy(update={"queues": QueuesSpec()}))
        assert warned(fabric, pfc) == (), name


def test_every_reason_for_loss_is_said() -> None:
    def said(pfc: PfcSpec, ecn: EcnSpec | None = None) -> str:
        fabric = clos(ecn)
        return "; ".join(warned(fabric, pfc))

    assert said(PfcSpec()) == ""
    needed = headroom_of(PfcSpec(), 400 * GIGA, 9000, 200).total
    assert said(PfcSpec(headroom=f"{needed}B")) == ""
    assert "cannot hold the 95.9 kB" in said(PfcSpec(headroom=f"{needed - 1}B"))
    assert "ctsw: pauses may come before marks" in said(PfcSpec(xoff="1MB"))
    low = EcnSpec(kmin="1KB", kmax="2KB")
    assert said(PfcSpec(xoff="1MB"), low) == ""
    assert "static XOFFs of all ports and classes are 8 MB" in said(PfcSpec(xoff="2MB"), low)
    assert "class 2 is not marked" in said(PfcSpec(classes=(2, 3)))
    assert "holds 1 of 2" in said(PfcSpec(oversubscription=2))


def test_a_nic_that_pauses_too_late_is_named() -> None:
    fabric = clos()

    def said(**nic: str) -> str:
        pfc = PfcSpec(nic=NicSpec.model_validate(nic))
        return "; ".join(warned(fabric, pfc))

    assert said(buffer="192KB") == ""
    assert said(buffer="200KB", xoff="104KB") == ""
    assert "pauses at 105 kB of its 200 kB cannot hold the 95.9 kB" in said(
        buffer="200KB", xoff="105KB"
    )
    assert "a NIC that pauses at 1 B of its 90 kB" in said(buffer="90KB")


def test_a_lab_that_runs_warns_of_what_is_too_small_and_of_nothing_else() -> None:
    def said(pfc: PfcSpec | None) -> tuple[str, ...]:
        spec = clos().spec.model_copy(update={"queues": QueuesSpec(pfc=pfc)})
        return too_small(plan(spec))

    assert said(None) == said(PfcSpec()) == said(PfcSpec(xoff="1MB", oversubscription=2)) == ()
    both = PfcSpec(headroom="10KB", nic=NicSpec.model_validate({"buffer": "90KB"}))
    of_switches, of_nics = said(both)
    assert "a headroom of 10 kB cannot hold" in of_switches
    assert "its 90 kB cannot hold" in of_nics
    assert set(said(both)) <= set(warned(clos(), both))


def test_a_pool_that_does_not_hold_one_headroom_loses_packets_of_a_single_port() -> None:
    """The RTSWs' pool has four headrooms, the CTSWs' two."""

    def said(oversubscription: float) -> tuple[str, ...]:
        queues = QueuesSpec(pfc=PfcSpec(oversubscription=oversubscription))
        return too_small(plan(clos().spec.model_copy(update={"queues": queues})))

    assert said(2) == ()
    (of_ctsws,) = said(2.1)
    assert "ctsw: the headroom pool (91.4 kB) cannot hold the 95.9 kB" in of_ctsws
    assert ["rtsw" in text for text in said(4.1)] == [True, False]


def test_thresholds_that_resume_only_empty_ports_are_named() -> None:
    def said(**keys: Any) -> str:
        return "; ".join(warned(clos(), PfcSpec.model_validate(keys)))

    # 8 x 3,808,104 bytes of a CTSW, 8 x 7,616,208 of an RTSW.
    assert said(xon_offset="30MB") == ""
    assert "ctsw: a port resumes only when it holds less than a packet" in said(xon_offset="31MB")
    assert "rtsw: a port" not in said(xon_offset="31MB")
    assert "rtsw: a port resumes" in said(xon_offset="61MB")
    assert said(nic={"buffer": "116KB"}) == ""
    assert "a NIC resumes only when its buffer is empty, as nic.xon_offset (20 kB)" in said(
        nic={"buffer": "115KB"}
    )


def test_a_watchdog_that_fires_in_ordinary_pauses_is_named() -> None:
    """A sender at 400G obeys after 2 x 5 us and 905 x 1.28 ns."""
    links = LinksSpec.model_validate({"delay": "5us"})
    fabric = plan(LabSpec(name="pfc", fabric=ClosSpec(servers_per_rack=2), links=links))

    def said(detection: int) -> str:
        watchdog = WatchdogSpec.model_validate({"detection": f"{detection}ns"})
        return "; ".join(warned(fabric, PfcSpec(watchdog=watchdog)))

    assert said(11_159) == ""
    assert "its detection (11.2 us) is not longer than a sender takes" in said(11_158)


def test_a_map_of_dscps_that_defeats_lossless_classes_is_named() -> None:
    def said(dscp: dict[str, int], classes: tuple[int, ...] = (3,)) -> list[str]:
        queues = QueuesSpec.model_validate({"dscp": dscp})
        fabric = plan(clos().spec.model_copy(update={"queues": queues}))
        return [text for text in warned(fabric, PfcSpec(classes=classes)) if "DSCP" in text]

    assert said({}) == said({}, (3, 4)) == said({"af31": 4}, (3, 4)) == said({"ef": 2}) == []
    cnps, acks = said({"cs6": 3, "ef": 3})
    assert cnps.startswith("CNPs (DSCP 48) are in lossless class 3")
    assert acks.startswith("ACKs and NAKs (DSCP 46) are in lossless class 3")
    (data,) = said({"af31": 1})
    assert data.startswith("data (DSCP 26, unless a job has another) is in class 1, which is not")
    assert said({}, (4,)) == [data.replace("class 1", "class 3")]


@pytest.mark.parametrize(
    "fabric",
    [
        {"kind": "clos", "racks": 2, "spines": 3, "links_per_pair": 2, "nics_per_server": 2},
        {"kind": "clos", "zones": 2, "atsws": 2, "links_per_atsw": 3, "servers_per_rack": 3},
        {"kind": "rail", "servers_per_unit": 3, "spines": 2, "links_per_pair": 2},
        {"kind": "hpn", "servers_per_segment": 5, "aggs": 3, "links_per_pair": 2},
        {"kind": "hpn", "planes": 1, "cores": 2, "links_per_core": 2},
        {"kind": "hpn", "planes": 1, "ports_per_nic": 1},
        {"kind": "fat-tree", "k": 4, "servers_per_edge": 3},
        {"kind": "fat-tree", "k": 6},
    ],
)
def test_a_lab_is_refused_if_a_switch_has_nothing_to_share_and_else_accepted(
    fabric: dict[str, Any],
) -> None:
    """With links to NICs that need more than others, the lowest switches have the least."""
    lab = {"name": "pfc", "fabric": fabric, "links": {"rate": "100G", "server_rate": "400G"}}

    def carved(memory: int) -> tuple[Carving, ...]:
        pfc = {"memory": f"{memory}B", "classes": [3, 4], "reserved": "1KB"}
        spec = LabSpec.model_validate(lab | {"queues": {"pfc": pfc}})
        assert spec.queues.pfc is not None
        return carve(plan(spec), spec.queues.pfc)

    leaf = carved(10**6)[0]
    down, up = LabSpec.model_validate(lab).fabric.leaf_ports
    assert {needed.rate_bps: count for needed, count in leaf.headroom} == {
        400 * GIGA: down,
        100 * GIGA: up,
    }
    least = (leaf.headroom_pool + leaf.reserved) // leaf.ports + 1
    shared = [carving.shared for carving in carved(least)]
    assert min(shared) == shared[0] and 0 < shared[0] <= leaf.ports
    with pytest.raises(ValueError, match="a switch has no memory left to share"):
        carved(least - 1)


def test_marks_of_several_classes_come_before_all_ports_fill_the_memory() -> None:
    """Where static thresholds are more than there is, ports pause once it is full."""
    sizes = {"xoff": "400KB", "memory": "350KB"}
    pfc = PfcSpec.model_validate({"classes": (3, 4), **sizes})
    racks = carve(clos(), pfc)[0]
    assert racks.shared // 8 < racks.xoff // 4
    assert racks.marked_below == racks.shared // 8


@pytest.mark.parametrize(("xon", "is_told"), [(9013, True), (9014, False)])
def test_an_xon_below_one_packet_is_told(xon: int, is_told: bool) -> None:
    pfc = PfcSpec.model_validate({"xoff": "100KB", "xon_offset": f"{100_000 - xon}B"})
    texts = [text for text in warned(clos(), pfc) if "less than a packet" in text]
    assert bool(texts) == is_told
