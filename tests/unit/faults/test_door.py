"""What a kind of fault must have to be registered."""

from __future__ import annotations

from typing import Literal

import pytest

from rocelab.faults.base import Fault, LinkFaultSpec, SingleFaultSpec, SwitchFaultSpec, Target
from rocelab.faults.door import _kind
from rocelab.planning.fabric import Fabric


class Cut(LinkFaultSpec):
    kind: Literal["cut"]

    def resolve(self, fabric: Fabric) -> Fault:
        raise NotImplementedError


class Unresolved(SwitchFaultSpec):
    kind: Literal["cut"]


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
        ("fire", Cut, 'expected its key kind to be Literal\\["fire"\\]'),
        ("cut", DrawnDeep, "a campaign may draw it, and depth has no default"),
        ("cut", DrawnNowhere, "a campaign may draw it, and it has no key switch"),
    ],
)
def test_another_is_refused_with_the_reason(name: str, value: object, why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        _kind(name, value)
