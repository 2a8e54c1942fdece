"""What a drill that ended early left in its folder, to go on from.

The repeats of one result have one drill, one lab and one machine: a result of others is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rocelab.base.documents import fitting
from rocelab.base.errors import InputError
from rocelab.base.outputs import RESULT
from rocelab.base.wording import listed
from rocelab.drills.plan import PlannedDrill
from rocelab.report.drill import drill_document
from rocelab.report.replay.recording import recording
from rocelab.results.difference import ValueChange, changes
from rocelab.results.drill import DrillResult, read_drill_result
from rocelab.results.environment import Environment

MAX_REPEATS = 1000

_MAY_DIFFER = {"started", "command", "memory_bytes"}


def earlier_result(folder: Path, drill: PlannedDrill) -> DrillResult:
    """The result in `folder`. Raises InputError if there is none, if it is of another drill or lab,
    or if its repeats are not those of the drill."""
    result = read_drill_result(folder)
    specs = (("drill", result.drill, drill.spec), ("lab", result.lab, drill.fabric.spec))
    for name, before, spec in specs:
        now = spec.model_dump(mode="json", exclude_none=True)
        # What was observed of the lab is of the earlier run.
        kept = {key: value for key, value in before.items() if key != "observed"}
        now.pop("observed", None)
        _refuse(folder, f"the {name} is another now", list(changes(kept, now)))
    with fitting(str(folder / RESULT)):
        _check_repeats(result, drill)
        # The report is of all repeats: what has none is refused before more are measured.
        drill_document(result)
        recording(result)
    return result


def _check_repeats(result: DrillResult, drill: PlannedDrill) -> None:
    """Raises ValueError for repeats that a drill does not leave."""
    phases = [(phase.name, phase.spec.sends) for phase in drill.phases]
    for repeat in result.repeats:
        if [(run.phase, run.kind) for run in repeat] != phases:
            raise ValueError("a repeat does not have the phases of the drill")
    if result.wanted_repeats is not None and not 1 <= result.wanted_repeats <= MAX_REPEATS:
        raise ValueError(f"{result.wanted_repeats} repeats asked for")


def check_machine(folder: Path, result: DrillResult, environment: Environment) -> None:
    """Raises InputError if the earlier repeats were measured with other software or hardware."""
    before, now = (dict(_compared(one)) for one in (result.environment, environment))
    _refuse(folder, "the machine or its software is another now", list(changes(before, now)))


def _compared(environment: Environment) -> Iterator[tuple[str, object]]:
    for key, value in asdict(environment).items():
        if key not in _MAY_DIFFER:
            yield key, list(value) if isinstance(value, tuple) else value


def _refuse(folder: Path, what: str, differing: list[ValueChange]) -> None:
    if differing:
        keys = listed([change.key for change in differing], "and")
        raise InputError(
            f"{folder} cannot be gone on with: {what}: {keys}",
            hint="repeats of one result must be of one experiment: run the drill anew, without "
            "--resume",
        )
