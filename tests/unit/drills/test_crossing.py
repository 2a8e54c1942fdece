"""Flows of a phase cross the links that its faults break."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from rocelab.base.errors import InputError
from rocelab.drills.crossing import crossing_flows
from rocelab.drills.drill_spec import DrillSpec, PhaseDrillSpec
from rocelab.drills.plan import PlannedDrill, ProbePhase, plan_drill
from rocelab.jobs.placement import find_nic
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs

LAB = {"name": "mine", "fabric": {"racks": 6, "spines": 4, "servers_per_rack": 2}}


def drill(
    flows: int = 6,
    crossing: int = 4,
    lab: object = LAB,
    phase: Mapping[str, object] = MappingProxyType({}),
    **fault: object,
) -> PlannedDrill:
    spec = PhaseDrillSpec.model_validate(
        {
            "name": "flap",
            "lab": "mine",
            "traffic": {"flows": flows},
            "crossing": crossing,
            "faults": [{"kind": "carrier-down", "at": "1s", "lasts": "1s", **fault}],
            **phase,
        }
    )
    return plan_drill(spec.with_phases(), plan(LabSpec.model_validate(lab)))


def directions_across(fabric: Fabric, phase: ProbePhase, name: str) -> list[str]:
    """The receivers of the flows on a link, by the scalar model of the kernel's choice."""
    fib_of = planned_fibs(fabric, fabric.prefixes)
    receivers = []
    for flow in phase.flows:
        source = find_nic(fabric, flow.source, flow.source_nic)
        destination = find_nic(fabric, flow.destination, flow.destination_nic)
        path = walk(fabric, fib_of, source, destination, flow.sport)
        receivers += [hop.link.receiver for hop in path.hops if hop.link.name == name]
    return receivers


def chosen(planned: PlannedDrill) -> ProbePhase:
    (phase,) = planned.phases
    assert isinstance(phase, ProbePhase)
    fabric = planned.fabric
    fib_of = planned_fibs(fabric, fabric.prefixes)
    return replace(phase, flows=crossing_flows(fabric, phase, fib_of))


def test_flows_that_do_not_cross_give_way_to_others_in_both_directions() -> None:
    planned = drill(link="rtsw1:ctsw2")
    (phase,) = planned.phases
    assert isinstance(phase, ProbePhase)
    assert len(directions_across(planned.fabric, phase, "rtsw1:ctsw2")) < 2, "nothing to choose"

    phase = chosen(planned)

    across = directions_across(planned.fabric, phase, "rtsw1:ctsw2")
    assert len(across) == 4 and set(across) == {"rtsw1", "ctsw2"}
    assert [flow.id for flow in phase.flows] == list(range(6))
    assert len({flow.dest_qp for flow in phase.flows}) == 6


def test_flows_that_cross_already_are_kept() -> None:
    planned = drill(flows=30, link="rtsw1:ctsw2", crossing=1)
    (phase,) = planned.phases
    assert isinstance(phase, ProbePhase)
    assert chosen(planned).flows == phase.flows


def test_pairs_near_the_link_get_further_source_ports() -> None:
    """Of 4,096 flows between all racks some 340 cross."""
    slow = {"traffic": {"flows": 800, "rate_pps": 50, "payload": "64B"}}
    sampled = {**slow, "measure": {"sampling_interval": "100ms"}}
    planned = drill(crossing=600, link="rtsw1:ctsw2", phase=sampled)
    phase = chosen(planned)
    assert len(directions_across(planned.fabric, phase, "rtsw1:ctsw2")) == 600
    assert len({flow.dest_qp for flow in phase.flows}) == 800


def test_a_link_gets_no_more_flows_than_it_carries() -> None:
    """At the usual dilation a link of 40 Gb/s carries three flows each way."""
    slow = {**LAB, "links": {"rate": "40G", "server_rate": "400G"}}
    with pytest.raises(InputError, match=r"of 30 flows cross rtsw1:ctsw2, and crossing asks for 8"):
        chosen(drill(flows=30, crossing=8, lab=slow, link="rtsw1:ctsw2"))


@pytest.mark.parametrize("part", [{"scheme": "spray"}, {"hashing": {"seed": 0}}])
def test_where_paths_are_not_predicted_a_note_says_so(part: dict[str, object]) -> None:
    planned = drill(lab={**LAB, **part}, link="rtsw1:ctsw2")
    (note,) = planned.notes
    assert note.startswith("skipped crossing: ") and note.endswith("left to chance")


def test_more_crossing_flows_than_flows_are_refused() -> None:
    with pytest.raises(ValueError, match="crossing is 7, and the phase sends 6 flows"):
        drill(crossing=7, link="rtsw1:ctsw2")


def test_crossing_is_of_probes() -> None:
    job = {"pattern": "allreduce", "ranks": 4, "size": "1MB"}
    with pytest.raises(ValueError, match="crossing is of probes"):
        DrillSpec.model_validate(
            {"name": "x", "lab": "mine", "phases": [{"name": "p", "jobs": [job], "crossing": 1}]}
        )
