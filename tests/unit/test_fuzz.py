"""The inputs of `make fuzz`: an input has a number and is always the same, and nothing brings up a
lab or reaches another machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz.inputs import COMMANDS, KINDS, made
from tests.fuzz.run import WRITTEN_BYTES, Child

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


def test_a_tree_that_nests_hundreds_of_levels_is_an_input() -> None:
    assert b"- - - - - - - - - -" in b"".join(made(1046, 303, Path()).files.values())


def test_an_input_that_writes_without_bound_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"")
    os.truncate(tmp_path / "out", WRITTEN_BYTES)
    ending = os.fork() or os._exit(0)
    ended, how = Child(1, ending, tmp_path, time.monotonic()).ended(wait=True)
    assert ended
    assert how == "100,000,000 bytes written and more"
