"""Text from other sources on a terminal is printed as plain text."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup
from typer.main import get_command

from rocelab.base.quantities import Unit
from rocelab.cli.app import run
from rocelab.report.console import err, note, out, say, show_blocks
from rocelab.report.document import Column, Table, columns
from rocelab.report.drill import drill_document
from rocelab.report.renderers.terminal import print_blocks, print_document
from tests.helpers import report_sample

HOSTILE = "\x1b]52;c;UFdO\x07\x1b[31m\x9b5n[/red] [bold]x[/nope] :smile: \u202e\ud800"
SHOWN = r"\x1b]52;c;UFdO\x07\x1b[31m\x9b5n[/red] [bold]x[/nope] :smile: \u202e\ud800"


def titled(console: Console) -> None:
    print_blocks([Table(HOSTILE, (Column("a"),), (("x" * 200,),), caption=HOSTILE)], console)


def in_a_cell(console: Console) -> None:
    table = Table("", columns(Unit.TEXT, "a", HOSTILE), ((HOSTILE, HOSTILE),))
    print_blocks([table], console)


def in_the_title_of_a_drill(console: Console) -> None:
    spec = report_sample.drill()
    result = report_sample.result(report_sample.repeat(1), spec=spec)
    print_document(drill_document(replace(result, title=HOSTILE)), console)


@pytest.mark.parametrize(
    "show",
    [
        lambda console: console.print(HOSTILE),
        lambda console: console.print(Text(HOSTILE)),
        lambda console: console.print(HOSTILE, style="red", soft_wrap=True),
        titled,
        in_a_cell,
        in_the_title_of_a_drill,
    ],
)
@pytest.mark.parametrize("console", [out, err])
def test_nothing_in_data_is_obeyed_by_the_terminal_or_taken_for_markup(
    console: Callable[[], Console],
    show: Callable[[Console], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(console())

    written = "".join(capsys.readouterr())
    assert not [char for char in written if not char.isprintable() and char != "\n"]
    folded = "".join(line.strip() for line in written.splitlines()).replace(" ", "")
    assert r"]52;c;UFdO" in folded
    assert r"\x1b[31m\x9b5n[/red][bold]x[/nope]:smile:\u202e\ud800" in folded


def test_lines_for_a_person_show_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"one\n{HOSTILE}")
    note(HOSTILE)

    assert capsys.readouterr() == (f"one\n{SHOWN}\n", f"note: {SHOWN}\n")


def test_columns_stay_in_line_beside_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    head = (Column("name"), Column("count", Unit.COUNT))
    show_blocks(Table("", head, (("\x1b[31mred", 1), ("plain", 2))))

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert len({len(line) for line in lines[-2:]}) == 1, lines


def test_the_traceback_of_a_defect_does_not_reach_the_terminal_raw(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = typer.Typer()
    app.callback()(lambda: None)

    @app.command()
    def fail() -> None:
        raise KeyError(HOSTILE) from RuntimeError(HOSTILE)

    group = get_command(app)
    assert isinstance(group, TyperGroup)
    with pytest.raises(SystemExit):
        run(group, ["fail"])

    assert "\x1b" not in capsys.readouterr().err


def test_a_character_that_the_locale_lacks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("show")(lambda: say("srv1-1 \N{RIGHTWARDS ARROW} srv2-1"))
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    with pytest.raises(SystemExit) as ended:
        run(group, ["show"])
    assert (ended.value.code, written.getvalue()) == (0, b"srv1-1 ? srv2-1\n")
