"""Finds what a pydantic model declares at the place of an error: what was expected there.

pydantic's location of an error mixes keys of the file with names of union members. It is resolved
to the path in the file, the model around it, and the declaration in words.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic.types import Tag

from rocelab.base.units import UnitScale
from rocelab.base.wording import KeyPath, counted, listed

MAX_LISTED = 12


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A type and the metadata of its Annotated, None if unknown."""

    annotation: Any
    metadata: tuple[object, ...] = ()

    @property
    def members(self) -> tuple[DeclaredType, ...]:
        """The members of a union, without None; any other type is its only member."""
        if get_origin(self.annotation) not in (Union, types.UnionType):
            return (self,)
        args = (arg for arg in get_args(self.annotation) if arg is not types.NoneType)
        return tuple(member for arg in args for member in declare(arg).members)

    @property
    def model(self) -> type[BaseModel] | None:
        """The pydantic model whose keys a file may give, if the type is one, optional or not: not
        one with a schema of its own, such as what is read from other files."""
        if any(isinstance(item, WithJsonSchema) for item in self.metadata):
            return None
        only = self.members[0].annotation if len(self.members) == 1 else None
        return only if isinstance(only, type) and issubclass(only, BaseModel) else None

    def at(self, part: str | int) -> DeclaredType:
        """The declaration of a key or an item of this."""
        model = self.model
        if model is not None:
            return next(
                (of_field(info) for name, info in keys_of(model) if name == part),
                DeclaredType(None),
            )
        if len(self.members) != 1:
            return DeclaredType(None)
        args = get_args(self.members[0].annotation)
        return declare(args[-1 if isinstance(part, str) else 0]) if args else DeclaredType(None)

    def member(self, tag: str | int) -> DeclaredType:
        """The member of this union that pydantic calls `tag`."""
        return next(
            (member for member in self.members if member.is_called(tag)), DeclaredType(None)
        )

    @property
    def kinds(self) -> tuple[str, dict[str, DeclaredType]] | None:
        """The key that distinguishes this union's blocks, and the block of each of its words."""
        models = [member.model for member in self.members]
        if len(models) < 2 or None in models:
            return None
        fields = [dict(keys_of(model)) for model in models if model is not None]
        for key in fields[0]:
            words = [choices(of_field(keys[key])) if key in keys else () for keys in fields]
            if all(len(word) == 1 for word in words):
                return key, {
                    word[0]: member for word, member in zip(words, self.members, strict=True)
                }
        return None

    def is_called(self, tag: str | int) -> bool:
        """Whether pydantic uses `tag` for this member of a union in an error's location."""
        if any(isinstance(item, Tag) and item.tag == tag for item in self.metadata):
            return True
        model = self.model
        return model is not None and (
            model.__name__ == tag
            or any(tag in choices(of_field(info)) for _, info in keys_of(model))
        )


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """The place of an error: its path in the file and the declaration there."""

    path: KeyPath
    declared: DeclaredType
    model: type[BaseModel] | None = None
    """The model that holds the last key of the path."""

    union: FieldPlace | None = None
    """The place of the outermost union passed."""

    member: str | int | None = None
    """The member of `union` that was tried there."""

    @property
    def description(self) -> str | None:
        """The model's description of the last key of the path, and its default."""
        keys = dict(keys_of(self.model)) if self.model and self.path else {}
        info = keys.get(str(self.path[-1])) if keys else None
        if info is None or info.description is None:
            return None
        default = default_text(info)
        return f"{info.description}; {default} if left out" if default else info.description


def declare(annotation: object) -> DeclaredType:
    """The declaration of a type, with the metadata of its Annotated taken off."""
    if get_origin(annotation) is Annotated:
        bare, *items = get_args(annotation)
        metadata: list[object] = []
        for item in items:
            metadata += item.metadata if isinstance(item, FieldInfo) else [item]
        return DeclaredType(bare, tuple(metadata))
    return DeclaredType(annotation)


def of_field(info: FieldInfo) -> DeclaredType:
    """The declaration of a model's field."""
    return DeclaredType(info.annotation, tuple(info.metadata))


