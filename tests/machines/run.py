"""`make test-machines`: tests README on fresh machines of each system that it names.

    python -m tests.machines.run --cache DIR [--systems debian-12,debian-13] [--run drill,test,...]

For each system and user it makes a machine with only a minimal system, git and make, clones the
checkout's HEAD there, and runs each step's command as typed. A step's output, and the
reports of its drill, go to results/machines/SYSTEM/. Exit code 0: every step ended as README says,
1: one did not, 2: no such system or step, 3: this machine cannot make such machines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.machines import vm
from tests.machines.system import SYSTEMS, Machine, MissingError, System, fresh_machine, remove

CHECKOUT = Path(__file__).parents[2]
RESULTS = CHECKOUT / "results/machines"
BUNDLE = "checkout.bundle"
USER = "engineer"
NOTICE_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """A command that runs in a fresh clone, its user, and its time limit."""

    name: str
    command: str
    user: str
    limit_s: float
    meaning: str


NOTHING_MEASURED = "No repeat was valid, so there is nothing to report"
"""A drill's message if every run was invalid."""

OWNED = f"! find . ! -user {USER} | grep ."
"""Checks that every file of the checkout belongs to the user who typed the command."""

VM = Step(
    "vm", "bash tests/machines/vm.sh", "root", 3600, "drills on the system's own kernel, emulated"
)

READ = (
    "apt-get -q update && apt-get -q -y install --no-install-recommends sudo"
    " && make setup && ./setup.sh test && .venv/bin/python -m tests.machines.readme"
)
"""`me@vm` needs sudo and an SSH server, the runtime `docker` an engine."""

