"""Reads a scalar of a YAML file: text, a whole number, a number, true or false, or nothing.

YAML 1.2's core schema, plus the words of YAML 1.1 that people write for true and false (`yes`,
`on`). A number that the two versions of YAML read differently is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocelab.base.wording import RefusedError, shown

Scalar = str | int | float | bool | None

MAX_NUMBER_LENGTH = 40
_CORE_TAG = "tag:yaml.org,2002:"

_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("~", "null", "Null", "NULL", "")),
    **dict.fromkeys(["true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"], True),
    **dict.fromkeys(["false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"], False),
}
_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


def read_scalar(text: str, tag: str | None, *, plain: bool) -> Scalar:
    """The value of a scalar with this tag; `plain`: without quotes.

    Raises RefusedError for an unknown tag, a text that its tag does not allow, and an ambiguous
    number.
    """
    if tag in (None, "!"):
        return _plain(text) if plain and tag is None else text
    value = _plain(text)
    match tag.removeprefix(_CORE_TAG):
        case "str":
            return text
        case "int" if type(value) is int:
            return value
        case "float" if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        case "bool" if type(value) is bool:
            return value
        case "null" if value is None:
            return None
        case "int" | "float" | "bool" | "null":
            raise RefusedError(f"{shown(text)} is not what its tag says it is", "remove the tag")
        case _:
            raise unknown_tag(tag)


def unknown_tag(tag: str) -> RefusedError:
    """The error for a tag outside YAML's core schema."""
    short = tag.replace(_CORE_TAG, "!!")
    return RefusedError(
        f"unknown tag {shown(short)}",
        "remove the tag; only plain text, numbers, true, false, lists and blocks of keys are read",
    )


def _plain(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    is_int = _INT.fullmatch(text) is not None
    if not is_int and _FLOAT.fullmatch(text) is None:
        return text
    if len(text) > MAX_NUMBER_LENGTH:
        raise RefusedError(
            f"a number of {len(text):,} characters; at most {MAX_NUMBER_LENGTH} are read",
            "put it in quotes if it is text",
        )
    if _LEADING_ZERO.fullmatch(text):
        raise RefusedError(
            f"{text} starts with a zero, which some YAML readers take for octal",
            f"write {int(text)}, or quote it if it is text",
        )
    if is_int:
        return int(text, 0)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
