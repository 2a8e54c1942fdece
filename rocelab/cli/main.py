"""The console script `rocelab`: all commands of `rocelab.cli`, each loaded when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rocelab.base.interruption import ending

if TYPE_CHECKING:
    import typer
    from typer.core import TyperGroup

_PLAN, _RUN, _MEASURE, _BREAK = "Plan", "Run", "Measure", "Break"
_SIMULATE, _LOOK, _ELSEWHERE = "Simulate", "Look in", "Elsewhere"
_COMMANDS = {
    "labs": (_PLAN, "catalog:list_catalog"),
    "plan": (_PLAN, "planning:plan"),
    "render": (_PLAN, "planning:render"),
    "graph": (_PLAN, "planning:graph"),
    "import": (_PLAN, "imports:import_topology"),
    "schema": (_PLAN, "planning:schema"),
    "doctor": (_RUN, "doctor:doctor"),
    "adopt": (_RUN, "adopt:adopt"),
    "release": (_RUN, "adopt:release"),
    "up": (_RUN, "lifecycle:up"),
    "down": (_RUN, "lifecycle:down"),
    "list": (_RUN, "lifecycle:list_labs"),
    "status": (_LOOK, "lifecycle:status"),
    "shell": (_LOOK, "inside:shell"),
    "live": (_LOOK, "live:live"),
    "vtysh": (_LOOK, "inside:vtysh"),
    "cli": (_LOOK, "inside:cli"),
    "path": (_LOOK, "path:path"),
    "reach": (_LOOK, "reach:reach"),
    "scheme": (_LOOK, "scheme:scheme"),
    "te": (_LOOK, "te:te"),
    "capture": (_LOOK, "capture:capture"),
    "runs": (_ELSEWHERE, "remote:runs"),
    "attach": (_ELSEWHERE, "remote:attach"),
    "exec": (_LOOK, "inside:exec_command"),
    "ping": (_LOOK, "inside:ping"),
    "traffic": (_MEASURE, "traffic:traffic"),
    "diagnose": (_MEASURE, "diagnose:diagnose"),
    "compare": (_MEASURE, "compare:compare"),
    "predict": (_PLAN, "predict:predict"),
    "simulate": (_SIMULATE, "simulate:simulate"),
    "whatif": (_SIMULATE, "longrun:whatif"),
    "longrun": (_SIMULATE, "longrun:longrun"),
    "sweep": (_SIMULATE, "sweep:sweep"),
    "reference": (_SIMULATE, "trace:reference"),
    "health": (_LOOK, "health:health"),
    "evidence": (_LOOK, "evidence:evidence"),
    "drill": (_MEASURE, "drill:app"),
    "fault": (_BREAK, "fault:app"),
    "image": (_PLAN, "image:app"),
}
"""The panel of help in which a command is, and its module and function or group in `rocelab.cli`,
in the order of help."""
Read = Any
"""A command of typer's parser, whose classes differ between versions."""
_PASSED_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}
_SETTINGS = {"exec": _PASSED_ON, "ping": _PASSED_ON}
"""Commands whose words after their own go to another program as they are."""


def build(names: Collection[str] = tuple(_COMMANDS)) -> typer.Typer:
    """The command line with these commands, whose modules are loaded; with all by default."""
    from importlib import import_module

    import typer

    from rocelab.cli.app import build_app

    app = build_app()
    for name in names:
        panel, where = _COMMANDS[name]
        module, attribute = where.split(":")
        target = getattr(import_module(f"rocelab.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name, rich_help_panel=panel)
        else:
            settings = _SETTINGS.get(name)
            app.command(name, rich_help_panel=panel, context_settings=settings)(target)
    return app


class _Commands(Mapping[str, Read]):
    """All commands by name, as typer's parser wants them. To load them all takes longer than most
    commands run, so one that is looked up is loaded alone; all are, for help and completion."""

    def __init__(self) -> None:
        self._loaded: dict[str, Read] = {}

    def __getitem__(self, name: str) -> Read:
        if name not in self._loaded:
            if name not in _COMMANDS:
                raise KeyError(name)
            self._loaded[name] = _group([name]).commands[name]
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in _COMMANDS

    def __iter__(self) -> Iterator[str]:
        if len(self._loaded) < len(_COMMANDS):
            self._loaded = dict(_group().commands)
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


def _group(names: Collection[str] = tuple(_COMMANDS)) -> TyperGroup:
    from typer.core import TyperGroup
    from typer.main import get_command

    group = get_command(build(names))
    assert isinstance(group, TyperGroup)
    return group


@cache
def command_line() -> TyperGroup:
    """All commands, ready to run, each loaded when it is looked up."""
    group = _group([])
    group.commands = _Commands()  # type: ignore[assignment]
    return group


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, sys.argv by default. Always ends with SystemExit."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    # Loading takes much of a second; signals are already handled during that time.
    with ending():
        from rocelab.base.interpreter import leave_current_folder_out
        from rocelab.cli.app import run

        leave_current_folder_out()
        run(command_line(), arguments)