def keys_of(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The keys a file may give for `model`, with their fields."""
    for name, info in model.model_fields.items():
        yield info.alias or name, info


def default_text(info: FieldInfo) -> str | None:
    """A field's default as written in a file, None without one and for empty text."""
    quantity = quantity_of(of_field(info))
    match info.default:
        case Enum(value=value):
            return str(value)
        case bool(flag):
            return "true" if flag else "false"
        case int(number) if quantity is not None:
            return quantity.written(number)
        case int() | float() | str() if info.default != "":
            return f"{info.default}".removesuffix(".0")
        case _:
            return None


def locate(model: type[BaseModel], location: KeyPath) -> FieldPlace:
    """The place of an error from the location that pydantic gives for it in `model`."""
    here = DeclaredType(model)
    path: list[str | int] = []
    holder: type[BaseModel] | None = None
    union: FieldPlace | None = None
    member: str | int | None = None
    for part in location:
        if len(here.members) > 1:
            if union is None:
                union, member = FieldPlace(tuple(path), here, holder), part
            here = here.member(part)
            continue
        holder = here.model
        here = here.at(part)
        path.append(part)
    return FieldPlace(tuple(path), here, holder, union, member)


def choices(declared: DeclaredType) -> tuple[str, ...]:
    """The words allowed at a place: of its enumerations and literals."""
    words: list[str] = []
    for member in declared.members:
        if get_origin(member.annotation) is Literal:
            words += [str(arg) for arg in get_args(member.annotation)]
        elif isinstance(member.annotation, type) and issubclass(member.annotation, Enum):
            words += [str(item.value) for item in member.annotation]
    return tuple(words)


def takes_text(declared: DeclaredType) -> bool:
    """Whether some text is allowed at a place."""
    return bool(choices(declared)) or any(
        member.annotation is str or quantity_of(member) for member in declared.members
    )


def quantity_of(declared: DeclaredType) -> UnitScale | None:
    """The kind of quantity (rate, size, duration) declared at a place, if it is one."""
    metadata = (*declared.metadata, *declared.members[0].metadata)
    return next((item for item in metadata if isinstance(item, UnitScale)), None)


def phrase(declared: DeclaredType) -> str:
    """What is expected at a place, in words: `a whole number from 1 to 64`."""
    members = declared.members
    if len(members) == 1:
        return _phrase(DeclaredType(members[0].annotation, declared.metadata + members[0].metadata))
    words = choices(declared)
    if declared.kinds is not None:
        key, blocks = declared.kinds
        return f"a block of keys with {key}: {listed(blocks)}"
    several_blocks = sum(member.model is not None for member in members) > 1
    rest = [
        "a block of keys" if several_blocks and member.model else _phrase(member)
        for member in members
        if not choices(member)
    ]
    return listed(dict.fromkeys([*words, *rest]))


def _phrase(declared: DeclaredType) -> str:
    quantity = quantity_of(declared)
    if quantity is not None:
        limits = _limits(declared, quantity)
        return f"{quantity.expected},{limits}" if limits else quantity.expected
    words = choices(declared)
    if words:
        return listed(words)
    if declared.model is not None:
        keys = [name for name, _ in keys_of(declared.model)]
        more = ", ..." if len(keys) > MAX_LISTED else ""
        return f"a block of keys ({', '.join(keys[:MAX_LISTED])}{more})"
    kind = get_origin(declared.annotation) or declared.annotation
    names = {
        bool: "true or false",
        int: f"a whole number{_limits(declared)}",
        float: f"a number{_limits(declared)}",
        str: f"text{_sizes(declared, 'character')}",
        dict: "a block of keys",
        list: f"a list{_sizes(declared, 'item')}",
        tuple: f"a list{_sizes(declared, 'item')}",
    }
    return names.get(kind, "something else")


def is_above_zero(declared: DeclaredType) -> bool:
    """Whether a number of that type is not 0 or less."""
    return any(
        (isinstance(item, Ge) and item.ge > 0) or (isinstance(item, Gt) and item.gt >= 0)  # type: ignore[operator]
        for item in declared.metadata
    )


def _limits(declared: DeclaredType, quantity: UnitScale | None = None) -> str:
    def write(value: object) -> str:
        return quantity.written(value) if quantity and isinstance(value, int) else f"{value}"

    low = high = above = below = None
    for item in declared.metadata:
        match item:
            case Ge(ge=value):
                low = write(value)
            case Gt(gt=value):
                above = write(value)
            case Le(le=value):
                high = write(value)
            case Lt(lt=value):
                below = write(value)
    if low and high:
        return f" from {low} to {high}"
    parts = (
        f"of at least {low}" if low else "",
        f"above {above}" if above else "",
        f"at most {high}" if high else "",
        f"below {below}" if below else "",
    )
    said = " and ".join(part for part in parts if part)
    return f" {said}" if said else ""


def _sizes(declared: DeclaredType, what: str) -> str:
    least = next((item.min_length for item in declared.metadata if isinstance(item, MinLen)), 0)
    most = next((item.max_length for item in declared.metadata if isinstance(item, MaxLen)), None)
    if least and most is not None:
        return f" of {least} to {counted(most, what)}"
    if most is not None:
        return f" of at most {counted(most, what)}"
    return f" of at least {counted(least, what)}" if least else ""
