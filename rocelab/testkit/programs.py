"""Runs a user's program on servers of a lab that is up: what `rocelab run` and `RunningLab.run` do.

In: a command, servers, variables. Out: the report of its ends, connections and links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.lab.inuse import Use, in_use
from rocelab.lab.lab import RunningLab
from rocelab.programs.ranks import matching_servers, plan_programs
from rocelab.programs.run import run_programs
from rocelab.programs.running import OutputLine
from rocelab.record import LabFiles
from rocelab.results.programs import ProgramReport


def run_command(
    lab: RunningLab,
    command: Sequence[str],
    on: Sequence[str] = (),
    per_server: int = 1,
    env: Mapping[str, str] | None = None,
    network: str | None = None,
    *,
    folder: Path,
    on_line: Callable[[OutputLine], object],
) -> ProgramReport:
    """As `RunningLab.run`."""
    if isinstance(command, str) or not command:
        raise InputError(
            f"expected a program and its arguments, got {command!r}",
            hint="as a list, such as ['python3', 'train.py']",
        )
    fabric = lab.fabric.network(network)
    servers = matching_servers(fabric, on or ["*"])
    programs = plan_programs(fabric, servers, command, per_server=per_server, environment=env)
    with in_use(LabFiles(lab.name), "a program", Use.PROGRAM):
        return run_programs(lab, programs, folder=folder.absolute(), on_line=on_line)
