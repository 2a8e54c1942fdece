"""Faults in time: flapping and campaigns become single faults, changes become events."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from rocelab.faults.base import Fault
from rocelab.faults.fault_spec import FaultSpec
from rocelab.faults.injector import InjectedChange
from rocelab.faults.kinds.campaign import DRAWN, CampaignSpec
from rocelab.faults.kinds.carrier_down import CarrierDown, CarrierDownSpec
from rocelab.faults.kinds.flapping import FlappingSpec
from rocelab.faults.kinds.power_loss import PowerLossSpec, SwitchPowerLoss
from rocelab.faults.schedule import expand
from rocelab.faults.timetable import events_of
from rocelab.lab.lab import RunningLab
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.linux.bracket import Bracket
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.results.probes import rebased
from tests.helpers.impaired import grey_loss

MS = 10**6
FABRIC: Fabric = plan(load_spec(find_lab("zone-small")))
FAULT: TypeAdapter[FaultSpec] = TypeAdapter(FaultSpec)


@dataclass(frozen=True)
class Named:
    """A fault as far as events need one."""

    kind: str
    subject: str
    nodes: tuple[str, ...] = ()

    def prepare(self, lab: RunningLab) -> None: ...
    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset()

    def inject(self, lab: RunningLab) -> Bracket:
        return Bracket.now()

    def restore(self, lab: RunningLab) -> None: ...
    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return ()


def flapping(**keys: object) -> FlappingSpec:
    return FlappingSpec.model_validate({"kind": "flapping", "link": "rtsw1:ctsw2", **keys})


def campaign(**keys: object) -> CampaignSpec:
    return CampaignSpec.model_validate({"kind": "campaign", **keys})


def test_flapping_without_jitter_is_a_square_wave() -> None:
    timed = expand(FABRIC, [flapping(at="1s", period="100ms", duty="20%", count=3)])
    assert [(one.begins_ns // MS, one.ends_ns // MS) for one in timed if one.ends_ns] == [
        (1000, 1020),
        (1100, 1120),
        (1200, 1220),
    ]
    assert all(isinstance(one.spec, CarrierDownSpec) for one in timed)


@given(
    seed=st.integers(0, 2**32 - 1),
    jitter=st.integers(0, 40),
    duty=st.integers(1, 99),
    count=st.integers(1, 40),
)
def test_jitter_never_lets_flaps_overlap_or_change_order(
    seed: int, jitter: int, duty: int, count: int
) -> None:
    fault = flapping(
        at="1s", period="50ms", duty=f"{duty}%", count=count, jitter=f"{jitter}%", seed=seed
    )
    timed = expand(FABRIC, [fault])
    assert len(timed) == count
    instants = [instant for one in timed for instant in (one.begins_ns, one.ends_ns or 0)]
    assert instants == sorted(instants)
    assert timed == expand(FABRIC, [fault])


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 60))
def test_a_campaign_never_breaks_a_node_that_is_broken_already(seed: int, count: int) -> None:
    fault = campaign(at="1s", seed=seed, count=count, kinds=list(DRAWN))
    timed = expand(FABRIC, [fault])
    assert len(timed) == count
    assert timed == expand(FABRIC, [fault])
    until: dict[str, int] = {}
    for one in timed:
        switch = getattr(one.spec, "switch", None)
        link = getattr(one.spec, "link", None)
        ends = [switch] if switch else list(ends_of(link.find(FABRIC)) if link else ())
        assert ends
        for node in ends:
            assert one.begins_ns >= until.get(node, 0)
            until[node] = max(one.ends_ns or 0, one.begins_ns)


def ends_of(link: object) -> tuple[str, str]:
    return link.a.node, link.b.node  # type: ignore[attr-defined]


def test_a_campaign_spares_the_power_of_racks() -> None:
    timed = expand(FABRIC, [campaign(count=200, kinds=["power-loss"])])
    switches = [one.spec.switch for one in timed if isinstance(one.spec, PowerLossSpec)]
    assert {FABRIC.node(switch).is_leaf for switch in switches} == {False}


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "carrier-down"}, "one of link, links and between"),
        ({"kind": "carrier-down", "link": "rtsw1"}, "NODE:INTERFACE"),
        ({"kind": "carrier-down", "link": {"node": "rtsw1"}}, "interface or uplink"),
        ({"kind": "grey-loss", "link": "rtsw1:ctsw1", "loss": 0.05}, "a share"),
        ({"kind": "flapping", "link": "rtsw1:ctsw1", "lasts": "1s"}, "count x period"),
        ({"kind": "campaign", "lasts": "1s"}, "ends with its last fault"),
        ({"kind": "session-reset", "switch": "ctsw1", "lasts": "1s"}, "an instant"),
    ],
)
def test_a_wrong_fault_is_refused_with_what_is_expected(
    fault: dict[str, object], expected: str
) -> None:
    with pytest.raises(ValidationError, match=expected):
        FAULT.validate_python(fault)


def test_every_fault_reads_back_from_its_own_json() -> None:
    link = {"link": "rtsw1:ctsw2"}
    for fault in (
        {"kind": "carrier-down", **link, "side": "ctsw2", "lasts": "1500ms"},
        {"kind": "grey-loss", **link, "loss": "200ppm", "towards": "rtsw1"},
        {"kind": "delay", **link, "delay": "5ms"},
        {"kind": "bad-prefix", "switch": "rtsw1", "of": "rtsw2", "filtered": False},
        {"kind": "campaign", "seed": 7, "kinds": ["drain"]},
    ):
        spec = FAULT.validate_python(fault)
        assert FAULT.validate_python(spec.model_dump(mode="json", exclude_none=True)) == spec


def change(
    at_ms: int, *, begins: bool, subject: str = "a", kind: str = "carrier-down"
) -> InjectedChange:
    return InjectedChange(Named(kind, subject), begins, at_ms * MS, 0)


def test_a_fault_longer_than_the_validation_time_is_two_events() -> None:
    changes = [change(1000, begins=True), change(2000, begins=False)]
    events = events_of(changes, apart_ns=500 * MS)
    assert [(event.t_ns // MS, event.change) for event in events] == [
        (1000, "begin"),
        (2000, "end"),
    ]
    assert events[1].title == "carrier-down of a ends"


def test_flaps_faster_than_the_validation_time_are_one_event_from_the_first() -> None:
    changes = [
        change(1000 + 50 * number, begins=number % 2 == 0, kind="carrier-down")
        for number in range(10)
    ]
    (event,) = events_of(changes, apart_ns=500 * MS)
    assert (event.t_ns, event.change, event.changes) == (1000 * MS, "begin", 10)


def test_faults_of_several_kinds_at_once_are_one_event_that_names_their_subjects() -> None:
    changes = [
        change(1000, begins=True, subject="a"),
        change(1001, begins=True, subject="b", kind="power-loss"),
    ]
    (event,) = events_of(changes, apart_ns=500 * MS)
    assert (event.kind, event.subject) == ("several faults", "a, b")


def test_an_event_has_each_of_its_changes_with_the_links_and_nodes_that_the_fault_is_in() -> None:
    first, second = FABRIC.links[:2]
    faults: tuple[Fault, ...] = (
        CarrierDown((first,)),
        grey_loss((second,), 1000),
        SwitchPowerLoss("ctsw2"),
    )
    changes = [InjectedChange(fault, True, place * MS, 0) for place, fault in enumerate(faults)]
    (event,) = events_of(changes, apart_ns=500 * MS)
    assert [(fault.links, fault.nodes, fault.dark) for fault in event.faults] == [
        ((first.name,), (), True),
        ((second.name,), (), False),
        ((), ("ctsw2",), True),
    ]
    assert [fault.t_ns for fault in rebased(event, MS).faults] == [-MS, 0, MS]


@given(
    instants=st.lists(st.integers(0, 10_000), min_size=1, max_size=60),
    apart_ms=st.integers(1, 2_000),
)
def test_events_are_in_order_and_at_least_the_validation_time_apart(
    instants: list[int], apart_ms: int
) -> None:
    changes = [change(at, begins=True) for at in instants]
    events = events_of(changes, apart_ns=apart_ms * MS)
    assert sum(event.changes for event in events) == len(changes)
    assert all(b.t_ns - a.t_ns >= apart_ms * MS for a, b in pairwise(events))
