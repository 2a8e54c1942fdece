"""The options that describe a job, for every command that takes one: those of `rocelab traffic`.

`takes_job_options` replaces the `**job` of a command by an option for each key of a job.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar, get_type_hints

from rocelab.cli.traffic import traffic
from rocelab.jobs.options import KEYS

Command = TypeVar("Command", bound=Callable[..., None])


def takes_job_options(*, but: Collection[str] = ()) -> Callable[[Command], Command]:
    """A decorator that gives a command's `**job` the options of a job, except those in `but`."""

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        hints = get_type_hints(traffic, include_extras=True)
        added = [
            parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(traffic).parameters.items()
            if option_of(name) in KEYS and option_of(name) not in but
        ]
        kept = [
            parameter
            for parameter in own.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        command.__dict__["__signature__"] = own.replace(
            parameters=[
                parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in kept
            ]
            + added
        )
        return command

    return decorate


def option_of(name: str) -> str:
    """The option of a parameter: `source-port` for `source_port`."""
    return name.replace("_", "-")


def given(job: dict[str, Any]) -> dict[str, str]:
    """The options that were set, by name; a set flag is `true`."""
    found = {name: value for name, value in job.items() if value not in (None, False)}
    return {
        option_of(name): "true" if value is True else str(value) for name, value in found.items()
    }
