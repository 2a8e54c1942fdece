"""Engines are compiled before they are used, by a process of their own."""

from __future__ import annotations

import io
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from rocelab import SimulationOptions
from rocelab.base import compiling
from rocelab.base.compiling import cache_folder
from rocelab.base.errors import MachineError
from rocelab.base.progress import Progress, ProgressSink
from rocelab.cli import simulate
from rocelab.cli.simulate import asked_jobs, asked_spec
from rocelab.results.engines import Engine
from rocelab.sim import ahead
from rocelab.sim import simulate as simulation
from tests.helpers.command import rocelab
from tests.helpers.plugin import PluginEnvironment
from tests.helpers.waiting import wait_until

COMPILE = """
import sys
from rocelab.base.interruption import ending
from rocelab.sim.ahead import compile_library
with ending():
    compile_library("fluid engine", lambda step: print(step.done, step.total, flush=True))
"""

ALLTOALL = ("--pattern", "alltoall", "--ranks", "8", "--size")


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The cache of a user's first simulation."""
    monkeypatch.delenv(compiling.OFF, raising=False)
    library = ahead._library("link engine")
    monkeypatch.setattr(library, "_folder", None)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(library, "_folder", cache_folder(library._sources, library._files))
    return tmp_path


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written to a standard error that is no terminal."""
    written = io.StringIO()
    monkeypatch.setattr(simulate, "err", lambda: Console(file=written, force_terminal=False))
    return written


def test_another_process_compiles_step_by_step(empty_cache: Path) -> None:
    steps: list[Progress] = []
    library = ahead._library("link engine")
    (entry,) = library._entries
    before = dict(entry.dispatcher.overloads)
    ahead.compile_library("link engine", steps.append)
    assert [(step.stage, step.done, step.total) for step in steps] == [
        ("compiling the link engine", done, 1) for done in (0, 1)
    ]
    assert library.is_complete()
    assert dict(entry.dispatcher.overloads) == before, "this process compiled nothing"


def test_the_first_use_is_said_at_start_and_end_without_a_terminal(
    empty_cache: Path, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "LIBRARIES", {Engine.LINKS: ("link engine",)})
    with simulate.simulation_progress() as progress:
        ahead.compile_missing(Engine.LINKS, progress)
    first, last = said.getvalue().splitlines()
    assert first == "first use: compiling the link engine, once"
    assert last.startswith("compiled the link engine in ")
    with simulate.simulation_progress() as progress:
        ahead.compile_missing(Engine.LINKS, progress)
    assert said.getvalue().splitlines() == [first, last]


def test_nothing_is_compiled_where_functions_run_as_they_stand(
    empty_cache: Path, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compiling.OFF, "1")
    with simulate.simulation_progress() as progress:
        ahead.compile_missing(Engine.LINKS, progress)
    assert said.getvalue() == ""


@pytest.fixture
def compiler(empty_cache: Path) -> Iterator[subprocess.Popen[str]]:
    """A program whose child has begun to compile the fluid engine."""
    argv = [sys.executable, "-c", COMPILE]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == "0 36\n"
        yield it
        it.kill()


def child_of(process: subprocess.Popen[str]) -> Path:
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return Path("/proc", child)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_compiler_at_once_and_what_it_left_is_not_complete(
    compiler: subprocess.Popen[str], empty_cache: Path, number: signal.Signals
) -> None:
    child, begun = child_of(compiler), time.monotonic()
    compiler.send_signal(number)
    assert compiler.wait() == 128 + number
    assert time.monotonic() - begun < 10, "less than compiling takes on a busy machine"
    assert not child.exists()
    assert not list(empty_cache.rglob("complete*"))


def test_the_compiler_ends_with_a_program_that_is_killed(compiler: subprocess.Popen[str]) -> None:
    child = child_of(compiler)
    compiler.kill()
    wait_until(lambda: not child.exists() or b"\nState:\tZ" in (child / "status").read_bytes())


def test_engines_are_compiled_ahead_without_a_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Engine] = []
    monkeypatch.setattr(ahead, "compile_missing", lambda engine, _: compiled.append(engine))
    done = rocelab("simulate", "--compile-only")
    assert done.returncode == 0, done.stderr
    assert compiled == [Engine.FLUID, Engine.LINKS]


@pytest.mark.parametrize("engine", [Engine.FLUID, Engine.PACKETS])
def test_the_time_to_compile_and_load_is_none_of_a_simulation(
    monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    spec = asked_spec("zone-1-1", None, None)
    keys = {"ranks": "16", "size": "1MB", "qps": "4", "iterations": "8"}
    jobs = asked_jobs(None, {"pattern": "alltoall", **keys})
    made = simulation.Simulation(spec, jobs, SimulationOptions(engine=engine))
    clock, slept_s = time.perf_counter, [0.0]

    def slowly(engine: Engine, progress: ProgressSink) -> None:
        ahead.compile_ahead(engine, progress)
        slept_s[0] += 1e6

    monkeypatch.setattr(simulation, "compile_ahead", slowly)
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + slept_s[0])
    made.run()
    assert slept_s == [1e6]
    assert 0 < sum(made.seconds.values()) < 1e5


def test_nothing_is_compiled_where_a_process_may_not_have_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in (resource.RLIM_INFINITY, compiling.LEAST_BYTES):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        compiling.numba()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (compiling.LEAST_BYTES - 1,) * 2)
    with pytest.raises(MachineError, match="compiling a simulation needs 700 MB"):
        compiling.numba()


REFUSED = {
    "what is not simulated packet by packet": (
        ("simulate", "zone-1-1", "--engine", "packets", *ALLTOALL, "1MB", "--prove"),
        "the packet engine does not simulate --prove",
    ),
    "too many packet-hops": (
        ("simulate", "zone-1-1", "--engine", "packets", *ALLTOALL, "64GB", "--mtu", "256"),
        "packet by packet this takes",
    ),
    "an event at nothing": (
        ("simulate", "zone-1-1", *ALLTOALL, "1MB", "--event", "drain ctsw99"),
        "ctsw99",
    ),
    "the cost of an event at nothing": (
        ("whatif", "zone-1-1", "drain ctsw99", *ALLTOALL, "1MB"),
        "ctsw99",
    ),
    "work that takes no time": (
        ("longrun", "zone-1-1", "--rates", "llama3", "--work", "0s", *ALLTOALL, "1MB"),
        "--work is 0s",
    ),
}


def test_what_is_refused_compiles_nothing(tmp_path: Path) -> None:
    there = PluginEnvironment(tmp_path / "there")
    cache = tmp_path / "cache"
    cache.mkdir()
    lines, messages = zip(*REFUSED.values(), strict=True)
    ran = there.in_turn(*lines, NUMBA_CACHE_DIR=str(cache), NUMBA_DISABLE_JIT="0")
    for message, refused in zip(messages, ran, strict=True):
        assert refused.returncode == 2, refused.stderr
        assert message in refused.stderr
        assert "first use" not in refused.stderr
    assert not [path for path in cache.rglob("*") if path.is_file()]
