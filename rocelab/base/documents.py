"""Writes result documents, frozen dataclasses, as JSON text, and reads them back.

Equal results give the same bytes, and the text reads back into an equal result. An error says why a
text is not a result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from rocelab.base.errors import InputError, PackageGoneError
from rocelab.base.files import NotTextError, read_input, text_of
from rocelab.base.wording import dotted, printable, shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Result = TypeVar("Result", bound="DataclassInstance")

_AS_WRITTEN = "give it as rocelab wrote it; `rocelab --debug` shows where it fails"
# Only between two lines of the indented text, so never inside a JSON string.
_NUMBERS = re.compile(r"\[\n\s+-?\d[-\d.e+,\s]*\]")


def to_json(result: DataclassInstance) -> str:
    """The document as JSON text: the same result gives the same bytes. Vectors of numbers are on
    one line. Raises ValueError for a number that JSON does not have, such as NaN."""
    text = json.dumps(result, indent=1, sort_keys=True, allow_nan=False, default=_keys)
    return _NUMBERS.sub(lambda match: re.sub(r"\s+", "", match[0]), text) + "\n"


def _keys(part: object) -> dict[str, Any]:
    """A dataclass within a document, without copying what is in it."""
    if not is_dataclass(part):
        raise TypeError(f"JSON has no {type(part).__name__}")
    return {field.name: getattr(part, field.name) for field in fields(part)}


def read_text(file: Path, hint: str) -> str:
    """The text of a document. Raises InputError with the file if it cannot be read."""
    try:
        return text_of(read_input(file))
    except NotTextError as error:
        raise InputError(f"{file} cannot be read: {error}", hint=f"{error.hint}; {hint}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{file} cannot be read: {why}", hint=hint) from None


@contextmanager
def fitting(name: str) -> Iterator[None]:
    """Turn errors from a document's content into InputError: its parts may contradict each other in
    ways that its format does not detect."""
    try:
        yield
    except UnicodeEncodeError:
        # The terminal's error: its encoding cannot show the document.
        raise
    except PackageGoneError as error:
        raise InputError(f"{name}: {error.message}", error.hint) from error
    except ValidationError as error:
        raise InputError(f"{name} does not fit: {misfit(error)}", hint=_AS_WRITTEN) from error
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        why = f"its parts contradict each other ({type(error).__name__})"
        raise InputError(f"{name} does not fit: {why}", hint=_AS_WRITTEN) from error


def misfit(error: ValidationError) -> str:
    """The first place where values do not fit a model, and how many more there are."""
    first, *others = error.errors(include_url=False, include_input=False)
    more = f", and {len(others)} more" if others else ""
    where = dotted(first["loc"]) or "the document"
    return f"{where}: {printable(first['msg'])}{more}"


TELLING = {
    "drill": "the result of a drill",
    "round_trips": "a job's document",
    "cells": "a comparison",
    "typical": "a diagnosis",
    "uses": "a simulation",
    "prefixes": "a plan",
}
"""The kind of a document, by a key that other kinds do not have."""


@dataclass(frozen=True, slots=True)
class Format(Generic[Result]):
    """A kind of document: its class, and the version that this tool reads.

    `name` and `hint` are for errors: "a result document", and where to find one.
    """

    result: type[Result]
    version: int
    name: str
    hint: str

    def read(self, text: str) -> Result:
        """The result that `to_json` wrote. Raises InputError for anything else."""
        return self.validated(self.parsed(text))

    def parsed(self, text: str) -> dict[str, Any]:
        """The keys of the document. Raises InputError if the text is not a JSON object."""
        try:
            document = json.loads(text, parse_constant=_refuse_constant)
        except ValueError as error:
            raise InputError(f"not {self.name}: not JSON: {error}", hint=self.hint) from error
        except RecursionError:
            raise InputError(f"not {self.name}: nested too deep", hint=self.hint) from None
        if not isinstance(document, dict):
            raise InputError(f"not {self.name}: no JSON object with keys", hint=self.hint)
        return document

    def validated(self, document: dict[str, Any]) -> Result:
        """The result of these keys. Raises InputError for another version or invalid values."""
        keys = {field.name for field in fields(self.result)}
        other = next((TELLING[key] for key in TELLING if key in document and key not in keys), None)
        if other is not None:
            raise InputError(f"this is {other}, not {self.name}", hint=self.hint)
        if "schema_version" not in document:
            raise InputError(f"not {self.name}: it has no schema_version", hint=self.hint)
        version = document.get("schema_version")
        if version != self.version:
            raise InputError(
                f"{self.name} of schema version {shown(version)}; this tool reads {self.version}",
                hint=self.hint,
            )
        try:
            result: Result = _reader(self.result).validate_python(document)
            return result
        except ValidationError as error:
            raise InputError(f"not {self.name}: {misfit(error)}", hint=self.hint) from error


@cache
def _reader(result: type[Result]) -> TypeAdapter[Result]:
    return TypeAdapter(result)


def _refuse_constant(name: str) -> float:
    """Python writes and reads NaN and infinities, which RFC 8259, section 6, does not have."""
    raise ValueError(f"{name} is not a number")
