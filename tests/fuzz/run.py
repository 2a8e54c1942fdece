"""Runs random inputs, each in a process of its own, and writes those that fail.

    python -m tests.fuzz.run --count 20000 --seed 1 --kinds lab,job --out results/fuzz
    python -m tests.fuzz.run --only 4711 --seed 1        # one input again, with what it prints

An input fails if its command ends with a traceback, by a signal, or not within its limits of CPU
time, time, memory and bytes written. A failure's folder has its files and its command.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from rocelab.base.errors import RocelabError
from rocelab.cli.app import DEFECT_EXIT_CODE
from rocelab.cli.main import command_line, main
from tests.fuzz.inputs import KINDS, TYPED_JOB, Input, made
from tests.fuzz.samples import make_samples
from tests.helpers.command import rocelab

CPU_LIMIT_S = 20
IDLE_LIMIT_S = 120
MEMORY_BYTES = 3 * 2**30
WRITTEN_BYTES = 100 * 10**6
SHOWN_BYTES = 4000
LOADED = tuple(
    f"rocelab.{name}"
    for name in ("diagnose", "drills", "plan", "remote", "render", "report", "results", "sim")
)


@dataclass(frozen=True)
class Failure:
    """An input that failed, and how: a line that is the same for failures of one cause."""

    number: int
    how: str


def prepare() -> None:
    """Load all that commands load, so that each process has it from the start."""
    for name in list(command_line().commands):
        command_line().commands[name]
    for package in LOADED:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    for engine in ("fluid", "packets"):
        rocelab("simulate", "zone-small", *TYPED_JOB, "--engine", engine)
    rocelab("predict", "zone-small", *TYPED_JOB)


@dataclass(frozen=True)
class Child:
    """An input that runs in a process of its own, in a new folder, from a time on."""

    number: int
    pid: int
    folder: Path
    begun_s: float

    @property
    def said(self) -> Path:
        return self.folder / "said"

    def ended(self, *, wait: bool = False) -> tuple[bool, str | None]:
        """Whether it has ended, and how if it failed."""
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return True, _how(status, self.said) or self._written()
            if time.monotonic() - self.begun_s > IDLE_LIMIT_S:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return True, f"not over after {IDLE_LIMIT_S} s"
            if not wait:
                return False, None
            time.sleep(0.005)

    def _written(self) -> str | None:
        files = (path for path in self.folder.rglob("*") if not path.is_dir())
        size = sum(path.lstat().st_size for path in files)
        return f"{WRITTEN_BYTES:,} bytes written and more" if size >= WRITTEN_BYTES else None


def start(number: int, seed: int, samples: Path) -> Child:
    """Run one input in a process of its own. From the main thread: others would be lost in it."""
    folder = Path(tempfile.mkdtemp(prefix="rocelab-fuzz-"))
    pid = os.getpid()
    try:
        child = os.fork()
        if child == 0:
            _run(lambda: made(number, seed, samples), folder, folder / "said")
    finally:  # whatever is raised in the child: in the loop of the parent it would fork too
        if os.getpid() != pid:
            os._exit(DEFECT_EXIT_CODE)
    return Child(number, child, folder, time.monotonic())


def show(number: int, seed: int, samples: Path) -> bool:
    """Run one input, and print it and what it printed; whether it failed."""
    one, child = made(number, seed, samples), start(number, seed, samples)
    _, how = child.ended(wait=True)
    print(one.kind, one.arguments, one.call, sep="\n")
    for name, content in one.files.items():
        print(f"--- {name}", content[:SHOWN_BYTES].decode(errors="backslashreplace"), sep="\n")
    print("--- said", child.said.read_text(errors="replace")[-SHOWN_BYTES:], how, sep="\n")
    shutil.rmtree(child.folder, ignore_errors=True)
    return how is not None


def _run(make: Callable[[], Input], folder: Path, said: Path) -> None:
    """In the child: ends it, or raises what kept it from being ended."""
    code = DEFECT_EXIT_CODE
    try:
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT, 0o600)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        sys.stdout = os.fdopen(1, "w", closefd=False, errors="backslashreplace")
        sys.stderr = os.fdopen(2, "w", closefd=False, errors="backslashreplace")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        one, work = make(), folder / "work"
        for name, content in one.files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(content)
        work.mkdir(exist_ok=True)
        os.chdir(work)
        os.environ["HOME"] = str(work)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 1))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN_BYTES, WRITTEN_BYTES))
        if one.call is None:
            main(list(one.arguments))
        else:
            try:
                one.call()
            except RocelabError as refused:
                code = refused.exit_code
            else:
                code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else DEFECT_EXIT_CODE
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _how(status: int, said: Path) -> str | None:
    """How a child failed."""
    code = os.waitstatus_to_exitcode(status)
    text = said.read_text(errors="replace") if said.exists() else ""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"more than {CPU_LIMIT_S} s of CPU time"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    if code == DEFECT_EXIT_CODE or "Traceback (most recent call last)" in text:
        return _cause(text)
    return None


def _cause(text: str) -> str:
    """The last line of a traceback and the last place of ours in it."""
    lines = text.splitlines()
    places = [
        line.strip() for line in lines if "/rocelab/" in line and line.strip().startswith("File")
    ]
    errors = [line for line in lines if line and not line.startswith((" ", "this is a defect"))]
    place = places[-1].split("/rocelab/")[-1] if places else "?"
    return f"{place}: {errors[-1][:200] if errors else 'no message'}"


def campaign(
    numbers: Sequence[int], seed: int, samples: Path, out: Path | None, at_once: int
) -> list[Failure]:
    """Run inputs; write the folder of each failure to `out`."""
    failures: list[Failure] = []
    todo, running, done = deque(numbers), list[Child](), 0
    while todo or running:
        while todo and len(running) < at_once:
            running.append(start(todo.popleft(), seed, samples))
        for child in list(running):
            is_over, how = child.ended()
            if not is_over:
                continue
            running.remove(child)
            shutil.rmtree(child.folder, ignore_errors=True)
            done += 1
            if how is not None:
                failures.append(Failure(child.number, how))
                kind = KINDS[child.number % len(KINDS)]
                print(f"{child.number} ({kind}): {how}", flush=True)
                if out is not None:
                    _keep(made(child.number, seed, samples), failures[-1], out)
            if done % 500 == 0:
                print(f"{done:,} inputs, {len(failures)} failed", flush=True)
        time.sleep(0.002)
    return failures


def _keep(one: Input, failure: Failure, out: Path) -> None:
    folder = out / str(failure.number)
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in one.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    folder.mkdir(parents=True, exist_ok=True)
    text = f"{failure.how}\n{one.kind}\nrocelab {one.arguments!r} {one.call!r}\n"
    (folder / "failure.txt").write_text(text, errors="backslashreplace")


def run(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--only", type=int)
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    prepare()
    with tempfile.TemporaryDirectory(prefix="rocelab-samples-") as folder:
        samples = Path(folder) / "samples"
        make_samples(samples)
        if asked.only is not None:
            return int(show(asked.only, asked.seed, samples))
        kinds = {KINDS.index(kind) for kind in asked.kinds.split(",")}
        numbers = [
            number
            for number in range(asked.first, asked.first + asked.count)
            if number % len(KINDS) in kinds
        ]
        failures = campaign(numbers, asked.seed, samples, asked.out, asked.at_once)
    print(f"{len(numbers):,} inputs, {len(failures)} failed")
    for how, times in Counter(failure.how for failure in failures).most_common():
        print(f"{times:6} {how}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(run())
