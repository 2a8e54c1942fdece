"""`rocelab fault`: injects faults into a running lab, lists them and restores them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit
from rocelab.cli.arguments import JsonOption, OneRunningLab, RunningLabArgument, running_lab
from rocelab.cli.keyed import KeyedCommand
from rocelab.linux.rights import need_root
from rocelab.report.console import progress_bars, say, show_blocks, write_json
from rocelab.report.document import Column, Table, columns

if TYPE_CHECKING:
    from rocelab.faults.asked import FaultKind, Key
    from rocelab.faults.base import Fault
    from rocelab.faults.fault_spec import FaultSpec
    from rocelab.faults.record import RecordedFault
    from rocelab.lab.lab import RunningLab

app = typer.Typer(
    no_args_is_help=True, help="Inject faults into a running lab, list them, and clear them."
)


def _complete_kind(incomplete: str) -> list[str]:
    from rocelab.faults.asked import kinds

    return [kind.name for kind in kinds() if kind.name.startswith(incomplete)]


def _complete_key(ctx: typer.Context, incomplete: str) -> list[str]:
    from rocelab.faults.asked import kinds

    chosen = [kind for kind in kinds() if kind.name == ctx.params.get("kind")]
    keys = [f"{key.name}=" for kind in chosen for key in kind.keys]
    return [key for key in keys if key.startswith(incomplete)]


def _complete_number(ctx: typer.Context, incomplete: str) -> list[str]:
    from rocelab.base.errors import RocelabError
    from rocelab.faults.record import read_faults
    from rocelab.record import LabFiles

    try:
        numbers = [str(fault.number) for fault in read_faults(LabFiles(str(ctx.params.get("lab"))))]
    except (RocelabError, OSError):
        return []
    return [number for number in numbers if number.startswith(incomplete)]


@app.command(cls=KeyedCommand)
def inject(
    lab: RunningLabArgument,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="The kind of fault, such as blackhole; `rocelab fault kinds` explains each.",
            autocompletion=_complete_kind,
            show_default=False,
        ),
    ],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Keys of the kind, such as link=rtsw1:ctsw2 towards=rtsw1 lasts=5s.",
            autocompletion=_complete_key,
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Break a lab. With lasts=TIME, or a kind that ends by itself, this waits for the end; else the
    fault stays until `rocelab fault restore`."""
    from rocelab.faults.asked import asked_fault, ends_by_itself

    spec = asked_fault(kind, keys or [])
    need_root("breaking a lab")
    chosen = running_lab(lab)
    if ends_by_itself(spec):
        _wait(chosen, spec, json)
    else:
        _leave(chosen, spec, json)


def _leave(lab: RunningLab, spec: FaultSpec, json: bool) -> None:
    from rocelab.faults.base import SeriesSpec
    from rocelab.faults.running import inject_and_leave

    assert not isinstance(spec, SeriesSpec)
    with _showing("inject"):
        recorded, fault = inject_and_leave(lab, spec)
    if json:
        write_json(
            {
                "lab": lab.name,
                "number": recorded.number,
                "kind": fault.kind,
                "subject": fault.subject,
            }
        )
        return
    say(
        f"lab {lab.name} has fault {recorded.number}, {fault.kind} of {fault.subject}, until "
        f"`rocelab fault restore {lab.name} {recorded.number}`"
    )


def _wait(lab: RunningLab, spec: FaultSpec, json: bool) -> None:
    from rocelab.faults.running import inject_and_wait

    with progress_bars() as progress:
        changes, late = inject_and_wait(lab, spec, progress)
    if json:
        write_json(
            {
                "lab": lab.name,
                "changes": [
                    {
                        "t_unix_ns": change.t_ns,
                        "took_ns": change.took_ns,
                        "change": "begin" if change.begins else "end",
                        "kind": change.fault.kind,
                        "subject": change.fault.subject,
                    }
                    for change in changes
                ],
                "late": list(late),
            }
        )
        return
    rows = tuple(
        (
            change.t_ns - changes[0].t_ns,
            change.fault.kind,
            change.fault.subject,
            "begins" if change.begins else "ends",
            change.took_ns,
        )
        for change in changes
    )
    texts = columns(Unit.TEXT, "fault", "of", "change")
    head = (Column("after", Unit.NS), *texts, Column("took", Unit.NS))
    show_blocks(Table("", head, rows, names=3))
    for text in late:
        say(f"note: {text}")
    say(f"lab {lab.name}: no trace of it remains")


