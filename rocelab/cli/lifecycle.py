"""Commands that bring labs up and down and show their state: up, down, list, status."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit, size
from rocelab.base.wording import counted
from rocelab.cli.arguments import (
    JsonOption,
    LabArgument,
    OneRunningLab,
    complete_running,
    lab_file,
    running_lab,
)
from rocelab.cli.options import takes_options
from rocelab.cli.tenants import print_segments
from rocelab.lab.kind import UpOptions
from rocelab.linux.rights import need_root
from rocelab.report.console import note, progress_bars, say, seconds_table, show_blocks, write_json
from rocelab.report.document import Column, Row, Table, Tone, Toned, columns
from rocelab.routing.frr.kind import FrrMemory

if TYPE_CHECKING:
    from rocelab.dataplane.pfc.overview import ClassOverview, LosslessOverview
    from rocelab.lab.differences import Difference
    from rocelab.lab.lab import Lab, RunningLab
    from rocelab.lab.status import KnownLab, LabStatus, NodeStatus

_SHOWN_SWITCHES = 40


@takes_options()
def up(
    lab: LabArgument,
    *,
    options: UpOptions,
    reuse: Annotated[
        bool,
        typer.Option("--reuse", help="Keep a lab that is already up, as requested and healthy."),
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Leave a lab up that does not converge. The exit code is 1 all the same."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Bring a lab up; ends when every switch holds every route with its full ECMP width."""
    from rocelab.base.errors import InputError
    from rocelab.lab.lab import Lab
    from rocelab.lab.providers import provider_of
    from rocelab.observe.evidence.unconverged import keep_unconverged
    from rocelab.planning.routes import unreachable

    if reuse and (options.image is not None or options.frr is not None):
        raise InputError("--reuse does not compare images and FRRs", "leave --image and --frr out")
    provider = provider_of(options.runtime, options.image, options.frr, options.frr_memory)
    chosen = Lab.planned(lab_file(lab), provider, dilation=options.dilation)
    reused = reuse and chosen.is_running
    if reused:
        running = _check_reusable(chosen, options.frr_memory)
    else:
        keep_unconverged(chosen)
        with progress_bars() as progress:
            running = chosen.up(progress, keep=keep)
    seconds = running.stage_seconds
    if json:
        write_json(
            {
                "lab": chosen.name,
                "stages_s": dict(seconds),
                "total_s": sum(seconds.values()),
                "notes": running.notes,
                "reused": reused,
            }
        )
        return
    if reused:
        say(f"lab {chosen.name} is up as asked, and healthy: nothing was changed")
        return
    for text in running.notes:
        say(f"note: {text}")
    show_blocks(seconds_table(seconds))
    fabric = running.fabric
    for text in unreachable(fabric):
        note(text)
    say(
        f"lab {chosen.name} is up: {len(fabric.switches):,} switches, "
        f"{len(fabric.servers):,} servers, {sum(fabric.session_ends.values()) // 2:,} BGP sessions"
    )


def _check_reusable(planned: Lab, frr_memory: FrrMemory | None) -> RunningLab:
    """The running lab. Raises InputError if it is not the planned one, ExpectationError if its
    state is no longer as planned."""
    from rocelab.base.errors import ExpectationError, InputError
    from rocelab.base.wording import listed
    from rocelab.lab.lab import RunningLab, as_it_runs
    from rocelab.lab.status import read_status
    from rocelab.labfile.model import differing_keys

    need_root("looking into a lab")
    running = RunningLab.open(planned.name)
    differing = differing_keys(as_it_runs(planned.fabric.spec), running.fabric.spec)
    if "scheme" not in differing and not running.has_own_scheme:
        differing = (*differing, "scheme")
    if planned.provider.kind != running.runtime.provider.kind:
        differing = (*differing, "runtime")
    again = f"take it down with `rocelab down {planned.name}`, then bring it up"
    if differing:
        raise InputError(
            f"lab {planned.name} is up, but not as asked: {listed(differing, 'and')} "
            f"differ{'s' if len(differing) == 1 else ''}",
            again,
        )
    running.check_memory(frr_memory)
    state = read_status(running)
    if state.faults or not state.converged:
        wrong = "broken on purpose" if state.faults else "not converged"
        raise ExpectationError(
            f"lab {planned.name} is up and {wrong}",
            f"`rocelab status {planned.name}` says more; {again}",
        )
    return running


