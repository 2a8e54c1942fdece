"""Writes the pages of the reference that the code itself is the source of.

    .venv/bin/python -m docs.generate

`commands.md` lists the commands and the exit codes, `commands/` has a page for each, and `man/` the
same as manual pages, which the wheel installs; `documents.md` lists the JSON documents, and
`documents/` has the keys of each; `api.md` has every name of `import rocelab`; `layers.svg` draws
which package may import which. `zensical.toml` gets the pages of these folders in its navigation.
All are committed, for readers on GitHub and for the wheel; `make docs` writes them and a unit test
holds them to the code. `typer utils docs` is not used: what it writes differs between Typer's
releases, and has a heading and a list for each option where a table does.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

from typer.core import TyperCommand, TyperGroup

import rocelab
from docs.api import Member, members, summary
from docs.command_pages import COMMAND_PAGES, CommandPage
from docs.commandline import commands, default, first_sentence, names_of, parameters, usage
from docs.documents import DOCUMENTS, Document, document_sections
from docs.layers import layers_svg
from docs.man import man_pages
from rocelab.api import DOORS, SECTIONS
from rocelab.base.wording import listed
from rocelab.cli.app import EXIT_CODES
from rocelab.cli.main import command_line
from rocelab.cli.schemas import SchemaKind, file_name, schema_text

HERE = Path(__file__).parent
MAN = HERE / "man"
COMMANDS = HERE / "commands"
DOCUMENT_PAGES = HERE / "documents"
SCHEMAS = HERE.parent / "schemas"
SITE = HERE.parent / "zensical.toml"
WIDTH = 120
NOTICE = "<!-- Written by `make docs` from the code, which is the place to change it. -->"

EXAMPLE = """from rocelab import Lab

with Lab.planned("zone-small").brought_up() as lab:
    print(lab.node("rtsw1").exec(["ip", "route"]).stdout)
    with lab.measure(lab.traffic(flows=16), accept_invalid=True) as run:
        with lab.fault("carrier-down", link="rtsw1:ctsw1"):
            run.hold("1s")
    print(run.affected_flows, run.lost_packets, run.problems)
"""


def main() -> None:
    """Write the pages."""
    texts = pages()
    for folder in (MAN, COMMANDS, DOCUMENT_PAGES, SCHEMAS):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    for name, text in texts.items():
        (HERE / name).write_text(text)
    SITE.write_text(navigated(SITE.read_text()))


def pages() -> dict[str, str]:
    """The pages, and the schemas of files that people write, by file name."""
    return {
        "commands.md": "\n".join(_command_lines()) + "\n",
        **{
            command_page(words): "\n".join(_lines_of_a_command(words, command)) + "\n"
            for words, command, _ in commands(command_line())
        },
        "documents.md": "\n".join(_document_lines()) + "\n",
        **{
            document_page(document): "\n".join(_lines_of_a_document(document)) + "\n"
            for document in DOCUMENTS
        },
        "api.md": "\n".join(_api_lines()) + "\n",
        "layers.svg": layers_svg(),
        **{f"../{SCHEMAS.name}/{file_name(kind)}": schema_text(kind) for kind in SchemaKind},
        **{f"{MAN.name}/{name}": text for name, text in man_pages(command_line()).items()},
    }


def navigated(settings: str) -> str:
    """The site's settings with the pages of commands and documents in their navigation."""
    entries = {
        "commands": [
            (" ".join(words), command_page(words)) for words, _, _ in commands(command_line())
        ],
        "documents": [(document.title, document_page(document)) for document in DOCUMENTS],
    }
    for name, pages in entries.items():
        lines = "".join(f'            {{ "{title}" = "{page}" }},\n' for title, page in pages)
        first, last = f"# {name}, by docs/generate.py\n", f"            # end of {name}\n"
        before, _, rest = settings.partition(first)
        settings = before + first + lines + last + rest.partition(last)[2]
    return settings


def _command_lines() -> Iterator[str]:
    group = command_line()
    yield from ("# Commands", "", NOTICE, "")
    yield from _wrapped(
        "Each command has a page. [The command line](cli.md) says how to call `rocelab`, and what "
        "holds for all commands. LAB is a lab that ships (`zone-small`) or the path of a YAML file."
    )
    entries = list(commands(group))
    for panel in dict.fromkeys(panel for _, _, panel in entries):
        yield from ("", f"**{panel}**", "", *_head("command", "what it does", "search words"))
        for words, command, of in entries:
            if of == panel:
                name = " ".join(words)
                does = _cell(first_sentence(command.help or ""))
                other = ", ".join(COMMAND_PAGES.get(name, CommandPage()).other_words)
                yield _row(f"[`{name}`]({command_page(words)})", does, other)
    yield from ("", "## Exit codes", "", *_head("code", "meaning"))
    yield from (_row(codes, _cell(meaning)) for codes, meaning in EXIT_CODES.items())
    yield from ("", "## Options before the command", "", *_table(group))


