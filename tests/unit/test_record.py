"""Recordings of a terminal: their events in order, and a still that loads nothing."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs import record as module
from docs.record import COLUMNS, ROWS, SESSION, Output, asciicast, main, record, still

SCRIPT = r"""
import os, sys
print(f"\x1b[32m{11 * 11}\x1b[0m", os.get_terminal_size(1).columns, flush=True)
print(6 * 7, file=sys.stderr)
"""
LINES = (shlex.join([sys.executable, "-c", SCRIPT]), "echo end")


@pytest.fixture(scope="module")
def recording() -> tuple[Output, ...]:
    made = record(LINES)
    assert made is not None
    return made


def test_the_replay_has_what_was_typed_and_written_to_either_stream_in_order(
    recording: tuple[Output, ...],
) -> None:
    header, *events = map(json.loads, asciicast(recording).splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, COLUMNS, ROWS)
    assert {kind for _, kind, _ in events} == {"o"}
    assert [text for _, _, text in events] == [piece.text for piece in recording]
    # Of two terminals that have something to read nobody knows which was written first.
    to_stdout, to_stderr = (
        "".join(piece.text for piece in recording if piece.is_stdout == is_stdout)
        for is_stdout in (True, False)
    )
    first, second = (f"\x1b[1m# {line}\x1b[0m\r\n" for line in LINES)
    assert to_stdout == f"{first}\x1b[32m121\x1b[0m {COLUMNS}\r\n{second}end\r\n"
    assert to_stderr == "42\r\n"
    assert all(
        piece.is_stdout for piece in recording[[piece.text for piece in recording].index(second) :]
    )
    times = [seconds for seconds, _, _ in events]
    assert times == sorted(times)


def test_the_still_has_stdout_in_its_colours_and_loads_nothing(
    recording: tuple[Output, ...],
) -> None:
    svg = still(recording)
    texts = "".join(ElementTree.fromstring(svg).itertext())
    assert f"121\N{NO-BREAK SPACE}{COLUMNS}" in texts.replace("\n", "")
    assert "42" not in texts
    assert "url(" not in svg.replace("url(#", "")
    assert set(re.findall(r"https?://[^\s\"<>]*", svg)) <= {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
    }


def test_of_a_session_in_which_a_command_fails_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "SESSION", ("false", f"touch {tmp_path}/undone"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    # What comes later undoes what came before.
    assert [path.name for path in tmp_path.iterdir()] == ["undone"]


def test_the_files_of_the_tour_are_of_the_session() -> None:
    docs = Path(module.__file__).parent
    _, *events = map(json.loads, (docs / "session.cast").read_text().splitlines())
    typed = re.findall(r"\x1b\[1m# (.*?)\x1b", "".join(text for _, _, text in events))
    assert tuple(typed) == SESSION
    texts = "".join(ElementTree.parse(docs / "session.svg").getroot().itertext())
    for line in SESSION:
        assert f"# {line}".replace(" ", "\N{NO-BREAK SPACE}") in texts
    tour = (docs / "tour.md").read_text()
    assert "(session.svg)" in tour
    assert "docs/session.cast" in tour
