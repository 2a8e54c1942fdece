"""`rocelab reach`: tests whether every NIC of a running lab reaches every other."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit
from rocelab.base.wording import counted
from rocelab.cli.arguments import JsonOption, OneRunningLab, complete_network, running_lab
from rocelab.linux.rights import need_root
from rocelab.report.console import progress_bars, say, show_blocks, write_json
from rocelab.report.document import Table, columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="NAME",
            help="Of a lab with several networks this one alone; by default each of them, and that "
            "none is reached from another.",
            autocompletion=complete_network,
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Send a packet from every NIC to every other server's, and list the lost ones.

    All pairs in one batch: seconds where there are hundreds of servers. More than 250,000
    pairs, those of 500 NICs, are refused: --pairs tests a sample. Refused while a drill or a
    job uses the lab, whose packets are counted. Exits 1 when a pair does not reach, or when a
    NIC of one network reaches one of another.
    """
    from rocelab.lab.inuse import Use, in_use
    from rocelab.record import LabFiles
    from rocelab.traffic.reachability import probe_crossings, probe_reachability

    need_root("sending in a lab")
    chosen = running_lab(lab)
    fabric = chosen.fabric if network is None else chosen.fabric.network(network)
    using = in_use(LabFiles(chosen.name), "a probe of all pairs", Use.UNSENT)

    def netns_of(name: str) -> Path:
        return chosen.node(name).netns

    with using, progress_bars() as progress:
        by_network = {
            part.network_name: probe_reachability(part, netns_of, progress, most_pairs=pairs)
            for part in fabric.networks
        }
        crossed = probe_crossings(fabric, netns_of, progress) if fabric.parts else ()
    if json:
        write_json(_document(chosen.name, by_network, crossed))
    else:
        for name, reachability in by_network.items():
            print_reachability(chosen.name, reachability, name)
        _print_crossings(by_network, crossed)
    if crossed or any(reachability.failed for reachability in by_network.values()):
        raise typer.Exit(1)


def _document(
    lab: str,
    by_network: Mapping[str | None, Reachability],
    crossed: Sequence[tuple[str, str]],
) -> dict[str, object]:
    """Of a lab with one network its result, else that of each."""
    documents = {name: asdict(reachability) for name, reachability in by_network.items()}
    for document in documents.values():
        if not document["segments"]:
            del document["segments"]
    if None in documents:
        return {"lab": lab, **documents[None]}
    return {"lab": lab, "networks": documents, "crossed": crossed}


def _print_crossings(
    by_network: Mapping[str | None, Reachability], crossed: Sequence[tuple[str, str]]
) -> None:
    if len(by_network) < 2:
        return
    if crossed:
        head = columns(Unit.TEXT, "from", "reaches")
        show_blocks(Table("Between networks", head, tuple(crossed[:MOST_ROWS])))
        say(f"{counted(len(crossed), 'pair')} of NICs of different networks reach")
    else:
        say("no NIC reaches one of another network")


def print_reachability(lab: str, reachability: Reachability, network: str | None = None) -> None:
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
    where = "" if network is None else f", network {network}"
    within = " within tenants" if reachability.segments else ""
    say(
        f"lab {lab}{where}: {reached:,} of {reachability.pairs:,} pairs of "
        f"{len(reachability.nics):,} NICs{within} reach ({reachability.took_s:.1f} s){sample}"
    )
