"""The stream: order, replay, samples that are merged, and clients that are slow."""

from __future__ import annotations

import json

import pytest

from rocelab.live import stream
from rocelab.live.stream import Hub, StreamMessage

METRICS = ("load", "drops")


@pytest.fixture
def hub() -> Hub:
    return Hub(METRICS, lambda: {"lab": "tiny"})


def nothing() -> None:
    """Called when there is news."""


def contents(messages: list[StreamMessage]) -> list[tuple[str, object]]:
    """Kind and what tells messages apart."""
    contents = []
    for message in messages:
        data = json.loads(message.data)
        about = {"event": "n", "sample": "values", "fabric": "lab"}[message.kind]
        contents.append((message.kind, data.get(about, data)))
    return contents


def events(hub: Hub, *numbers: int) -> None:
    for number in numbers:
        hub.publish({"n": number})


def test_a_new_client_gets_the_fabric_then_recent_events_then_the_sample(hub: Hub) -> None:
    events(hub, 1, 2)
    hub.sample(5, {"load": {0: 0.5}, "drops": {}})
    messages = hub.join("load", nothing).take()
    assert contents(messages) == [
        ("fabric", "tiny"),
        ("event", 1),
        ("event", 2),
        ("sample", {"0": 0.5}),
    ]
    assert json.loads(messages[-1].data)["t_ns"] == 5


def test_a_new_client_gets_the_newest_events_alone(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SHOWN_EVENTS", 2)
    events(hub, 1, 2, 3)
    batch = hub.join("load", nothing).take()
    assert contents(batch) == [("fabric", "tiny"), ("event", 2), ("event", 3)]


def test_who_has_left_is_not_woken(hub: Hub) -> None:
    woken: list[str] = []
    client = hub.join("load", lambda: woken.append("news"))
    events(hub, 1)
    hub.leave(client)
    events(hub, 2)
    assert woken == ["news"]


def test_a_client_is_told_only_what_is_new(hub: Hub) -> None:
    client = hub.join("load", nothing)
    client.take()
    events(hub, 1)
    assert contents(client.take()) == [("event", 1)]
    assert client.take() == []


def test_samples_are_merged_while_a_client_is_slow_and_events_are_not(hub: Hub) -> None:
    client = hub.join("load", nothing)
    client.take()
    hub.sample(1, {"load": {0: 0.5, 1: 0.1}, "drops": {}})
    events(hub, 1)
    hub.sample(2, {"load": {0: 0.6, 2: 0.2}, "drops": {}})
    events(hub, 2)
    messages = client.take()
    assert contents(messages) == [
        ("event", 1),
        ("event", 2),
        ("sample", {"0": 0.6, "1": 0, "2": 0.2}),
    ]
    assert json.loads(messages[-1].data)["t_ns"] == 2


def test_a_sample_has_the_values_that_changed_of_the_clients_own_metric(hub: Hub) -> None:
    hub.sample(1, {"load": {0: 0.5}, "drops": {7: 3.0}})
    load, drops = hub.join("load", nothing), hub.join("drops", nothing)
    assert contents(load.take())[-1] == ("sample", {"0": 0.5})
    assert contents(drops.take())[-1] == ("sample", {"7": 3.0})
    hub.sample(2, {"load": {0: 0.5, 1: 0.1}, "drops": {}})
    assert contents(load.take()) == [("sample", {"1": 0.1})]
    assert contents(drops.take()) == [("sample", {"7": 0})]
    hub.sample(3, {"load": {0: 0.5, 1: 0.1}, "drops": {}})
    assert contents(load.take()) == [("sample", {})]


def test_a_client_that_comes_back_gets_the_events_since_its_last_one(hub: Hub) -> None:
    client = hub.join("load", nothing)
    events(hub, 1, 2)
    last_id = client.take()[-1].id
    hub.leave(client)
    events(hub, 3, 4)
    again = hub.join("load", nothing, last_id).take()
    assert contents(again) == [("event", 3), ("event", 4)]


@pytest.mark.parametrize("last_id", ["0badcafe-1", "", "x", "-", "0badcafe-\u0663"])
def test_an_id_of_another_server_gets_everything(hub: Hub, last_id: str) -> None:
    events(hub, 1)
    assert contents(hub.join("load", nothing, last_id).take())[0] == ("fabric", "tiny")


@pytest.mark.parametrize("number", ["12", "\u0663", "9" * 5000])
def test_an_id_that_was_never_given_gets_everything(hub: Hub, number: str) -> None:
    epoch = hub.join("load", nothing).take()[0].id.partition("-")[0]
    again = hub.join("load", nothing, f"{epoch}-{number}").take()
    assert contents(again) == [("fabric", "tiny")]


def test_a_client_that_is_too_slow_is_told_how_many_events_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "MOST_EVENTS", 3)
    hub = Hub(METRICS, lambda: {"lab": "tiny"})
    client = hub.join("load", nothing)
    client.take()
    events(hub, *range(5))
    assert contents(client.take()) == [
        ("event", {"kind": "gap", "missed": 2}),
        ("event", 2),
        ("event", 3),
        ("event", 4),
    ]


def test_the_state_and_the_events_after_it_are_of_one_moment() -> None:
    state = {"n": 0}
    hub = Hub(METRICS, lambda: dict(state))
    hub.publish({"n": 1}, lambda: state.update(n=1))
    assert hub.snapshot()["n"] == 1
    client = hub.join("load", nothing, str(hub.snapshot()["id"]))
    hub.publish({"n": 2}, lambda: state.update(n=2))
    assert contents(client.take()) == [("event", 2)]


def test_news_and_the_end_wake_every_client(hub: Hub) -> None:
    woken: list[str] = []
    hub.join("load", lambda: woken.append("a"))
    hub.join("load", lambda: woken.append("b"))
    events(hub, 1)
    assert sorted(woken) == ["a", "b"]
    hub.close()
    assert sorted(woken) == ["a", "a", "b", "b"]
    assert hub.is_closed


def test_each_client_hears_once_and_last_why_the_stream_has_ended(hub: Hub) -> None:
    client = hub.join("load", nothing)
    client.take()
    events(hub, 1)
    hub.close("lab z is down")
    hub.close()
    messages = client.take()
    assert [message.kind for message in messages] == ["event", "end"]
    assert json.loads(messages[-1].data) == {"text": "lab z is down"}
    assert client.take() == []


def test_a_message_is_written_as_a_server_sent_event() -> None:
    message = StreamMessage("event", '{"n":1}', "ab-7")
    assert message.encoded() == b'id: ab-7\nevent: event\ndata: {"n":1}\n\n'
