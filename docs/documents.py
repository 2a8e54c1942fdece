"""The JSON documents that commands write, read from the dataclasses that they are made of.

A class's docstring says what it is, the string below a field what the key is; annotations give the
types. Everything here is pure.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from rocelab.cli.catalog import CatalogRow
from rocelab.drills.listing import DrillRow
from rocelab.faults.asked import FaultKind
from rocelab.faults.running import ListedFault
from rocelab.lab.checks import Check
from rocelab.lab.status import KnownLab
from rocelab.results.comparison import Comparison
from rocelab.results.diagnosis import Diagnosis
from rocelab.results.difference import DrillDiff
from rocelab.results.drill import DrillResult
from rocelab.results.gate import Gate
from rocelab.results.health import HealthReport
from rocelab.results.job import JobReport
from rocelab.results.prediction import Prediction
from rocelab.results.probereport import ProbeReport
from rocelab.results.programs import ProgramReport
from rocelab.results.simulation import SimulationReport
from rocelab.results.whatif import Outlook, WhatIf
from rocelab.traffic.reachability import Reachability


@dataclass(frozen=True, slots=True)
class Document:
    """A document: its title, what writes it, and the dataclass that holds it."""

    title: str
    written_by: str
    root: type[Any]

    @property
    def page(self) -> str:
        """The file of its page, in docs/documents/."""
        return f"{self.title.lower().replace(' ', '-')}.md"


@dataclass(frozen=True, slots=True)
class Section:
    """A class of a document; rows: key, type and meaning. The root has no heading of its own."""

    heading: str
    text: str
    rows: tuple[tuple[str, str, str], ...]


OWN = "`own` next to these keys says whether it is in the current folder's"
DOCUMENTS = (
    Document("Drill", "`rocelab drill run`", DrillResult),
    Document("Difference of drills", "`rocelab drill diff --json`", DrillDiff),
    Document("Gate of drills", "`rocelab drill gate --json`", Gate),
    Document("Traffic", "`rocelab traffic`", JobReport),
    Document("Programs", "`rocelab run --json`", ProgramReport),
    Document("Probes of the live page", "`/traffic/result.json` after probes", ProbeReport),
    Document("Comparison", "`rocelab compare`", Comparison),
    Document("Prediction", "`rocelab predict --json`", Prediction),
    Document("Simulation", "`rocelab simulate`", SimulationReport),
    Document("What if", "`rocelab whatif --json`", WhatIf),
    Document("Long run", "`rocelab longrun --json`", Outlook),
    Document("Diagnosis", "`rocelab diagnose --json`", Diagnosis),
    Document(
        "Health",
        "`rocelab health --json`, its last line, `report` next to `environment`",
        HealthReport,
    ),
    Document("Reachability", "`rocelab reach --json`, with `lab`", Reachability),
    Document("Labs", f"`rocelab labs --json`, a list; {OWN} `labs/`", CatalogRow),
    Document("Labs of this machine", "`rocelab list --json`, a list", KnownLab),
    Document("Drills", f"`rocelab drill list --json`, a list; {OWN} `scripts/`", DrillRow),
    Document("Faults of a lab", "`rocelab fault list --json`, a list", ListedFault),
    Document("Kinds of fault", "`rocelab fault kinds --json`, a list", FaultKind),
    Document("Needs of a machine", "`rocelab doctor --json`, `checks` next to `can_run`", Check),
)


def document_sections(document: Document) -> list[Section]:
    """A document's own class, then those it holds that no earlier document has shown."""
    before = [earlier.root for earlier in DOCUMENTS[: DOCUMENTS.index(document)]]
    known = {document_class for root in before for document_class in _classes(root)}
    return [
        _section(document_class, root=document_class is document.root)
        for document_class in _classes(document.root)
        if document_class not in known
    ]


def _classes(root: type[Any]) -> list[type[Any]]:
    """The dataclasses that a document consists of, in the order in which they are first named, less
    those that are documents themselves."""
    classes: list[type[Any]] = []
    others = {document.root for document in DOCUMENTS} - {root}

    def visit(root_class: type[Any]) -> None:
        if root_class not in classes and root_class not in others:
            classes.append(root_class)
            for hint in _hints(root_class).values():
                for member in _members(hint):
                    visit(member)

    visit(root)
    return classes


def _members(hint: object) -> Iterator[type[Any]]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for argument in get_args(hint):
        yield from _members(argument)


def _hints(document_class: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(document_class)
    return {field.name: hints[field.name] for field in fields(document_class)}


def _section(document_class: type[Any], *, root: bool) -> Section:
    hints = _hints(document_class)
    texts = field_texts(document_class)
    rows = [(key, _type(hint), texts.get(key, "")) for key, hint in hints.items()]
    text = _in_json(inspect.getdoc(document_class) or "")
    return Section("" if root else heading(document_class), text, tuple(rows))


def heading(document_class: type[Any]) -> str:
    """The heading of a class: its name, with its module where documents have two of that name."""
    if sum(one.__name__ == document_class.__name__ for one in _every_class()) == 1:
        return document_class.__name__
    return f"{document_class.__name__} of {document_class.__module__.rsplit('.', 1)[-1]}"


@cache
def _every_class() -> frozenset[type[Any]]:
    return frozenset(one for document in DOCUMENTS for one in _classes(document.root))


def field_texts(holder: type[Any]) -> Mapping[str, str]:
    """The string below each field of a class, or of a class that it extends."""
    texts: dict[str, str] = {}
    for base in reversed(holder.__mro__):
        if is_dataclass(base):
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            texts |= _texts_below(cast("ast.ClassDef", definition).body)
    return texts


def _texts_below(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for pair in pairwise(statements):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, _in_json(text)


def _in_json(text: str) -> str:
    return re.sub(r"\bNone\b", "`null`", text)


def _type(hint: object) -> str:
    """A type in the words of JSON; classes are links to their section."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is Literal:
        return ", ".join(f"`{argument}`" for argument in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin in (dict, Mapping):
        return f"object: {_type(arguments[1])} by {_type(arguments[0])}"
    if isinstance(hint, type) and is_dataclass(hint):
        return _link(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(f"`{entry.value}`" for entry in hint)
    return _WORDS.get(hint, "any")


def _link(kind: type[Any]) -> str:
    """A link to a class: to the page of the document that it is, or to its section in the first
    one that has it."""
    root = next((document for document in DOCUMENTS if document.root is kind), None)
    if root is not None:
        return f"[{root.title}]({root.page})"
    home = next(document for document in DOCUMENTS if kind in _classes(document.root))
    title = heading(kind)
    return f"[{title}]({home.page}#{title.lower().replace(' ', '-')})"


_WORDS: Mapping[object, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    type(None): "null",
}
