"""Open pauses of two classes, a hundred times each: whatever held them ends, or an agent that sent
into them, and each class passes packets again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.helpers.lossless import LOSSLESS, Rig
from tests.integration.test_lossless import (
    BODY,
    OTHER_LOSSLESS,
    kill_the_child,
    kill_the_supervisor,
    lose_the_link,
    lose_the_switch,
)
from tests.integration.test_lossless_classes import kill_an_agent

KILLS = 100


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    classes = f", classes: [{LOSSLESS}, {OTHER_LOSSLESS}]"
    spec = f"name: soak-lossless\n{BODY % classes}"
    with Rig.of(spec, tmp_path_factory.mktemp("soak")) as rig:
        yield rig


@pytest.mark.parametrize(
    "end", [kill_the_child, kill_the_supervisor, lose_the_link, lose_the_switch, kill_an_agent]
)
def test_a_hundred_open_pauses_end_with_what_held_them(
    rig: Rig, end: Callable[[Rig], None]
) -> None:
    rig.wait_for_rest()
    for _ in range(KILLS):
        with rig.storm(LOSSLESS, OTHER_LOSSLESS):
            end(rig)
        rig.wait_for_rest()
