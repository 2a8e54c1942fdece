"""Compiles an engine before it is used, in a process of its own, which a signal ends at once.

numba's compiler hears no signals, and the time that it takes is none of a simulation's. Where there
is no cache folder, in which another process could leave what it compiles, this process compiles.
`python -m rocelab.sim.ahead` is that process: it writes how far it has come.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from importlib import import_module

from rocelab.base.interpreter import module_command, module_environment
from rocelab.base.library import FunctionLibrary, Steps
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.results.engines import Engine

LIBRARIES = {
    Engine.FLUID: ("fluid engine",),
    Engine.PACKETS: ("packet engine",),
    Engine.LINKS: ("packet engine", "link engine"),
}
"""What is compiled for each engine."""

TRAFFIC_ENGINEERING = "placement of flows"
"""The library that places flows, whatever the engine."""

_MODULES = {
    "fluid engine": ("rocelab.sim.engine.events", "rocelab.sim.engine.compiling"),
    "packet engine": ("rocelab.sim.packets.wiring", "rocelab.sim.packets.compiling"),
    "link engine": ("rocelab.sim.links.turns", "rocelab.sim.links.turns"),
    TRAFFIC_ENGINEERING: ("rocelab.routes.te.moves", "rocelab.routes.te.compiling"),
}
"""A module that imports all with entries of a library, and the one that has the library."""

STAGES = {name: f"compiling the {name}" for name in _MODULES}
"""What progress calls the compilation of each library."""

_PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


def missing(engine: Engine) -> list[str]:
    """The libraries of an engine that are not in the cache. Imports numba."""
    return [name for name in LIBRARIES[engine] if not _library(name).is_complete()]


def compile_ahead(engine: Engine, progress: ProgressSink = no_progress) -> None:
    """Have an engine compiled, in the cache and loaded. Raises MachineError where a process may not
    have the memory."""
    for name in LIBRARIES[engine]:
        load_library(name, progress)


def compile_missing(engine: Engine, progress: ProgressSink = no_progress) -> None:
    """Have an engine compiled, in the cache. Raises as `compile_ahead`."""
    for name in missing(engine):
        compile_library(name, progress)


def load_library(name: str, progress: ProgressSink) -> None:
    """Have a library compiled, in the cache and loaded. Raises as `compile_ahead`."""
    if not _library(name).is_complete():
        compile_library(name, progress)
    _library(name).load()


def compile_library(name: str, progress: ProgressSink) -> None:
    """Compile a library. Raises as `compile_ahead`."""
    library, stage = _library(name), STAGES[name]

    def steps(done: int, total: int) -> None:
        progress(Progress(stage, done, total))

    if library.is_kept():
        _compile_apart(name, steps)
    # What kept that process from it keeps this one too, and is raised here.
    library.compile(steps)


def _library(name: str) -> FunctionLibrary:
    entries, place = _MODULES[name]
    import_module(entries)
    library: FunctionLibrary = import_module(place).LIBRARY
    return library


def _compile_apart(name: str, steps: Steps) -> None:
    process = subprocess.Popen(
        module_command("rocelab.sim.ahead", name, str(os.getpid())),
        env=module_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                done, total = map(int, line.split())
                steps(done, total)
        except BaseException:
            process.kill()
            raise


def _main(name: str, parent: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == int(parent):
        _library(name).compile(_write)


def _write(done: int, total: int) -> None:
    sys.stdout.write(f"{done} {total}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
