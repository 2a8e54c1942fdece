"""Detects whether the machine's clock was set.

A change of CLOCK_REALTIME cancels a timer (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET). This also
detects a clock that was set and set back, which two readings of the clock do not; a change of the
clock's rate does not count.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time

from rocelab.linux.closing import Closing

_TFD_NONBLOCK, _TFD_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_TFD_TIMER_ABSTIME, _TFD_TIMER_CANCEL_ON_SET = 1, 2
_NEVER_S = 2**40
_ITIMERSPEC = struct.Struct("=4q")
_COUNT_BYTES = 8


class ClockWatch(Closing):
    """Watches from its creation on."""

    def __init__(self) -> None:
        """Raises OSError."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _checked(
            libc.timerfd_create(time.CLOCK_REALTIME, _TFD_NONBLOCK | _TFD_CLOEXEC)
        )
        self._was_set = False
        flags = _TFD_TIMER_ABSTIME | _TFD_TIMER_CANCEL_ON_SET
        never = _ITIMERSPEC.pack(0, 0, _NEVER_S, 0)
        _checked(libc.timerfd_settime(self._descriptor, flags, never, None))

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)

    @property
    def was_set(self) -> bool:
        """Whether the clock was set since the watch was made. Raises OSError."""
        try:
            os.read(self._descriptor, _COUNT_BYTES)
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno != errno.ECANCELED:
                raise
            self._was_set = True
        return self._was_set


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"timerfd: {os.strerror(number)}")
    return answer
