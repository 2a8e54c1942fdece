"""Validates what a file holds as a model, or reports every problem with line, key and hint.

It serves any pydantic model that users write. The stages are the file itself
(`rocelab.labfile.source`), the types and limits of a block's keys, and the checks across them. A
stage shows all its problems; the next runs only if there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rocelab.base.errors import Problem
from rocelab.base.wording import (
    KeyPath,
    RefusedError,
    described,
    did_you_mean,
    dotted,
    listed,
    shown,
)
from rocelab.labfile.fields import (
    FieldPlace,
    choices,
    keys_of,
    locate,
    of_field,
    phrase,
    takes_text,
)
from rocelab.labfile.scalars import read_scalar
from rocelab.labfile.source import MAX_PROBLEMS, Data, YamlSource, raise_problems

Model = TypeVar("Model", bound=BaseModel)
Found = tuple[FieldPlace, ErrorDetails]


def validate(source: YamlSource, model: type[Model]) -> Model:
    """The `model` that a file already read holds. Raises SpecError with every problem."""
    mistakes: list[Found] = []
    result = None
    try:
        result = model.model_validate(source.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        mistakes = _settle_unions([(locate(model, detail["loc"]), detail) for detail in details])
        # Items that are wrong themselves are not there for pydantic, so that too few seem to be.
        mistakes = [
            mistake
            for mistake in mistakes
            if not (mistake[1]["type"] == "too_short" and mistake[1]["input"])
        ]
        mistakes.sort(key=lambda mistake: source.line(mistake[0].path) or 0)
    problems = [_problem(source, model, *mistake) for mistake in mistakes[:MAX_PROBLEMS]]
    named = {_path(source, *mistake) for mistake in mistakes}
    problems += [
        Problem(
            source.file_of(path),
            source.line(path),
            dotted(path),
            "has no value",
            "give it a value, or remove the key",
        )
        for path in _without_value(source.data)
        if path not in named
    ]
    if result is None or problems:
        raise_problems(problems, untold=len(mistakes[MAX_PROBLEMS:]))
    return result


def _without_value(data: dict[str, Data] | list[Data], path: KeyPath = ()) -> Iterator[KeyPath]:
    """The paths of keys and items without a value."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if value is None:
            yield (*path, key)
        elif isinstance(value, dict | list):
            yield from _without_value(value, (*path, key))


def _settle_unions(mistakes: Sequence[Found]) -> list[Found]:
    """One error per place: for a union only the errors of the best fitting member."""
    settled = [mistake for mistake in mistakes if mistake[0].union is None]
    unions: dict[KeyPath, dict[str | int | None, list[Found]]] = {}
    for mistake in mistakes:
        union = mistake[0].union
        if union is not None:
            unions.setdefault(union.path, {}).setdefault(mistake[0].member, []).append(mistake)
    for path, members in unions.items():
        fitting = [errors for errors in members.values() if _fits(errors, path)]
        if fitting:
            best: list[Found] = min(fitting, key=len)
            settled += best
            continue
        place, error = next(iter(members.values()))[0]
        assert place.union is not None
        settled.append((place.union, ErrorDetails(**{**error, "type": "union"})))
    return settled


def _fits(errors: Sequence[Found], union: KeyPath) -> bool:
    """Whether a member of a union accepted the value as its kind and found errors inside it."""
    return any(
        len(place.path) > len(union)
        or (place.declared.model is not None and error["type"] != "model_type")
        for place, error in errors
    )


