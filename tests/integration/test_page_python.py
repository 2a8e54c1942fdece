"""The Python of README and docs/ that needs a lab runs as it is typed, but for the lab's name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab import Lab, RunningLab
from rocelab.lab.teardown import take_down
from rocelab.record import recorded_labs
from tests.helpers.page_python import LAB, ON_A_LAB, ROOT, WITH_A_LAB_OF_THEIR_OWN, run_block
from tests.helpers.running import running

pytestmark = [pytest.mark.side_by_side, pytest.mark.long]

NAME = "t-python"
OWN = "t-python-own"


def lab_file(folder: Path, name: str) -> Path:
    """The pages' lab under another name, with the network for SSH that one block needs."""
    file = folder / "labs" / f"{name}.yaml"
    file.parent.mkdir()
    text = (ROOT / "labs" / f"{LAB}.yaml").read_text()
    file.write_text(text.replace(LAB, name).replace("management: false", "management: true"))
    return file


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with running(Lab.planned(lab_file(tmp_path_factory.mktemp("lab"), NAME))) as made:
        yield made


@pytest.mark.parametrize("name", ON_A_LAB)
def test_python_of_a_page_runs_on_a_lab_that_is_up(
    name: str, lab: RunningLab, tmp_path: Path
) -> None:
    ran = run_block(name, tmp_path, lab=lab.name)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", WITH_A_LAB_OF_THEIR_OWN)
def test_python_of_a_page_brings_a_lab_up_and_takes_it_down(name: str, tmp_path: Path) -> None:
    lab_file(tmp_path, OWN)
    try:
        ran = run_block(name, tmp_path, lab=OWN, typed="exit\n")
        assert ran.returncode == 0, ran.stderr
        assert OWN not in recorded_labs()
    finally:
        take_down(OWN)
