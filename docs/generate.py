"""Writes the pages of the reference that the code itself is the source of.

    .venv/bin/python -m docs.generate

`commands.md` has every command with its help, its options and the exit codes, and `man/` the same
as manual pages, which the wheel installs; `documents.md` has every JSON document, key by key, and
`api.md` every name of `import rocelab`;
`layers.svg` draws which package may import which. All are committed, for readers on GitHub and for
the wheel; `make docs` writes them and a unit test holds them to the code. `typer utils docs` is not
used: what it writes differs between Typer's releases, and has a heading and a list for each option
where a table does.
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
from docs.commandline import commands, default, first_sentence, names_of, parameters, usage
from docs.documents import DOCUMENTS, document_sections
from docs.layers import layers_svg
from docs.man import man_pages
from rocelab.api import DOORS, SECTIONS
from rocelab.base.wording import listed
from rocelab.cli.app import EXIT_CODES
from rocelab.cli.main import command_line

HERE = Path(__file__).parent
MAN = HERE / "man"
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
    shutil.rmtree(MAN, ignore_errors=True)
    MAN.mkdir()
    for name, text in pages().items():
        (HERE / name).write_text(text)


def pages() -> dict[str, str]:
    """The pages by file name."""
    return {
        "commands.md": "\n".join(_command_lines()) + "\n",
        "documents.md": "\n".join(_document_lines()) + "\n",
        "api.md": "\n".join(_api_lines()) + "\n",
        "layers.svg": layers_svg(),
        **{f"{MAN.name}/{name}": text for name, text in man_pages(command_line()).items()},
    }


def _command_lines() -> Iterator[str]:
    group = command_line()
    yield from ("# Commands", "", NOTICE, "")
    yield from _wrapped(
        "[The command line](cli.md) says how to call `rocelab`, and what holds for all commands. "
        "LAB is a lab that ships (`zone-small`) or the path of a YAML file."
    )
    found = list(commands(group))
    for panel in dict.fromkeys(panel for _, _, panel in found):
        yield from ("", f"**{panel}**", "", *_head("command", "what it does"))
        for words, command, of in found:
            if of == panel:
                name = " ".join(words)
                does = _cell(first_sentence(command.help or ""))
                yield _row(f"[`{name}`](#{name.replace(' ', '-')})", does)
    yield from ("", "## Exit codes", "", *_head("code", "meaning"))
    yield from (_row(codes, _cell(meaning)) for codes, meaning in EXIT_CODES.items())
    yield from ("", "## Options before the command", "", *_table(group))
    for words, command, _ in found:
        yield from ("", f"## {' '.join(words)}", "", "```", usage(words, command), "```", "")
        yield from _paragraphs(command.help or "")
        if parameters(command):
            yield from ("", *_table(command))


def _table(command: TyperCommand | TyperGroup) -> Iterator[str]:
    yield from _head("argument or option", "what it is", "default")
    for parameter in parameters(command):
        names = ", ".join(f"`{_cell(text)}`" for text in names_of(parameter))
        value = default(parameter)
        shown = "required" if parameter.required else f"`{value}`" if value else ""
        yield _row(names, _cell(parameter.help or ""), shown)


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
    for each in DOCUMENTS:
        anchor = each.title.lower().replace(" ", "-")
        name = each.root.__name__
        public = f"[`{name}`](api.md)" if name in rocelab.__all__ else ""
        yield _row(f"[{each.title}](#{anchor})", each.written_by, public)
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
        f"Plug-ins also import from {listed([f'`{each}`' for each in DOORS], 'and')}."
    )
    for title, names in SECTIONS.items():
        yield from ("", f"## {title}")
        for name in names:
            shown = members(name)
            yield from ("", f"### {name}", "")
            yield from (f"`{shown.signature}`", "") if shown.signature else ()
            yield from _paragraphs(summary(shown.text))
            if shown.members:
                yield ""
                yield from _head("member", "what it is")
                yield from (_member(each) for each in shown.members)


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
