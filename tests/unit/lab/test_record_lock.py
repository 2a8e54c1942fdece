"""A lab's lock: a command waits for a killed command's child that is about to release it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rocelab import record
from rocelab.base.errors import InputError
from rocelab.record import LOCK_GRACE_S, locked
from tests.helpers.limits import LIMIT_S

HOLDER = """
import os, sys
from pathlib import Path
from rocelab import record
record.RUN_ROOT = Path(sys.argv[1])
with record.locked("t-lock"):
    if child := os.fork():
        print(child, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    return tmp_path


def test_a_lock_that_a_killed_commands_child_still_holds_is_had_when_it_lets_go(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "LOCK_GRACE_S", LIMIT_S)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with pytest.raises(InputError), monkeypatch.context() as at_once:
            at_once.setattr(record, "LOCK_GRACE_S", 0.0)
            with locked("t-lock"):
                pass
        # What ends the child, on its own time.
        subprocess.Popen(
            [sys.executable, "-c", f"import os, time; time.sleep(0.3); os.kill({child}, 9)"]
        )
        with locked("t-lock") as files:
            assert files.lab == "t-lock"


def test_a_lock_that_another_command_keeps_is_refused_after_a_moment(root: Path) -> None:
    with locked("t-lock"):
        began = time.monotonic()
        with (
            pytest.raises(InputError, match="another command is working on lab t-lock"),
            locked("t-lock"),
        ):
            pass
        assert time.monotonic() - began >= LOCK_GRACE_S
