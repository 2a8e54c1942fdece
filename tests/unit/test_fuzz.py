"""The inputs of `make fuzz`: an input has a number and is always the same, and nothing brings up a
lab or reaches another machine."""

from __future__ import annotations

import subprocess
import sys
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


RAISES_IN_THE_CHILD = """
import shutil
from pathlib import Path
from tests.fuzz import run

def raises(*arguments):
    raise MemoryError

run._run = raises
try:
    child = run.start(1, 1, Path())
except MemoryError:
    print("the child is in the loop")
else:
    print("over:", child.ended(wait=True)[0])
    shutil.rmtree(child.folder)
"""


def test_a_child_never_returns_into_the_loop() -> None:
    command = [sys.executable, "-c", RAISES_IN_THE_CHILD]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "over: True\n"
