"""The events of a running lab one after another, as the live page's stream has them, without a
page.

In: a lab that is up. Out: `follow` yields the stream's documents, `sentence` says one in words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from rocelab.base.quantities import duration
from rocelab.base.wording import counted
from rocelab.lab.lab import RunningLab
from rocelab.live.faults import Faults
from rocelab.live.feed import Feed
from rocelab.live.state import METRICS
from rocelab.live.values import NS_PER_S

POLL_S = 0.25

Document = Mapping[str, Any]
"""An event of `rocelab.live.events`, or `{"kind": "gap", "missed": n}` for those that came faster
than they were read."""


def follow(lab: RunningLab) -> Iterator[Document]:
    """The events from now on, after those that say how the lab is: nodes that are not as planned,
    faults that are active. Raises ExpectationError once the lab goes down, OSError if it cannot be
    read."""
    with Feed(lab, read_only=True) as feed, Faults(feed) as faults:
        client = feed.hub.join(METRICS[0], lambda: None)
        while True:
            is_over = feed.wait(POLL_S)
            faults.refresh()
            for message in client.take():
                if message.kind == "event":
                    yield json.loads(message.data)
            if is_over:
                feed.check()
                return


def sentence(event: Document) -> str:
    """The event in words, after its time of day."""
    if event["kind"] == "gap":
        return f"{event['missed']:,} events were lost: they came faster than they were read"
    at = datetime.fromtimestamp(event["t_ns"] / NS_PER_S).astimezone()
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}  {_words(event)}"


def _words(event: Document) -> str:
    match event["kind"]:
        case "carrier":
            state = "has carrier" if event["carrier"] else "lost its carrier"
            return f"{event['link']} {state} at {event['node']}"
        case "session":
            return _session(event)
        case "routes":
            return _routes(event)
        case "node":
            return _node(event)
        case "fault":
            verb = "began" if event["begins"] else "ended"
            return f"fault {event['number']}, {event['fault']} of {event['subject']}, {verb}"
        case "use":
            user = event["user"]
            return f"{user} uses the lab" if user else "nobody uses the lab any more"
        case "scheme":
            return f"the scheme is {event['scheme']['kind']}"
        case "note":
            return str(event["text"])
        case other:
            return f"{other}: {json.dumps(dict(event))}"


def _routes(event: Document) -> str:
    span_ns = event["until_ns"] - event["t_ns"]
    within = f" within {duration(span_ns)}" if span_ns else ""
    removed = f", {event['removed']:,} of them removals" if event["removed"] else ""
    changes = counted(event["changes"], "change")
    return f"{event['node']}: {changes} of routes{within}{removed}"


def _session(event: Document) -> str:
    peer = event["peer"] or event["neighbour"]
    if event["up"]:
        return f"{event['node']}: BGP session with {peer} is up"
    why = f", {event['detail']}" if event["detail"] else ""
    return f"{event['node']}: BGP session with {peer} is down: {event['cause']}{why}"


def _node(event: Document) -> str:
    counts = (
        (event["ports_down"], "port", "without carrier"),
        (event["sessions_down"], "session", "down"),
        (event["routes_incomplete"], "route", "not complete"),
    )
    parts = ", ".join(f"{counted(number, noun)} {how}" for number, noun, how in counts if number)
    return f"{event['node']} is {event['state']}{f': {parts}' if parts else ''}"
