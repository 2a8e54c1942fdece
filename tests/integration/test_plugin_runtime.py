"""A runtime of another package: labs come up on it, and go down also when the package has gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rocelab.base.errors import MachineError
from rocelab.lab.teardown import take_down
from rocelab.record import LabFiles
from tests.helpers.plugin import PluginEnvironment

pytestmark = pytest.mark.side_by_side

LAB = "it-plugin-runtime"
POINTS = {"providers:noted": "lab_runtime:NOTED"}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    lab = tmp_path / f"{LAB}.yaml"
    lab.write_text(f"name: {LAB}\nfabric: {{kind: clos, racks: 2, spines: 1}}\n")
    yield lab
    with suppress(MachineError):  # the package is not installed here
        take_down(LAB)


def test_a_lab_is_up_on_it_and_down_and_its_package_may_go_meanwhile(
    tmp_path: Path, file: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    bare = PluginEnvironment(tmp_path / "bare")
    there = PluginEnvironment.with_package(tmp_path / "there", "lab_runtime", POINTS)

    def up() -> None:
        line = ("up", str(file), "--runtime", "noted")
        done = there.rocelab(*line, ROCELAB_TEST_NOTES=str(notes))
        assert done.returncode == 0, done.stdout + done.stderr
        assert (notes / LAB).read_text() == "5 nodes"
        assert json.loads(LabFiles(LAB).record.read_text())["runtime"] == "noted"

    up()
    status, doctor, down = there.in_turn(
        ("status", LAB), ("doctor", "--json"), ("down", LAB), ROCELAB_TEST_NOTES=str(notes)
    )
    assert status.returncode == 0
    assert "the runtime noted" in doctor.stdout
    assert down.returncode == 0, down.stdout + down.stderr
    assert list(notes.iterdir()) == []

    up()
    status, down, mistyped = bare.in_turn(
        ("status", LAB), ("down", LAB), ("up", str(file), "--runtime", "notde")
    )
    assert status.returncode == 2
    missing = f"lab {LAB} was brought up with the runtime noted, which is not installed here"
    assert missing in status.stderr
    assert down.returncode == 3
    assert "what the runtime noted made besides may be left" in down.stderr
    assert not LabFiles(LAB).root.exists()
    assert mistyped.returncode == 2
    assert "there is no runtime 'notde'" in mistyped.stderr
