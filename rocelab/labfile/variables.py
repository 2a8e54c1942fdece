"""Expands environment variables in a topology's text, as containerlab does before it reads it.

containerlab 0.79 (core/file.go) gives the text to github.com/hellt/envsubst 0.2.0. That leaves `$1`
as it is, and a variable that is not set, or empty, as `$NAME`. Unlike in a shell `:=` is `:-`, and
what is in a default is not expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

MOST_CHARACTERS = 1 << 24
"""The most that variables add to a text, as each `$NAME` may stand for 128 KiB (execve(2))."""

UNSET = re.compile(r"\$([^\W\d]\w*)")
"""Matches what stands for a variable that is not set and has no default, in expanded text."""
_IF_EMPTY, _IF_SET, _IF_UNSET = frozenset((":-", ":=")), frozenset((":+", "+")), "-="
_DOLLAR = re.compile(r"\$(?:\$|\{?\d|\{|(\w+))?")
_NAME = re.compile(r"\w+")


class UnclosedError(ValueError):
    """An expression `${...` is not closed on its line. `line` counts from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


class TooLongError(ValueError):
    """The values of a text's variables are too long together."""

    def __init__(self) -> None:
        super().__init__(f"its variables have more than {MOST_CHARACTERS:,} characters together")


def expand(text: str, environment: Mapping[str, str]) -> str:
    """The text with its variables expanded. Raises UnclosedError, TooLongError."""
    return "".join(_Expansion(text, environment).pieces())


class _Expansion:
    """Goes through a text once; `_at` is where it stands."""

    def __init__(self, text: str, environment: Mapping[str, str]) -> None:
        self._text, self._environment, self._at = text, environment, 0
        self._left = MOST_CHARACTERS

    def pieces(self) -> Iterator[str]:
        while match := _DOLLAR.search(self._text, self._at):
            yield self._text[self._at : match.start()]
            self._at = match.end()
            if match[0] == "$$":
                yield "$"
            elif match[0] == "${":
                yield self._expression()
            elif match[1] and match[1] != "_":
                yield self._value(match[1])
            else:
                yield match[0]
        yield self._text[self._at :]

    def _value(self, name: str) -> str:
        value = self._environment.get(name) or f"${name}"
        self._left -= len(value)
        if self._left < 0:
            raise TooLongError
        return value

    def _expression(self) -> str:
        """What `${...}` stands for; it has just been opened."""
        start, name = self._at, _NAME.match(self._text, self._at)
        if name is None or name[0] == "_":
            parts = iter(lambda: self._part(start), "}")
            inside = (self._value(part[1:]) if part[0] == "$" else part for part in parts)
            return "${" + "".join(inside) + "}"
        self._at = name.end()
        operator, default = "", None
        while (part := self._part(start)) != "}":
            if part in _IF_EMPTY or part in _IF_SET or part in _IF_UNSET:
                operator = part
            elif part.startswith("$"):
                default = self._value(part[1:])
            else:
                default = part + "".join(iter(lambda: self._part(start), "}"))
                break
        return self._chosen(name[0], operator, default)

    def _part(self, start: int) -> str:
        """The next part of an expression: an operator, a variable, `}`, or other characters."""
        rest = self._text[self._at : self._at + 2]
        if not rest or rest[0] in "\r\n":
            raise UnclosedError(self._text.count("\n", 0, start) + 1)
        if rest[0] == "$":
            name = _NAME.match(self._text, self._at + 1)
            part = f"${name[0]}" if name else "$"
        else:
            part = rest if rest[0] == ":" else rest[0]
        self._at += len(part)
        return part

    def _chosen(self, name: str, operator: str, default: str | None) -> str:
        if default is None or not operator:
            return self._value(name)
        if operator in _IF_EMPTY:
            return self._value(name) if self._environment.get(name) else default
        if operator in _IF_SET:
            return default if name in self._environment else ""
        return self._value(name) if name in self._environment else default
