"""Threads that share work, of which none is begun any more once it is in vain."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_of_thread = threading.local()


@contextmanager
def workers(count: int) -> Iterator[ThreadPoolExecutor]:
    """So many threads. Where the block ends by an error or a signal, what has not begun is dropped,
    and what has begun is waited for: it is `in_vain` from then on."""
    given_up = threading.Event()
    pool = ThreadPoolExecutor(count, initializer=_belong, initargs=(given_up,))
    try:
        yield pool
    except BaseException:
        given_up.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def in_vain() -> bool:
    """Whether nobody wants any more what this thread does: one of `workers` whose block has ended
    by an error or a signal. A wait that may be long is to ask this."""
    given_up: threading.Event | None = getattr(_of_thread, "given_up", None)
    return given_up is not None and given_up.is_set()


def _belong(given_up: threading.Event) -> None:
    _of_thread.given_up = given_up
