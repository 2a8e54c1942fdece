from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.base.progress import no_progress
from rocelab.lab import convergence
from rocelab.lab.convergence import ConvergenceWait
from rocelab.labfile.model import LabSpec
from rocelab.linux.fibwatch import FibAction, FibEvent
from rocelab.planning.build import plan
from rocelab.planning.routes import expected_routes, expected_width

FABRIC = plan(
    LabSpec.model_validate({"name": "t", "fabric": {"kind": "clos", "racks": 2, "spines": 1}})
)
WIDTHS = [
    (node, prefix, expected_width(FABRIC, links))
    for node, routes in expected_routes(FABRIC).items()
    for prefix, links in routes.items()
]


class Recorded:
    """A watch whose events were written down: one list for each time it is asked."""

    overflowed: frozenset[str] = frozenset()

    def __init__(self, *events: list[FibEvent]) -> None:
        self.left = list(events)

    def events(self, _timeout_s: float) -> Iterator[FibEvent]:
        return iter(self.left.pop(0) if self.left else [])


def installed(node: str, prefix: str, width: int) -> FibEvent:
    return FibEvent(0, node, FibAction.SET, prefix, width)


def removed(node: str, prefix: str, _width: int) -> FibEvent:
    return FibEvent(0, node, FibAction.DELETE, prefix, 0)


def never(name: str) -> None:
    raise AssertionError(f"{name} was asked although nothing is missing")


def test_returns_once_every_route_is_installed() -> None:
    complete = [installed(*width) for width in WIDTHS]
    watch = Recorded(complete[:1], complete[1:], [])
    ConvergenceWait(FABRIC, never).run(watch, 60, no_progress)
    assert watch.left == [[]]


def test_a_route_that_was_lost_since_is_waited_for_again() -> None:
    complete = [installed(*width) for width in WIDTHS]
    watch = Recorded(complete, [removed(*WIDTHS[0])], complete[1:], complete[:1], [])
    wait = ConvergenceWait(FABRIC, never)
    assert wait.run(watch, 60, no_progress)
    assert wait.run(watch, 60, no_progress)
    assert watch.left == [[]]
    assert not wait.run(watch, 60, no_progress)


def test_a_route_that_came_back_is_not_missing() -> None:
    complete = [installed(*width) for width in WIDTHS]
    watch = Recorded(complete, [removed(*WIDTHS[0]), complete[0]], [])
    wait = ConvergenceWait(FABRIC, never)
    wait.run(watch, 60, no_progress)
    wait.run(watch, 60, no_progress)
    assert watch.left == [[]]


@pytest.mark.parametrize(("stalled_us", "code"), [(40_000_000, 1), (60_000_000, 3)])
def test_a_lab_that_does_not_converge_on_a_busy_machine_is_not_judged(
    stalled_us: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pressure = tmp_path / "cpu"
    monkeypatch.setattr(convergence, "CPU_PRESSURE", pressure)
    line = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 total=0\n"
    pressure.write_text(line.format(5))
    now_s = [1000.0]
    monkeypatch.setattr(convergence, "monotonic", lambda: now_s[0])
    deadline = convergence.Deadline(90)
    assert not deadline.is_over
    now_s[0] += 100
    pressure.write_text(line.format(5 + stalled_us))
    assert deadline.is_over
    error = deadline.error("routes are missing", "see `rocelab doctor`", nodes=["rtsw1"])
    assert error.exit_code == code
    assert ("for 60% of that time processes waited" in error.message) == (code == 3)
