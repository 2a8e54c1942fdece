"""The options of commands from where they are declared: fields of dataclasses
(`rocelab.base.options`), and keys of jobs (`rocelab.jobs.keys`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import MISSING, is_dataclass
from enum import Enum
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from rocelab.base.options import (
    member_of,
    of_option,
    options_of,
    read_options,
    spelling,
    values_of,
)
from rocelab.jobs.keys import KEYS, JobKey

Command = Callable[..., None]
Typed = Any
"""A value, type or option as typer reads it."""
_PLAIN: dict[str, Typed] = {"bool": bool, "int": int, "float": float, "str": str, "Path": Path}


def takes_options(*, but: Collection[str] = ()) -> Callable[[Command], Command]:
    """A decorator that gives a command the options of each parameter that is a dataclass of
    options, and in place of `**job` those of a job, all but those named."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        kinds: dict[str, Typed] = {
            name: parameter.annotation
            for name, parameter in signature.parameters.items()
            if is_dataclass(parameter.annotation)
        }

        @wraps(command)
        def with_options(**values: Typed) -> None:
            for name, kind in kinds.items():
                texts = {option: values.pop(option) for option in options_of(kind)}
                values[name] = read_options(kind, texts)
            command(**values)

        parameters = list(_parameters(signature, but))
        with_options.__dict__["__signature__"] = signature.replace(parameters=parameters)
        return with_options

    return decorate


def option_of(kind: type, name: str) -> Typed:
    """An option of a dataclass, for a command that takes this one alone."""
    field, details = options_of(kind)[name]
    return typer.Option(
        spelling(name),
        metavar=details.metavar,
        help=details.help,
        min=details.minimum,
        max=details.maximum,
        show_default=details.default_text
        or (field.default not in (None, MISSING) and not details.says_default),
        rich_help_panel=details.panel,
        autocompletion=None if details.words is None else _completion(details.words),
    )


def choice(name: str, members: type[Enum], help: str) -> Typed:
    """An option that takes a value of an enumeration, and names the one that was meant if not."""

    def read(text: str) -> Enum:
        with of_option(spelling(name)):
            return member_of(members, text)

    words = values_of(members)
    return typer.Option(
        spelling(name),
        parser=read,
        metavar=f"<{'|'.join(words)}>",
        help=help,
        autocompletion=_completion(lambda: words),
    )


def _parameters(signature: inspect.Signature, but: Collection[str]) -> Iterator[Parameter]:
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            yield from (_job_parameter(name, key) for name, key in KEYS.items() if name not in but)
        elif is_dataclass(parameter.annotation):
            kind: Typed = parameter.annotation
            yield from (_field_parameter(kind, name) for name in options_of(kind))
        else:
            yield parameter.replace(kind=Parameter.KEYWORD_ONLY)


def _field_parameter(kind: type, name: str) -> Parameter:
    field, details = options_of(kind)[name]
    plain = str if details.read else _PLAIN[str(field.type).removesuffix(" | None")]
    default = None if field.default is MISSING or details.says_default else field.default
    if plain is not bool:
        plain = (list[str] if details.several else plain) | None
    return _parameter(name, plain, option_of(kind, name), getattr(default, "value", default))


def _job_parameter(name: str, key: JobKey) -> Parameter:
    """An option of a job; what its text means the job's model says."""
    option = typer.Option(
        f"--{name}",
        metavar=key.metavar or None,
        help=key.help,
        show_default=False,
        rich_help_panel=key.about.value,
        autocompletion=_completion(lambda: key.completions) if key.words or key.group else None,
    )
    plain, default = (bool, False) if key.is_flag else (str | None, None)
    return _parameter(name.replace("-", "_"), plain, option, default)


def _parameter(name: str, plain: Typed, option: Typed, default: object) -> Parameter:
    annotation: Typed = Annotated[plain, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _completion(words: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [word for word in words() if word.startswith(incomplete)]

    return complete


def named_options(job: dict[str, Any]) -> dict[str, str]:
    """The options that were given, by their names; a flag that is set is `true`."""
    return {
        name.replace("_", "-"): "true" if value is True else str(value)
        for name, value in job.items()
        if value not in (None, False)
    }
