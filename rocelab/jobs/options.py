"""Reads a job from the options of a command or from a file, with the same keys and messages.

The result is a `JobSpec`, or a SpecError with every problem at its option or line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocelab.base.errors import COMMAND_LINE, InputError, SpecError
from rocelab.base.wording import KeyPath, RefusedError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import LabJob, load_jobs
from rocelab.jobs.keys import KEYS
from rocelab.labfile.load import validate
from rocelab.labfile.references import with_contents
from rocelab.labfile.scalars import read_scalar
from rocelab.labfile.servers import HOST_MODELS
from rocelab.labfile.source import Data, YamlSource, read_source

_LISTS = ("starts",)


def job_from_file(path: Path) -> JobSpec:
    """The collective or the streams that a YAML file describes. Raises SpecError with every
    problem."""
    return validate(with_contents(read_source(path), path, HOST_MODELS), JobSpec)


def jobs_from_file(path: Path) -> tuple[LabJob, ...]:
    """The jobs that a YAML file describes: one, or a list `jobs` as a simulation takes it. Raises
    SpecError with every problem."""
    if "jobs" in read_source(path).data:
        return load_jobs(path)
    return (job_from_file(path),)


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
