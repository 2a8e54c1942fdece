"""`rocelab te`: a lab's controller: its last rounds, utilisation by tier, entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit, share
from rocelab.cli.arguments import JsonOption, NetworkOption, OneRunningLab, running_lab
from rocelab.linux.rights import need_root
from rocelab.report.console import say, show_blocks, write_json
from rocelab.report.document import Column, Row, Table, columns

if TYPE_CHECKING:
    from rocelab.dataplane.controller.rounds import Round
    from rocelab.lab.lab import RunningLab

_SHOWN_ENTRIES = 20
_MS = 10**6
"""In nanoseconds."""


def te(
    lab: OneRunningLab = None,
    last: Annotated[
        int, typer.Option("--last", metavar="N", min=1, help="How many rounds to show.")
    ] = 10,
    bound: Annotated[
        bool, typer.Option("--bound", help="Also solve for the optimum that no placement can beat.")
    ] = False,
    network: NetworkOption = None,
    json: JsonOption = False,
) -> None:
    """Show what the controller of a lab with scheme te or resilient does."""
    from rocelab.dataplane.controller.rounds import read_rounds
    from rocelab.dataplane.steering.controller import ControllerFiles, controller_pid

    need_root("reading a lab's controller")
    chosen = running_lab(lab).network(network)
    files = chosen.runtime.files
    pid = controller_pid(files)
    rounds = read_rounds(ControllerFiles(files).rounds, last)
    optimum = _bound(chosen) if bound else None
    scheme = chosen.steering.read_scheme()
    entries = chosen.steering.read_entries() if scheme.has_entries else {}
    if json:
        from dataclasses import asdict

        write_json(
            {
                "lab": chosen.name,
                "scheme": scheme.model_dump(mode="json"),
                "process": pid,
                "optimum": optimum,
                "rounds": [asdict(te_round) for te_round in rounds],
                "entries": [
                    {**key._asdict(), "hash": value} for key, value in sorted(entries.items())
                ],
            }
        )
        return
    state = f"process {pid}" if pid is not None else "no process"
    say(f"lab {chosen.name}: scheme {scheme.kind}, controller: {state}")
    if optimum is not None:
        say(f"optimum for the demands as they are now: {share(optimum)} of the most used link")
    if not rounds:
        say("it has no controller: `rocelab scheme LAB te` starts one")
        return
    _print_rounds(rounds)
    _print_tiers(rounds[-1])
    if entries:
        rows = [
            (key.node, key.source, key.destination, key.source_port, f"{value:#x}")
            for key, value in sorted(entries.items())
        ]
        head = (
            *columns(Unit.TEXT, "switch", "source", "destination"),
            Column("port", Unit.NUMBER),
            Column("hash", Unit.FIGURE),
        )
        show_blocks(Table("entries", head, tuple(rows[:_SHOWN_ENTRIES]), names=3))
        if len(entries) > _SHOWN_ENTRIES:
            say(f"and {len(entries) - _SHOWN_ENTRIES} more: --json has them")


def _print_rounds(rounds: list[Round]) -> None:
    head = (
        *columns(Unit.TEXT, "at", "because of"),
        *columns(Unit.COUNT, "flows", "lost", "set", "removed"),
        *columns(Unit.NS, "collect", "engine", "program"),
        *columns(Unit.SHARE, "most used", "optimum"),
    )
    show_blocks(Table("last rounds", head, tuple(map(_round_row, rounds))))
    for problem in rounds[-1].problems:
        say(f"problem: {problem}")


def _round_row(te_round: Round) -> Row:
    from datetime import datetime

    at = datetime.fromtimestamp(te_round.started_unix_s).astimezone()
    times_ms = (te_round.collect_ms, te_round.engine_ms, te_round.program_ms)
    return (
        f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}",
        ", ".join(te_round.reasons),
        te_round.demands,
        te_round.lost,
        te_round.changed,
        te_round.removed,
        *(time_ms * _MS for time_ms in times_ms),
        te_round.max_utilisation,
        "" if te_round.lp_bound is None else te_round.lp_bound,
    )


def _print_tiers(last: Round) -> None:
    if not last.tiers:
        return
    head = (Column("links"), Column("count", Unit.COUNT), *columns(Unit.SHARE, "most used", "mean"))
    rows = ((name, use.links, use.maximum, use.mean) for name, use in last.tiers.items())
    show_blocks(Table("utilisation as placed", head, tuple(rows)))


def _bound(lab: RunningLab) -> float:
    """The least maximum utilisation for the published demands, over the present tables."""
    from rocelab.dataplane.steering.controller import ControllerFiles
    from rocelab.routes.demand import read_demands
    from rocelab.routes.network import FibNetwork
    from rocelab.routes.placing import lower_bound

    fabric = lab.fabric
    demands, _ = read_demands(fabric, ControllerFiles(lab.runtime.files).demands)
    fib_of = lab.read_fibs()
    fibs = {node.name: fib_of(node.name) for node in fabric.switches}
    return lower_bound(FibNetwork(fabric, fibs), demands)
