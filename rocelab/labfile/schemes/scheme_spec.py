"""How a lab spreads flows over equal paths: the key `scheme` of its file.

`scheme: spray` is short for `scheme: {kind: spray}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocelab.base.doors import Door
from rocelab.base.kinds import any_of, in_order, kind_model
from rocelab.labfile.base import SpecModel
from rocelab.labfile.schemes.base import Scheme


def _scheme(name: str, value: object) -> type[Scheme]:
    scheme = kind_model(name, value, Scheme)
    if scheme.controller is not None and scheme.unpredictable is None:
        raise TypeError(f"{scheme.__name__} has a controller, and lacks unpredictable")
    return scheme


SCHEME_DOOR = Door("rocelab.schemes", "scheme", _scheme)

if TYPE_CHECKING:
    SchemeSpec = Scheme
else:
    SchemeSpec = any_of(SCHEME_DOOR)


class SchemeChoice(SpecModel):
    """A scheme alone, as a command names it."""

    scheme: SchemeSpec


SCHEMES: Mapping[str, type[Scheme]] = in_order(SCHEME_DOOR)
"""Every scheme by its kind."""


def scheme_of(kind: str, **keys: object) -> Scheme:
    """The scheme of a kind with these keys. Raises InputError for an unknown kind."""
    return SCHEME_DOOR.find(kind).model_validate({"kind": kind, **keys})


def scheme_kinds() -> dict[str, str]:
    """What each kind of scheme does, by its name."""
    return {kind: " ".join((model.__doc__ or "").split()) for kind, model in SCHEMES.items()}


def predictable_kinds() -> list[str]:
    """The kinds whose paths follow from tables and flows alone."""
    return [kind for kind, model in SCHEMES.items() if model.unpredictable is None]
