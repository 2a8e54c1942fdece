"""The scripts and the style of pages that replay a recording, or have tables to sort.

A page that is a file loads no modules, so each module becomes a function of one script, in the
order of their imports. They are this folder's and, for the picture of the fabric, those of the live
page; all import by name (`import { a, b } from "./module.js";`) and export functions, classes and
constants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from markupsafe import Markup

HERE = Path(__file__).parent
LIVE = HERE.parents[1] / "live" / "page"
VENDOR = LIVE / "vendor"
LIBRARIES = (("d3.min.js", "d3-LICENSE"), ("uPlot.iife.min.js", "uPlot-LICENSE"))
STYLES = (VENDOR / "uPlot.min.css", HERE / "replay.css")

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:class|function|const) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


@cache
def shared_style() -> Markup:
    """The colours and controls that all pages have in common."""
    return _own(_read(LIVE / "shared.css"))


@cache
def style() -> Markup:
    """The style of a page that replays."""
    return _own("\n".join((shared_style(), *(_read(sheet) for sheet in STYLES))))


@cache
def script() -> Markup:
    """The libraries with their licences, and the page's modules.

    Raises ValueError for what a page cannot hold: an import or export of another form, or text that
    would end the element.
    """
    libraries = [
        f"/*\n{_read(VENDOR / licence)}*/\n{_read(VENDOR / name)}" for name, licence in LIBRARIES
    ]
    text = "\n".join((*libraries, modules("replay")))
    if "</script" in text or "<!--" in text:
        raise ValueError("a module has what ends or changes a script element")
    return _own(text)


@cache
def tables_script() -> Markup:
    """The script of a page without a replay: it sorts and filters tables, and opens what is folded
    where a link leads to it."""
    calls = "module_tables.sortTables();\nmodule_folds.openFolds();"
    return _own(f"{modules('tables')}\n{modules('folds')}\n{calls}")


def modules(first: str) -> str:
    """The module `first`, and before it what it imports."""
    sources: dict[str, str] = {}
    _add(first, sources)
    return "\n".join(sources.values())


def data(values: Mapping[str, object]) -> Markup:
    """JSON for a `script` element."""
    return _own(json.dumps(values, separators=(",", ":")).replace("<", "\\u003c"))


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _add(name: str, sources: dict[str, str]) -> None:
    text = next(_read(path) for folder in (HERE, LIVE) if (path := folder / f"{name}.js").is_file())
    for _, needed in _IMPORT.findall(text):
        if needed not in sources:
            _add(needed, sources)
    exported = _EXPORT.findall(text)
    text = _EXPORT.sub("", _IMPORT.sub(r"const { \1 } = module_\2;", text))
    if left := _LEFT.search(text):
        raise ValueError(f"{name}.js: not a form that a page can hold: {left.group()}")
    sources[name] = (
        f'const module_{name} = (() => {{\n"use strict";\n{text}'
        f"return {{ {', '.join(exported)} }};\n}})();"
    )


def _own(text: str) -> Markup:
    """Text of our own, or in which nothing ends its element: it is not escaped."""
    return Markup(text)  # noqa: S704
