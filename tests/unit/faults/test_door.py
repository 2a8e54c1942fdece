"""What a kind of fault must have to be registered."""

from __future__ import annotations

from typing import Literal

import pytest

from rocelab.faults.base import (
    Fault,
    LinkFaultSpec,
    NodeFault,
    RunningLab,
    SingleFaultSpec,
    SwitchFaultSpec,
    Target,
)
from rocelab.faults.door import _kind
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric
from tests.helpers.plugin import ROOT


class Cut(LinkFaultSpec):
    kind: Literal["cut"]

    def resolve(self, fabric: Fabric) -> Fault:
        raise NotImplementedError


class Unresolved(SwitchFaultSpec):
    kind: Literal["cut"]


class Stuck(NodeFault):
    """A fault without an end."""

    def inject(self, lab: RunningLab) -> Bracket:
        raise NotImplementedError


class StuckSpec(SwitchFaultSpec):
    kind: Literal["cut"]

    def resolve(self, fabric: Fabric) -> Stuck:  # type: ignore[override]
        raise NotImplementedError


class DrawnDeep(Cut):
    drawn = Target.LINK
    depth: int


class DrawnNowhere(Cut):
    drawn = Target.SWITCH


def test_a_class_with_its_kind_and_resolve_is_one() -> None:
    assert _kind("cut", Cut) is Cut


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cut", int, "expected a subclass of SingleFaultSpec or SeriesSpec"),
        ("cut", Unresolved, "Unresolved lacks resolve"),
        ("cut", SingleFaultSpec, "SingleFaultSpec lacks resolve"),
        ("cut", StuckSpec, "the fault of StuckSpec lacks intact, restore, remains"),
        ("fire", Cut, 'expected its key kind to be Literal\\["fire"\\]'),
        ("cut", DrawnDeep, "a campaign may draw it, and depth has no default"),
        ("cut", DrawnNowhere, "a campaign may draw it, and it has no key switch"),
    ],
)
def test_another_is_refused_with_the_reason(name: str, value: object, why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        _kind(name, value)


def test_the_page_on_faults_shows_that_of_the_example_package() -> None:
    page = (ROOT / "docs/dev/fault.md").read_text(encoding="utf-8")
    module = ROOT / "examples/plugin/rocelab_example/fault.py"
    assert f"```python\n{module.read_text(encoding='utf-8')}```" in page
