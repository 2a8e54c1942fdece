"""The command of campaigns: measures studies, or renders pages from the data that is there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from bench.campaign.guard import busy_cpus
from bench.campaign.pages import files_of, rendered
from bench.campaign.run import Campaign
from bench.campaign.store import Store
from bench.campaign.study import Study
from bench.studies import MAIN, PUBLISHED, STUDIES
from rocelab import InputError, RocelabError
from rocelab.base.interruption import ending

RESULTS = Path("results/bench")


def study_of(name: str) -> Study:
    """The study of that name. Raises InputError if there is none."""
    if name not in STUDIES:
        raise InputError(f"there is no study {name}", hint=f"studies are {', '.join(STUDIES)}")
    study: Study = import_module(STUDIES[name]).STUDY
    return study


def run(*names: str) -> None:
    """A command that measures these studies, with the arguments of this process."""
    app = typer.Typer(add_completion=False)
    app.command()(main)
    with ending():
        app([*names, *sys.argv[1:]])


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="STUDY...", help=f"[{' '.join(MAIN)}]")
    ] = None,
    only: Annotated[str, typer.Option(help="only points whose name fits this glob")] = "*",
    turns: Annotated[
        int | None, typer.Option(min=1, help="of each point, instead of the study's")
    ] = None,
    again: Annotated[bool, typer.Option(help="forget what an earlier run measured")] = False,
    listed: Annotated[bool, typer.Option("--list", help="list points, measured or not")] = False,
    render: Annotated[bool, typer.Option(help="only make the pages, of the data there")] = False,
    busy: Annotated[bool, typer.Option(help="also beside other work of the machine")] = False,
    results: Annotated[Path, typer.Option(help="folder of points until all have turns")] = RESULTS,
) -> None:
    """Measure studies and write their data and pages to bench/; continue an earlier run that ended
    early. With --only or fewer --turns than the study's the page is in the folder of points."""
    console = Console(stderr=True, soft_wrap=True)
    failed = False
    try:
        for study in map(study_of, names or (PUBLISHED if render else STUDIES if listed else MAIN)):
            campaign = Campaign(study, Store(results / study.name), only, turns)
            if busy:
                campaign = replace(campaign, guard=busy_cpus)
            if render:
                _write(rendered(study), study.folder)
            elif listed:
                _list(campaign)
            else:
                failed |= not _measured(campaign, console, again=again)
    except RocelabError as error:
        console.print(str(error), style="red", markup=False)
        sys.exit(error.exit_code)
    sys.exit(1 if failed else 0)


def _list(campaign: Campaign) -> None:
    print(f"{campaign.study.name}: {campaign.study.about}")
    for series, names in campaign.series:
        for name in names:
            result = campaign.store.point(name)
            state = result.failed or result.missing or f"{len(result.samples)} measured"
            print(f"  {name}, {campaign.wanted(series)} turns: {state}")


def _measured(campaign: Campaign, console: Console, *, again: bool) -> bool:
    """Measure a study and write its page; False where a point failed."""
    study, store = campaign.study, campaign.store
    if again:
        store.clear()
    start = store.start()
    if start is not None:
        since = dict(start.environment).get("started", "an earlier run")
        console.print(f"{study.name}: continues what is in {store.folder}, of {since}")

    with console.status(study.name) as status:
        campaign.measure(lambda line: status.update(f"{study.name}, {escape(line)}"))
    failures = campaign.failures
    for name, why in failures.items():
        console.print(f"{study.name}, {name}: {why}", style="red", markup=False)
    if failures:
        console.print("the same command measures them again, and nothing else")
        return False
    whole = campaign.is_whole
    if not whole and not study.is_partial:
        console.print(f"{study.name}: its pages want all points; `--list` shows those there are")
        return True
    folder = study.folder if whole else store.folder
    files = files_of(study, campaign.document())
    if study.is_published or not whole:
        _write(files, folder)
    if whole:
        store.clear()
    for name, text in files.items():
        if name == f"{study.stem}.md":
            print(text)
        elif study.is_published:
            print(folder / name)
    return True


def _write(files: Mapping[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
