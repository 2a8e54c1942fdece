"""The command line as manual pages, one a command, in the macros of man(7).

click-man, which does this for Click, cannot read the commands of Typer, which has a Click of its
own.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from typer.core import TyperArgument, TyperCommand, TyperGroup

from docs.commandline import commands, default, first_sentence, names_of, parameters, usage
from rocelab.cli.app import EXIT_CODES

NOTICE = '.\\" Written by `make docs` from the code, which is the place to change it.'


def man_pages(group: TyperGroup) -> dict[str, str]:
    """The pages by file name: `rocelab.1`, and one for each command."""
    pages = {"rocelab": _overview(group)}
    for words, command, _ in commands(group):
        pages["-".join(("rocelab", *words))] = _page(words, command)
    return {f"{name}.1": "\n".join(lines) + "\n" for name, lines in pages.items()}


def _overview(group: TyperGroup) -> Iterator[str]:
    help_text = group.help or ""
    yield from _head("rocelab", first_sentence(help_text), "rocelab [OPTIONS] COMMAND [ARGS]...")
    yield from _paragraphs(help_text)
    yield from _parameters(group)
    rows = list(commands(group))
    for panel in dict.fromkeys(panel for _, _, panel in rows):
        yield f".SH {_text(panel.upper())}"
        for words, command, of in rows:
            if of == panel:
                name = _text("-".join(("rocelab", *words)))
                yield from (".TP", f".BR {name} (1)", _text(first_sentence(command.help or "")))
    yield ".SH EXIT STATUS"
    for codes, meaning in EXIT_CODES.items():
        plain = re.sub(r" \(\[[^]]*\]\([^)]*\)\)", "", meaning)
        yield from (".TP", f".B {_text(codes)}", _text(plain))


def _page(words: tuple[str, ...], command: TyperCommand) -> Iterator[str]:
    help_text = command.help or ""
    yield from _head(
        "-".join(("rocelab", *words)), first_sentence(help_text), usage(words, command)
    )
    yield from _paragraphs(help_text)
    yield from _parameters(command)
    yield from (".SH SEE ALSO", ".BR rocelab (1),", "which has the exit status of all commands.")


def _head(name: str, does: str, typed: str) -> Iterator[str]:
    """A page up to where its description begins."""
    yield from (NOTICE, f'.TH {_text(name.upper())} 1 "" rocelab "Commands of rocelab"')
    yield from (".SH NAME", f"{_text(name)} \\- {_text(does.rstrip('.'))}")
    yield from (".SH SYNOPSIS", ".nf", _text(typed), ".fi", ".SH DESCRIPTION")


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of help; a command is shown as one."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        if paragraph.strip().startswith("rocelab "):
            lines = textwrap.dedent(paragraph).strip().splitlines()
            yield from (".RS", ".nf", *map(_text, lines), ".fi", ".RE")
        else:
            yield _text(" ".join(paragraph.split()))


def _parameters(command: TyperCommand | TyperGroup) -> Iterator[str]:
    entries = parameters(command)
    arguments = [parameter for parameter in entries if isinstance(parameter, TyperArgument)]
    options = [parameter for parameter in entries if parameter not in arguments]
    for title, of_kind in (("ARGUMENTS", arguments), ("OPTIONS", options)):
        if of_kind:
            yield f".SH {title}"
        for parameter in of_kind:
            names = ", ".join(_text(name) for name in names_of(parameter))
            value = default(parameter)
            note = f" Default: {value}." if value else ""
            yield from (".TP", f".B {names}", _text(f"{parameter.help or ''}{note}".strip()))


def _text(text: str) -> str:
    """Text as roff has it: nothing in it is a macro or an escape."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return re.sub("^([.'])", r"\\&\1", escaped)
