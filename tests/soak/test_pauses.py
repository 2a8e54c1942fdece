"""Open pauses, a hundred times each: whatever held one ends, and the class passes packets again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocelab.runtime.lab import Lab
from tests.helpers.running import running
from tests.integration.test_lossless import (
    BODY,
    Rig,
    kill_the_child,
    kill_the_supervisor,
    lose_the_link,
    lose_the_switch,
)

KILLS = 100


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    file: Path = tmp_path_factory.mktemp("soak") / "lab.yaml"
    file.write_text(f"name: soak-lossless\n{BODY % ''}")
    with running(Lab.planned(file)) as lab:
        yield Rig(lab)


@pytest.mark.parametrize(
    "end", [kill_the_child, kill_the_supervisor, lose_the_link, lose_the_switch]
)
def test_a_hundred_open_pauses_end_with_what_held_them(
    rig: Rig, end: Callable[[Rig], None]
) -> None:
    rig.wait_for_rest()
    for _ in range(KILLS):
        with rig.storm():
            end(rig)
        rig.wait_for_rest()
