"""Validates a test's keywords like a drill file, with the same messages.

The result is the model of a drill file's block; a SpecError names the test's file and line.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TypeVar, cast

from pydantic import BaseModel, create_model

from rocelab.base.errors import InputError
from rocelab.faults.base import SeriesSpec, SingleFaultSpec
from rocelab.faults.fault_spec import FaultSpec
from rocelab.labfile.base import SpecModel
from rocelab.labfile.load import validate
from rocelab.labfile.source import Data, YamlSource

Model = TypeVar("Model", bound=BaseModel)


def as_block(block: str, model: type[Model], keywords: Mapping[str, object]) -> Model:
    """`keywords` as a drill file's block of that name. Raises SpecError with all problems."""
    wrapper = create_model("Written", __base__=SpecModel, **{block: (model, ...)})  # type: ignore[call-overload]
    return cast(Model, getattr(_validated(block, wrapper, keywords), block))


class _WrittenFault(SpecModel):
    fault: FaultSpec


def as_fault(kind: str, keywords: Mapping[str, object]) -> FaultSpec:
    """A fault as in a drill file. Raises SpecError with all problems."""
    return _validated("fault", _WrittenFault, {"kind": kind, **keywords}).fault


def lasting(kind: str, keywords: Mapping[str, object]) -> SingleFaultSpec:
    """A fault that the test begins and ends itself. Raises SpecError, and InputError for a kind or
    key with a schedule of its own."""
    spec = as_fault(kind, keywords)
    if isinstance(spec, SeriesSpec):
        raise InputError(
            f"{kind} begins and ends by itself, again and again",
            hint=f'it is no `with` block: call run.carry_out("{kind}", ...), which returns at its '
            "end",
        )
    for key in ("at", "lasts"):
        if key in keywords:
            raise InputError(
                f"fault({kind!r}) has the key {key}, but the `with` block sets the time",
                hint=f"leave {key} out, or call run.carry_out({kind!r}, ...), which takes it",
            )
    return spec


def _validated(block: str, model: type[Model], keywords: Mapping[str, object]) -> Model:
    file, line = _where()
    data = {key: _plain(value) for key, value in keywords.items()}
    source = YamlSource(file, {block: data}, {(): line, (block,): line})
    return validate(source, model)


def _plain(value: object) -> Data:
    """A value as in YAML: tuples become lists."""
    return cast(Data, [_plain(item) for item in value] if isinstance(value, tuple) else value)


def _where() -> tuple[str, int]:
    """File and line of the nearest caller outside this package."""
    frame = sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("rocelab."):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
