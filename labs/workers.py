"""Threads that share work, of which none is begun any more once it is in vain."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def workers(count: int) -> Iterator[ThreadPoolExecutor]:
    """So many threads. Where the block ends by an error or a signal, what has not begun is dropped;
    what has begun is waited for."""
    pool = ThreadPoolExecutor(max_workers=count)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
