"""Blocks whose key `kind` names one of the models that a door has.

`spray` is short for `{kind: spray}`. A registered model is a class whose key `kind` has its name as
its only value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from inspect import isabstract
from operator import or_
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BeforeValidator, Field

from rocelab.base.doors import Door
from rocelab.base.errors import InputError
from rocelab.base.models import SpecModel
from rocelab.base.wording import RefusedError

LAST = 100

Model = TypeVar("Model", bound=SpecModel)


def model_door(group: str, noun: str, base: type[Model]) -> Door[type[Model]]:
    """The door of a group whose objects are classes of `base`, each a model with its kind."""
    return Door(group, noun, lambda name, value: kind_model(name, value, base))


def kind_model(name: str, value: object, base: type[Model]) -> type[Model]:
    """What is registered as `name`, a class of `base`. Raises TypeError with what it lacks."""
    if not (isinstance(value, type) and issubclass(value, base)):
        raise TypeError(f"expected a class of {base.__module__}.{base.__name__}")
    if isabstract(value):
        raise TypeError(f"{value.__name__} lacks {', '.join(sorted(value.__abstractmethods__))}")
    kind = value.model_fields.get("kind")
    if kind is None or get_args(kind.annotation) != (name,):
        raise TypeError(f'expected its key kind to be Literal["{name}"]')
    return value


def in_order(door: Door[type[Model]]) -> Mapping[str, type[Model]]:
    """The registered models by their `place` if they have one, then by name."""
    return dict(sorted(door.all().items(), key=lambda item: getattr(item[1], "place", LAST)))


def any_of(door: Door[type[Model]], base: type[SpecModel] = SpecModel) -> object:
    """The type of a block that is one of the registered models, of those that are a `base`."""

    def block(value: object) -> object:
        check_usable(door, value.get("kind") if isinstance(value, dict) else value)
        return {"kind": value} if isinstance(value, str) else value

    models = [model for model in in_order(door).values() if issubclass(model, base)]
    return Annotated[one_of(models), BeforeValidator(block)]


def check_usable(door: Door[Any], kind: object, keys: Iterable[str] = ()) -> None:
    """Raises RefusedError, with `keys`, for a registered kind that cannot be loaded."""
    if isinstance(kind, str) and door.has(kind):
        try:
            door.find(kind)
        except InputError as error:
            raise RefusedError(error.message, error.hint, keys) from error


def check_keys(door: Door[Any], block: object, model: type[SpecModel]) -> None:
    """Raises RefusedError for a key of a block that its model lacks, since what is registered as
    that cannot be loaded."""
    for key in block if isinstance(block, dict) else ():
        if key not in model.model_fields:
            check_usable(door, key, (key,))


def one_of(models: Iterable[type[SpecModel]]) -> object:
    """The type of a block that is one of some models, which `kind` chooses."""
    union = reduce(or_, models)
    # pydantic takes a discriminator for two members and more.
    return Annotated[union, Field(discriminator="kind")] if get_args(union) else union
