"""Describes refused values in messages, and defines the error that models refuse them with.

A message never echoes more than a short line of the user's text, and never a raw control character:
the text is safe on a terminal whatever the file holds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from itertools import islice

KeyPath = tuple[str | int, ...]
"""The path of a value in a file: mapping keys and list indices from the top."""

MAX_SHOWN = 40
MAX_NAMES = 6
MAX_COMPARED = 64
"""Only this many characters of a word are compared with names: a longer word is no typing error."""
_NUMBER = re.compile(r"\d+")
CONTROL = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""A character that is not text: a terminal obeys it, it changes the order or line of the text
around it, or it cannot be written at all (half of a surrogate pair)."""
_PLAIN_KEY = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_SHOWN}}}")


class RefusedError(ValueError):
    """Why a value is refused, what to do about it, and which of its keys to point at.

    `keys` are names, or paths, under the refused value; the first that the file sets is where the
    problem is shown. Raised by parsers and pydantic validators.
    """

    def __init__(
        self, message: str, hint: str | None = None, keys: Iterable[str | KeyPath] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.keys = tuple((key,) if isinstance(key, str) else key for key in keys)


def shown(value: object) -> str:
    """A value for a message: on one line, escaped, cut to about 40 characters."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            cut = value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 3] + "..."
            return repr(cut)
        case int():
            return str(value) if abs(value) < 10**MAX_SHOWN else "a number too long to show"
        case float():
            return repr(value)
        case dict():
            return "a block of keys"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case _:
            return f"a {type(value).__name__}"


def described(value: object) -> str:
    """Like `shown`, but marks text as text, for messages that expected something else."""
    return f"the text {shown(value)}" if isinstance(value, str) else shown(value)


def dotted(path: KeyPath) -> str:
    """`fabric.racks`, `faults[2].at`; a key with other characters in it is quoted and cut."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += "." if text else ""
            text += part if _PLAIN_KEY.fullmatch(part) else shown(part)
    return text


def printable(text: str) -> str:
    """A file name that is safe to print: control characters and stray bytes escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def visible(text: str) -> str:
    """Untrusted text of any length made safe for a terminal: control characters except newlines and
    tabs are escaped."""
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 node`, `2,000 nodes`, `2 switches`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def of_plural(count: float, plural: str) -> str:
    """`1 loss of carrier`, `68 packets`: a count of what is named in the plural."""
    noun, *rest = plural.split(" ")
    singular = noun.removesuffix("es" if noun.endswith("sses") else "s")
    return f"{count:,.0f} {' '.join((singular if count == 1 else noun, *rest))}"


def listed(words: Iterable[str], last: str = "or") -> str:
    """`a, b or c`."""
    *head, tail = words
    return f"{', '.join(head)} {last} {tail}" if head else tail


def closest(word: str, words: Collection[str]) -> str | None:
    """The one of `words` that `word` most likely stands for, None if none is similar."""
    meant = word.lower()[:MAX_COMPARED]
    return next(iter(difflib.get_close_matches(meant, words, n=1)), None)


def did_you_mean(word: str, words: Collection[str]) -> str | None:
    """`did you mean X?` for a word that is not in `words`, None if none is similar."""
    close = closest(word, words)
    return None if close is None else f"did you mean {close}?"


def name_hint(word: str, names: Collection[str]) -> str | None:
    """Advice about a name that is not in `names`: the one that was probably meant, or the existing
    ones.

    A name with another number gives no guess: `srv9-1` may be any server. Nor does a port or a NIC
    where nodes are named.
    """
    node, colon, _ = word.partition(":")
    if colon and node in names:
        return f"{node} is its name; {word} is a port or a NIC"
    close = closest(word, names)
    if close is not None and _NUMBER.sub("", close) != _NUMBER.sub("", word):
        return f"did you mean {close}?"
    if len(names) <= MAX_NAMES:
        return f"there is {', '.join(names)}" if names else None
    *_, last = names
    return f"there is {', '.join(islice(names, MAX_NAMES - 1))} ... {last}"
