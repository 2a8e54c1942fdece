"""The keys of documents end in their unit: `latency_ns`, `rate_bps`, `busbw_gbs`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import rocelab.results
from rocelab.base.documents import to_json
from rocelab.results.whatif import Outlook
from tests.helpers import comparison_sample, phases_sample, report_sample
from tests.helpers.page_samples import OUTLOOK, RESTART, simulated

QUANTITIES = {
    *("time", "latency", "duration", "delay", "interval", "elapsed", "took", "takes", "waited"),
    *("timeout", "age", "instant", "every", "stall", "wait", "rtt", "convergence"),
    *("rate", "bandwidth", "busbw", "algbw", "goodput", "throughput", "capacity", "speed"),
    *("memory", "size", "length", "headroom", "payload"),
}
"""The words of a name that stand for a quantity with a unit."""

UNITS = {"ns", "us", "ms", "s", "bytes", "bps", "gbs", "pps", "hours", "share", "ratio", "fraction"}
SPECS = {"lab", "drill", "job", "scheme", "hashing", "probes"}
"""Keys that hold a file as it was read: `docs/results.md` says its units."""

OF_RUNS = {"truths", "unmeasured"}
"""Keys that count runs by the name of a KPI."""

NUMBER = re.compile(r"\b(int|float)\b")
TEXT = re.compile(r"\bstr\b|\bSpread\b")


def lacks_unit(name: str) -> bool:
    words = name.split("_")
    return bool(QUANTITIES & set(words)) and not UNITS & set(words[-1:])


def fields() -> Iterator[tuple[str, str]]:
    """The numeric fields of the classes of documents."""
    for module in pkgutil.walk_packages(rocelab.results.__path__, "rocelab.results."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if dataclasses.is_dataclass(kind) and kind.__module__ == module.name:
                for field in dataclasses.fields(kind):
                    if NUMBER.search(str(field.type)) and not TEXT.search(str(field.type)):
                        yield kind.__name__, field.name


def keys(value: object) -> Iterator[str]:
    """The keys of numbers in a document, at any depth."""
    match value:
        case dict():
            for key, inner in value.items():
                if isinstance(inner, int | float) and not isinstance(inner, bool):
                    yield key
                if key not in SPECS | OF_RUNS:
                    yield from keys(inner)
        case list():
            for inner in value:
                yield from keys(inner)


def test_a_field_that_holds_a_quantity_ends_in_its_unit() -> None:
    assert [f"{kind}.{name}" for kind, name in fields() if lacks_unit(name)] == []


@pytest.mark.parametrize(
    "document",
    [
        report_sample.result(),
        phases_sample.result(),
        comparison_sample.report(),
        comparison_sample.comparison(),
        simulated(),
        Outlook(1, "zone", "rates", "", RESTART, (), (OUTLOOK,)),
    ],
    ids=("drill", "phases", "job", "comparison", "simulation", "long-run"),
)
def test_a_key_that_holds_a_quantity_ends_in_its_unit(document: Any) -> None:
    assert sorted({key for key in keys(json.loads(to_json(document))) if lacks_unit(key)}) == []
