"""A lab that is given back in whatever state it is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab import record
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.faults.running import release
from rocelab.lab.providers.adopted import AdoptionRecord, write_adopted
from rocelab.planning.build import build_fabric
from rocelab.record import LabFiles
from tests.helpers.adopted_sample import leaf_spine


def test_a_lab_whose_adoption_was_killed_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    files = LabFiles("mine")
    files.root.mkdir()
    write_adopted(files, AdoptionRecord("Mine", "docker", {}))
    assert release("mine") == ()
    assert not files.root.exists()


def test_the_links_of_a_fault_whose_nodes_are_there_are_left() -> None:
    links = build_fabric(leaf_spine()).link_by_name
    fault = CarrierDown((links["leaf1:eth2"], links["leaf1:eth3"]))
    assert fault.without({"spine2"}).links == (links["leaf1:eth2"],)
    assert fault.without({"leaf1"}).nodes == ()
    assert fault.without(set()) == fault
