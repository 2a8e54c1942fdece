"""The memory of switches with lossless classes: headroom, thresholds, and marks before pauses."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.errors import InputError
from rocelab.plan.build import plan
from rocelab.plan.fabric import Fabric
from rocelab.plan.pfc import (
    carve,
    headroom_of,
    nic_headrooms,
    response_quanta,
    slack_of,
    too_small,
    warnings,
)
from rocelab.spec.fabrics import ClosSpec
from rocelab.spec.load import load_spec
from rocelab.spec.model import LabSpec, LinksSpec
from rocelab.spec.pfc import NicSpec, PfcSpec
from rocelab.spec.queues import EcnSpec, QueuesSpec

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
    assert (rtsw.role, rtsw.switches, rtsw.ports) == ("rtsw", 2, 4)
    assert (ctsw.role, ctsw.switches, ctsw.ports) == ("ctsw", 2, 2)
    assert rtsw.memory == 4 * 2_000_000
    assert rtsw.reserved == 4 * 2 * 1000
    assert rtsw.headroom_pool == 4 * 2 * needed / 2
    assert rtsw.shared == rtsw.memory - rtsw.reserved - rtsw.headroom_pool
    assert [(each.rate_bps, count) for each, count in rtsw.headroom] == [(400 * GIGA, 4)]


@given(st.integers(-7, 8))
def test_a_dynamic_threshold_is_a_share_of_what_it_leaves_free(dynamic_th: int) -> None:
    """A class that alone holds q bytes is paused where q = 2^dynamic_th x (shared - q)."""
    for carving in carve(clos(), PfcSpec(dynamic_th=dynamic_th)):
        free = carving.shared - carving.xoff
        assert carving.xoff == pytest.approx(2.0**dynamic_th * free, abs=2.0**dynamic_th + 1)
        assert carving.xon == max(0, carving.xoff - 20_000)


def test_marks_begin_before_pauses_where_the_paper_says() -> None:
    """DCQCN, section 4: 12 MB, 32 ports of 40G, 8 classes, 22.4 KB of headroom, beta 8: t_ECN below
    21.75 KB, as the paper has it."""
    shared = 12_000_000 - 8 * 32 * 22_400
    lab = plan(LabSpec(name="pfc", fabric=ClosSpec(racks=32, spines=1, servers_per_rack=0)))
    # One lossless class with the headroom of eight: what is left to share is the same.
    pfc = PfcSpec(memory="375KB", headroom="179200B")
    spine = carve(lab, pfc)[-1]
    assert (spine.ports, spine.shared) == (32, shared)
    assert spine.marked_below / 8 == pytest.approx(21_750, rel=1e-3)


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
    assert "cannot hold the 95.9 KB" in said(PfcSpec(headroom=f"{needed - 1}B"))
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
    assert "pauses at 105 KB of its 200 KB cannot hold the 95.9 KB" in said(
        buffer="200KB", xoff="105KB"
    )
    assert "a NIC that pauses at 1 B of its 90 KB" in said(buffer="90KB")


def test_a_lab_that_runs_warns_of_what_is_too_small_and_of_nothing_else() -> None:
    def said(pfc: PfcSpec | None) -> tuple[str, ...]:
        spec = clos().spec.model_copy(update={"queues": QueuesSpec(pfc=pfc)})
        return too_small(plan(spec))

    assert said(None) == said(PfcSpec()) == said(PfcSpec(xoff="1MB", oversubscription=2)) == ()
    both = PfcSpec(headroom="10KB", nic=NicSpec.model_validate({"buffer": "90KB"}))
    of_switches, of_nics = said(both)
    assert "a headroom of 10 KB cannot hold" in of_switches
    assert "its 90 KB cannot hold" in of_nics
    assert set(said(both)) <= set(warned(clos(), both))


def test_a_switch_without_memory_to_share_is_refused() -> None:
    with pytest.raises(InputError, match="nothing of the memory of a ctsw is left to share") as it:
        carve(clos(), PfcSpec(memory="96KB", headroom="96KB"))
    assert carve(clos(), PfcSpec(memory="96KB", headroom="95KB"))[0].shared == 4000
    assert it.value.hint is not None
    assert "queues.pfc.memory" in it.value.hint
