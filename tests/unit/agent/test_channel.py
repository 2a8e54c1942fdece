"""The control channel: complete messages, and detection of the end."""

from __future__ import annotations

import socket
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.channel import Channel, ChannelClosedError, ChannelMessage, join, split


def pair() -> tuple[Channel, Channel]:
    left, right = socket.socketpair()
    return Channel(left), Channel(right)


def test_messages_arrive_whole_and_in_order_whatever_their_size() -> None:
    left, right = pair()
    large = bytes(range(256)) * 40_000

    def send() -> None:
        left.send({"n": 1}, large)
        left.send({"n": 2})

    sender = Thread(target=send)
    sender.start()
    assert right.receive() == ChannelMessage({"n": 1}, large)
    assert right.receive() == ChannelMessage({"n": 2}, b"")
    sender.join()


def test_who_has_the_whole_message_may_be_gone_before_the_call_returns() -> None:
    class Left(socket.socket):
        """A stream whose other end takes what is sent and closes."""

        def sendall(self, data: bytes) -> None:  # type: ignore[override]
            super().sendall(data)
            if far.fileno() >= 0:
                assert Channel(far).receive() == ChannelMessage({"n": 1}, b"")
                far.close()

    near, far = socket.socketpair()
    with Left(fileno=near.detach()) as left:
        Channel(left).send({"n": 1})


def test_an_end_that_is_gone_is_noticed_by_both_calls() -> None:
    left, right = pair()
    right.close()
    with pytest.raises(ChannelClosedError):
        left.receive()
    with pytest.raises(ChannelClosedError):
        left.send({"n": 1})


def test_half_a_message_is_not_a_message() -> None:
    left, right = socket.socketpair()
    left.send(b"\0\0\0\x05half")
    left.close()
    with pytest.raises(ChannelClosedError):
        Channel(right).receive()


@given(st.lists(st.binary(max_size=20)))
def test_parts_joined_are_split_again(parts: list[bytes]) -> None:
    assert split(*join(parts)) == parts


def test_sizes_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="5 bytes"):
        split([2, 2], b"12345")
