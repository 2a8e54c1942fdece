"""What the columns of a trace of requests mean: their usual names, and the values in them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from rocelab.base.wording import RefusedError, listed, shown
from rocelab.jobs.serving.requests import MOST_TOKENS


class Meaning(StrEnum):
    """What a column says of a request."""

    TIME = "time"
    PROMPT = "prompt"
    OUTPUT = "output"
    BLOCKS = "blocks"
    """A list: a hash of each block of the prompt with all before it."""
    REUSED = "reused"
    """How many leading blocks earlier requests had."""


class TimeUnit(StrEnum):
    """The unit of times that are numbers."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


PER_SECOND: Mapping[TimeUnit, float] = {
    TimeUnit.S: 1.0,
    TimeUnit.MS: 1e3,
    TimeUnit.US: 1e6,
    TimeUnit.NS: 1e9,
}

NAMES: Mapping[Meaning, tuple[str, ...]] = {
    Meaning.TIME: (
        "timestamp",
        "arrivaltime",
        "arrivaltimestamp",
        "arrivedat",
        "arrival",
        "requesttime",
        "starttime",
        "starttimes",
        "time",
        "ts",
        "createdat",
    ),
    Meaning.PROMPT: (
        "contexttokens",
        "inputlength",
        "inputtokens",
        "inputtokenlength",
        "inputlen",
        "inputlens",
        "prompttokens",
        "promptlength",
        "promptlen",
        "promptlens",
        "promptsize",
        "numprefilltokens",
        "numinputtokens",
        "numprompttokens",
        "requesttokens",
        "isl",
    ),
    Meaning.OUTPUT: (
        "generatedtokens",
        "outputlength",
        "outputtokens",
        "outputtokenlength",
        "outputlen",
        "outputlens",
        "completiontokens",
        "responsetokens",
        "responselength",
        "responselen",
        "numdecodetokens",
        "numoutputtokens",
        "numgeneratedtokens",
        "decodetokens",
        "tokensize",
        "osl",
    ),
    Meaning.BLOCKS: ("hashids", "blockhashes"),
    Meaning.REUSED: ("reusedblocks",),
}
"""Usual names, without case and marks: those of Azure's, Mooncake's, BurstGPT's, Splitwise's and
Vidur's traces, and of vLLM's benchmark."""

_SUFFIXES: Mapping[str, TimeUnit] = {
    "ms": TimeUnit.MS,
    "millis": TimeUnit.MS,
    "milliseconds": TimeUnit.MS,
    "us": TimeUnit.US,
    "micros": TimeUnit.US,
    "ns": TimeUnit.NS,
    "nanos": TimeUnit.NS,
    "s": TimeUnit.S,
    "sec": TimeUnit.S,
    "seconds": TimeUnit.S,
}
_TEXTS = ("conversations", "messages", "text", "prompt", "content")
_MOONCAKE = {"timestamp", "inputlength", "outputlength", "hashids"}


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a file has what, by column number or key."""

    at: Mapping[Meaning, int]
    names: Sequence[str]
    unit: TimeUnit | None
    """Of times that are numbers, where the name of the column or the format says it."""


def columns_of(names: Sequence[str], asked: Mapping[Meaning, str]) -> Columns:
    """The columns of a header. asked: those that the user names. Raises RefusedError."""
    plain = [_plain(name) for name in names]
    twice = sorted({name for name in names if names.count(name) > 1})
    at: dict[Meaning, int] = {}
    unit: TimeUnit | None = None
    for meaning in Meaning:
        if (name := asked.get(meaning)) is not None:
            if name not in names:
                raise RefusedError(
                    f"there is no column {shown(name)}", f"there are {listed(names, 'and')}"
                )
            at[meaning] = names.index(name)
        else:
            known = [
                (NAMES[meaning].index(stem), number, of_name)
                for number, name in enumerate(names)
                for stem, of_name in _stems(name, meaning)
                if stem in NAMES[meaning]
            ]
            if not known:
                continue
            _, at[meaning], of_name = min(known, key=lambda one: one[:2])
            if meaning is Meaning.TIME:
                unit = of_name
        if names[at[meaning]] in twice:
            raise RefusedError(
                f"several columns are called {shown(names[at[meaning]])}", "rename or remove one"
            )
    missing = [meaning for meaning in (Meaning.PROMPT, Meaning.OUTPUT) if meaning not in at]
    if missing:
        raise RefusedError(
            f"no column has the tokens of {listed([f'the {one}' for one in missing], 'and')}; "
            f"there are {listed([shown(name) for name in names[:20]], 'and')}",
            "the file has texts: count their tokens with the model's tokenizer first"
            if any(name in _TEXTS for name in plain)
            else "name them: columns: {prompt: NAME, output: NAME}",
        )
    if unit is None and set(plain) == _MOONCAKE:
        unit = TimeUnit.MS
    return Columns(at, names, unit)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _stems(name: str, meaning: Meaning) -> list[tuple[str, TimeUnit | None]]:
    """A name, and of a time what is left of it without its unit."""
    stems: list[tuple[str, TimeUnit | None]] = [(_plain(name), None)]
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", name)
    if meaning is Meaning.TIME and len(words) > 1:
        unit = _SUFFIXES.get(words[-1].lower())
        if unit is not None:
            stems.append((_plain("".join(words[:-1])), unit))
    return stems


def tokens_of(value: object, name: str) -> int:
    """A number of tokens. Raises RefusedError."""
    number: float
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return int(text)
        if not text:
            raise RefusedError(f"{name} is empty", "complete the line, or remove it")
        try:
            number = float(text) if text.isascii() else math.nan
        except ValueError:
            number = math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    elif value is None:
        raise RefusedError(f"{name} is missing", "complete the line, or remove it")
    else:
        number = math.nan
    if not (0 <= number <= MOST_TOKENS and number == int(number)):
        raise RefusedError(
            f"{name}: expected a whole number of tokens from 0 to {MOST_TOKENS:,}, got "
            f"{shown(value)}",
            "correct the line, or remove it",
        )
    return int(number)


def time_of(value: object, name: str) -> tuple[float, bool]:
    """A time, in seconds since 1970 if it is a date, else as the number that it is; and whether it
    is a date. Raises RefusedError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str):
        try:
            number = float(value) if value.isascii() else math.nan
        except ValueError:
            return _date(value.strip(), name), True
    else:
        number = math.nan
    if not math.isfinite(number):
        raise RefusedError(
            f"{name}: expected a time, got {shown(value)}",
            "a number, or a date such as 2023-11-16 18:17:03.979",
        )
    return number, False


def _date(text: str, name: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise RefusedError(
            f"{name}: expected a time, got {shown(text)}",
            "a number, or a date such as 2023-11-16 18:17:03.979",
        ) from None


def unit_of(first: float) -> TimeUnit | None:
    """The unit of times since 1970, by their size; None for others."""
    for unit, per_second in PER_SECOND.items():
        if 1e9 <= first / per_second < 4e9:
            return unit
    return None
