"""The schemas of files: they take what ships, refuse what the reader refuses, and are named."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from rocelab.cli.schemas import SchemaKind, file_name, schema, schema_text
from tests.unit.conftest import Outcome

ROOT = Path(__file__).parents[3]
FLOWS = "traffic/elephants.yaml"
SHIPPED = [
    *((SchemaKind.LAB, path) for path in sorted(ROOT.glob("labs/*.yaml"))),
    *((SchemaKind.DRILL, path) for path in sorted(ROOT.glob("scripts/*.yaml"))),
    *(
        (SchemaKind.JOB, path)
        for path in sorted(ROOT.glob("traffic/*.yaml"))
        if not path.match(FLOWS)
    ),
    *((SchemaKind.SERVER, path) for path in sorted(ROOT.glob("servers/*.yaml"))),
    (SchemaKind.FLOWS, ROOT / FLOWS),
    (SchemaKind.SWEEP, ROOT / "examples/uplinks.yaml"),
    (SchemaKind.LAB, ROOT / "examples/two-racks.yaml"),
]
LAB: dict[str, Any] = {"name": "mine", "fabric": {"kind": "clos", "racks": 2, "spines": 2}}
DRILL = {
    "name": "mine",
    "lab": "tiny",
    "faults": [{"kind": "carrier-down", "at": "1s", "link": "rtsw1:ctsw1"}],
}


@cache
def validator(kind: SchemaKind) -> Draft202012Validator:
    content = schema(kind)
    Draft202012Validator.check_schema(content)
    return Draft202012Validator(content)


def problems(kind: SchemaKind, data: object) -> list[str]:
    return [error.message for error in validator(kind).iter_errors(data)]


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda part: getattr(part, "name", part))
def test_a_file_that_ships_names_its_schema_and_fits_it(kind: SchemaKind, path: Path) -> None:
    text = path.read_text()
    assert text.splitlines()[0] == (f"# yaml-language-server: $schema=../schemas/{file_name(kind)}")
    assert problems(kind, yaml.safe_load(text)) == []
    assert (path.parent / "../schemas" / file_name(kind)).is_file()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (SchemaKind.LAB, {"name": "mine", "fabric": {"kind": "clos", "rack": 2}}),
        (SchemaKind.DRILL, {**DRILL, "fault": []}),
        (SchemaKind.DRILL, {**DRILL, "faults": [{"kind": "carrier-up", "at": "1s"}]}),
        (SchemaKind.DRILL, {"name": "mine", "lab": "tiny", "phases": [{"nam": "one"}]}),
        (SchemaKind.DRILL, {**DRILL, "expect": {"lost_packet": 0}}),
        (SchemaKind.JOB, {"pattern": "allredux", "ranks": 8, "size": "1MB"}),
        (SchemaKind.JOB, {"jobs": [{"name": "one", "trainings": {}}]}),
        (SchemaKind.FLOWS, {"flows": [{"source": "srv1-1", "to": "srv2-1"}]}),
        (SchemaKind.SWEEP, {"lab": "tiny", "jobs": "allreduce"}),
        (SchemaKind.LAB, {**LAB, "links": {"rate": "0.0G"}}),
        (SchemaKind.LAB, {**LAB, "routing": {"hold": "0s"}}),
        (SchemaKind.LAB, {**LAB, "routing": {"config": "configs/rtsw1.conf"}}),
        (SchemaKind.DRILL, {**DRILL, "traffic": {"duration": "0 ms"}}),
    ],
)
def test_an_editor_marks_a_key_or_value_that_there_is_not(
    kind: SchemaKind, data: dict[str, Any]
) -> None:
    assert problems(kind, data)


@pytest.mark.parametrize(
    "keys",
    [
        {"links": {"rate": "0.5G", "delay": "0us"}},
        {"routing": {"hold": "10s", "config": "configs/{node}.conf"}},
    ],
)
def test_values_at_their_limits_fit(keys: dict[str, Any]) -> None:
    assert problems(SchemaKind.LAB, {**LAB, **keys}) == []


@pytest.mark.parametrize(
    "faults",
    [
        [{"kind": "blackhole", "at": "1s", "links": ["rtsw1:ctsw1"], "lasts": "2s"}],
        [{"kind": "grey-loss", "at": "1s", "link": {"node": "rtsw1", "uplink": 1}, "loss": "2%"}],
    ],
)
def test_short_and_long_forms_of_a_link_fit(faults: list[dict[str, Any]]) -> None:
    assert problems(SchemaKind.DRILL, {**DRILL, "faults": faults}) == []


def test_a_drill_names_schemes_and_jobs_as_its_file_does() -> None:
    jobs = ["allreduce", {"pattern": "incast", "ranks": 4, "duration": "30ms"}]
    phase = {"name": "one", "scheme": "spray", "jobs": jobs}
    drill = {"name": "mine", "lab": "tiny", "phases": [phase]}
    assert problems(SchemaKind.DRILL, drill) == []


def test_the_command_prints_what_ships(rocelab: Callable[..., Outcome]) -> None:
    for kind in SchemaKind:
        outcome = rocelab("schema", kind)
        assert outcome.code == 0
        assert outcome.out == schema_text(kind)
    assert rocelab("schema").out == schema_text(SchemaKind.LAB)


def test_a_kind_that_there_is_not_is_refused_with_the_closest(
    rocelab: Callable[..., Outcome],
) -> None:
    outcome = rocelab("schema", "dril")
    assert outcome.code == 2
    assert "did you mean drill?" in outcome.err