@app.command("list")
def list_faults(lab: OneRunningLab = None, json: JsonOption = False) -> None:
    """List the faults of a lab, and what will undo each."""
    from dataclasses import asdict

    from rocelab.faults.running import faults_of

    faults = faults_of(running_lab(lab))
    if json:
        write_json([asdict(fault) for fault in faults])
        return
    if not faults:
        say("no faults")
        return
    drivers = {
        "none": "stays until restored",
        "alive": "process {} undoes it",
        "orphaned": "process {} is gone: restore it",
    }
    rows = tuple(
        (
            str(fault.number),
            fault.kind,
            fault.subject,
            fault.since,
            drivers[fault.driver].format(fault.pid) if fault.lost is None else fault.lost,
        )
        for fault in faults
    )
    head = columns(Unit.TEXT, "fault", "kind", "of", "since", "driver")
    show_blocks(Table("", head, rows, names=3))


@app.command()
def restore(
    lab: RunningLabArgument,
    number: Annotated[
        int | None,
        typer.Argument(
            metavar="[NUMBER]",
            help="The fault's number.",
            autocompletion=_complete_number,
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every fault whose process has died.")
    ] = False,
) -> None:
    """Undo faults, and end when nothing of them remains."""
    from rocelab.base.errors import InputError
    from rocelab.faults.running import restore_numbered, restore_ownerless

    undone: tuple[Fault, ...]
    owned: tuple[RecordedFault, ...]

    if every == (number is not None):
        raise InputError(
            "give the number of a fault, or use --all",
            hint=f"`rocelab fault list {lab}` has them",
        )
    need_root("mending a lab")
    chosen = running_lab(lab)
    with _showing("restore"):
        if number is not None:
            undone, owned = (restore_numbered(chosen, number),), ()
        else:
            undone, owned = restore_ownerless(chosen)
    for fault in undone:
        say(f"lab {chosen.name}: no trace of {fault.kind} of {fault.subject} remains")
    for recorded in owned:
        assert recorded.driver is not None
        say(f"fault {recorded.number} is left to process {recorded.driver.pid}, which undoes it")
    if not undone and not owned:
        say(f"lab {chosen.name} has no faults")


@contextmanager
def _showing(stage: str) -> Iterator[None]:
    """A bar while the block runs: restarting daemons takes seconds."""
    from rocelab.base.progress import Progress

    with progress_bars() as progress:
        progress(Progress(stage, 0, 1))
        yield


@app.command("kinds")
def list_kinds(json: JsonOption = False) -> None:
    """Explain every kind of fault and its keys."""
    from dataclasses import asdict

    from rocelab.faults.asked import kinds

    if json:
        write_json([asdict(kind) for kind in kinds()])
        return
    for kind in kinds():
        say(f"{kind.name}\n    {kind.meaning}\n    {_usage(kind)}")
    say(
        "\nKeys in [ ] may be left out; ( ) has the default. Without lasts a fault stays until "
        "`rocelab fault restore`."
    )


def _usage(kind: FaultKind) -> str:
    words = []
    by_name = {key.name: key for key in kind.keys}
    for key in kind.keys:
        if key.name == "link":
            words.append(f"{_word(key)} or {_word(by_name['links'])}")
        elif key.name != "links":
            words.append(_word(key) if key.needed else f"[{_word(key)}]")
    return " ".join(words)


def _word(key: Key) -> str:
    return f"{key.name}={key.value}" + (f" ({key.default})" if key.default else "")
