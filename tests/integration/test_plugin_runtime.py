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

    def run(where: PluginEnvironment, *words: str) -> tuple[int, str]:
        done = where.rocelab(*words, ROCELAB_TEST_NOTES=str(notes))
        return done.returncode, done.stdout + done.stderr

    def up() -> None:
        code, said = run(there, "up", str(file), "--runtime", "noted")
        assert code == 0, said
        assert (notes / LAB).read_text() == "5 nodes"
        assert json.loads(LabFiles(LAB).record.read_text())["runtime"] == "noted"

    up()
    assert run(there, "status", LAB)[0] == 0
    assert "the runtime noted" in run(there, "doctor", "--json")[1]
    code, said = run(there, "down", LAB)
    assert code == 0, said
    assert list(notes.iterdir()) == []

    up()
    code, said = run(bare, "status", LAB)
    assert code == 2
    assert f"lab {LAB} was brought up with the runtime noted, which is not installed here" in said
    code, said = run(bare, "down", LAB)
    assert code == 3
    assert "what the runtime noted made besides may be left" in said
    assert not LabFiles(LAB).root.exists()

    code, said = run(bare, "up", str(file), "--runtime", "notde")
    assert code == 2
    assert "there is no runtime 'notde'" in said
