"""Detection of a clock that was set, by the kernel's timer."""

from __future__ import annotations

import errno
import os

import pytest

from rocelab.linux.clockwatch import ClockWatch


def test_a_clock_that_nobody_sets_was_not_set() -> None:
    with ClockWatch() as watch:
        assert not watch.was_set


def test_a_timer_that_was_cancelled_tells_of_it_and_goes_on_doing_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A unit test must not set the machine's clock: it replaces the kernel's answer."""
    answers = [OSError(errno.ECANCELED, "set"), BlockingIOError(errno.EAGAIN, "no")]

    def read(descriptor: int, size: int) -> bytes:
        raise answers.pop(0)

    with ClockWatch() as watch:
        monkeypatch.setattr(os, "read", read)
        assert watch.was_set
        assert watch.was_set
        monkeypatch.undo()


def test_another_error_is_passed_on() -> None:
    watch = ClockWatch()
    watch.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        _ = watch.was_set
