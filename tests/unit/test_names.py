"""Names in the code: values have nouns of the field, and a class has a name of its own."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from docs.documents import DOCUMENTS, document_sections

ROOT = Path(__file__).parents[2]
FOLDERS = ("rocelab", "tests", "bench", "examples", "scripts", "docs")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

NO_NOUNS = frozenset(("each", "found", "given", "ours", "own", "shown", "told"))
METAPHORS = frozenset(("canary", "crew", "housing", "parcel", "toll"))
REFUSED = re.compile(rf"\b(?:{'|'.join(sorted(NO_NOUNS | METAPHORS))})\b")

STRING = r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\''
NO_CODE = re.compile(rf"(?P<code>[fF][rR]?|[rR][fF])?(?:{STRING})|#[^\n]*", re.DOTALL)
DEFINITION = re.compile(r"^ *(?:async def|def|class) (\w+)", re.MULTILINE)
PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)

SHARED = frozenset(("Lab", "RunningLab"))
"""Names of public classes that two modules have: what is up in tests does more than in commands."""


NO_WORDS = frozenset(
    (
        *("dealt", "dearest", "deeds", "deafen", "felt", "hasten", "luck", "oddities", "rouse"),
        *("shower", "stood", "stormed", "told", "woken", "dismiss"),
    )
)
"""Words that a function, a method or a class is not named by: no verbs or nouns of the field."""

NO_PHRASES = frozenset(("be_on_time", "get_on", "let_go", "let_out", "or_never", "take_in"))

MANY = 5
"""A class of so many fields has a docstring for each that needs one, not a paragraph for all."""


def targets(statement: ast.stmt) -> Sequence[ast.expr]:
    """What an assignment assigns to; nothing for another statement."""
    match statement:
        case ast.Assign(targets=names):
            return names
        case ast.AnnAssign(target=name):
            return (name,)
        case _:
            return ()


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and names of locals, arguments and loop variables; not those of fields of a class, nor
    what a module gives."""
    fields = {
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.Module)
        for statement in node.body
        for target in targets(statement)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if node not in fields:
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    found = 1",
        "def f(found): ...",
        "[0 for found in ()]",
        "lambda found: 0",
        "for found in (): ...",
        "if (found := 1): ...",
        "try: ...\nexcept E as found: ...",
    ],
)
def test_the_check_finds_every_way_to_bind_a_name(code: str) -> None:
    assert "found" in {name for _, name in bound_names(ast.parse(code))}


def test_fields_of_a_class_are_no_locals() -> None:
    assert list(bound_names(ast.parse("class Check:\n    found: str\n    own = 1"))) == []


@cache
def product() -> dict[str, str]:
    """The text of each module of the package, by its path."""
    paths = sorted((ROOT / "rocelab").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def code_of(text: str) -> str:
    """A module without strings and comments: the code in f-strings stays, with their text."""
    return NO_CODE.sub(lambda match: match[0] if match["code"] else "", text)


def test_the_code_of_a_module_has_no_text() -> None:
    texts = ('a = "own"  # found', 'b = """\\"given\n" """', "c = '\\'told'")
    assert REFUSED.findall(code_of("\n".join(texts))) == []
    code = ('f"{[0 for each in ()]}"', *texts, "own = 1")
    assert REFUSED.findall(code_of("\n".join(code))) == ["each", "own"]


def test_functions_and_classes_have_words_of_the_field() -> None:
    refused = []
    for path, text in product().items():
        for name in DEFINITION.findall(text):
            words = [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+", name)]
            phrase = f"_{'_'.join(words)}_"
            if NO_WORDS & set(words) or any(f"_{odd}_" in phrase for odd in NO_PHRASES):
                refused.append(f"{path}: {name}")
    assert refused == [], refused


def test_values_have_nouns_for_names() -> None:
    # A module is parsed where its code has such a word at all: that takes a tenth of the time.
    refused = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in FILES
        if REFUSED.search(code_of(text := path.read_text()))
        for line, name in bound_names(ast.parse(text))
        if name in NO_NOUNS | METAPHORS
    ]
    assert refused == [], refused


def test_no_two_modules_have_a_public_class_of_one_name() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path, text in product().items():
        for name in PUBLIC_CLASS.findall(text):
            modules[name].append(path)
    shared = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in SHARED} == {}
    assert shared.keys() >= SHARED


def fields_of(holder: ast.ClassDef) -> list[str]:
    return [
        statement.target.id
        for statement in holder.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]


def classes_in(body: Sequence[ast.stmt]) -> Iterator[ast.ClassDef]:
    """Those of a module and those in classes."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield statement
            yield from classes_in(statement.body)


def test_what_a_field_is_stands_below_it() -> None:
    refused = []
    for path, text in product().items():
        for node in classes_in(ast.parse(text).body):
            if len(names := fields_of(node)) >= MANY:
                keys = "|".join(names)
                listing = rf"(?:^|[.;]\s+)(?:(?:{keys}),\s+)*({keys}):\s"
                listed = re.findall(listing, ast.get_docstring(node) or "")
                refused += [f"{path}: {node.name}: {listed}"] if listed else []
    assert refused == [], refused


def test_what_a_key_of_a_document_is_stands_below_its_field() -> None:
    for document in DOCUMENTS:
        for section in document_sections(document):
            keys = "|".join(key for key, _, _ in section.rows)
            listed = re.findall(rf"(?:^|[.;]\s+)((?:{keys})):\s", section.text)
            assert listed == [], f"{document.title}, {section.heading}"
