"""The live page in Chromium: opened, looked at, and attacked from another server's page."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Literal

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    ViewportSize,
    expect,
)

from rocelab.lab.lab import Lab
from rocelab.live.access import Access
from rocelab.live.app import live_app
from rocelab.live.history import LoadHistory
from rocelab.live.server import HttpServer
from rocelab.live.state import METRICS, LabState
from rocelab.live.stream import Hub
from rocelab.live.traffic import NO_TRAFFIC
from tests.helpers.live_server import LINK
from tests.helpers.waiting import LIMIT_S

NODES = 10
RED_PIXELS = """() => {
    const canvas = document.querySelector('#canvas');
    const probe = document.createElement('span');
    probe.className = 'down';
    document.body.append(probe);
    const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
    probe.remove();
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let i = 0; i < data.length; i += 4) {
        found += data[i + 3] > 200 && Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) < 12
            && Math.abs(data[i + 2] - b) < 12;
    }
    return found;
}"""
"""How many pixels of the fabric have the colour of a link without carrier."""


class Looking:
    """Opens the page, each time in a browser of its own, and notes what it complains of."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.contexts: list[BrowserContext] = []
        self.complaints: list[str] = []

    def at(
        self,
        url: str,
        width: int = 1400,
        height: int = 900,
        nodes: int = NODES,
        scheme: Literal["light", "dark"] = "light",
        lacks: Sequence[str] = (),
    ) -> Page:
        """The page, once it is live and shows so many nodes, in a browser that `lacks` these
        globals."""
        context = self._browser.new_context(
            viewport=ViewportSize(width=width, height=height), color_scheme=scheme
        )
        self.contexts.append(context)
        context.set_default_timeout(LIMIT_S * 1e3)
        page = context.new_page()
        page.add_init_script("".join(f"delete window.{name};" for name in lacks))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note)
        page.goto(url)
        is_live(page, nodes)
        return page

    def _note(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.complaints.append(said.text)


def is_live(page: Page, nodes: int = NODES) -> None:
    expect(page.locator("#connection")).to_have_class("up")
    expect(page.locator("#labels button.node")).to_have_count(nodes)


def is_lost(page: Page) -> None:
    expect(page.locator("#connection [role=status]")).to_have_text("connection lost, reconnecting")
    expect(page.locator("#read")).to_contain_text("last read at")
    expect(page.locator("body")).to_have_class("stale")


def has_red(page: Page) -> bool:
    return int(page.evaluate(RED_PIXELS)) > 50


def has_no_red(page: Page) -> bool:
    return int(page.evaluate(RED_PIXELS)) == 0


def open_link(page: Page) -> None:
    page.get_by_role("button", name="rtsw1: as planned").click()
    page.locator("#panel table").get_by_role("button", name="ctsw1").first.click()
    expect(page.locator("#panel h2")).to_have_text(LINK)


def open_shell(page: Page) -> None:
    """A shell in the switch that is chosen, once it has its prompt."""
    page.get_by_role("button", name="Open shell").click()
    expect(page.locator(".xterm-rows")).to_contain_text("rtsw1:")


def break_the_link(page: Page, lasts: str) -> None:
    open_link(page)
    page.get_by_label("how long").select_option(lasts)
    page.get_by_role("button", name="Break it").click()


class Elsewhere(BaseHTTPRequestHandler):
    """Another user's server on another port of this machine: to a browser it is the same site."""

    def do_GET(self) -> None:
        self.server.cookies = self.headers.get("cookie", "")  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def planned(name: str, *, read_only: bool = False) -> Iterator[tuple[Hub, str]]:
    """The page of a fabric that does not run, since it is too large for a test: its hub and URL."""
    lab = Lab.planned(name)
    state = LabState(lab.fabric, read_only)
    hub, history = Hub(METRICS, state.document), LoadHistory(lab.fabric)
    feed = SimpleNamespace(lab=lab, state=state, hub=hub, history=history)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        access = Access(listener.getsockname()[1], "token")
        traffic = SimpleNamespace(document=lambda: NO_TRAFFIC)
        app = live_app(
            feed,  # type: ignore[arg-type]
            SimpleNamespace(),  # type: ignore[arg-type]
            traffic,  # type: ignore[arg-type]
            access,
            read_only=read_only,
        )
        with HttpServer(app, listener), closing(feed.hub):
            yield feed.hub, access.url
