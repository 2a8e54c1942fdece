"""The templates of files that people and programs read: FRR's configuration, topologies, pages."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from rocelab.base.data import shipped

if TYPE_CHECKING:
    from jinja2 import Environment, Template

_ESCAPED = ("html.j2", "svg.j2")


def template(name: str) -> Template:
    """The template of a file of the shipped folder `templates`, such as "frr/bgpd.conf.j2".

    What it prints is escaped in pages and pictures. Its filter `quoted` makes a YAML string of any
    text. Raises jinja2.UndefinedError when a value is missing.
    """
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    # Imported here: most commands print no template.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=FileSystemLoader(shipped("templates")),
        autoescape=select_autoescape(_ESCAPED),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # JSON strings are valid YAML, and never read as a number or a truth value.
    made.filters["quoted"] = json.dumps
    return made
