"""Clauses that become a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from rocelab.base.quantities import count, in_unit, ratio
from rocelab.report.document import Card
from rocelab.results.job import Headline

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def sentence(*clauses: str) -> str:
    """The clauses that are not empty, as one sentence; empty without any."""
    text = "; ".join(filter(None, clauses))
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def and_more(texts: Iterable[str], most: int = 1) -> str:
    """The first texts, and how many more there are: `rtsw1 and 2 more`."""
    texts = list(texts)
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def in_words(number: int) -> str:
    """`two`, `12`."""
    return _NUMBERS[number] if number < len(_NUMBERS) else count(number)


def times_of(value: float, other: float) -> str:
    """`2.4 times`, of the greater over the lesser."""
    return f"{ratio(max(value, other) / min(value, other))} times"


def headline_card(headline: Headline) -> Card:
    """The median of a headline, with its extremes if they differ."""
    spread = headline.modelled
    low, middle, high = (
        in_unit(value, headline.unit) for value in (spread.minimum, spread.median, spread.maximum)
    )
    title = headline.title
    if title not in ("algbw", "busbw"):
        title = f"{title[:1].upper()}{title[1:]}"
    return Card(title, middle, f"{low} to {high}, n = {spread.n}" if low != high else "")
