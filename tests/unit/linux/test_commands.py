"""Commands that end, that are late, and that leave processes behind."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.linux.commands import Command, LateError
from rocelab.linux.processes import is_alive, kill_and_wait
from tests.helpers.waiting import LIMIT_S, wait_until

LEAVES_A_CHILD = "sleep 600 & echo $!"


@pytest.fixture
def left() -> Iterator[list[int]]:
    """Processes that a test's commands left: killed at its end."""
    pids: list[int] = []
    yield pids
    kill_and_wait(pids)


def test_output_and_exit_status_are_the_commands() -> None:
    done = Command(["sh", "-c", "echo out; echo err >&2; exit 3"]).run(LIMIT_S)
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)


def test_a_long_output_is_whole() -> None:
    done = Command([sys.executable, "-c", "print('x' * 3_000_000)"]).run(LIMIT_S)
    assert len(done.stdout) == 3_000_001


def test_any_bytes_are_text() -> None:
    assert Command(["printf", r"\377"]).run(LIMIT_S).stdout == "\ufffd"


def test_a_command_has_no_input() -> None:
    assert Command(["cat"]).run(LIMIT_S).stdout == ""


@pytest.mark.parametrize(
    "script", [LEAVES_A_CHILD, f"({LEAVES_A_CHILD})", f"setsid sh -c '{LEAVES_A_CHILD}'"]
)
def test_a_process_left_in_the_background_is_not_awaited(script: str, left: list[int]) -> None:
    done = Command(["sh", "-c", script]).run(LIMIT_S)
    left.append(int(done.stdout))
    assert done.returncode == 0
    assert is_alive(left[0])


def test_output_is_whole_though_a_background_process_writes_on(left: list[int]) -> None:
    done = Command(["sh", "-c", "yes & echo $! >&2"]).run(LIMIT_S)
    left.append(int(done.stderr))
    assert set(done.stdout) <= {"y", "\n"}


def test_a_command_that_closes_its_output_is_awaited() -> None:
    assert Command(["sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 5"]).run(LIMIT_S).returncode == 5


def test_a_late_command_is_killed_with_its_process_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(LateError):
        Command(["sh", "-c", f"sleep 600 & echo $! $$ > {pids}; wait"]).run(1.0)
    # A kill takes effect when the process next has a CPU.
    wait_until(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


def test_another_thread_ends_a_command(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = Command(["sh", "-c", f"echo > {ready}; sleep 600"])
    outcome: list[int] = []
    runner = threading.Thread(target=lambda: outcome.append(command.run(LIMIT_S).returncode))
    runner.start()
    wait_until(ready.exists)
    command.end()
    runner.join()
    assert outcome == [-9]


def test_a_command_that_was_ended_does_not_start() -> None:
    command = Command(["true"])
    command.end()
    with pytest.raises(InterruptedError):
        command.run(LIMIT_S)


def test_a_missing_command_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        Command(["no-such-command"]).run(LIMIT_S)


def test_nothing_stays_open() -> None:
    def open_now() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_now()
    for _ in range(3):
        Command(["true"]).run(LIMIT_S)
        with pytest.raises(FileNotFoundError):
            Command(["no-such-command"]).run(LIMIT_S)
    assert open_now() == before
