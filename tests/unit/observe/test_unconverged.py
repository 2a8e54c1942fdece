"""Of which switches evidence is kept when a lab does not converge."""

from __future__ import annotations

from rocelab.lab.convergence import NotConvergedError
from rocelab.labfile.model import LabSpec
from rocelab.observe.evidence.unconverged import MOST_NODES, nodes_concerned
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric


def clos(racks: int, spines: int) -> Fabric:
    fabric = {"kind": "clos", "racks": racks, "spines": spines, "servers_per_rack": 1}
    return plan(LabSpec.model_validate({"name": "t", "fabric": fabric}))


def test_evidence_is_of_the_switches_concerned_and_then_of_their_neighbours() -> None:
    fabric = clos(racks=3, spines=2)
    error = NotConvergedError("late", nodes=["rtsw3", "rtsw1"])
    assert nodes_concerned(fabric, error) == ("rtsw3", "rtsw1", "ctsw1", "ctsw2")


def test_evidence_of_a_large_lab_is_of_few_switches() -> None:
    fabric = clos(racks=40, spines=32)
    leaves = [f"rtsw{number}" for number in range(1, 41)]
    nodes = nodes_concerned(fabric, NotConvergedError("late", nodes=leaves))
    assert len(nodes) == MOST_NODES
    assert nodes[:2] == ("rtsw1", "rtsw2")
    assert "ctsw1" in nodes
