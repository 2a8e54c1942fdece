"""Ends a program on a signal: it first undoes what it began, and one line says what that was.

SIGINT (Ctrl-C), SIGTERM and SIGHUP raise `Interrupted` in the main thread; further signals during
the undoing change nothing. One that is lost, as in a finalizer or under a library's bare `except`,
is raised again: there by itself, here at the next signal. A signal that was ignored when the
program began, as SIGINT is in a background job of a shell script, stays ignored. Standard library
only.

    with ending():                       # around a whole program
        with shielded("lab x is taken down") as shield:
            try:
                with shield.lifted():    # here a signal raises
                    ...
            finally:
                ...                      # here it waits for the end of the block
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
"""The signals that end a program, and the word for it in the message."""

_Handler = Callable[[int, FrameType | None], object] | int | None


_AGAIN_S = 0.01


class Interrupted(KeyboardInterrupt):
    """A signal ended the program."""


@dataclass(slots=True)
class _Seen:
    """The signal that this process got, and what it has undone since."""

    number: int | None = None
    undone: list[str] = field(default_factory=list)
    said: str | None = None


_seen = _Seen()


def undone(text: str) -> None:
    """Note what was undone because of a signal; does nothing without one."""
    if _seen.number is not None and text not in _seen.undone:
        _seen.undone.append(text)


@contextmanager
def ending() -> Iterator[None]:
    """The outermost block of a program, which a signal ends as the module says.

    Raises SystemExit with 128 + the signal's number, as shells do, after the block. In another
    thread than the main one it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _seen.number, _seen.undone, _seen.said = None, [], None

    def handle(number: int, _: FrameType | None) -> None:
        if _is_on_its_way():
            # Unless a shield has said what.
            if _seen.said is None:
                _say("what was begun is undone first")
            return
        _seen.number = _seen.number or number
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
        if _seen.number is not None:
            what = ", ".join(_seen.undone) or "nothing had to be undone"
            line = f"{WORDS[signal.Signals(_seen.number)]}: {what}\n"
            try:
                # The terminal has shown ^C.
                sys.stderr.write(f"\n{line}" if sys.stderr.isatty() else line)
                sys.stderr.flush()
            except OSError:
                leave_pipe()
            raise SystemExit(128 + _seen.number)
    finally:
        sys.unraisablehook = reported
        _give_back(before)


def _is_on_its_way() -> bool:
    """Whether blocks are being left because of an `Interrupted`, or an error that came of it."""
    error = sys.exception()
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


def leave_pipe() -> None:
    """Discard buffered output: without a reader, Python would exit with 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null, stream.fileno())
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
            self._pass_on()
            yield
        finally:
            self._is_lifted = False

    def _raise(self) -> None:
        self._before = _taken(self._note)

    def _end(self) -> None:
        _give_back(self._before)
        self._pass_on()

    def _note(self, number: int, _: FrameType | None) -> None:
        is_first = self._arrived is None
        self._arrived = self._arrived or number
        if self._is_lifted:
            self._pass_on()
            return
        _seen.number = _seen.number or number
        if is_first:
            if self._doing is not None:
                _say(f"{self._doing} first")
            self._at_signal()

    def _pass_on(self) -> None:
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


def _give_back(before: dict[int, _Handler]) -> None:
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
