"""What GPUs of a server send each other: rates that they share, and when sends end."""

from __future__ import annotations

import pytest

from rocelab.agent.nic import NEVER_NS
from rocelab.agent.serverfabric import ServerFabric

BPS = 8e9
"""A byte takes a nanosecond."""


def ended_at(fabric: ServerFabric, *sends: tuple[int, int, int]) -> list[int]:
    """When each send ends, if all begin at 0: source, destination and bytes."""
    ended = [0] * len(sends)

    def note(number: int, now_ns: int) -> None:
        ended[number] = now_ns

    for number, (source, destination, size) in enumerate(sends):
        fabric.begin(source, destination, size, lambda ns, number=number: note(number, ns))  # type: ignore[misc]
    fabric.turn(0)
    while fabric.due_ns != NEVER_NS:
        fabric.turn(fabric.due_ns)
    assert fabric.idle
    return ended


def test_sends_of_a_gpu_share_its_rate_and_take_what_others_leave() -> None:
    # Both to GPU 2 get half; when the shorter is over the longer has all.
    times = ended_at(ServerFabric(BPS, is_mesh=False), (0, 2, 1000), (1, 2, 3000), (2, 0, 500))
    assert times == pytest.approx([2000, 4000, 500], abs=2)


def test_rates_are_max_min_fair() -> None:
    # GPU 0 sends to 1, 2, 3, a third each; GPU 4 has the other two thirds of what 1 receives.
    sends = ((0, 1, 1000), (0, 2, 1000), (0, 3, 1000), (4, 1, 1000))
    times = ended_at(ServerFabric(BPS, is_mesh=False), *sends)
    assert times == pytest.approx([3000, 3000, 3000, 1500], abs=2)


def test_each_two_gpus_of_a_mesh_have_a_link_each_way() -> None:
    sends = ((0, 1, 1000), (2, 1, 1000), (1, 0, 1000), (0, 1, 1000))
    times = ended_at(ServerFabric(BPS, is_mesh=True), *sends)
    assert times == pytest.approx([2000, 1000, 1000, 2000], abs=2)


def test_a_send_that_begins_when_another_ends_is_sent_at_once() -> None:
    fabric, ended = ServerFabric(BPS, is_mesh=False), list[int]()
    fabric.begin(0, 1, 100, lambda now_ns: fabric.begin(1, 2, 100, ended.append))
    for now_ns in (0, 150, 250, 251):
        fabric.turn(now_ns)
    assert ended == [250]
