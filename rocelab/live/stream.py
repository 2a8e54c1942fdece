"""The stream of what happens in a lab: events in order, and samples, for any number of clients.

Threads that watch the lab publish; each client takes what is new to it. An event is kept, numbered,
for all clients, so a client is only a position in them and cannot hold memory by being slow. Of
samples a client has the values that changed since it last took some: they are merged until then.

A client that comes back says the number of its last event (`Last-Event-ID`) and gets the events
since. The number is of this server's process: of another one's it gets the whole state, as a new
client does. docs/live.md describes the messages.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

MOST_EVENTS = 20_000
"""How many events are kept, some 200 bytes each."""
SHOWN_EVENTS = 500
"""How many of them a new client gets."""
STOPPED = "rocelab live has been stopped: start it again"
"""What pages say of a server that has ended for no other reason."""
MOST_STEPS = 120
"""Of how many samples a slow client gets the steps: a minute's."""

Values = Mapping[int, float]
"""The values of a metric that are not 0, by direction (`Fabric.directed_links`)."""


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message to a client: its kind, JSON, and the id of the last event up to here."""

    kind: str
    data: str
    id: str

    def encoded(self) -> bytes:
        """The message as a server-sent event (HTML Living Standard, section 9.2)."""
        return f"id: {self.id}\nevent: {self.kind}\ndata: {self.data}\n\n".encode()


class Hub:
    """The events and the newest sample of a lab. Any thread may use it."""

    def __init__(
        self, metrics: tuple[str, ...], describe: Callable[[], Mapping[str, object]]
    ) -> None:
        """`describe` gives the state of the lab as of the last event published; it is called under
        the hub's lock."""
        self._describe = describe
        self._epoch = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._events: deque[str] = deque(maxlen=MOST_EVENTS)
        self._published = 0
        self._values: dict[str, dict[int, float]] = {metric: {} for metric in metrics}
        self._sampled_ns = 0
        self._traffic: Mapping[str, object] = {}
        self._clients: set[Client] = set()
        self._closed = False
        self._end = ""

    def publish(self, event: Mapping[str, object], apply: Callable[[], None] | None = None) -> None:
        """Add an event. `apply` changes the state that `describe` gives, at the same moment."""
        with self._lock:
            if apply is not None:
                apply()
            self._events.append(_json(event))
            self._published += 1
            self._wake()

    def sample(
        self,
        t_ns: int,
        values: Mapping[str, Values],
        traffic: Mapping[str, float] | None = None,
        steps: Mapping[str, object] | None = None,
    ) -> None:
        """Take the values of a sample, of every metric, packets per second of all traffic, and its
        packets in short `steps` since the sample before; t_ns is CLOCK_REALTIME of its reading."""
        with self._lock:
            self._sampled_ns, self._traffic = t_ns, dict(traffic or {})
            changed = {metric: self._changed(metric, new) for metric, new in values.items()}
            for client in self._clients:
                client.merge(changed[client.metric], steps)
            self._wake()

    def _changed(self, metric: str, new: Values) -> dict[int, float]:
        old = self._values[metric]
        changed = {place: value for place, value in new.items() if old.get(place) != value}
        changed |= {place: 0 for place in old if place not in new}
        self._values[metric] = dict(new)
        return changed

    def join(self, metric: str, wake: Callable[[], object], last_id: str | None = None) -> Client:
        """A client from now on, or from after the event `last_id`. `wake` is called, on any thread,
        when there is something to take. Raises KeyError for an unknown metric.
        """
        with self._lock:
            client = Client(self, metric, wake, self._position(last_id))
            client.merge(self._values[metric])
            self._clients.add(client)
        return client

    def _position(self, last_id: str | None) -> int | None:
        """How many events a client has had; None if it has to be told everything."""
        epoch, _, number = (last_id or "").partition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit() and len(number) < 19):
            return None
        position = int(number)
        return position if position <= self._published else None

    def leave(self, client: Client) -> None:
        """Forget a client."""
        with self._lock:
            self._clients.discard(client)

    def close(self, text: str = STOPPED) -> None:
        """End the stream of every client, once it has been told why; the first reason holds."""
        with self._lock:
            self._end = self._end or text
            self._closed = True
            self._wake()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def snapshot(self) -> Mapping[str, object]:
        """The state now, with the id of the last event in it."""
        with self._lock:
            return {"id": self._id(self._published), **self._describe()}

    def kept(self) -> Sequence[Mapping[str, Any]]:
        """The events that are kept, in the order of their publishing."""
        with self._lock:
            events = tuple(self._events)
        return [json.loads(data) for data in events]

    def taken(self, client: Client) -> list[StreamMessage]:
        """What is new to a client, whose position moves on."""
        with self._lock:
            return list(self._new_to(client))

    def _new_to(self, client: Client) -> Iterator[StreamMessage]:
        kept_from = self._published - len(self._events)
        if client.position is None:
            client.position = max(kept_from, self._published - SHOWN_EVENTS)
            yield StreamMessage("fabric", _json(self._describe()), self._id(client.position))
        if client.position < kept_from:
            gap = {"kind": "gap", "missed": kept_from - client.position}
            client.position = kept_from
            yield StreamMessage("event", _json(gap), self._id(kept_from))
        for data in islice(self._events, client.position - kept_from, None):
            client.position += 1
            yield StreamMessage("event", data, self._id(client.position))
        values = client.take_values()
        if values is not None and self._sampled_ns:
            sample = {
                "t_ns": self._sampled_ns,
                "metric": client.metric,
                "values": values,
                "traffic": self._traffic,
                "steps": client.take_steps(),
            }
            yield StreamMessage("sample", _json(sample), self._id(client.position))
        if self._end and not client.is_told:
            client.is_told = True
            yield StreamMessage("end", _json({"text": self._end}), self._id(client.position))

    def _id(self, position: int) -> str:
        return f"{self._epoch}-{position}"

    def _wake(self) -> None:
        for client in self._clients:
            client.wake()


class Client:
    """A client's place in the stream. Only its hub changes it."""

    def __init__(
        self, hub: Hub, metric: str, wake: Callable[[], object], position: int | None
    ) -> None:
        self._hub = hub
        self.metric = metric
        self.wake = wake
        self.position = position
        self.is_told = False
        """Whether it knows that the stream has ended."""
        self._values: dict[int, float] | None = None
        self._steps: deque[Mapping[str, object]] = deque(maxlen=MOST_STEPS)

    def merge(self, values: Values, steps: Mapping[str, object] | None = None) -> None:
        """Add values and steps to those that the client has not taken yet."""
        self._values = {**(self._values or {}), **values}
        if steps is not None:
            self._steps.append(steps)

    def take_steps(self) -> list[Mapping[str, object]]:
        """The steps since the last time."""
        steps = list(self._steps)
        self._steps.clear()
        return steps

    def take_values(self) -> dict[int, float] | None:
        """The values since the last time; None without a sample."""
        values, self._values = self._values, None
        return values

    def take(self) -> list[StreamMessage]:
        """What is new since the last time, in order."""
        return self._hub.taken(self)


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, separators=(",", ":"))
