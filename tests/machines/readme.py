"""Runs the commands of README and of the first pages of docs, as a user types them.

    sudo .venv/bin/python -m tests.machines.readme [--pages README.md,docs/cli.md]

Run it as root in a checkout that is set up, on a machine for tests only: it makes a user `me` and
an SSH server on a port of the loopback, with the name `vm`. Each command must end and print as its
page says; `pages.py` has the values of placeholders. Exit code 0: every command did, 1: one did
not.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rocelab.base.errors import MachineError
from tests.helpers.engine import docker_engine
from tests.helpers.measured import INVALID
from tests.machines.how import NotRun, Run
from tests.machines.loopback import virtual_machine
from tests.machines.pages import PAGES, RUNS, UNFENCED
from tests.machines.run import NOTHING_MEASURED
from tests.machines.typed import Typed, commands, differences, shown_blocks

CHECKOUT = Path(__file__).parents[2]
LOG = CHECKOUT / "results/pages.log"
DEFAULT_ENGINE = Path("/run/docker.sock")
LIMIT_S = 900.0
AGAIN = 2
CTRL_C = b"\x03"
ACTIVATE = "source .venv/bin/activate"
TOO_BUSY = "not measured: this machine was too busy"
"""The only problem of a command that measures, if none of its runs was valid."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a command of a page."""

    typed: Typed
    took_s: float
    problems: tuple[str, ...]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.machines.readme")
    parser.add_argument("--pages", default=",".join(PAGES), help="default: %(default)s")
    arguments = parser.parse_args()
    LOG.parent.mkdir(exist_ok=True)
    verdicts: list[Verdict] = []
    with LOG.open("w") as log, docker_engine(), engine_at(DEFAULT_ENGINE), virtual_machine():
        for page in arguments.pages.split(","):
            text = (CHECKOUT / page).read_text()
            for typed in commands(page, text):
                run = RUNS.get(page, {}).get(typed.text, Run())
                if isinstance(run, Run):
                    say(f"{page}:{typed.line}: {typed.text}")
                    verdicts.append(try_command(typed, run, text, log))
                    last = verdicts[-1]
                    say(*(f"    FAILED: {problem}" for problem in last.problems))
                    say(f"    {last.took_s:.0f} s" if not last.problems else f"    see {LOG}")
    failed = [verdict for verdict in verdicts if verdict.problems]
    say("", *not_run(arguments.pages.split(",")), "")
    say(*(f"{outcome.typed.page}:{outcome.typed.line}: {outcome.typed.text}" for outcome in failed))
    say(f"{len(verdicts) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


@contextmanager
def engine_at(default: Path) -> Iterator[None]:
    """Put the tests' own engine at the place of Docker's, because sudo does not keep
    DOCKER_HOST."""
    socket = os.environ.get("DOCKER_HOST", "").removeprefix("unix://")
    if not socket or default.exists():
        yield
        return
    default.symlink_to(socket)
    try:
        yield
    finally:
        default.unlink()


def try_command(typed: Typed, run: Run, page: str, log: TextIO) -> Verdict:
    """Run a command of a page, with the commands before and after it."""
    began = time.monotonic()
    problems: list[str] = []

    def succeed(line: str) -> None:
        code, _ = execute(line, Run(), log)
        if code != 0:
            problems.append(f"{line}: exit code {code}")

    for line in run.before:
        succeed(line)
    output, too_busy = "", False
    for line in run.lines or (typed.text,):
        code, said = execute_measured(line, run, log)
        output += said
        too_busy |= is_too_busy(code, said)
        if code != run.code:
            problems.append(f"{line}: exit code {code} instead of {run.code}")
    if too_busy:
        problems = [TOO_BUSY]
    if "Traceback (most recent call last)" in output:
        problems.append("a traceback")
    if not too_busy:
        wanted = [*run.shows, run.until]
        problems += [
            f"does not show {pattern!r}" for pattern in wanted if not re.search(pattern, output)
        ]
    if run.block and not problems:
        (block,) = (block for block in shown_blocks(page) if block.startswith(run.block))
        problems += [f"does not show: {difference}" for difference in differences(block, output)]
    for line in run.after:
        succeed(line)
    return Verdict(typed, time.monotonic() - began, tuple(problems))


def execute_measured(line: str, run: Run, log: TextIO) -> tuple[int, str]:
    """Type a line, and up to `AGAIN` times more if the machine was too busy to measure, or for a
    repeat of which the page's block says nothing."""
    code, output = execute(line, run, log)
    for _ in range(AGAIN):
        if not is_too_busy(code, output) and not (run.block and INVALID in output):
            break
        # The folder has the result that is not valid.
        code, output = execute(f"{line} --force" if " --out " in line else line, run, log)
    return code, output


def is_too_busy(code: int, output: str) -> bool:
    """Whether a drill or a job says that it measured nothing."""
    return NOTHING_MEASURED in output or (code == MachineError.exit_code and INVALID in output)


def execute(line: str, run: Run, log: TextIO) -> tuple[int, str]:
    """Type a line in a shell of the checkout; return its exit code and output."""
    script = f"{ACTIVATE} && {line}"
    log.write(f"$ {line}\n")
    if run.typed or run.until:
        code, output = _on_terminal(script, run.typed, run.until)
    else:
        with subprocess.Popen(
            ["bash", "-c", script],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        ) as process:
            try:
                output, _ = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate(timeout=LIMIT_S)
        code = process.returncode
    log.write(f"{output}\n[exit code {code}]\n\n")
    log.flush()
    return code, output


def _on_terminal(script: str, typed: str, until: str) -> tuple[int, str]:
    """Run a script on a terminal of 160 columns, with typed input, and Ctrl-C once its output
    matches `until`."""
    pid, terminal = pty.fork()
    if pid == 0:
        # A shell starts background jobs, such as this one may be, with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.chdir(CHECKOUT)
        os.environ["COLUMNS"] = "160"
        os.execvp("bash", ["bash", "-c", script])
    output = b""
    left = typed
    deadline = time.monotonic() + (LIMIT_S if until else 120)
    quiet_since = time.monotonic()
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        if ready:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            output += data
            quiet_since = time.monotonic()
            if until and re.search(until, output.decode(errors="replace")):
                os.write(terminal, CTRL_C)
                until = ""
        elif left and time.monotonic() - quiet_since > 2:
            line, _, left = left.partition("\n")
            os.write(terminal, f"{line}\n".encode())
            quiet_since = time.monotonic()
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), output.decode(errors="replace")


def not_run(pages: list[str]) -> Iterator[str]:
    """The commands that are not run or are shortened, a line each with the reason."""
    for page in pages:
        for text, run in RUNS.get(page, {}).items():
            if isinstance(run, NotRun):
                yield f"not run: {page}: {text}: {run.reason}"
            elif run.shortened:
                yield f"shortened: {page}: {text}: {run.shortened}"
    yield from (f"not run: {text}: {reason}" for text, reason in UNFENCED.items())


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
