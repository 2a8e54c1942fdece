"""The result that a resumed drill goes on from: whatever does not fit it is refused, by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.drills.plan import plan_drill
from rocelab.drills.resume import earlier_result
from rocelab.planning.build import plan
from tests.helpers import report_sample

PLANNED = plan_drill(report_sample.drill(), plan(report_sample.lab()))


def left(folder: Path, change: Callable[[dict[str, Any]], object] = lambda document: None) -> Path:
    """The folder with the repeats that a drill left, after a change by hand."""
    document = json.loads(to_json(report_sample.result()))
    document["lab"] = PLANNED.fabric.spec.model_dump(mode="json", exclude_none=True)
    change(document)
    (folder / "result.json").write_text(json.dumps(document))
    return folder


def test_what_a_drill_left_is_gone_on_from(tmp_path: Path) -> None:
    assert len(earlier_result(left(tmp_path), PLANNED).repeats) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["repeats"].append([]),
        lambda document: document["repeats"][0].append(document["repeats"][0][0]),
        lambda document: document["repeats"][0][0].update(phase="another"),
        lambda document: document["repeats"][0][0].update(probes=None),
        lambda document: document.update(wanted_repeats=-1),
        lambda document: document.update(wanted_repeats=10**9),
        lambda document: [
            repeat[0]["probes"]["flows"][3].update(path=["x"]) for repeat in document["repeats"]
        ],
        lambda document: document["repeats"][0][0]["probes"]["events"].clear(),
    ],
)
def test_repeats_that_the_drill_did_not_leave_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(InputError, match="does not fit"):
        earlier_result(left(tmp_path, change), PLANNED)


@pytest.mark.parametrize("name", ["none", "a" * 300])
def test_a_folder_that_can_not_be_read_is_an_error_of_its_user(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        earlier_result(tmp_path / name, PLANNED)