STEPS = {
    step.name: step
    for step in (
        Step("drill", "make drill", "root", 1200, "README's first command, as root"),
        Step("test", "make test", "root", 3600, "README's second command, as root"),
        Step(
            "readme",
            READ,
            "root",
            3600,
            "every command of README and the first pages of docs",
        ),
        Step(
            "package",
            "bash tests/machines/package.sh",
            "root",
            1200,
            "wheel and source distribution, each in a clean environment",
        ),
        Step(
            "hardened",
            "bash tests/machines/hardened.sh",
            "root",
            3600,
            "drills and tests where settings, packet filter and process 1 are a hardened machine's",
        ),
        VM,
        Step("sudo", f"make drill && make test && {OWNED}", USER, 4800, "both commands, with sudo"),
    )
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step on a system."""

    system: System
    step: Step
    problem: str | None
    took_s: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-machines", description="see README.md")
    parser.add_argument("--cache", type=Path, required=True, help="where systems are kept")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="default: %(default)s")
    parser.add_argument("--run", default=",".join(STEPS), help="default: %(default)s")
    arguments = parser.parse_args()
    # Ended from outside, it still ends the machines and removes their files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        systems = [SYSTEMS[name] for name in _words(arguments.systems)]
        steps = [STEPS[name] for name in _words(arguments.run)]
    except KeyError as error:
        say(f"error: no {error}; systems: {' '.join(SYSTEMS)}; steps: {' '.join(STEPS)}")
        return 2
    if os.geteuid() != 0:
        say("error: machines are made as root: run `make test-machines`")
        return 3
    outcomes: list[Outcome] = []
    try:
        for system in systems:
            outcomes += try_system(system, [step for step in steps if step != VM], arguments.cache)
            if VM in steps:
                outcomes.append(try_vm(system, arguments.cache))
    except MissingError as error:
        say(f"error: {error}", "", *summary(outcomes))
        return 3
    except KeyboardInterrupt:
        say("interrupted: the machine of this step is ended and removed")
        return 130
    say("", *summary(outcomes))
    return int(any(outcome.problem for outcome in outcomes))


def try_system(system: System, steps: Sequence[Step], cache: Path) -> Iterable[Outcome]:
    """Run every step on a system, those of one user one after the other in one clone."""
    results = RESULTS / system.name
    results.mkdir(parents=True, exist_ok=True)
    for user in dict.fromkeys(step.user for step in steps):
        say(f"{system.name}: making a machine for {user}")
        machine = fresh_machine(system, cache, f"{system.name}.{user}.{os.getpid()}", user=user)
        try:
            clone(machine)
            for step in (step for step in steps if step.user == user):
                yield try_step(machine, step, results)
        finally:
            remove(machine.root)


def clone(machine: Machine) -> None:
    """Clone HEAD of this checkout into the user's home, with the machine's own git."""
    git = ["git", "-c", f"safe.directory={CHECKOUT}", "-C", str(CHECKOUT)]
    if subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode != 0:
        say("note: changes that are not committed are not in the clone")
    # Not in /var/tmp, where any user of this machine could put something else.
    bundle = machine.outside(Path("/", BUNDLE))
    subprocess.run([*git, "bundle", "create", "--quiet", str(bundle), "HEAD"], check=True)
    machine.run(f"git clone --quiet /{BUNDLE} rocelab")


def try_vm(system: System, cache: Path) -> Outcome:
    """Run the first command in a virtual machine: set-up before it boots, the rest inside."""
    vm.check_tools()
    results = RESULTS / system.name
    results.mkdir(parents=True, exist_ok=True)
    log = results / f"{VM.name}.log"
    began = time.monotonic()
    say(f"{system.name}: making a virtual machine: systemd, kernel and `make setup`")
    machine = fresh_machine(system, cache, f"{system.name}.{VM.name}.{os.getpid()}")
    folder = machine.root.with_name(f"{machine.root.name}.boot")
    try:
        vm.prepare(machine)
        clone(machine)
        machine.run("cd rocelab && make setup")
        folder.mkdir()
        vm.make_disk(machine, VM.command, folder)
        say(f"{system.name}: booting; {VM.command}   ({log.relative_to(CHECKOUT)})")
        process = vm.start(folder, log)
        try:
            ended = _wait(process, VM.limit_s, log)
        finally:
            process.kill()
            process.wait()
        code = None if ended is None else vm.exit_code(folder)
        target = results / VM.name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        vm.take_results(folder, target)
    finally:
        remove(machine.root)
        remove(folder)
    problem = None if code == 0 else f"exit code {code}"
    if ended is None:
        problem = f"not done within {VM.limit_s:.0f} s"
    took_s = time.monotonic() - began
    say(f"{system.name}: {VM.name}: {problem or 'passed'} after {took_s:.0f} s")
    return Outcome(system, VM, problem, took_s)


def try_step(machine: Machine, step: Step, results: Path) -> Outcome:
    """Run a step's command in the clone."""
    log = results / f"{step.name}.log"
    say(f"{machine.system.name}: {step.command}   (as {step.user}; {log.relative_to(CHECKOUT)})")
    began = time.monotonic()
    with log.open("wb") as output:
        process = machine.start(f"cd rocelab && {step.command}", output)
        try:
            code = _wait(process, step.limit_s, log)
        finally:
            process.kill()
            process.wait()
    problem = f"not done within {step.limit_s:.0f} s" if code is None else None
    if code:
        problem = f"exit code {code}"
    if problem is not None and NOTHING_MEASURED in log.read_text(errors="replace"):
        problem += "; this machine was too busy to measure"
    if problem is not None:
        say(*(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-15:]))
    _keep_reports(machine, results / step.name)
    took_s = time.monotonic() - began
    say(f"{machine.system.name}: {step.name}: {problem or 'passed'} after {took_s:.0f} s")
    return Outcome(machine.system, step, problem, took_s)


def _wait(process: subprocess.Popen[bytes], limit_s: float, log: Path) -> int | None:
    """The exit code, None if it takes too long. Prints its progress each minute."""
    began = time.monotonic()
    while (left_s := limit_s - (time.monotonic() - began)) > 0:
        try:
            return process.wait(min(NOTICE_EVERY_S, left_s))
        except subprocess.TimeoutExpired:
            lines = log.read_text(errors="replace").splitlines() or [""]
            say(f"    {time.monotonic() - began:4.0f} s: {lines[-1][:100]}")
    return None


def _keep_reports(machine: Machine, folder: Path) -> None:
    """Copy the results of a step's command out of the machine before it is removed."""
    source = machine.outside(machine.home / "rocelab/results")
    shutil.rmtree(folder, ignore_errors=True)
    if source.is_dir():
        shutil.move(source, folder)


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """A table of all steps, a line each."""
    lines = [f"{'system':<12}{'step':<8}{'time':>7}  outcome"]
    for outcome in outcomes:
        ended = f"FAILED: {outcome.problem}" if outcome.problem else "passed"
        lines.append(
            f"{outcome.system.name:<12}{outcome.step.name:<8}{outcome.took_s:>5.0f} s  {ended}: "
            f"{outcome.step.meaning}"
        )
    return lines


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
