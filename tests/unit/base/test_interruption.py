"""Signals that end a program: deferral, messages, and the exit code."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from rocelab.base.compiling import numba
from rocelab.base.interruption import Interrupted, ending, shielded, undone
from rocelab.linux import namespaces
from tests.helpers.waiting import RUN_LIMIT_S, wait_until

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.usefixtures("hears_signals")


def told(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("number", "word"), [(2, "interrupted"), (15, "terminated"), (1, "hung up")]
)
def test_a_signal_ends_a_program_with_one_line(
    number: int, word: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as end, ending():
        undone("not told: no signal has come")
        try:
            signal.raise_signal(number)
        finally:
            undone("this was undone")
            undone("that as well")
    assert end.value.code == 128 + number
    assert told(capfd) == [f"{word}: this was undone, that as well"]
    assert signal.getsignal(number) is before


def test_a_program_that_sees_to_it_itself_ends_with_the_same_code(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end, ending():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise SystemExit(0) from None
    assert end.value.code == 130
    assert told(capfd) == ["interrupted: nothing to clean up"]


def test_a_defect_while_it_is_undone_stays_one() -> None:
    with pytest.raises(SystemExit) as end, ending():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise SystemExit(os.EX_SOFTWARE) from None
    assert end.value.code == os.EX_SOFTWARE


def test_signals_that_come_while_it_is_undone_change_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    steps = []
    with pytest.raises(SystemExit) as end, ending():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            steps.append("undone")
            signal.raise_signal(signal.SIGTERM)
            steps.append("whole")
    assert (end.value.code, steps) == (143, ["undone", "whole"])
    assert told(capfd) == [
        "cleaning up first",
        "terminated: nothing to clean up",
    ]


class _Finalized:
    """An object whose finalizer, in which no exception goes anywhere, runs while a signal comes."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_in_a_finalizer_comes_again(capfd: pytest.CaptureFixture[str]) -> None:
    waited = []
    with pytest.raises(SystemExit) as end, ending():
        _Finalized()
        waited.append(threading.Event().wait(60))
    assert (end.value.code, waited) == (143, [])
    assert told(capfd) == ["terminated: nothing to clean up"]


def test_after_one_that_a_library_has_swallowed_the_next_signal_ends_the_program(
    capfd: pytest.CaptureFixture[str],
) -> None:
    steps = []
    with pytest.raises(SystemExit) as end, ending():
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException:
            steps.append("swallowed")
        signal.raise_signal(signal.SIGINT)
        steps.append("not reached")
    assert (end.value.code, steps) == (130, ["swallowed"])
    assert told(capfd) == ["interrupted: nothing to clean up"]


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ending(), shielded("nothing") as shield, shield.lifted():
        signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_shield_puts_signals_off_to_its_end(capfd: pytest.CaptureFixture[str]) -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), shielded("it is tidied up", lambda: steps.append("now")):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        steps.append("whole")
    assert steps == ["now", "whole"]
    assert told(capfd) == ["it is tidied up first"]


def test_a_lifted_shield_lets_them_through_and_what_came_before_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    steps = []
    with pytest.raises(SystemExit), ending(), shielded("outer") as outer, outer.lifted():
        try:
            with shielded("inner") as inner:
                signal.raise_signal(signal.SIGINT)
                with inner.lifted():
                    steps.append("not reached")
        except Interrupted:
            steps.append("raised at the lifting")
            raise
    assert steps == ["raised at the lifting"]
    assert told(capfd) == ["inner first", "interrupted: nothing to clean up"]


def test_other_threads_are_left_alone() -> None:
    def work() -> None:
        with ending(), shielded("nothing") as shield, shield.lifted():
            done.append(signal.getsignal(signal.SIGINT))

    done: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


def test_work_on_a_thread_has_ended_when_an_interrupt_goes_on() -> None:
    """Thread.join() alone would return while the thread still runs (bpo-45274)."""
    begun, may_end = threading.Event(), threading.Event()
    steps = []

    def work() -> None:
        begun.set()
        os.kill(os.getpid(), signal.SIGINT)
        may_end.wait()
        steps.append("ended")

    def give_up() -> None:
        steps.append("given up")
        may_end.set()

    with pytest.raises(KeyboardInterrupt):
        namespaces.on_own_thread(work, give_up)
    assert begun.is_set()
    assert steps == ["given up", "ended"]


def test_a_moment_that_signals_do_not_end_is_not_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), ending(), shielded(None):
        signal.raise_signal(signal.SIGINT)
        undone("it")
    assert told(capfd) == ["interrupted: it"]


def test_a_signal_gives_its_code_where_nobody_reads_what_is_said() -> None:
    program = (
        "import signal\nfrom rocelab.base.interruption import ending\n"
        "with ending():\n    print('on its way')\n    signal.raise_signal(signal.SIGINT)\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            stdout=writer,
            stderr=writer,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            check=False,
        )
    finally:
        os.close(writer)
    assert ended.returncode == 130


def test_a_function_is_compiled_to_its_end(capfd: pytest.CaptureFixture[str]) -> None:
    """An exception in a call from LLVM would be lost."""
    lock = numba().core.compiler_lock.global_compiler_lock
    passed = []
    with pytest.raises(SystemExit) as end, ending():
        with lock:
            with lock:
                signal.raise_signal(signal.SIGTERM)
            passed.append("the signal")
        passed.append("the end")
    assert end.value.code == 143
    assert passed == ["the signal"]
    assert told(capfd) == [
        "a function is compiled first",
        "terminated: nothing to clean up",
    ]


PROGRAMS = {
    "buffered output": "sys.stdout.write('x' * 100_000 + 'y')",
    "a shield": """
with shielded('it is whole'):
    os.write(1, bytes(100_000))
""",
    "the undoing": """
try:
    signal.raise_signal(signal.SIGTERM)
finally:
    print('x' * 100_000)
    sys.stderr.write('y' * 100_000)
    Path('undone').touch()
""",
    "a message": """
os.set_blocking(1, False)
with suppress(BlockingIOError):
    while True:
        os.write(1, b'x')
os.set_blocking(1, True)
with shielded('it is whole'):
    signal.raise_signal(signal.SIGTERM)
""",
}


def is_full(pipe: int) -> bool:
    filled: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return filled >= fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


@pytest.mark.parametrize("doing", PROGRAMS)
def test_a_reader_that_has_stopped_holds_no_ending_program_up(doing: str, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom contextlib import suppress\nfrom pathlib import Path\n"
        "from rocelab.base import interruption\n"
        "from rocelab.base.interruption import ending, shielded\n"
        "interruption.PATIENCE_S = 0.2\n"
        "with ending():\n" + "".join(f"    {line}\n" for line in PROGRAMS[doing].splitlines())
    )
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=writer,
        stderr=writer,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(writer)
    try:
        # A signal right before a write would only be seen after it (PEP 475).
        wait_until(lambda: is_full(reader), "the pipe is full")
        if "raise_signal" not in PROGRAMS[doing]:
            process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_LIMIT_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
        os.close(reader)
    assert (tmp_path / "undone").exists() == (doing == "the undoing")
