"""Reads a job from the options of a command or from a file, with the same keys and messages.

The result is a `JobSpec`, or a SpecError with every problem at its option or line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocelab.base.errors import COMMAND_LINE, InputError, Problem, SpecError
from rocelab.base.wording import KeyPath, RefusedError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.keys import KEYS
from rocelab.labfile.load import validate
from rocelab.labfile.references import with_contents
from rocelab.labfile.scalars import read_scalar
from rocelab.labfile.servers import HOST_MODELS
from rocelab.labfile.source import Data, YamlSource, read_source

_LISTS = ("starts",)


def job_from_file(path: Path) -> JobSpec:
    """The job that a YAML file describes. Raises SpecError with every problem."""
    source = with_contents(read_source(path), path, HOST_MODELS)
    if "jobs" in source.data:
        raise SpecError(
            [
                Problem(
                    source.file,
                    source.line(("jobs",)),
                    "jobs",
                    "a list of jobs is for the simulator; a lab runs one collective",
                    "`rocelab simulate LAB --job` takes this file; for a lab, give a file with "
                    "the keys of one collective, as traffic/allreduce.yaml",
                )
            ]
        )
    return validate(source, JobSpec)


def job_from_options(options: Mapping[str, str]) -> JobSpec:
    """The job that options of a command describe, by their names.

    Raises SpecError with every problem, InputError without any option.
    """
    if not options:
        raise InputError(
            "no job is described",
            hint="give the pattern of the ranks, such as `--pattern allreduce --ranks 8 --size "
            "64MB`, or "
            "give a file with `--job`",
        )
    data: dict[str, Data] = {}
    for name, text in options.items():
        *block, key = KEYS[name].key.split(".")
        target = data
        for part in block:
            inner = target.setdefault(part, {})
            assert isinstance(inner, dict)
            target = inner
        target[key] = _value(name, text)
    # The validator locates keys by line; for options only the name is shown.
    places: dict[KeyPath, int] = {
        tuple(KEYS[name].key.split(".")): number for number, name in enumerate(options)
    }
    try:
        return validate(YamlSource(COMMAND_LINE, data, places), JobSpec)
    except SpecError as error:
        raise SpecError(
            [replace(problem, line=None, key=_option(problem.key)) for problem in error.problems]
        ) from None


def _value(name: str, text: str) -> Data:
    if name in _LISTS or "," in text or (name == "placement" and ":" in text):
        return [part.strip() for part in text.split(",")]
    try:
        return read_scalar(text, None, plain=True)
    except RefusedError:
        return text


def _option(key: str) -> str:
    """`--warmup` for `warmup_iterations`; the key itself where no option sets it."""
    for name, option in KEYS.items():
        if key == option.key or key.startswith(f"{option.key}["):
            return f"--{name}"
    return key
