"""The public names of rocelab: their signatures, docstrings and members, read from the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from pydantic import BaseModel

import rocelab

STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


@dataclass(frozen=True, slots=True)
class Member:
    """A name, or a method, property or field of one. signature: empty for an error and an enum."""

    signature: str
    text: str
    members: tuple[Member, ...] = ()


def members(name: str) -> Member:
    """A public name with what it has. Keys of models and fields of documents are on their own
    pages: only methods and properties are listed."""
    value = getattr(rocelab, name)
    text = inspect.getdoc(value) or ""
    if not inspect.isclass(value):
        return Member(_called(name, value), text if callable(value) else "")
    listed = () if issubclass(value, Exception | Enum | BaseModel) else tuple(_listed(value))
    return Member("", text, listed)


def _listed(value: type[Any]) -> Iterator[Member]:
    bases = [base for base in reversed(value.__mro__) if base.__module__.startswith("rocelab")]
    public = dict.fromkeys(key for base in bases for key in vars(base) if not key.startswith("_"))
    data = {field.name for field in fields(value)} if is_dataclass(value) else set()
    for key in public:
        member = inspect.getattr_static(value, key)
        if key in data or (not inspect.getdoc(getattr(value, key)) and not _is_read(member)):
            continue
        if _is_read(member):
            yield Member(key, inspect.getdoc(member) or "")
        elif inspect.isroutine(getattr(value, key)):
            yield Member(_called(key, getattr(value, key)), inspect.getdoc(member) or "")


def _is_read(member: object) -> bool:
    return isinstance(member, property | cached_property)


def _called(name: str, value: object) -> str:
    """A call with the names of its arguments: `plan(spec)`."""
    if not inspect.isroutine(value):
        return ""
    words, optional = [], False
    for parameter in inspect.signature(value).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not optional:
            words.append("*")
            optional = True
        star = STARS.get(parameter.kind.name, "")
        words.append(
            star + parameter.name + ("" if parameter.default is parameter.empty else "=...")
        )
    return f"{name}({', '.join(words)})"


def summary(text: str) -> str:
    """The first paragraph of a docstring."""
    return text.partition("\n\n")[0]
