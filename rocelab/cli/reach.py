"""`rocelab reach`: tests whether every NIC of a running lab reaches every other."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit
from rocelab.cli.arguments import JsonOption, OneRunningLab, running_lab
from rocelab.linux.rights import need_root
from rocelab.report.console import progress_bars, say, show_blocks, write_json
from rocelab.report.document import Table, columns

if TYPE_CHECKING:
    from rocelab.traffic.reachability import Reachability


MOST_ROWS = 40


def reach(
    lab: OneRunningLab = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            metavar="N",
            help="Test a sample of at most N pairs, the same each time, in which every NIC sends "
            "and receives if N is the number of NICs or more.",
            min=1,
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Send a packet from every NIC to every other server's, and list the lost ones.

    All pairs in one batch: seconds where there are hundreds of servers. More than 250,000
    pairs, those of 500 NICs, are refused: --pairs tests a sample. Refused while a drill or a
    job uses the lab, whose packets are counted. Exits 1 when a pair does not reach.
    """
    from rocelab.lab.inuse import Use, in_use
    from rocelab.record import LabFiles
    from rocelab.traffic.reachability import probe_reachability

    need_root("sending in a lab")
    chosen = running_lab(lab)
    using = in_use(LabFiles(chosen.name), "a probe of all pairs", Use.UNSENT)
    with using, progress_bars() as progress:
        reachability = probe_reachability(
            chosen.fabric, lambda name: chosen.node(name).netns, progress, most_pairs=pairs
        )
    if json:
        document = {"lab": chosen.name, **asdict(reachability)}
        if not reachability.segments:
            del document["segments"]
        write_json(document)
    else:
        print_reachability(chosen.name, reachability)
    if reachability.failed:
        raise typer.Exit(1)


def print_reachability(lab: str, reachability: Reachability) -> None:
    """Print the pairs that fail, with those of an unreachable NIC in one row, and the total."""
    from rocelab.traffic.reachability import failures

    rows = list(failures(reachability))
    if rows:
        head = columns(Unit.TEXT, "from", "does not reach")
        show_blocks(Table("", head, tuple(rows[:MOST_ROWS])))
        if len(rows) > MOST_ROWS:
            say(f"and {len(rows) - MOST_ROWS} more; --json has every pair")
    reached = reachability.pairs - len(reachability.failed)
    is_sample = reachability.pairs < reachability.all_pairs
    sample = f"; a sample of {reachability.all_pairs:,} pairs" if is_sample else ""
    within = " within tenants" if reachability.segments else ""
    say(
        f"lab {lab}: {reached:,} of {reachability.pairs:,} pairs of "
        f"{len(reachability.nics):,} NICs{within} reach ({reachability.took_s:.1f} s){sample}"
    )
