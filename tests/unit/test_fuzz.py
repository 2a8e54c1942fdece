"""The inputs of `make fuzz`: an input has a number and is always the same, and nothing brings up a
lab or reaches another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.inputs import COMMANDS, KINDS, made

NEED_SAMPLES = ("job", "swept", "trace", "document")
MAKE_OR_REACH = ("up", "down", "adopt", "release", "live", "attach", "exec", "drill run", "compare")


@pytest.mark.parametrize("kind", sorted({*KINDS} - {*NEED_SAMPLES}))
def test_the_input_of_a_number_is_always_the_same(kind: str) -> None:
    for number in range(KINDS.index(kind), 20 * len(KINDS), len(KINDS)):
        first, again = (made(number, 1, Path()) for _ in range(2))
        assert (first.kind, first.arguments, first.files) == (kind, again.arguments, again.files)


def test_no_command_makes_a_lab_or_reaches_a_machine() -> None:
    assert not {*COMMANDS} & {*MAKE_OR_REACH}
