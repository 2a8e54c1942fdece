"""`rocelab live` as a user starts it, and a browser's part of the conversation with it."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rocelab.runtime.lab import Lab
from tests.integration.command import PROGRAM
from tests.integration.waiting import LIMIT_S


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
def served(lab: Lab, *options: str) -> Iterator[Server]:
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
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line)
        assert found is not None, f"{line!r} {process.stderr and process.stderr.read()}"
        server = Server(process, found[0])
        server.exchange()
        yield server
    finally:
        process.kill()
        process.communicate()