def down(
    lab: Annotated[
        str | None,
        typer.Argument(
            metavar="[LAB]",
            help="A lab's name or file.",
            autocompletion=complete_running,
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every lab on this machine, also those of other users.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --all: do not ask. Needed without a terminal.")
    ] = False,
) -> None:
    """Stop a lab, or clean up what an interrupted command left behind. Needs only the record,
    no file.

    If the lab is not up, nothing happens and the exit code is 0.
    """
    from rocelab.base.errors import InputError, RocelabError
    from rocelab.base.wording import did_you_mean
    from rocelab.lab.names import name_of
    from rocelab.lab.teardown import take_down
    from rocelab.record import recorded_labs

    if every == (lab is not None):
        raise InputError("name a lab, or use --all", hint="`rocelab list` shows the labs")
    need_root("taking a lab down")
    failure: RocelabError | None = None
    if every and not (yes or _is_agreed()):
        return
    for name in recorded_labs() if lab is None else [name_of(lab)]:
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
        if was_there:
            say(f"lab {name} is down ({taken:.2f} s)")
            continue
        say(f"lab {name} is not up")
        meant = did_you_mean(name, recorded_labs())
        if meant is not None:
            note(meant)
    if failure is not None:
        raise failure


def _is_agreed() -> bool:
    """Show all labs and ask the user whether to take every one down.

    Raises InputError without a terminal.
    """
    from rocelab.base.errors import InputError
    from rocelab.lab.status import known_labs

    labs = known_labs()
    if not labs:
        say("no labs")
        return False
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        names = ", ".join(lab.name for lab in labs)
        raise InputError(
            f"--all takes down {len(labs)} labs, also those of other users: {names}",
            hint="name one of them, or use `rocelab down --all --yes`",
        )
    _print_labs(labs)
    if typer.confirm(f"Take down {'this lab' if len(labs) == 1 else f'these {len(labs)} labs'}?"):
        return True
    say("nothing was taken down")
    return False


def list_labs(json: JsonOption = False) -> None:
    """List the labs that are up, coming up, or left behind by a command that was killed."""
    from rocelab.lab.status import known_labs

    labs = known_labs()
    if json:
        write_json([asdict(lab) for lab in labs])
        return
    if not labs:
        say("no labs")
        return
    _print_labs(labs)


def _print_labs(labs: Sequence[KnownLab]) -> None:
    from rocelab.lab.status import Presence

    rows = tuple(
        (
            lab.name,
            lab.state.value,
            lab.runtime or "",
            "" if lab.started_unix_s is None else _date(lab.started_unix_s),
            "" if lab.nodes is None else lab.nodes,
        )
        for lab in labs
    )
    texts = columns(Unit.TEXT, "lab", "state", "runtime", "since")
    show_blocks(Table("", (*texts, Column("nodes", Unit.COUNT)), rows))
    for lab in labs:
        if lab.state is Presence.UNREADABLE:
            say(f"lab {lab.name}: {lab.problem}")
        elif lab.problem is not None:
            say(f"{lab.problem}; `rocelab down {lab.name}` removes what is left of it")
        elif lab.state is Presence.RUNNING and lab.nodes is None:
            say(f"lab {lab.name} is up as its record says: only root sees whether its nodes exist")


def status(lab: OneRunningLab = None, json: JsonOption = False) -> None:
    """Show lab health: daemons, BGP sessions, ECMP routes, memory. Exits 1 when the lab is not
    as planned.

    What differs from the plan is listed: missing routes, routes that are not planned, changed
    configuration of FRR, settings. Routes and configuration that somebody added do not make the
    exit code 1 while the lab works.
    """
    from rocelab.lab.differences import read_differences
    from rocelab.lab.status import read_status

    need_root("looking into a lab")
    chosen = running_lab(lab)
    state = read_status(chosen)
    differences = read_differences(chosen)
    if json:
        write_json({**state.document(), "differences": [asdict(part) for part in differences]})
    else:
        _print_differences(differences)
        _print_status(state)
    if not state.converged:
        raise typer.Exit(1)


def _print_differences(differences: Sequence[Difference]) -> None:
    for difference in differences[:_SHOWN_SWITCHES]:
        say(str(difference))
    more = len(differences) - _SHOWN_SWITCHES
    if more > 0:
        say(f"and {more:,} more differences: see --json")


def _print_status(state: LabStatus) -> None:
    from rocelab.lab.settings import sentences
    from rocelab.planning.fabric import RouteBasis

    switches = [node for node in state.nodes if node.role.tier]
    faulty = [node for node in switches if not node.converged]
    listed = switches if len(switches) <= _SHOWN_SWITCHES else faulty[:_SHOWN_SWITCHES]
    if listed:
        of_networks = ("network",) if listed[0].networks else ()
        head = (
            *columns(Unit.TEXT, "switch", *of_networks, "role", "daemons"),
            *columns(Unit.FIGURE, "sessions", "routes"),
            Column("PSS", Unit.BYTES),
        )
        show_blocks(Table("", head, tuple(map(_status_row, listed))))
    for node in listed:
        for problem in node.problems:
            say(problem)
    if state.lossless is not None:
        _print_lossless(state.lossless)
    print_segments(state)
    for sentence in sentences(state.deviations):
        say(sentence)
    servers = len(state.nodes) - len(switches)
    if state.converged:
        verdict = "converged"
    elif faulty:
        verdict = f"{len(faulty)} switches are not as planned"
    elif not state.tenants_whole:
        verdict = "tenants are not as planned"
    elif state.broken_processes:
        verdict = "; ".join(state.broken_processes)
    else:
        verdict = "kernel settings are not as planned"
    say(
        f"lab {state.lab}: {verdict}; {counted(len(switches), 'switch', 'switches')}, "
        f"{counted(servers, 'server')}, "
        f"{size(state.pss_bytes)} PSS of daemons"
    )
    if state.basis is not RouteBasis.PLANNED:
        say(f"What it is compared with: {state.basis.text}.")
    sizes = ", ".join(f"{role} {size(pss_bytes)}" for role, pss_bytes in state.pss_of_roles.items())
    said = (f"FRR's memory: {state.frr_memory}",) if state.frr_memory else ()
    say("; ".join((*said, *((f"a switch: {sizes}",) if sizes else ()))))
    if state.faults:
        faults = ", ".join(f"{fault.number} ({fault.kind})" for fault in state.faults)
        say(f"injected fault {faults}: `rocelab fault list {state.lab}`")
        for fault in state.faults:
            if fault.missing is not None:
                say(f"fault {fault.number} is of {fault.missing}, which is not installed any more")


def _print_lossless(lossless: LosslessOverview) -> None:
    involved = sorted(
        (lossless_class for lossless_class in lossless.classes if lossless_class.is_involved),
        key=lambda lossless_class: lossless_class.counters.paused_ns,
        reverse=True,
    )
    if involved:
        rows = [_lossless_row(one, lossless.dilation) for one in involved]
        table = Table(
            "Lossless classes: ports that paused or were paused",
            (
                Column("port"),
                Column("class", Unit.NUMBER),
                *columns(Unit.COUNT, "rx pause", "tx pause", "transitions"),
                *columns(Unit.NS, "paused, lab", "paused, modelled", "longest, modelled"),
                Column("headroom max", Unit.BYTES),
                *columns(Unit.COUNT, "discards", "late", "watchdog"),
            ),
            tuple(rows[:_SHOWN_SWITCHES]),
            caption="(now): it is paused",
        )
        show_blocks(table)
        if len(involved) > _SHOWN_SWITCHES:
            say(f"and {len(involved) - _SHOWN_SWITCHES} more ports and classes: see --json")
    elif lossless.works:
        say("lossless classes: no pauses so far")
    if not lossless.is_alive:
        say("lossless classes: the PFC process does not run, so nothing is paused")
    if lossless.problem is not None:
        say(f"lossless classes: {lossless.problem}")


def _lossless_row(port: ClassOverview, dilation: float) -> Row:
    counters = port.counters
    name = f"{port.port}{' (now)' if counters.is_paused else ''}"
    lost = counters.dropped_packets or counters.watchdog_fired
    return (
        Toned(name, Tone.BAD if lost else Tone.PLAIN),
        port.traffic_class,
        counters.pauses_received,
        counters.pauses_sent,
        counters.transitions,
        counters.paused_ns,
        counters.paused_ns / dilation,
        counters.longest_ns / dilation,
        counters.headroom_max,
        counters.dropped_packets,
        counters.late_packets,
        counters.watchdog_fired,
    )


def _date(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _status_row(node: NodeStatus) -> Row:
    daemons = " ".join(name if pid else f"{name}:DEAD" for name, pid in node.daemons.items())
    return (
        Toned(node.name, Tone.PLAIN if node.converged else Tone.BAD),
        *node.networks,
        node.role.name,
        daemons,
        f"{node.sessions_established}/{node.sessions_expected}",
        f"{node.routes_complete}/{node.routes_expected}",
        node.pss_bytes,
    )
