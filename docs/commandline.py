"""The commands of the command line as the pages of the reference show them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

Parameter = TyperArgument | TyperOption


def commands(
    group: TyperGroup, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], TyperCommand, str]]:
    """Every command with the words that call it and the part of the help that it is in."""
    for name, command in group.commands.items():
        words = (*above, name)
        if isinstance(command, TyperGroup):
            panel = str(command.rich_help_panel)
            yield from ((below, child, panel) for below, child, _ in commands(command, words))
        elif isinstance(command, TyperCommand):
            yield words, command, str(command.rich_help_panel)


def parameters(command: TyperCommand | TyperGroup) -> list[Parameter]:
    """What a command takes, less what Typer adds to it."""
    params = [
        param for param in command.params if isinstance(param, Parameter) and not param.hidden
    ]
    return [parameter for parameter in params if not str(parameter.name).endswith("_completion")]


def usage(words: tuple[str, ...], command: TyperCommand) -> str:
    """How a command is typed."""
    arguments, options = [], []
    for parameter in parameters(command):
        name = _written(parameter)
        if isinstance(parameter, TyperArgument):
            more = "..." if parameter.nargs == -1 else ""
            arguments.append(f"{name}{more}" if parameter.required else f"[{name}]{more}")
        elif parameter.required:
            options.append(name)
        elif "[OPTIONS]" not in options:
            options.append("[OPTIONS]")
    return " ".join(["rocelab", *words, *arguments, *options])


def names_of(parameter: Parameter) -> list[str]:
    """The ways to write a parameter, with what it takes behind the last one."""
    short = [opt for opt in parameter.opts if re.fullmatch("-.", opt)]
    return [*short, _written(parameter)]


def default(parameter: Parameter) -> str:
    """The value of an option that is not given, as it is typed; "" where there is none to show."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = getattr(parameter.default, "value", parameter.default)
    if value is None or not parameter.show_default or value is False or value == ():
        return ""
    return str(value)


def first_sentence(text: str) -> str:
    """The first sentence of a help text."""
    return re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()))[0]


def _written(parameter: Parameter) -> str:
    """An argument's name, or the longest name of an option with what it takes."""
    value = (parameter.metavar or str(parameter.name).upper()).strip("<>")
    if isinstance(parameter, TyperArgument):
        return value.strip("[].")
    names = [max(parameter.opts, key=len), *parameter.secondary_opts]
    return "/".join(names) if parameter.is_flag else f"{names[0]} {value}"
