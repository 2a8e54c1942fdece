"""Worker threads that begin no further work once the result is no longer wanted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_thread_data = threading.local()


@contextmanager
def workers(count: int) -> Iterator[ThreadPoolExecutor]:
    """`count` threads. If the block ends by an error or a signal, pending work is dropped and
    running work is awaited: it is `in_vain` from then on."""
    given_up = threading.Event()
    pool = ThreadPoolExecutor(count, initializer=_join, initargs=(given_up,))
    try:
        yield pool
    except BaseException:
        given_up.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def in_vain() -> bool:
    """Whether the work of this thread is no longer wanted: it is one of `workers` whose block has
    ended by an error or a signal. Long waits must check this."""
    given_up: threading.Event | None = getattr(_thread_data, "given_up", None)
    return given_up is not None and given_up.is_set()


def _join(given_up: threading.Event) -> None:
    _thread_data.given_up = given_up
