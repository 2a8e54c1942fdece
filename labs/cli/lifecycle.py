"""Commands that bring labs up and down and say how they are: up, down, list, status."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from labs.cli.arguments import (
    ImageOption,
    JsonOption,
    LabArgument,
    OneRunningLab,
    RuntimeOption,
    need_root,
    running_lab,
)
from labs.cli.console import out, progress_bars, say, seconds_table, table, write_json
from labs.runtime.kind import RuntimeKind

if TYPE_CHECKING:
    from labs.status import LabStatus, NodeStatus

_SHOWN_SWITCHES = 40
_MB = 1e6


def up(
    lab: LabArgument,
    runtime: RuntimeOption = RuntimeKind.NETNS,
    image: ImageOption = None,
    json: JsonOption = False,
) -> None:
    """Bring a lab up; ends when every switch holds every route with its full ECMP width."""
    from labs.lab import Lab
    from labs.runtime.housing import housing_of

    chosen = Lab.planned(lab, housing_of(runtime, image))
    fabric = chosen.fabric
    with progress_bars() as progress:
        seconds = chosen.up(progress)
    if json:
        write_json(
            {
                "lab": chosen.name,
                "stages_s": dict(seconds),
                "total_s": sum(seconds.values()),
                "notes": chosen.notes,
            }
        )
        return
    for note in chosen.notes:
        say(f"note: {note}")
    out().print(seconds_table(seconds))
    say(
        f"lab {chosen.name} is up: {len(fabric.switches):,} switches, "
        f"{len(fabric.servers):,} servers, {len(fabric.sessions):,} BGP sessions"
    )


def down(
    lab: Annotated[
        str | None,
        typer.Argument(metavar="[LAB]", help="A lab's name or file.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every lab on this machine.")] = False,
) -> None:
    """Take a lab down, or what a killed command left of it. Needs the record only, no file."""
    from labs.errors import InputError, RocelabError
    from labs.runtime.record import recorded_labs
    from labs.runtime.teardown import take_down

    if every == (lab is not None):
        raise InputError("name a lab, or say --all", hint="`rocelab list` says what there is")
    need_root("taking a lab down")
    failure: RocelabError | None = None
    for name in recorded_labs() if lab is None else [_recorded_name(lab)]:
        was_there = name in recorded_labs()
        started = time.monotonic()
        try:
            with progress_bars() as progress:
                take_down(name, progress)
        except RocelabError as error:
            if not every:
                raise
            failure = error
            continue
        taken = time.monotonic() - started
        say(f"lab {name} is down ({taken:.2f} s)" if was_there else f"lab {name} was not up")
    if failure is not None:
        raise failure


def _recorded_name(text: str) -> str:
    """The name in a record wins over the catalog, so that `down` works without the file."""
    from labs.lab import Lab
    from labs.runtime.record import recorded_labs

    return text if text in recorded_labs() else Lab.planned(text).name


def list_labs(json: JsonOption = False) -> None:
    """List the labs that are up, coming up, or left behind by a command that was killed."""
    from labs.status import known_labs

    labs = known_labs()
    if json:
        write_json([asdict(lab) for lab in labs])
        return
    if not labs:
        say("no labs")
        return
    shown = table("", ("lab", "state", "runtime", "since", "nodes"), left=4)
    for lab in labs:
        since = ""
        if lab.started_unix_s is not None:
            since = datetime.fromtimestamp(lab.started_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        nodes = "" if lab.nodes is None else str(lab.nodes)
        shown.add_row(lab.name, lab.state.value, lab.runtime or "", since, nodes)
    out().print(shown)


def status(lab: OneRunningLab = None, json: JsonOption = False) -> None:
    """Say how a lab is: daemons, BGP sessions, routes at full width, memory. Exits 1 when it is
    not as planned."""
    from labs.status import read_status

    need_root("looking into a lab")
    state = read_status(running_lab(lab))
    if json:
        write_json(state.document())
    else:
        _print_status(state)
    if not state.converged:
        raise typer.Exit(1)


def _print_status(state: LabStatus) -> None:
    switches = [node for node in state.nodes if node.role.tier]
    faulty = [node for node in switches if not node.converged]
    listed = switches if len(switches) <= _SHOWN_SWITCHES else faulty[:_SHOWN_SWITCHES]
    if listed:
        shown = table("", ("switch", "role", "daemons", "sessions", "routes", "PSS MB"), left=3)
        for node in listed:
            shown.add_row(*_status_row(node), style="" if node.converged else "red")
        out().print(shown)
    servers = len(state.nodes) - len(switches)
    verdict = "converged" if state.converged else f"{len(faulty)} switches are not as planned"
    say(
        f"lab {state.lab}: {verdict}; {len(switches)} switches, {servers} servers, "
        f"{state.pss_bytes / _MB:.0f} MB PSS of daemons"
    )
    if state.faults:
        faults = ", ".join(f"{fault.number} ({fault.kind})" for fault in state.faults)
        say(f"broken on purpose, fault {faults}: `rocelab fault list {state.lab}`")


def _status_row(node: NodeStatus) -> tuple[str, ...]:
    daemons = " ".join(name if pid else f"{name}:DEAD" for name, pid in node.daemons.items())
    return (
        node.name,
        node.role.value,
        daemons,
        f"{node.sessions_established}/{node.sessions_expected}",
        f"{node.routes_complete}/{node.routes_expected}",
        f"{node.pss_bytes / _MB:.1f}",
    )
