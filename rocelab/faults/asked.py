"""Parses a fault from a command line, a kind and KEY=VALUE pairs, and lists the kinds.

The result is the same validated spec as in a drill file, with the same error messages. A fault on a
running lab begins at once, so `at` is no key here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_origin

from pydantic.fields import FieldInfo

from rocelab.base.errors import COMMAND_LINE, InputError, Problem, SpecError
from rocelab.base.units import DURATION, SHARE
from rocelab.base.wording import RefusedError, did_you_mean, shown
from rocelab.faults.base import TimedSpec
from rocelab.faults.door import KINDS
from rocelab.faults.fault_spec import FaultSpec
from rocelab.faults.selectors import LinkSelector
from rocelab.labfile.fields import (
    DeclaredType,
    choices,
    default_text,
    keys_of,
    of_field,
    quantity_of,
)
from rocelab.labfile.load import validate
from rocelab.labfile.scalars import read_scalar
from rocelab.labfile.source import Data, YamlSource, parse_source, raise_problems

_TIMES = ("at", "lasts")


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a kind. `value` describes its values; `default` is None if there is none."""

    name: str
    value: str
    needed: bool
    default: str | None
    description: str | None


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault: what it does, in a sentence or two, and its keys."""

    name: str
    meaning: str
    keys: tuple[Key, ...]


def kinds() -> tuple[FaultKind, ...]:
    """Every kind of fault for a running lab, as in drill files."""
    return tuple(
        FaultKind(
            name,
            " ".join((model.__doc__ or "").split()),
            tuple(
                Key(
                    key,
                    _form(of_field(info)),
                    info.is_required(),
                    _default(info),
                    info.description,
                )
                for key, info in _keys(model)
            ),
        )
        for name, model in KINDS.all().items()
    )


def asked_fault(kind: str, pairs: Sequence[str]) -> FaultSpec:
    """The fault of a command line.

    Lists are written with commas: `links=rtsw1:ctsw1,rtsw1:ctsw2`. Raises InputError for an unknown
    kind, SpecError with every problem of the keys.
    """
    if not KINDS.has(kind):
        meant = did_you_mean(kind, KINDS.names)
        raise InputError(
            f"there is no kind of fault {shown(kind)}",
            f"{f'{meant} ' if meant else ''}`rocelab fault kinds` explains each: "
            f"{', '.join(KINDS.names)}",
        )
    model = KINDS.find(kind)
    fields = {key: of_field(info) for key, info in keys_of(model)}
    data: dict[str, Data] = {"kind": kind}
    problems: list[Problem] = []
    for pair in pairs:
        key, equals, text = pair.partition("=")
        problem = _wrong_pair(model, key, equals, key in data)
        if problem is not None:
            problems.append(problem)
            continue
        try:
            data[key] = _value(key, text, fields[key])
        except SpecError as error:
            problems += [
                replace(found_problem, line=None, key=key) for found_problem in error.problems
            ]
        except RefusedError as refusal:
            problems.append(Problem(COMMAND_LINE, None, key, refusal.message, refusal.hint))
    if problems:
        raise_problems(problems)
    return validate(YamlSource(COMMAND_LINE, data, {}), model)


def ends_by_itself(spec: FaultSpec) -> bool:
    """Whether the fault is over at some time, and not only when someone restores it."""
    return spec.lasts is not None or spec.no_lasts is not None


def _keys(model: type[TimedSpec]) -> list[tuple[str, FieldInfo]]:
    """The keys of a kind, those of its own before when it ends."""
    named = [(name, info) for name, info in keys_of(model) if name not in ("kind", *_TIMES)]
    if model.no_lasts is None:
        named.append(("lasts", model.model_fields["lasts"]))
    return named


def _wrong_pair(model: type[TimedSpec], key: str, equals: str, known: bool) -> Problem | None:
    def problem(message: str, hint: str) -> Problem:
        return Problem(COMMAND_LINE, None, "", message, hint)

    names = [name for name, _ in _keys(model)]
    allowed = f"the keys allowed here: {', '.join(names)}"
    if not equals:
        return problem(f"expected KEY=VALUE, got {shown(key)}", allowed)
    if key == "at":
        return problem("a fault on a running lab begins at once", "remove at")
    if key == "kind":
        return problem("write the kind before the keys", "remove kind=")
    if known:
        return problem(f"{key} is given twice", "lists are written with commas: links=A,B")
    # Keys such as lasts are passed on: the model refuses them with a reason.
    if key not in model.model_fields:
        meant = did_you_mean(key.replace("-", "_"), names)
        return problem(f"unknown key {shown(key)}", meant or allowed)
    return None


def _value(key: str, text: str, declared: DeclaredType) -> Data:
    """The value of a text for a field declared as `declared`. Raises RefusedError and SpecError."""
    if not text:
        return None
    if text[:1] in ("[", "{"):
        return parse_source(f"{key}: {text}", COMMAND_LINE).data.get(key)
    if _is_list(declared):
        return [_value(key, word.strip(), declared.at(0)) for word in text.split(",")]
    kinds = {member.annotation for member in declared.members}
    if kinds & {int, float, bool} and quantity_of(declared) is None:
        return read_scalar(text, None, plain=True)
    return text


def _default(info: FieldInfo) -> str | None:
    if isinstance(info.default, tuple) and info.default:
        return ",".join(map(str, info.default))
    return default_text(info)


def _is_list(declared: DeclaredType) -> bool:
    return any(get_origin(member.annotation) is tuple for member in declared.members)


def _form(declared: DeclaredType) -> str:
    """The form of a value, for a usage line."""
    if _is_list(declared):
        return f"{_form(declared.at(0))},..."
    words = choices(declared)
    quantity = quantity_of(declared)
    if words:
        return "|".join(words)
    if quantity is not None:
        return {DURATION: "TIME", SHARE: "SHARE"}.get(quantity, "VALUE")
    if declared.model is LinkSelector:
        return "NODE:INTERFACE"
    kinds = {member.annotation for member in declared.members}
    if bool in kinds:
        return "true|false"
    return "N" if int in kinds else "NODE"
