"""`rocelab scheme`: shows or switches how a running lab spreads flows over equal paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit
from rocelab.cli.arguments import (
    JsonOption,
    NetworkOption,
    RunningLabArgument,
    complete_schemes,
    running_lab,
)
from rocelab.linux.rights import need_root
from rocelab.report.console import progress_bars, say, show_blocks, write_json
from rocelab.report.document import Column, Table, columns

if TYPE_CHECKING:
    from rocelab.labfile.schemes.scheme_spec import SchemeSpec

_SHOWN_SWITCHES = 40
_COUNTED = ("steered", "hits", "misses", "flowlets", "changes")


def scheme(
    lab: RunningLabArgument,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCHEME]",
            help="The scheme to switch to; without it, show the one that runs.",
            autocompletion=complete_schemes,
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of the scheme, such as gap=512us.",
            show_default=False,
        ),
    ] = None,
    network: NetworkOption = None,
    json: JsonOption = False,
) -> None:
    """Show how a lab spreads flows over equal paths, or switch it while traffic runs."""
    from rocelab.base.errors import InputError
    from rocelab.lab.inuse import Use, in_use
    from rocelab.record import LabFiles

    need_root("the scheme of a lab that is up")
    chosen = running_lab(lab).network(network)
    if kind is not None:
        wanted = asked_scheme(kind, settings or [])
        using = in_use(LabFiles(chosen.name), "a change of scheme", Use.UNSENT)
        with using, chosen.locked(), progress_bars() as progress:
            chosen.steering.set_scheme(wanted, progress)
    elif settings:
        raise InputError("--set needs a scheme to set it for")
    runs = chosen.steering.read_scheme()
    counters = chosen.steering.counters()
    if json:
        from dataclasses import asdict

        write_json(
            {
                "lab": chosen.name,
                "scheme": runs.model_dump(mode="json"),
                "counters": [
                    {"node": name} | asdict(counted) for name, counted in counters.items()
                ],
            }
        )
        return
    keys = runs.model_dump(mode="json", exclude={"kind"})
    text = "".join(f", {key} {value}" for key, value in keys.items())
    say(f"lab {chosen.name}: {runs.kind}{text}")
    busy = {
        name: counted for name, counted in counters.items() if counted.steered or counted.misses
    }
    if kind is None and busy:
        rows = [
            (name, *(getattr(counts, key) for key in _COUNTED)) for name, counts in busy.items()
        ]
        head = (Column("switch"), *columns(Unit.COUNT, *_COUNTED))
        show_blocks(Table("RoCE packets", head, tuple(rows[:_SHOWN_SWITCHES])))
        if len(busy) > _SHOWN_SWITCHES:
            say(f"and {len(busy) - _SHOWN_SWITCHES} more switches: --json has them")


def asked_scheme(kind: str, settings: list[str]) -> SchemeSpec:
    """The scheme of a command line. Raises SpecError as for a file, InputError for a bare key."""
    from rocelab.base.errors import InputError
    from rocelab.labfile.load import validate
    from rocelab.labfile.schemes.scheme_spec import SchemeChoice
    from rocelab.labfile.source import parse_source

    lines = [f"  kind: {kind}"]
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting} has no value", hint="write KEY=VALUE")
        lines.append(f"  {key}: {value}")
    text = "scheme:\n" + "\n".join(lines)
    return validate(parse_source(text, "command line"), SchemeChoice).scheme
