"""Writes the pages of the reference that the code itself is the source of.

    .venv/bin/python -m docs.generate

`commands.md` has every command with its help, its options and the exit codes; `documents.md` every
JSON document, key by key. Both are committed, for readers on GitHub; `make docs` writes them and a
unit test holds them to the code. `typer utils docs` is not used: what it writes differs between
Typer's releases, and has a heading and a list for each option where a table does.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from docs.documents import DOCUMENTS, document_sections
from rocelab.cli.app import EXIT_CODES
from rocelab.cli.main import command_line

Parameter = TyperArgument | TyperOption

HERE = Path(__file__).parent
WIDTH = 120
NOTICE = "<!-- Written by `make docs` from the code, which is the place to change it. -->"


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (HERE / name).write_text(text)


def pages() -> dict[str, str]:
    """The pages by file name."""
    return {
        "commands.md": "\n".join(_command_lines()) + "\n",
        "documents.md": "\n".join(_document_lines()) + "\n",
    }


def _command_lines() -> Iterator[str]:
    group = command_line()
    yield from ("# Commands", "", NOTICE, "")
    yield from _wrapped(
        "[The command line](cli.md) says how to call `rocelab`, and what holds for all commands. "
        "LAB is a lab that ships (`zone-small`) or the path of a YAML file."
    )
    commands = list(_commands(group, ()))
    for panel in dict.fromkeys(panel for _, _, panel in commands):
        yield from ("", f"**{panel}**", "", *_head("command", "what it does"))
        for words, command, of in commands:
            if of == panel:
                name = " ".join(words)
                does = _cell(_first(command.help or ""))
                yield _row(f"[`{name}`](#{name.replace(' ', '-')})", does)
    yield from ("", "## Exit codes", "", *_head("code", "meaning"))
    yield from (_row(codes, _cell(meaning)) for codes, meaning in EXIT_CODES.items())
    yield from ("", "## Options before the command", "", *_table(group))
    for words, command, _ in commands:
        yield from ("", f"## {' '.join(words)}", "", "```", _usage(words, command), "```", "")
        yield from _paragraphs(command.help or "")
        if _parameters(command):
            yield from ("", *_table(command))


def _commands(
    group: TyperGroup, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], TyperCommand, str]]:
    """Every command with the words that call it and the part of the help that it is in."""
    for name, command in group.commands.items():
        words = (*above, name)
        if isinstance(command, TyperGroup):
            panel = str(command.rich_help_panel)
            yield from ((below, each, panel) for below, each, _ in _commands(command, words))
        elif isinstance(command, TyperCommand):
            yield words, command, str(command.rich_help_panel)


def _parameters(command: TyperCommand | TyperGroup) -> list[Parameter]:
    """What a command takes, less what Typer adds to it."""
    ours = [param for param in command.params if isinstance(param, Parameter) and not param.hidden]
    return [our for our in ours if not str(our.name).endswith("_completion")]


def _usage(words: tuple[str, ...], command: TyperCommand) -> str:
    arguments, options = [], []
    for parameter in _parameters(command):
        name = _written(parameter)
        if isinstance(parameter, TyperArgument):
            more = "..." if parameter.nargs == -1 else ""
            arguments.append(f"{name}{more}" if parameter.required else f"[{name}]{more}")
        elif parameter.required:
            options.append(name)
        elif "[OPTIONS]" not in options:
            options.append("[OPTIONS]")
    return " ".join(["rocelab", *words, *arguments, *options])


def _written(parameter: Parameter) -> str:
    """An argument's name, or the longest name of an option with what it takes."""
    value = parameter.metavar or _choices(parameter) or str(parameter.name).upper()
    if isinstance(parameter, TyperArgument):
        return value.strip("[].")
    names = [max(parameter.opts, key=len), *parameter.secondary_opts]
    return "/".join(names) if parameter.is_flag else f"{names[0]} {value}"


def _choices(parameter: Parameter) -> str:
    """The words that an option may have, where it is an enumeration."""
    if not isinstance(parameter.default, Enum):
        return ""
    return "|".join(str(each.value) for each in type(parameter.default))


def _table(command: TyperCommand | TyperGroup) -> Iterator[str]:
    yield from _head("argument or option", "what it is", "default")
    for parameter in _parameters(command):
        short = [opt for opt in parameter.opts if re.fullmatch("-.", opt)]
        names = ", ".join(f"`{_cell(text)}`" for text in (*short, _written(parameter)))
        yield _row(names, _cell(parameter.help or ""), _default(parameter))


def _default(parameter: Parameter) -> str:
    if isinstance(parameter.show_default, str):
        return f"`{parameter.show_default}`"
    if parameter.required:
        return "required"
    value = getattr(parameter.default, "value", parameter.default)
    if value is None or not parameter.show_default or value is False or value == ():
        return ""
    return f"`{value}`"


def _document_lines() -> Iterator[str]:
    yield from ("# JSON documents", "", NOTICE, "")
    yield from _wrapped(
        "What commands write with `--json`, and as `result.json` in the folder of `--out`. Names "
        "end in their unit: ns, s, bps (bits per second), pps (packets per second), bytes. A key "
        "that has no value, such as a time that was not measured, is `null`. Keys may be added; "
        "`schema_version` changes when one changes its meaning; a reader refuses other versions."
    )
    yield from ("", *_head("document", "written by", "in Python"))
    for each in DOCUMENTS:
        anchor = each.title.lower().replace(" ", "-")
        name = f"`{each.root.__module__}.{each.root.__name__}`"
        yield _row(f"[{each.title}](#{anchor})", each.written_by, name)
    for each in DOCUMENTS:
        yield from ("", f"## {each.title}")
        for section in document_sections(each):
            if section.heading:
                yield from ("", f"### {section.heading}")
            yield ""
            yield from _paragraphs(section.text)
            explained = any(meaning for _, _, meaning in section.rows)
            yield from ("", *_head("key", "type", *(("what it is",) if explained else ())))
            for key, kind, meaning in section.rows:
                yield _row(f"`{key}`", kind, *((_cell(meaning),) if explained else ()))


def _first(text: str) -> str:
    """The first sentence of a help text."""
    return re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()))[0]


def _paragraphs(text: str) -> Iterator[str]:
    """Text in lines of the page; paragraphs stay apart, and a command is shown as one."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ""
        if paragraph.strip().startswith("rocelab "):
            yield from ("```", *textwrap.dedent(paragraph).strip().splitlines(), "```")
        else:
            yield from _wrapped(" ".join(paragraph.split()))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _head(*columns: str) -> tuple[str, str]:
    return _row(*columns), "|" + "---|" * len(columns)


def _row(*cells: str) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
