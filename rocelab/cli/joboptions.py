"""The options that describe a job, for every command that takes one (`rocelab.jobs.keys`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer

from rocelab.jobs.keys import KEYS, JobKey

Command = TypeVar("Command", bound=Callable[..., None])


def takes_job_options(*, but: Collection[str] = ()) -> Callable[[Command], Command]:
    """A decorator that gives a command's `**job` the options of a job, all but those named. They
    come after the command's arguments, as typer reads them from a signature."""

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        parameters = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in own.parameters.values()
            if parameter.kind is not Parameter.VAR_KEYWORD
        ]
        parameters += [_option(name, key) for name, key in KEYS.items() if name not in but]
        command.__dict__["__signature__"] = own.replace(parameters=parameters)
        return command

    return decorate


def _option(name: str, key: JobKey) -> Parameter:
    """A parameter for typer; what the option's text means the job's model says."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in key.completions if word.startswith(incomplete)]

    option = typer.Option(
        f"--{name}",
        metavar=key.metavar or None,
        help=key.help,
        show_default=False,
        rich_help_panel=key.about.value,
        autocompletion=complete if key.words or key.group else None,
    )
    read_as, default = (bool, False) if key.is_flag else (str | None, None)
    return Parameter(
        name.replace("-", "_"),
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[read_as, option],
    )


def named_options(job: dict[str, Any]) -> dict[str, str]:
    """The options that were given, by their names; a flag that is set is `true`."""
    return {
        name.replace("_", "-"): "true" if value is True else str(value)
        for name, value in job.items()
        if value not in (None, False)
    }
