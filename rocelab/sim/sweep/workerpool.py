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
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import ParamSpec, TypeVar, cast

from rocelab.base.errors import MachineError
from rocelab.base.extras import missing
from rocelab.base.interpreter import safe_path
from rocelab.base.plugin_errors import plugin_error
from rocelab.sim.sweep.cells import tool_version
from rocelab.sim.sweep.options import SweepOptions

CONNECT_S = 10.0

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """An executor for cells and its current number of slots; a cluster's workers may come and
    go."""

    executor: Executor
    slots: Callable[[], int]


Hire = Callable[[], AbstractContextManager[WorkerPool]]


def hire_of(options: SweepOptions) -> Hire:
    """The workers that options ask for."""
    if options.cluster is not None:
        return partial(cluster, options.cluster)
    return partial(worker_processes, options.workers or len(os.sched_getaffinity(0)))


@contextmanager
def worker_processes(workers: int) -> Iterator[WorkerPool]:
    """`workers` processes of this machine, each with one numba thread.

    They are spawned, not forked: a fork copies the locks that other threads hold (progress bars,
    numba's, a Dask client's) without the threads that would release them. Only the parent handles
    an interrupt, and a worker whose parent was killed ends too.
    """
    # multiprocessing's resource tracker is an interpreter too.
    with safe_path():
        executor = _Processes(workers)
        try:
            yield WorkerPool(executor, lambda: workers)
        except BaseException:
            executor.terminate()
            raise
        finally:
            executor.shutdown(cancel_futures=True)


class _Processes(Executor):
    """Processes with a pipe each, and a thread for each that waits for its answers.

    ProcessPoolExecutor has named semaphores instead, which stay in /dev/shm if all of it is killed.
    """

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._threads = ThreadPoolExecutor(count)
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        self._connections: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        self._is_broken = False
        for _ in range(count):
            end, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._connections.append(end)
            self._idle.put(end)

    def submit(
        self,
        function: Callable[Arguments, Result],
        /,
        *arguments: Arguments.args,
        **keywords: Arguments.kwargs,
    ) -> Future[Result]:
        """Run a function in the next idle process. Raises BrokenExecutor once one has died."""
        if self._is_broken:
            raise BrokenExecutor

        def answer() -> Result:
            return cast(Result, self._answer((function, arguments, keywords)))

        return self._threads.submit(answer)

    def _answer(self, call: tuple[object, ...]) -> object:
        connection = self._idle.get()
        try:
            connection.send(call)
            is_result, answer = connection.recv()
        except (EOFError, OSError):
            self._is_broken = True
            raise BrokenExecutor from None
        finally:
            self._idle.put(connection)
        if is_result:
            return answer
        assert isinstance(answer, BaseException)
        raise answer

    def terminate(self) -> None:
        """End the processes at once; what they do is lost."""
        for process in self._processes:
            process.terminate()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the processes end after what they do."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join()


def _work(connection: Connection) -> None:
    """What a process does: calls functions, and sends back what they return or raise."""
    _prepare_worker()
    while True:
        try:
            function, arguments, keywords = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, function(*arguments, **keywords)))
        except Exception as error:
            connection.send((False, plugin_error(error) or error))  # its traceback stays here


@contextmanager
def cluster(address: str, connect_s: float = CONNECT_S) -> Iterator[WorkerPool]:
    """The workers of the Dask scheduler at `address`, such as scheduler:8786.

    Raises MachineError without a scheduler or workers, or if a worker has another version of this
    tool.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise missing(error) or error from None
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
    return MachineError("the cluster was lost", "run the same command again to continue from here")


def check_workers(versions: Mapping[str, object], address: str) -> None:
    """Raises MachineError unless there are workers and all have our version; `versions` is by
    address."""
    if not versions:
        raise MachineError(
            f"the Dask scheduler at {address} has no worker",
            "start some on the machines of the cluster with `dask worker ADDRESS`",
        )
    version = tool_version()
    for worker, release in versions.items():
        if release != version:
            raise MachineError(
                f"the worker {worker} has rocelab {release} instead of {version}",
                "install the same version on every machine of the cluster",
            )


def _worker_version() -> str:
    return tool_version()


def _prepare_worker() -> None:
    os.environ["NUMBA_NUM_THREADS"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # Amid a cell nobody reads from the pipe, which the parent's death closes.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
