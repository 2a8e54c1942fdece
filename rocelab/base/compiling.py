"""Keeps compiled functions in a cache folder, so that only the first process compiles them.

The folder follows from the sources of the functions: NUMBA_CACHE_DIR, else beside the sources, else
the user's cache folder (XDG_CACHE_HOME, ~/.cache). If others may change all of them, every process
compiles anew, and says so: cached machine code is executed, so another user must not be able to
write or replace it. Thus root keeps nothing in a user's checkout, though it runs the code there.
numba is imported on use.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from rocelab.base import quantities
from rocelab.base.errors import MachineError
from rocelab.base.interpreter import imported
from rocelab.base.interruption import shielded
from rocelab.base.trust import not_used, private_folder

LOCK = "lock"
"""A file in each cache folder that only its user may open: another user who can open it could hold
the lock."""

OFF = "NUMBA_DISABLE_JIT"
"""numba's variable: with 1 nothing is compiled, and `compiler` does not even import numba."""

HOW = ("compiling.py", "library.py", "onelibrary.py", "byreference.py")
"""The modules beside this one that say how functions are compiled."""

LEAST_BYTES = 700_000_000
"""The least address space to compile in: 716 MB were enough, 614 MB were not."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def numba() -> ModuleType:
    """The numba module, without settings from the current folder, which numba reads at import and
    whenever it compiles (numba/core/config.py).

    Raises MachineError where this process may not have the memory to compile: LLVM then aborts, or
    never ends."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < LEAST_BYTES:
        raise MachineError(
            f"a process may use {quantities.size(limit)} here, and compiling a simulation needs "
            f"{quantities.size(LEAST_BYTES)}",
            "raise the limit with `ulimit -v`",
        )
    module = imported("numba")
    module.core.config._config_fname = os.devnull
    _shield_compiler(module.core.event)
    _without_unused()
    return module


@cache
def _without_unused() -> None:
    """Have numba's modules for BLAS and cffi imported as if these were not installed: nothing here
    uses them, and they take as long as numba."""
    of_numba = {"numba.np.arraymath": "scipy.linalg", "numba.core.typing.cffi_utils": "cffi"}
    for module, unused in of_numba.items():
        if unused in sys.modules:
            continue
        sys.modules[unused] = None  # type: ignore[assignment]
        try:
            import_module(module)
        finally:
            del sys.modules[unused]


@cache
def _shield_compiler(events: ModuleType) -> None:
    events.Listener.register(_Uninterrupted)
    events.register("numba:compiler_lock", _Uninterrupted())


class _Event(Protocol):
    """numba's, in what is used of it."""

    is_start: bool


class _Uninterrupted(threading.local):
    """Keeps signals off while numba compiles: LLVM calls Python, and what a signal raises there is
    lost, so that the program would go on without a function."""

    def __init__(self) -> None:
        self._shields: list[AbstractContextManager[object]] = []

    def notify(self, event: _Event) -> None:
        if event.is_start:
            shield = shielded("a function is compiled")
            shield.__enter__()
            self._shields.append(shield)
        else:
            self._shields.pop().__exit__(None, None, None)


def codegen() -> Any:  # noqa: ANN401
    """numba's generator of machine code for this processor."""
    return numba().core.registry.cpu_target.target_context.codegen()


def cache_folder(sources: Path, files: Sequence[Path] = ()) -> Path | None:
    """A cache folder for this state of the modules in the folder `sources`, of other files with
    functions that are called there, and of how they are compiled. numba alone misses changes in a
    function called from another file. None if no folder is private to this user, which is then said
    on stderr.
    """
    digest = hashlib.sha256()
    how = map(Path(__file__).with_name, HOW)
    for source in (*how, *sorted(sources.glob("*.py")), *files):
        digest.update(source.read_bytes())
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    refused: tuple[Path, OSError] | None = None
    for parent in [Path(chosen)] if chosen else [sources / "__pycache__", user / "rocelab"]:
        made = parent / f"numba-{digest.hexdigest()[:16]}"
        try:
            # numba's files in it have the modes of the umask.
            folder = private_folder(made)
            if folder.stat().st_uid == os.geteuid():
                return folder
        except OSError as error:
            refused = parent, error
    if refused is not None:
        not_used(*refused)
    return None


