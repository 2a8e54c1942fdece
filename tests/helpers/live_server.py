"""`rocelab live` as a user starts it, and a browser's part of the conversation with it."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any
from urllib.parse import urlsplit

from rocelab.lab.lab import Lab, RunningLab
from tests.helpers.command import PROGRAM
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S

Event = Mapping[str, Any]

LINK = "rtsw1:ctsw1"
JOB = {"pattern": "allreduce", "ranks": 4, "size": "1MB", "transport": {"qps": 2}}
LONG_JOB = {**JOB, "iterations": 10_000}


@contextmanager
def live_lab(folder: Path, name: str) -> Iterator[RunningLab]:
    """A lab of 10 nodes to look at, up while the block runs; its file lies in `folder`."""
    file = folder / f"{name}.yaml"
    file.write_text(f"name: {name}\nfabric: {{kind: clos, racks: 4, spines: 2}}\n")
    with running(Lab.planned(file)) as lab:
        yield lab


def fault(**keys: str) -> Event:
    return {"kind": "carrier-down", "keys": {"link": LINK, **keys}}


def carrier_of(port: str, *, there: bool) -> Callable[[Event], bool]:
    node, _, interface = port.partition(":")
    wanted = {"kind": "carrier", "node": node, "interface": interface, "carrier": there}
    return lambda event: wanted.items() <= event.items()


def agents_of(lab: RunningLab) -> list[int]:
    return [pid for server in lab.fabric.servers for pid in lab.node(server.name).processes()]


@dataclass
class Server:
    """A server, and what a browser that has opened its URL holds."""

    process: subprocess.Popen[str]
    url: str
    cookie: str = ""
    key: str = ""

    @property
    def origin(self) -> str:
        return self.url.partition("/?")[0]

    def request(self, method: str, path: str, body: object = None) -> http.client.HTTPResponse:
        place = urlsplit(self.url)
        assert place.hostname is not None
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=LIMIT_S)
        headers = {"cookie": self.cookie, "origin": self.origin, "x-rocelab-key": self.key}
        content = None
        if body is not None:
            content, headers["content-type"] = json.dumps(body), "application/json"
        connection.request(method, path, content, headers)
        return connection.getresponse()

    def exchange(self) -> None:
        answer = self.request("GET", "/" + self.url.partition("/")[2].rpartition("/")[2])
        assert answer.status == 303
        self.cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        self.key = (answer.getheader("location") or "").partition("#")[2]

    def read(self, path: str) -> Any:
        answer = self.request("GET", path)
        assert answer.status == 200, answer.read()
        return json.loads(answer.read())

    def post(self, path: str, body: object) -> tuple[int, Any]:
        answer = self.request("POST", path, body)
        return answer.status, json.loads(answer.read())

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


@contextmanager
def served(lab: RunningLab, *options: str) -> Iterator[Server]:
    """The lab's server; it has ended when the block ends."""
    process = subprocess.Popen(
        [*PROGRAM, "live", lab.name, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line)
        assert match is not None, f"{line!r} {process.stderr and process.stderr.read()}"
        server = Server(process, match[0])
        server.exchange()
        yield server
    finally:
        process.kill()
        process.communicate()


class Stream:
    """Follows the stream on a thread; `until` gives the first message that fits."""

    def __init__(self, server: Server, since: str = "") -> None:
        self._answer = server.request("GET", f"/events?since={since}")
        assert self._answer.status == 200
        self._messages: Queue[tuple[str, str, Any]] = Queue()
        self.last_id = ""
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        lines: dict[str, str] = {}
        for raw in self._answer:
            name, _, value = raw.decode().rstrip("\n").partition(": ")
            if name:
                lines[name] = value
            elif "data" in lines:
                self._messages.put((lines["event"], lines["id"], json.loads(lines["data"])))
                lines = {}

    def next(self) -> tuple[str, Any]:
        try:
            kind, self.last_id, data = self._messages.get(timeout=LIMIT_S)
        except Empty:
            raise AssertionError("the stream told nothing more") from None
        return kind, data

    def until(self, fits: Callable[[Event], bool]) -> Event:
        return self.together(fits)[0]

    def together(self, *wanted: Callable[[Event], bool]) -> list[Event]:
        """The first event from here on that fits each of `wanted`, in whatever order they come:
        carriers, faults, logs and states are read by threads of their own."""
        events: dict[int, Event] = {}
        end_s = time.monotonic() + LIMIT_S
        while len(events) < len(wanted):
            assert time.monotonic() < end_s, "the stream did not tell what was awaited"
            kind, data = self.next()
            if kind == "event":
                fitting = (n for n, fits in enumerate(wanted) if n not in events and fits(data))
                events |= dict.fromkeys(fitting, data)
        return [events[n] for n in range(len(wanted))]


def news(server: Server) -> Stream:
    """The stream of what happens from now on: a new client's begins with what has happened."""
    return Stream(server, server.read("/fabric.json")["id"])
