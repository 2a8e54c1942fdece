"""Reads a job from the options of a command or from a file, with the same keys and messages.

The result is a `JobSpec`, or a SpecError with every problem at its option or line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocelab.errors import InputError, SpecError
from rocelab.jobs.job import JobSpec
from rocelab.spec.load import read_model, validate
from rocelab.spec.scalars import read_scalar
from rocelab.spec.source import Data, Source
from rocelab.wording import KeyPath, RefusedError

KEYS: Mapping[str, str] = {
    "pattern": "pattern",
    "algorithm": "algorithm",
    "ranks": "ranks",
    "size": "size",
    "duration": "duration",
    "starts": "starts",
    "iterations": "iterations",
    "warmup": "warmup_iterations",
    "compute": "compute",
    "placement": "placement",
    "seed": "seed",
    "channels": "channels",
    "qps": "transport.qps",
    "strategy": "transport.strategy",
    "message": "transport.message",
    "mtu": "transport.mtu",
    "source-port": "transport.source_port",
    "dcqcn": "transport.dcqcn",
    "ecn": "transport.ecn",
    "admission": "transport.admission",
    "out-of-order": "transport.out_of_order",
}
"""The job's key that each option sets; the other keys need `--job FILE`."""

_LISTS = ("starts",)


def job_from_file(path: Path) -> JobSpec:
    """The job that a YAML file describes. Raises SpecError with every problem."""
    return read_model(path, JobSpec)


def job_from_options(
    options: Mapping[str, str | None], command: str = "rocelab traffic"
) -> JobSpec:
    """The job that options of `command` describe, by name; None for an option that is not set.

    Raises SpecError with every problem, InputError without any option.
    """
    given = {name: text for name, text in options.items() if text is not None}
    if not given:
        raise InputError(
            "no job is described",
            hint="say what the ranks do, such as `--pattern allreduce --ranks 8 --size 64MB`, or "
            "give a file with `--job`",
        )
    data: dict[str, Data] = {}
    for name, text in given.items():
        *block, key = KEYS[name].split(".")
        target = data
        for part in block:
            inner = target.setdefault(part, {})
            assert isinstance(inner, dict)
            target = inner
        target[key] = _value(name, text)
    # The validator locates keys by line; for options only the name is shown.
    places: dict[KeyPath, int] = {
        tuple(KEYS[name].split(".")): number for number, name in enumerate(given)
    }
    try:
        return validate(Source(command, data, places), JobSpec)
    except SpecError as error:
        raise SpecError(
            [replace(each, line=None, key=_option(each.key)) for each in error.problems]
        ) from None


def _value(name: str, text: str) -> Data:
    if name in _LISTS or "," in text or (name == "placement" and ":" in text):
        return [part.strip() for part in text.split(",")]
    try:
        return read_scalar(text, None, plain=True)
    except RefusedError:
        return text


def _option(key: str) -> str:
    """`--warmup` for `warmup_iterations`; the key itself if no option sets it."""
    for name, dotted in KEYS.items():
        if key == dotted or key.startswith(f"{dotted}["):
            return f"--{name}"
    return key