def compiled_in(
    folder: Path | None,
    function: Callable[Arguments, Result],
    signature: object = None,
    *,
    makes_arrays: bool = True,
    is_inlined: bool = False,
) -> Callable[Arguments, Result]:
    """`function` as machine code, cached in `folder`. With numba's `signature` it is compiled or
    loaded at once, else on the first call. Other processes wait while one compiles it. Threads of
    Python run beside it.

    makes_arrays: if it does not, references to arrays are not counted. Each count is an atomic
    operation, of which a function that is called millions of times does little else. is_inlined: it
    is for compiled functions only, and part of each that calls it: to pass many arrays takes longer
    than most functions do.
    """
    dispatcher = dispatcher_of(
        folder,
        function,
        makes_arrays=makes_arrays,
        is_inlined=is_inlined,
        is_wrapped=not is_inlined,
    )
    if signature is not None:
        with in_turn(folder):
            dispatcher.compile(signature)
        dispatcher.disable_compile()
    return cast(Callable[Arguments, Result], dispatcher)


def dispatcher_of(
    folder: Path | None,
    function: Callable[..., object],
    *,
    makes_arrays: bool,
    is_inlined: bool = False,
    is_wrapped: bool = True,
) -> Any:  # noqa: ANN401
    """numba's object that compiles and calls a function; see `compiled_in`. is_wrapped: Python may
    call it."""
    compiler = numba()
    before = compiler.config.CACHE_DIR
    compiler.config.CACHE_DIR = str(folder or "")
    try:
        make = compiler.njit(
            cache=folder is not None,
            error_model="numpy",
            _nrt=makes_arrays,
            nogil=True,
            forceinline=is_inlined,
            no_cpython_wrapper=not is_wrapped,
            no_cfunc_wrapper=True,
        )
        dispatcher = make(function)
    finally:
        compiler.config.CACHE_DIR = before
    if folder is not None:
        dispatcher._cache.load_overload = partial(_undamaged, dispatcher._cache)
    return dispatcher


def _undamaged(cache: Any, signature: object, target: object) -> object:  # noqa: ANN401
    """A function from numba's cache, None if it is not there or its files are damaged, as a machine
    that loses its power leaves them: it is then compiled anew."""
    try:
        return type(cache).load_overload(cache, signature, target)
    except Exception:
        # Unpickling raises anything.
        try:
            cache.flush()
        except OSError:
            cache.disable()
        return None


def compiler(
    sources: Path,
    files: Sequence[Path] = (),
    *,
    makes_arrays: bool = True,
    is_inlined: bool = False,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """A decorator for functions of the modules in the folder `sources` and of these files: compiled
    on their first call. With `OFF` they run as they stand. makes_arrays, is_inlined: as of
    `compiled_in`."""
    if os.environ.get(OFF) == "1":
        return lambda function: function
    return partial(
        compiled_in, cache_folder(sources, files), makes_arrays=makes_arrays, is_inlined=is_inlined
    )


def compile_first(
    sources: Path, files: Sequence[Path], function: Callable[..., object], *arguments: object
) -> None:
    """Compile a function of `compiler` for arguments like these, or load it, while other processes
    wait, where a call has not done so. Its first call would let each of them compile. Nothing is
    done where functions run as they stand."""
    if getattr(function, "signatures", None) == []:
        with in_turn(cache_folder(sources, files)):
            function.compile(tuple(map(numba().typeof, arguments)))  # type: ignore[attr-defined]


@contextmanager
def in_turn(folder: Path | None) -> Iterator[None]:
    """A block that one process at a time is in, of those with this cache folder."""
    if folder is None:
        yield
        return
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder / LOCK, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
