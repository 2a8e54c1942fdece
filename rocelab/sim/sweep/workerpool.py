"""The workers of a sweep: processes of this machine, or the workers of a Dask cluster.

Context managers give a `concurrent.futures.Executor` and the number of tasks that it runs at a
time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from rocelab.errors import MachineError
from rocelab.interpreter import safe_path
from rocelab.sim.sweep.cells import tool_version

CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """An executor for cells and its current number of slots; a cluster's workers may come and
    go."""

    executor: Executor
    slots: Callable[[], int]


Hire = Callable[[], AbstractContextManager[WorkerPool]]


@contextmanager
def processes(workers: int) -> Iterator[WorkerPool]:
    """`workers` processes of this machine, each with one numba thread.

    They are spawned, not forked: a fork copies the locks that other threads hold (progress bars,
    numba's, a Dask client's) without the threads that would release them. Only the parent handles
    an interrupt, and a worker whose parent was killed ends too.
    """
    others = set(multiprocessing.active_children())
    # multiprocessing's resource tracker, which counts semaphores, is an interpreter too.
    with safe_path():
        executor = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), initializer=_prepare_worker
        )
        try:
            yield WorkerPool(executor, lambda: workers)
        except BaseException:
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise
        finally:
            executor.shutdown(cancel_futures=True)


@contextmanager
def cluster(address: str, connect_s: float = CONNECT_S) -> Iterator[WorkerPool]:
    """The workers of the Dask scheduler at `address`, such as scheduler:8786.

    Raises MachineError without a scheduler or workers, or if a worker has another version of this
    tool.
    """
    try:
        from distributed import Client
    except ImportError:
        raise MachineError(
            "--cluster needs Dask, which is not installed",
            "install it with `pip install 'rocelab[cluster]'`",
        ) from None
    try:
        client = Client(address, timeout=connect_s, set_as_default=False)
    except (OSError, ValueError) as error:
        raise MachineError(
            f"no Dask scheduler answers at {address}: {error}",
            "start one with `dask scheduler`, and workers with `dask worker ADDRESS`",
        ) from None
    with client:
        check_workers(client.run(_worker_version, on_error="return"), address)
        executor = client.get_executor(pure=False)

        def slots() -> int:
            try:
                return max(1, int(sum(client.nthreads().values())))
            except OSError:
                raise cluster_lost() from None

        yield WorkerPool(executor, slots)


def cluster_lost() -> MachineError:
    """The error for a lost cluster."""
    return MachineError("the cluster was lost", "run the same command again to go on from here")


def check_workers(versions: Mapping[str, object], address: str) -> None:
    """Raises MachineError unless there are workers and all have our version; `versions` is by
    address."""
    if not versions:
        raise MachineError(
            f"the Dask scheduler at {address} has no worker",
            "start some on the machines of the cluster with `dask worker ADDRESS`",
        )
    version = tool_version()
    for worker, found in versions.items():
        if found != version:
            raise MachineError(
                f"the worker {worker} has rocelab {found} instead of {version}",
                "install the same version on every machine of the cluster",
            )


def _worker_version() -> str:
    return tool_version()


def _prepare_worker() -> None:
    os.environ["NUMBA_NUM_THREADS"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # Workers hold both ends of their queue, so they never see it close when the parent dies.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
