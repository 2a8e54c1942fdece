"""What `rocelab` says of itself: the overview, `help`, `version`, and help at any width."""

from __future__ import annotations

import pytest

from rocelab.cli.main import _COMMANDS
from rocelab.cli.remote import MEANT
from tests.unit.conftest import CommandLine, Outcome

LINES, COLUMNS = 24, 80


def test_without_words_it_names_every_command_on_one_screen(rocelab: CommandLine) -> None:
    outcome = rocelab()
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS
    assert set(_COMMANDS) <= set(outcome.out.replace(",", "").split())


@pytest.mark.parametrize("words", [(), ("plan",), ("drill", "run")])
def test_help_before_a_command_is_help_behind_it(
    rocelab: CommandLine, words: tuple[str, ...]
) -> None:
    asked, usual = rocelab("help", *words), rocelab(*words, "--help")
    assert (asked.code, asked.out) == (usual.code, usual.out) == (0, usual.out)


def test_help_of_no_command_says_so(rocelab: CommandLine) -> None:
    outcome: Outcome = rocelab("help", "nosuch")
    assert outcome.code == 2
    assert "No such command 'nosuch'" in outcome.err


def test_the_name_that_other_tools_give_a_command_leads_to_ours(rocelab: CommandLine) -> None:
    outcome = rocelab("stop", "zone-small")
    assert outcome.code == 2
    assert "Did you mean 'down'?" in outcome.err
    assert not set(MEANT) & set(_COMMANDS)
    for name in set(MEANT.values()):
        assert rocelab("help", *name.split()).code == 0


@pytest.mark.parametrize("word", ["version", "-V"])
def test_the_version_has_three_spellings(rocelab: CommandLine, word: str) -> None:
    assert rocelab(word).out == rocelab("--version").out


@pytest.mark.parametrize("words", [("simulate",), ("drill", "run")])
def test_paragraphs_of_help_are_lines_that_a_terminal_breaks(
    rocelab: CommandLine, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    text = rocelab("help", *words).out.split("─ Arguments")[0]
    *_, last = [line for line in text.splitlines()[2:-1] if "rocelab" not in line and line.strip()]
    assert last.rstrip().endswith(("Needs no root.", "nothing was measured."))
    assert len(last.rstrip()) > COLUMNS


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (("graph", "tiny", "--format", "mermiad"), "mermaid"),
        (("render", "tiny", "-o", "x", "--target", "containrlab"), "containerlab"),
        (("up", "tiny", "--frr-memory", "plan"), "plain"),
        (("up", "tiny", "--runtime", "dokcer"), "docker"),
        (("fault", "inject", "tiny", "carier-down"), "carrier-down"),
    ],
)
def test_a_mistyped_value_has_the_one_that_was_meant(
    rocelab: CommandLine, line: tuple[str, ...], meant: str
) -> None:
    outcome = rocelab(*line)
    assert outcome.code == 2
    assert f"did you mean {meant}?" in outcome.err


@pytest.mark.parametrize(
    ("line", "written"),
    [
        (("fault", "inject", "t", "carrier-down", "--link", "a:b"), "keys are written `link=a:b`"),
        (("fault", "inject", "t", "carrier-down", "--link=a:b", "--lasts", "3s"), "`link=a:b`"),
        (("fault", "inject", "t", "--link", "a:b", "carrier-down"), "`link=a:b`"),
        (("fault", "inject", "t", "flap", "link=a:b", "--lasts"), "`lasts=VALUE`"),
        (("fault", "inject", "t", "carrier-down", "--jsn"), "did you mean --json?"),
        (("scheme", "t", "flowlet", "--gap", "512us"), "keys are written `--set gap=512us`"),
    ],
)
def test_a_key_that_is_written_as_an_option_has_how_it_is_written(
    rocelab: CommandLine, line: tuple[str, ...], written: str
) -> None:
    outcome = rocelab(*line)
    assert outcome.code == 2
    assert written in outcome.err
    assert line[0] in outcome.err.partition(":")[0]


def test_a_nic_is_named_as_everywhere_and_never_taken_for_a_node(rocelab: CommandLine) -> None:
    line = ("path", "zone-1-1", "--dst", "srv2-1", "--sport", "5", "--src")
    assert rocelab(*line, "srv1-1:2").out == rocelab(*line, "srv1-1", "--src-nic", "2").out != ""
    refused = rocelab(*line, "srv1-1:5")
    assert refused.code == 2
    assert "srv1-1 has no NIC 5\n  hint: its NICs are 1 to 2" in refused.err
