"""The `expect` block of a drill file: a key per KPI, each with its own form of limit.

A key such as `full_convergence: "<= 1s"` becomes an `Expectation`; the schema lets editors check
the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema, create_model, model_validator

from rocelab.base.kinds import check_keys
from rocelab.labfile.base import SpecModel
from rocelab.results.expectations import Expectation, parse_expectation
from rocelab.results.kpi import Quantity
from rocelab.results.kpis import KPI_DOOR, KPIS

_FORMS: dict[Quantity, dict[str, Any]] = {
    Quantity.TRUTH: {"type": "boolean"},
    Quantity.COUNT: {"type": ["integer", "string"], "examples": [0, "<= 500"]},
    Quantity.SIZE: {"type": "string", "examples": ["<= 3MB"]},
    Quantity.BANDWIDTH: {"type": ["number", "string"], "examples": [">= 40"]},
    Quantity.RATIO: {"type": ["number", "string"], "examples": ["<= 2.5"]},
    Quantity.DURATION: {"type": "string", "examples": ["<= 1s"]},
    Quantity.FINDING: {"type": ["string", "array"], "examples": ["none", "slow-receiver srv2-1"]},
}


def _as_written(expectation: Expectation | None) -> str | bool | None:
    """The text of the drill file, so that a dumped drill reads back."""
    if expectation is None:
        return None
    if KPIS[expectation.kpi].quantity is Quantity.TRUTH:
        return bool(expectation.limit)
    return expectation.written


def expected(kpi: str) -> tuple[Any, ...]:
    """The annotations of an `expect` key: its parser, its text, and its form for editors."""

    def parse(value: object) -> Expectation:
        return parse_expectation(kpi, value)

    form = _FORMS[KPIS[kpi].quantity]
    return (
        PlainValidator(parse),
        PlainSerializer(_as_written),
        WithJsonSchema({**form, "description": KPIS[kpi].meaning}),
    )


class Expectations(SpecModel):
    """What figures must come to; the keys are KPIs."""

    @model_validator(mode="before")
    @classmethod
    def _usable(cls, block: object) -> object:
        check_keys(KPI_DOOR, block, cls)
        return block

    def expectations(self) -> tuple[Expectation, ...]:
        """The expectations in the file, in the order of the KPIs."""
        stated = [getattr(self, name) for name in type(self).model_fields]
        return tuple(expectation for expectation in stated if expectation is not None)

    def of(self, kpi: str) -> Expectation | None:
        """The expectation of a KPI; None if the file has none."""
        return next(
            (expectation for expectation in self.expectations() if expectation.kpi == kpi), None
        )


def _key(kpi: str) -> object:
    return Annotated[Expectation | None, *expected(kpi)]


if TYPE_CHECKING:
    ExpectSpec = Expectations
else:
    ExpectSpec = create_model(
        "ExpectSpec",
        __base__=Expectations,
        __doc__="What the figures of every repeat must come to for the drill to pass.",
        **{name: (_key(name), None) for name in KPIS},
    )
"""What the figures of a phase must come to in every repeat: a key for each KPI."""