def command_page(words: tuple[str, ...]) -> str:
    """The page of a command, from docs/."""
    return f"{COMMANDS.name}/{'-'.join(words)}.md"


def _lines_of_a_command(words: tuple[str, ...], command: TyperCommand) -> Iterator[str]:
    name = " ".join(words)
    more = COMMAND_PAGES.get(name, CommandPage())
    yield from (f"# {name}", "", NOTICE, "")
    yield from _paragraphs(command.help or "")
    yield from ("", "## Usage", "", "```", usage(words, command), "```")
    if more.example:
        yield from ("", "## Example", "", "```", more.example, "```")
    if parameters(command):
        yield from ("", "## Arguments and options", "", *_table(command))
    pages = [f"[{_title(page)}](../{page})" for page in ("commands.md", *more.see)]
    yield ""
    yield from _wrapped(f"See also: {', '.join(pages)}.")
    yield ""
    yield from _wrapped(f"Search words: {', '.join(more.other_words)}.")


def _title(page: str) -> str:
    """The title of a page of docs/."""
    if page == "commands.md":
        return "all commands"
    first = (HERE / page).read_text().splitlines()[0]
    return first.removeprefix("# ")


def _table(command: TyperCommand | TyperGroup) -> Iterator[str]:
    yield from _head("argument or option", "what it is", "default")
    for parameter in parameters(command):
        names = ", ".join(f"`{_cell(text)}`" for text in names_of(parameter))
        value = default(parameter)
        required = "required" if parameter.required else f"`{value}`" if value else ""
        yield _row(names, _cell(parameter.help or ""), required)


def _document_lines() -> Iterator[str]:
    yield from ("# JSON documents", "", NOTICE, "")
    yield from _wrapped(
        "What commands write with `--json`, and as `result.json` in the folder of `--out`. Names "
        "end in their unit: ns, s, bps (bits per second), pps (packets per second), bytes. A key "
        "that has no value, such as a time that was not measured, is `null`. Keys may be added; "
        "`schema_version` changes when one changes its meaning. rocelab reads what an older one "
        "wrote, from 0.1 on, with the same `schema_version`, and refuses other versions."
    )
    yield from ("", *_head("document", "written by", "in Python"))
    for document in DOCUMENTS:
        name = document.root.__name__
        public = f"[`{name}`](api.md)" if name in rocelab.__all__ else ""
        yield _row(f"[{document.title}]({document_page(document)})", document.written_by, public)


def document_page(document: Document) -> str:
    """The page of a document, from docs/."""
    return f"{DOCUMENT_PAGES.name}/{document.page}"


def _lines_of_a_document(document: Document) -> Iterator[str]:
    yield from (f"# {document.title}", "", NOTICE, "")
    yield from _wrapped(
        f"Written by {document.written_by}. [JSON documents](../documents.md) says what holds for "
        "all of them."
    )
    for section in document_sections(document):
        if section.heading:
            yield from ("", f"## {section.heading}")
        yield ""
        yield from _paragraphs(section.text)
        explained = any(meaning for _, _, meaning in section.rows)
        yield from ("", *_head("key", "type", *(("what it is",) if explained else ())))
        for key, kind, meaning in section.rows:
            yield _row(f"`{key}`", kind, *((_cell(meaning),) if explained else ()))


def _api_lines() -> Iterator[str]:
    yield from ("# Python", "", NOTICE, "")
    yield from _wrapped(
        "What `import rocelab` gives. These names, with the methods and fields here, are the API: "
        "a name that goes works for one more minor version, with a warning "
        "([what stays](dev/compatibility.md)). Every module below `rocelab` is private, but for "
        "`rocelab.mininet` ([Mininet](runtime.md#mininet)): it may move or change in any release. "
        "The package has type hints (`py.typed`); a name is loaded when it is first used."
    )
    yield from ("", "```python", *EXAMPLE.splitlines(), "```")
    yield ""
    yield from _wrapped(
        f"Plug-ins also import from {listed([f'`{door}`' for door in DOORS], 'and')}."
    )
    for title, names in SECTIONS.items():
        yield from ("", f"## {title}")
        for name in names:
            member = members(name)
            yield from ("", f"### {name}", "")
            yield from (f"`{member.signature}`", "") if member.signature else ()
            yield from _paragraphs(summary(member.text))
            if member.members:
                yield ""
                yield from _head("member", "what it is")
                yield from (_member(part) for part in member.members)


def _member(member: Member) -> str:
    return _row(f"`{_cell(member.signature)}`", _cell(summary(member.text)))


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
