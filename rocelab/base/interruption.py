"""Ends a program on a signal: it first undoes what it began, and one line says what that was.

SIGINT (Ctrl-C), SIGTERM and SIGHUP raise `Interrupted` in the main thread; further signals during
the undoing change nothing. One that is lost, as in a finalizer or under a library's bare `except`,
is raised again: there by itself, here at the next signal. A signal that was ignored when the
program began, as SIGINT is in a background job of a shell script, stays ignored. A reader of the
output that stops reading, as a pager does, holds no ending program up. Standard library only.

    with ending():                       # around a whole program
        with shielded("lab x is taken down") as shield:
            try:
                with shield.lifted():    # here a signal raises
                    ...
            finally:
                ...                      # here it waits for the end of the block
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
"""The signals that end a program, and the word for it in the message."""

_Handler = Callable[[int, FrameType | None], object] | int | None


_AGAIN_S = 0.01

PATIENCE_S = 3.0
"""How long an ending program waits for a reader that takes nothing of its output."""


class Interrupted(KeyboardInterrupt):
    """A signal ended the program."""


@dataclass(slots=True)
class _CaughtSignal:
    """The signal that this process got, and what it has undone since."""

    number: int | None = None
    undone: list[str] = field(default_factory=list)
    said: str | None = None
    left: set[int] = field(default_factory=set)
    """Descriptors of outputs whose readers had stopped."""

    def note(self, number: int) -> None:
        """Note a signal."""
        if self.number is None:
            self.number = number
            # threading.Thread takes locks, which the interrupted code may hold.
            _thread.start_new_thread(_discard_blocked_output, (number,))


_seen = _CaughtSignal()


def undone(text: str) -> None:
    """Note what was undone because of a signal; does nothing without one."""
    if _seen.number is not None and text not in _seen.undone:
        _seen.undone.append(text)


def is_output_whole() -> bool:
    """Whether no reader of this program's output has been given up."""
    return not _seen.left


def _discard_blocked_output(number: int) -> None:
    """Until the program has ended: discard what is written to stdout and stderr if it would wait
    for readers that take nothing."""
    outputs = set[int]()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # not a file, in a test
            outputs.add(stream.fileno())
    taken_at = dict.fromkeys(outputs, time.monotonic())
    while _seen.number is not None and taken_at:
        for output in list(taken_at):
            if _is_taken(output):
                taken_at[output] = time.monotonic()
            elif time.monotonic() - taken_at[output] > PATIENCE_S:
                del taken_at[output]
                _seen.left.add(output)
                _discard(output)
                # A write that waits is tried again after a signal, with the new descriptor.
                signal.pthread_kill(threading.main_thread().ident or 0, number)
        time.sleep(_AGAIN_S)


def _is_taken(output: int) -> bool:
    """Whether a write would not wait."""
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    return bool(poll.poll(0))


@contextmanager
def ending() -> Iterator[None]:
    """The outermost block of a program, which a signal ends as the module says.

    Raises SystemExit with 128 + the signal's number, as shells do, after the block. In another
    thread than the main one it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _seen.number, _seen.undone, _seen.said, _seen.left = None, [], None, set()

    is_over = False

    def handle(number: int, _: FrameType | None) -> None:
        if is_over:
            return
        if _is_on_its_way():
            # Unless a shield has said what.
            if _seen.said is None:
                _say("cleaning up first")
            return
        _seen.note(number)
        raise Interrupted

    before = _taken(handle)
    reported = sys.unraisablehook

    def raise_again(lost: sys.UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, Interrupted) and _seen.number is not None:
            again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), _seen.number))
            again.daemon = True
            again.start()
        else:
            reported(lost)

    sys.unraisablehook = raise_again
    try:
        try:
            yield
        except KeyboardInterrupt:
            if _seen.number is None:
                raise
        except SystemExit as end:
            if _seen.number is None or end.code == os.EX_SOFTWARE:
                raise
        is_over = True
        if _seen.number is not None:
            what = ", ".join(_seen.undone) or "nothing to clean up"
            line = f"{WORDS[signal.Signals(_seen.number)]}: {what}\n"
            try:
                # The terminal has shown ^C.
                sys.stderr.write(f"\n{line}" if sys.stderr.isatty() else line)
                sys.stderr.flush()
                sys.stdout.flush()
            except OSError:
                leave_pipe()
            raise SystemExit(128 + _seen.number)
    finally:
        sys.unraisablehook = reported
        _seen.number = None
        _restore_handlers(before)


def _is_on_its_way() -> bool:
    """Whether blocks are being left because of an `Interrupted`, or an error that came of it."""
    error = sys.exception()
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


def leave_pipe() -> None:
    """Discard buffered output: without a reader, Python would exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        _discard(stream.fileno())


def _discard(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


class Shield:
    """Keeps signals off; see `shielded`."""

    def __init__(self, doing: str | None, at_signal: Callable[[], object]) -> None:
        self._doing = doing
        self._at_signal = at_signal
        self._before: dict[int, _Handler] = {}
        self._is_lifted = False
        self._arrived: int | None = None

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """A part of the block in which signals have their previous handlers."""
        self._is_lifted = True
        try:
            self._redeliver()
            yield
        finally:
            self._is_lifted = False

    def _raise(self) -> None:
        self._before = _taken(self._note)

    def _end(self) -> None:
        _restore_handlers(self._before)
        self._redeliver()

    def _note(self, number: int, _: FrameType | None) -> None:
        is_first = self._arrived is None
        self._arrived = self._arrived or number
        if self._is_lifted:
            self._redeliver()
            return
        _seen.note(number)
        if is_first:
            if self._doing is not None:
                _say(f"{self._doing} first")
            self._at_signal()

    def _redeliver(self) -> None:
        number, self._arrived = self._arrived, None
        if number is None:
            return
        before = self._before[number]
        if callable(before):
            before(number, None)
        else:
            signal.signal(number, before)
            signal.raise_signal(number)


@contextmanager
def shielded(doing: str | None, at_signal: Callable[[], object] = lambda: None) -> Iterator[Shield]:
    """A block that signals do not interrupt, such as a clean-up.

    On a signal meanwhile a message says that `doing` comes first; None for a block too short to
    notice. `at_signal` is called at the first signal, to shorten the block. In another thread than
    the main one, where signals never arrive, it does nothing.
    """
    shield = Shield(doing, at_signal)
    if threading.current_thread() is not threading.main_thread():
        yield shield
        return
    shield._raise()
    try:
        yield shield
    finally:
        shield._end()


def _taken(handler: Callable[[int, FrameType | None], object]) -> dict[int, _Handler]:
    """Set this handler for the signals that are not ignored. Returns their previous handlers."""
    before: dict[int, _Handler] = {}
    for number in WORDS:
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            before[number] = signal.signal(number, handler)
    return before


def _restore_handlers(before: dict[int, _Handler]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def _say(text: str) -> None:
    """Write a line to stderr from a signal handler, which may run in the middle of another line. A
    repeated line is written once."""
    if text == _seen.said:
        return
    _seen.said = text
    with suppress(OSError):
        os.write(2, f"{text}\n".encode())
