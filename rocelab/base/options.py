"""Declares, at a field of a dataclass, the option of commands that sets it.

    @dataclass(frozen=True, slots=True)
    class Options:
        hop_latency_ns: float | None = option(
            None, "The latency of each link.", name="hop_latency", metavar="TIME", read=parse_time
        )

`rocelab.cli.options` makes the options of commands from such fields, `read_options` the dataclass
from the values that were typed, or that a file has under the same names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from rocelab.base.errors import InputError
from rocelab.base.wording import RefusedError, did_you_mean, listed, shown

Chosen = TypeVar("Chosen")
Member = TypeVar("Member", bound=Enum)
Details = Any
"""Values of the fields of `Option`."""
_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """How commands accept a field."""

    help: str
    name: str = ""
    """Its name if it is not the field's."""

    metavar: str | None = None
    panel: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    read: Callable[[Any], object] | None = None
    """Makes the value of the text, or of the list of texts if the option is `several`. Raises
    RefusedError."""

    words: Callable[[], Iterable[str]] | None = None
    """What the shell completes."""

    several: bool = False
    """The option may be given several times."""

    says_default: bool = False
    """The help text itself states the default."""

    default_text: str = ""
    """What the help names as the default, if the field's is None."""


def option(
    default: object, help: str, *, factory: Callable[[], object] | None = None, **details: Details
) -> Any:  # noqa: ANN401 - a field of any type, as dataclasses.field
    """A field of a dataclass with an option, which takes the values of an enumeration if the
    default is one of its members; `factory` makes a default that is no constant."""
    if isinstance(default, Enum):
        members = type(default)
        details |= {"read": partial(member_of, members), "words": partial(values_of, members)}
    metadata = {_KEY: Option(help, **details)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(kind: type) -> Mapping[str, tuple[dataclasses.Field[Any], Option]]:
    """The fields of a dataclass that have an option, with it, by the option's name."""
    entries = [
        (field, field.metadata[_KEY]) for field in dataclasses.fields(kind) if field.metadata
    ]
    return {details.name or field.name: (field, details) for field, details in entries}


def spelling(name: str) -> str:
    """The option of that name as it is typed."""
    return f"--{name.replace('_', '-')}"


def read_options(kind: type[Chosen], values: Mapping[str, Any]) -> Chosen:
    """A dataclass of options with these values by the options' names; None is the default.

    Raises InputError for a value that its option does not take.
    """
    chosen = {}
    for name, (field, details) in options_of(kind).items():
        value = values.get(name)
        if value is not None:
            with of_option(spelling(name)):
                chosen[field.name] = value if details.read is None else details.read(value)
    return kind(**chosen)


def values_of(members: type[Enum]) -> list[str]:
    """The values of an enumeration, as they are typed."""
    return [str(member.value) for member in members]


def member_of(members: type[Member], text: str) -> Member:
    """The member of that value. Raises RefusedError with the one that was probably meant."""
    words = values_of(members)
    if text not in words:
        raise RefusedError(
            f"expected {listed(words)}, got {shown(text)}", did_you_mean(text, words)
        )
    return members(text)


@contextmanager
def of_option(typed: str) -> Iterator[None]:
    """A value that is refused in the block is that of an option: raises InputError with it."""
    try:
        yield
    except RefusedError as error:
        raise InputError(f"{typed}: {error.message}", error.hint) from None
