"""Every command, as the application declares it, with arguments that let it start: a new command is
tested automatically, or the tests fail and name what they need to know about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo
from typer.utils import get_params_from_function

from rocelab.cli.main import build

WORDS = {
    "lab": "zone-small",
    "node": "rtsw1",
    "command": "true",
    "source": "srv1-1",
    "destination": "srv2-1",
    "src": "srv1-1",
    "dst": "srv2-1",
    "sport": "50000",
    "ports": "rtsw1:ctsw1",
    "folder": "out",
    "file": "out.pcapng",
    "result": "result.json",
    "old": "old.json",
    "new": "new.json",
    "event": "drain ctsw1 for 2h",
    "sweep_file": "sweep.yaml",
    "measured": "measured.txt",
    "drill": "link-flap",
    "kind": "carrier-down",
}
"""Values of required parameters, by name."""
JOB = ("--pattern=allreduce", "--ranks=2", "--size=1MB")
BESIDES = {
    "traffic": JOB,
    "predict": JOB,
    "compare": JOB,
    "simulate": JOB,
    "whatif": JOB,
    "longrun": (*JOB, "--rates=llama3"),
    "reference": ("--pattern=allreduce", "--ranks=2"),
    "inject": ("link=rtsw1:ctsw1",),
    "restore": ("--all",),
    "health": ("--once",),
    "capture": ("--seconds=0.1",),
}
"""Additional arguments that commands need to get as far as reading their inputs."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a command: `option` is its option, None for an argument."""

    name: str
    annotation: Any
    option: str | None
    required: bool
    metavar: str
    help: str

    @property
    def is_path(self) -> bool:
        return self.annotation is Path or self.annotation == Path | None


@dataclass(frozen=True, slots=True)
class Command:
    """A command, identified by its words."""

    words: tuple[str, ...]
    parameters: Mapping[str, Parameter]

    def line(self, **keys: str) -> list[str]:
        """The shortest complete command line with these values."""
        arguments, options = [], []
        for parameter in self.parameters.values():
            if parameter.name not in keys and not parameter.required:
                continue
            value = keys[parameter.name] if parameter.name in keys else WORDS[parameter.name]
            if parameter.option is None:
                arguments.append(value)
            else:
                options.append(f"{parameter.option}={value}")
        besides: Sequence[str] = BESIDES.get(self.words[-1], ())
        if "job_file" in keys or "flows" in keys:
            besides = [argument for argument in besides if argument not in JOB]
        options += [argument for argument in besides if argument.startswith("-")]
        arguments += [argument for argument in besides if not argument.startswith("-")]
        return [*self.words, *options, "--", *arguments]


def commands() -> list[Command]:
    """Every command, in the order of its registration."""
    return list(_commands(build(), ()))


def _commands(app: typer.Typer, above: tuple[str, ...]) -> Iterator[Command]:
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        parameters = get_params_from_function(command.callback)
        options = (_parameter(key, meta) for key, meta in parameters.items())
        yield Command(
            (*above, name), {option.name: option for option in options if option is not None}
        )
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from _commands(group.typer_instance, (*above, str(group.name)))


def _parameter(name: str, meta: Any) -> Parameter | None:
    info = meta.default
    if not isinstance(info, ArgumentInfo | OptionInfo):
        return None
    option = None
    if isinstance(info, OptionInfo):
        long = [
            declaration for declaration in info.param_decls or () if declaration.startswith("-")
        ]
        option = max(long, key=len, default=f"--{name.replace('_', '-')}")
    required = info.default is ...
    return Parameter(name, meta.annotation, option, required, info.metavar or "", info.help or "")
