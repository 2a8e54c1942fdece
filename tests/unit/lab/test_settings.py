"""Kernel settings that are not as planned, in words."""

from __future__ import annotations

import pytest

from rocelab.cli import lifecycle
from rocelab.lab.settings import Deviation, sentences
from rocelab.lab.status import LabStatus

FILTER = "ipv4/conf/*/rp_filter"
PORTS = [f"rtsw1:ctsw{number}" for number in range(1, 6)]


def filtered(places: list[str]) -> tuple[Deviation, ...]:
    return tuple(Deviation(place, FILTER, "1", "0") for place in places)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (PORTS[:1], "rtsw1:ctsw1"),
        (PORTS[:3], "rtsw1:ctsw1, rtsw1:ctsw2 and rtsw1:ctsw3"),
        (PORTS, "rtsw1:ctsw1, rtsw1:ctsw2, rtsw1:ctsw3 and 2 more"),
    ],
)
def test_settings_that_are_alike_are_one_sentence(places: list[str], said: str) -> None:
    assert sentences(filtered(places)) == (f"{FILTER} is 1 (planned: 0) at {said}",)


def test_settings_that_differ_are_sentences_of_their_own() -> None:
    other = Deviation("srv1-1", "packet filter", "inet filter", "none")
    assert len(sentences([*filtered(PORTS[:2]), other, *filtered(PORTS[2:])])) == 2


def test_a_lab_with_another_setting_is_not_converged_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = LabStatus("t-settings", (), deviations=filtered(PORTS[:1]))
    assert not status.converged
    assert status.document()["settings"] == [
        {"place": PORTS[0], "setting": FILTER, "value": "1", "planned": "0"}
    ]
    lifecycle._print_status(status)
    said = capsys.readouterr().out
    assert f"{FILTER} is 1 (planned: 0) at {PORTS[0]}" in said
    assert "kernel settings are not as planned" in said
