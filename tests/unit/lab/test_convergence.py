from __future__ import annotations

from collections.abc import Iterator

from rocelab.base.progress import no_progress
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