def _problem(
    source: YamlSource, model: type[BaseModel], place: FieldPlace, error: ErrorDetails
) -> Problem:
    path, value = _path(source, place, error), error["input"]
    context = error.get("ctx", {})
    refusal = context.get("error")
    hint: str | None
    match error["type"]:
        case "extra_forbidden":
            message, hint = "unknown key", _key_hint(model, place)
        case "missing":
            message, hint = f"missing; expected {phrase(place.declared)}", place.description
        case "union_tag_invalid" | "union_tag_not_found":
            key, blocks = place.declared.kinds or ("kind", {})
            word = value.get(key) if isinstance(value, dict) else value
            missing = isinstance(value, dict) and key not in value
            expected = f"expected {listed(blocks)}"
            message = f"missing; {expected}" if missing else f"{expected}, got {shown(word)}"
            hint = _word_hint(word, tuple(blocks))
        case "value_error" if isinstance(refusal, RefusedError):
            message, hint = refusal.message, refusal.hint or place.description
        case "value_error" | "assertion_error":
            message, hint = str(refusal), place.description
        case _:
            got = shown(value) if takes_text(place.declared) else described(value)
            message = f"expected {phrase(place.declared)}, got {got}"
            hint = _value_hint(place, value)
    return Problem(source.file_of(path), source.line(path), dotted(path), message, hint)


def _path(source: YamlSource, place: FieldPlace, error: ErrorDetails) -> KeyPath:
    """The path at which to show a problem: that of its key, present or missing in the file."""
    refusal = error.get("ctx", {}).get("error")
    keys: Sequence[KeyPath] = ()
    if isinstance(refusal, RefusedError):
        keys = refusal.keys
    elif error["type"].startswith("union_tag") and place.declared.kinds is not None:
        key, _ = place.declared.kinds
        if key not in error["input"]:
            return (*place.path, key)
        keys = ((key,),)
    return place.path + next((key for key in keys if (*place.path, *key) in source.lines), ())


def _key_hint(model: type[BaseModel], place: FieldPlace) -> str:
    """Advice about an unknown key: the key that was probably meant, or the allowed keys."""
    key = str(place.path[-1])
    allowed = [name for name, _ in keys_of(place.model)] if place.model else []
    others = _kinds_with(place, key)
    if others:
        return (
            f"{key} is of kind {listed(others)}; the keys of {place.member}: {', '.join(allowed)}"
        )
    meant = did_you_mean(key.replace("-", "_"), allowed)
    if meant:
        return meant
    elsewhere = next((path for path in _keys_below(model) if path[-1] == key), None)
    if elsewhere is not None:
        return f"did you mean {dotted(elsewhere)}?"
    return f"the keys allowed here: {', '.join(allowed)}"


def _kinds_with(place: FieldPlace, key: str) -> list[str]:
    """The kinds of a block that have `key`, for a block whose kind does not have it."""
    union = place.union
    if union is None or place.path[:-1] != union.path or union.declared.kinds is None:
        return []
    _, blocks = union.declared.kinds
    models = {word: block.model for word, block in blocks.items()}
    return [word for word, model in models.items() if model and key in dict(keys_of(model))]


def _keys_below(model: type[BaseModel], path: KeyPath = ()) -> Iterator[KeyPath]:
    for name, info in keys_of(model):
        yield (*path, name)
        for member in of_field(info).members:
            if member.model is not None and member.model is not model:
                yield from _keys_below(member.model, (*path, name))


def _word_hint(value: object, words: Sequence[str]) -> str | None:
    return did_you_mean(value, words) if isinstance(value, str) else None


def _value_hint(place: FieldPlace, value: object) -> str | None:
    """Advice about a value of the wrong type or beyond a limit."""
    if isinstance(value, bool):
        if value and any(member.model for member in place.declared.members):
            return "{} takes the default of each key"
        quote = "quote it: " if choices(place.declared) else ""
        return f"{quote}YAML reads a bare on, yes or true as true, and off, no or false as false"
    if isinstance(value, str):
        if takes_text(place.declared):
            return _word_hint(value, choices(place.declared)) or place.description
        meant = type(_unquoted(value))
        wanted = {member.annotation for member in place.declared.members}
        if meant in wanted or (meant is int and float in wanted):
            return f"write {value} without quotes"
    if value is None:
        return "give it a value, or remove the key"
    return place.description


def _unquoted(text: str) -> object:
    try:
        return read_scalar(text, None, plain=True)
    except RefusedError:
        return text
