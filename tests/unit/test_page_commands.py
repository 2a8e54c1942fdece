"""Every command that the documentation names is one of the application, with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from typer.core import TyperGroup

from rocelab.cli.main import command_line
from tests.machines.typed import commands

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "[!.]*/*.md", "docs/*/*.md", "tests/*/README.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # which names what was
)
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|\[|\.\.\.")
AS_THEY_ARE = {"exec", "ping"}
"""Commands that pass on the following words."""


def named(page: str) -> Iterator[tuple[str, bool]]:
    """A page's command lines of `rocelab`, and whether each is complete: a line to type, without
    placeholders. In a sentence a command may be shortened."""
    text = (ROOT / page).read_text()
    typed = {command.text for command in commands(page, text)}
    inline = set(re.findall(r"`((?:sudo )?(?:\.venv/bin/)?rocelab [^`]+)`", text))
    for line in sorted(typed | inline):
        for part in re.split(r" && | \| | > |; ", line):
            program, _, rest = part.partition("rocelab ")
            if program in ("", "sudo ", ".venv/bin/", "sudo .venv/bin/"):
                yield rest, line in typed and not PLACEHOLDER.search(rest)


def problem(line: str, *, complete: bool) -> str | None:
    """The part of a command line that the application would reject."""
    group = command_line()
    words = shlex.split(line.replace("\\|", "|"))
    if words[:1] in (["help"], ["version"]):
        return None  # other words for --help and --version
    options = {name for parameter in group.params for name in parameter.opts}
    while words and words[0].startswith("-"):
        if words[0] not in options:
            return f"no option {words[0]} before a command"
        words = words[2:] if words[0] == "--host" else words[1:]
    command = None
    while words and command is None:
        if PLACEHOLDER.fullmatch(words[0]) or words[0].isupper():
            return None
        entry = group.commands.get(words[0])
        if entry is None:
            return f"no command {words[0]}"
        words = words[1:]
        if isinstance(entry, TyperGroup):
            group = entry
        else:
            command = entry
    if command is None or command.name in AS_THEY_ARE:
        return None
    if complete:
        try:
            command.make_context(command.name, list(words))
        except Exception as error:
            return str(error)
    known = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    known |= {"--help", "-h"}
    own_words = takewhile(lambda word: word != "--", words)  # a user's program follows
    matches = (re.match(r"\[?(--?[a-z][a-z-]*)", word) for word in own_words)
    unknown = [link[1] for link in matches if link is not None and link[1] not in known]
    return f"{command.name} has no {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES)
def test_the_application_takes_every_command_of_a_page(page: str) -> None:
    problems = {line: problem(line, complete=complete) for line, complete in named(page)}
    assert {line: what for line, what in problems.items() if what} == {}


@pytest.mark.parametrize(
    ("line", "complete"),
    [
        ("up zone-small --fast", False),
        ("upp zone-small", False),
        ("path zone-small --src a", True),
        ("drill run link-flap --repeat many", True),
        ("--hots vm list", False),
    ],
)
def test_a_command_that_the_application_does_not_take_is_found(line: str, complete: bool) -> None:
    assert problem(line, complete=complete)
