"""Messages of the code name what a user of the wheel has: commands, and no page of docs/."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.commandline import commands, parameters
from rocelab.cli.main import command_line

ROOT = Path(__file__).parents[2]
PAGE = re.compile(r"\bdocs/\w|\bREADME\b")


def messages(text: str) -> list[str]:
    """The texts of a source that are no docstring."""
    tree = ast.parse(text)
    docstrings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings
    ]


def test_no_message_names_a_page_that_a_wheel_does_not_have() -> None:
    sources = sorted((ROOT / "rocelab").rglob("*.py"))
    assert [
        f"{source.relative_to(ROOT)}: {text}"
        for source in sources
        for text in messages(source.read_text())
        if PAGE.search(text)
    ] == []


def test_no_help_names_a_page_that_a_wheel_does_not_have() -> None:
    texts = [
        text or ""
        for _, command, _ in commands(command_line())
        for text in (command.help, *(parameter.help for parameter in parameters(command)))
    ]
    assert [text for text in texts if PAGE.search(text)] == []


def test_a_message_that_names_a_page_is_seen() -> None:
    source = '"""See docs/x.md."""\nprint("see docs/x.md")'
    assert [text for text in messages(source) if PAGE.search(text)] == ["see docs/x.md"]
