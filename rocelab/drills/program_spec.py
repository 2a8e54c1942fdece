"""A phase of programs as a user writes it: `traffic: {command: ...}`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator

from rocelab.base.units import DurationNs
from rocelab.base.wording import RefusedError
from rocelab.labfile.base import SECOND, Name, SpecModel, short_form

MAX_TIME = 3600 * SECOND
_NUMBER_GROUPS = 1
_COMMAND_LINE = {"type": "string", "description": "the same as a shell would split it"}


class MetricSpec(SpecModel):
    """A figure that programs print."""

    pattern: Annotated[
        str,
        Field(
            max_length=400,
            description="a regular expression (Python's re) with one group, which is the number; "
            "each line that it is found in has one",
        ),
    ]
    unit: Annotated[str, Field(max_length=20, description="its unit, as reports name it")] = ""
    rank: Annotated[
        Annotated[int, Field(ge=0, le=4095)] | Literal["all"],
        Field(description="of this program alone, or of all"),
    ] = 0

    @field_validator("pattern")
    @classmethod
    def _has_one_group(cls, pattern: str) -> str:
        if _compiled(pattern).groups != _NUMBER_GROUPS:
            raise RefusedError(
                f"{pattern!r} has {_compiled(pattern).groups} groups",
                "put the number alone in parentheses, as in 'step ([0-9.]+) s'",
            )
        return pattern


class ProgramTrafficSpec(SpecModel):
    """Programs on servers of the lab: what `rocelab run` starts, with faults meanwhile. They begin
    in the folder of the drill's file."""

    command: Annotated[
        tuple[str, ...],
        Field(strict=False, min_length=1, description="the program and its arguments"),
        short_form(_COMMAND_LINE),
    ]
    servers: Annotated[
        tuple[str, ...],
        Field(strict=False, min_length=1, description="servers, by name or by pattern, in order"),
    ] = ("*",)
    per_server: Annotated[int, Field(ge=1, le=256, description="programs on each server")] = 1
    env: Annotated[
        Mapping[str, str], Field(default_factory=dict, description="variables of every program")
    ]
    network: Annotated[
        Name | None,
        Field(
            description="of a lab with several networks, that which the programs are told to use"
        ),
    ] = None
    ready: Annotated[
        str | None,
        Field(
            max_length=400,
            description="a regular expression: time 0, from which faults count, is the first line "
            "that it is found in; left out: when the programs were started",
        ),
    ] = None
    duration: Annotated[
        DurationNs | None,
        Field(
            gt=0,
            le=MAX_TIME,
            description="after time 0 they are ended, and have done well; left out: they end by "
            "themselves",
        ),
    ] = None
    limit: Annotated[
        DurationNs,
        Field(
            gt=0,
            le=MAX_TIME,
            description="programs that have not ended by then, nor become ready, have failed",
        ),
    ] = 300 * SECOND
    metrics: Annotated[
        Mapping[Name, MetricSpec],
        Field(
            default_factory=dict,
            max_length=8,
            description="figures in what the programs print, by name",
        ),
    ]
    folder: Annotated[
        str | None, Field(description="where programs begin; left out: the drill's folder")
    ] = None

    @field_validator("command", mode="before")
    @classmethod
    def _split(cls, command: object) -> object:
        if not isinstance(command, str):
            return command
        try:
            return tuple(shlex.split(command))
        except ValueError as error:
            raise RefusedError(f"{command!r} is no command line: {error}") from None

    @field_validator("env")
    @classmethod
    def _has_names(cls, env: Mapping[str, str]) -> Mapping[str, str]:
        for name in env:
            if not name or {"=", "\0"} & set(name):
                raise RefusedError(f"{name!r} is no name of a variable", "NAME: value")
        return env

    @field_validator("ready")
    @classmethod
    def _is_pattern(cls, ready: str | None) -> str | None:
        if ready is not None:
            _compiled(ready)
        return ready

    def in_folder(self, folder: Path) -> Self:
        """The same in a folder: `folder` is where its own begins, or is its own."""
        return self.model_copy(update={"folder": str(folder / (self.folder or "."))})


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise RefusedError(f"{pattern!r} is no regular expression: {error}") from None
