"""Extracts the commands and the Python to type from the text of a documentation page.

A command is a line of a fenced block without a language that begins with a program's name; text
after two spaces and # is a comment. In a table it is a row's first code that begins with `rocelab`
or `make`. Python is a fenced block of that language. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

PROGRAMS = (
    *("make", "rocelab", "sudo", "ssh", "docker", "python", "pip", "source", "git", "."),
    *(".venv/bin/rocelab", ".venv/bin/python", "./setup.sh"),
)
"""Programs that a command of a page begins with."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A command of a page, without its optional parts, or a block of Python."""

    page: str
    line: int
    text: str


def commands(page: str, text: str) -> list[Typed]:
    """Every command of a page, in its order."""
    rows = []
    for number, line, fenced in _lines(text):
        command = _in_block(line) if fenced == "" else None
        if fenced is None:
            command = _in_table(line)
        if command is not None:
            rows.append(Typed(page, number, command))
    return rows


def shown_blocks(text: str) -> list[str]:
    """Fenced blocks without a language and without a command: the output of commands."""
    blocks = (block for _, block in _blocks(text, ""))
    return ["\n".join(block) for block in blocks if not any(map(_in_block, block)) and any(block)]


def python_blocks(page: str, text: str) -> list[Typed]:
    """Every block of Python of a page, in its order."""
    blocks = _blocks(text, "python")
    return [Typed(page, first, "\n".join(block) + "\n") for first, block in blocks]


def differences(page: str, output: str) -> list[str]:
    """Lines of a page's block that are missing in a command's output.

    A word with a digit matches any word, a rule any rule: times and counts differ.
    """
    lines = [" ".join(line.split()) for line in output.splitlines()]
    return [
        line
        for line in page.splitlines()
        if line.strip() and not any(_alike(line).search(text) for text in lines)
    ]


def _alike(line: str) -> re.Pattern[str]:
    words = [r"\S+" if re.search(r"\d", word) else re.escape(word) for word in line.split()]
    return re.compile(" ".join(words))


def _blocks(text: str, language: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of each fenced block in a language, and the number of the first one."""
    lines = ((number, line) for number, line, fenced in _lines(text) if fenced == language)
    # Numbers rise with positions within a block alone.
    for _, block in groupby(enumerate(lines), key=lambda pair: pair[1][0] - pair[0]):
        (first, _), *_ = numbered = [line for _, line in block]
        yield first, [line for _, line in numbered]


def _lines(text: str) -> Iterator[tuple[int, str, str | None]]:
    """Each line with its number and the language of its block, None outside of blocks."""
    language = None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.lstrip().startswith("```"):
            yield number, line, language
        elif language is None:
            language = line.strip().removeprefix("```")
        else:
            language = None


def _in_block(line: str) -> str | None:
    command = re.sub(r"\s{2,}#.*$", "", line).strip()
    return command if command.split(" ")[0] in PROGRAMS else None


def _without_options(command: str) -> str:
    without = re.sub(r" *\[[^][]*\](\.\.\.)?", "", command)
    return without if without == command else _without_options(without)


def _in_table(line: str) -> str | None:
    cell = re.match(r"\| `((?:[^`]|\\`)+)`", line)
    if cell is None:
        return None
    command = _without_options(cell[1].replace("\\|", "|"))
    return command if command.split(" ")[0] in ("rocelab", "make") else None
