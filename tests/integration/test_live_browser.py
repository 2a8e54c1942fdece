"""The live page in Chromium, against a real lab: what a user sees, clicks and is kept from."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Position,
    ViewportSize,
    expect,
    sync_playwright,
)

from rocelab.live.access import Access
from rocelab.live.app import live_app
from rocelab.live.server import HttpServer
from rocelab.live.state import METRICS, LabState
from rocelab.live.stream import Hub
from rocelab.runtime.lab import Lab
from tests.integration.labs import running
from tests.integration.live_server import Server, served
from tests.integration.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.side_by_side

LINK = "rtsw1:ctsw1"
NODES = 10
TABS = 8
"""More than the connections that a browser opens to one host."""
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


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    file = tmp_path_factory.mktemp("live") / "page-tiny.yaml"
    file.write_text("name: page-tiny\nfabric: {kind: clos, racks: 4, spines: 2}\n")
    with running(Lab.planned(file)) as lab:
        yield lab


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's own: Playwright downloads none. Root's Chromium has no sandbox."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[Server]:
    with served(lab) as server:
        yield server


class Looking:
    """Opens the page, each time in a browser of its own, and notes what it complains of."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.contexts: list[BrowserContext] = []
        self.complaints: list[str] = []

    def at(self, url: str, width: int = 1400, height: int = 900, nodes: int = NODES) -> Page:
        """The page, once it is live and shows so many nodes."""
        context = self._browser.new_context(viewport=ViewportSize(width=width, height=height))
        self.contexts.append(context)
        context.set_default_timeout(LIMIT_S * 1e3)
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note)
        page.goto(url)
        is_live(page, nodes)
        return page

    def _note(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.complaints.append(said.text)


@pytest.fixture
def look(browser: Browser) -> Iterator[Looking]:
    expect.set_options(timeout=LIMIT_S * 1e3)
    looking = Looking(browser)
    yield looking
    for context in looking.contexts:
        context.close()


def is_live(page: Page, nodes: int = NODES) -> None:
    expect(page.locator("#connection")).to_have_class("up")
    expect(page.locator("#labels button.node")).to_have_count(nodes)


def has_red(page: Page) -> bool:
    return int(page.evaluate(RED_PIXELS)) > 50


def has_no_red(page: Page) -> bool:
    return int(page.evaluate(RED_PIXELS)) == 0


def break_the_link(page: Page, lasts: str) -> None:
    page.get_by_role("button", name="rtsw1: as planned").click()
    page.locator("#panel table").get_by_role("button", name="ctsw1").click()
    expect(page.locator("#panel h2")).to_have_text(LINK)
    page.get_by_label("how long").select_option(lasts)
    page.get_by_role("button", name="Break it").click()


def test_a_link_turns_red_by_a_click_for_all_who_look_and_heals_by_another(
    look: Looking, server: Server
) -> None:
    page, other = look.at(server.url), look.at(server.url)
    assert has_no_red(page)
    break_the_link(page, "2m")
    for each in (page, other):
        expect(each.locator("#faults")).to_contain_text(f"carrier-down of {LINK}")
        expect(each.locator(".countdown")).to_contain_text("s left")
        wait_until(partial(has_red, each), "the link is red")
        expect(each.get_by_role("button", name="rtsw1: degraded")).to_be_visible()
    other.get_by_role("button", name="Undo").click()
    for each in (page, other):
        expect(each.locator("#faults")).to_be_hidden()
        wait_until(partial(has_no_red, each), "no link is red")
        expect(each.get_by_role("button", name="rtsw1: as planned")).to_be_visible()
        log = each.locator("#timeline ol")
        expect(log).to_contain_text("rtsw1 lost carrier")
        expect(log).to_contain_text("down: Interface down")
        expect(log).to_contain_text("carrier-down is undone")
    expect(page.locator("#panel table").first).to_contain_text("● yes")
    assert look.complaints == []


def test_the_path_of_a_flow_is_shown(look: Looking, server: Server) -> None:
    page = look.at(server.url)
    page.locator("#path [name=dst]").select_option("srv3-1")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#hops li")).to_have_count(5)
    expect(page.locator("#hops li").nth(1)).to_contain_text("of 2, hash 0x")
    expect(page.locator("#labels [data-path]")).to_have_count(5)


def test_many_tabs_share_one_connection(look: Looking, server: Server) -> None:
    page = look.at(server.url)
    tabs = [page.context.new_page() for _ in range(TABS)]
    for tab in tabs:
        tab.goto(server.origin)
        is_live(tab)
        expect(tab.locator("#connection")).to_contain_text("read at")
    tabs[0].locator("#metrics").get_by_label("drops").check()
    for tab in tabs:
        expect(tab.locator("#metrics").get_by_label("drops")).to_be_checked()


class _Elsewhere(BaseHTTPRequestHandler):
    """Another user's server on another port of this machine: to a browser it is the same site."""

    def do_GET(self) -> None:
        self.server.cookies = self.headers.get("cookie", "")  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_on_another_port_gets_the_cookie_and_can_break_nothing_with_it(
    look: Looking, server: Server
) -> None:
    page = look.at(server.url)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        hostile = page.context.new_page()
        hostile.goto(f"http://127.0.0.1:{elsewhere.server_port}/")
        assert server.cookie in elsewhere.cookies  # type: ignore[attr-defined]
        assert hostile.evaluate("localStorage.length") == 0
        # Neither in the user's browser nor by itself.
        hostile.evaluate(
            """(url) => fetch(url, {method: "POST", credentials: "include", mode: "no-cors",
                body: '{"kind": "carrier-down", "keys": {"link": "rtsw1:ctsw1", "lasts": "9m"}}',
            }).catch(() => {})""",
            f"{server.origin}/faults",
        )
        fault = {"kind": "carrier-down", "keys": {"link": LINK, "lasts": "9m"}}
        thief = replace(server, key=server.cookie.partition("=")[2])
        assert thief.request("POST", "/faults", fault).status == 403
        elsewhere.shutdown()
    assert server.read("/fabric.json")["faults"] == []


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (800, 1000)])
def test_nothing_is_cut_or_covered(look: Looking, server: Server, width: int, height: int) -> None:
    page = look.at(server.url, width, height)
    page.get_by_role("button", name="rtsw1: as planned").click()
    expect(page.locator("#panel")).to_contain_text("Established")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = page.evaluate(
        """() => [...document.querySelectorAll('#labels button.node')].map((each) => {
            const {left, top, right, bottom} = each.getBoundingClientRect();
            return {left, top, right, bottom, cut: each.scrollWidth > each.clientWidth};
        })"""
    )
    assert len(boxes) == NODES
    stage = page.locator("#stage").bounding_box()
    assert stage is not None
    for box in boxes:
        assert not box["cut"]
        assert stage["x"] <= box["left"] < box["right"] <= stage["x"] + stage["width"]
        assert stage["y"] <= box["top"] < box["bottom"] <= stage["y"] + stage["height"]
    overlapping = [
        (one, other)
        for number, one in enumerate(boxes)
        for other in boxes[:number]
        if one["left"] < other["right"]
        and other["left"] < one["right"]
        and one["top"] < other["bottom"]
        and other["top"] < one["bottom"]
    ]
    assert overlapping == []
    assert look.complaints == []


@contextmanager
def planned(name: str) -> Iterator[tuple[Hub, str]]:
    """The page of a fabric that does not run, since it is too large for a test: its hub and URL."""
    lab = Lab.planned(name)
    state = LabState(lab.fabric, read_only=False)
    feed = SimpleNamespace(lab=lab, state=state, hub=Hub(METRICS, state.document))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        access = Access(listener.getsockname()[1], "token")
        app = live_app(feed, SimpleNamespace(), access, read_only=False)  # type: ignore[arg-type]
        with HttpServer(app, listener), closing(feed.hub):
            yield feed.hub, access.url


def test_a_zone_of_252_by_18_is_a_matrix_of_links(look: Looking) -> None:
    with planned("zone-252x18") as (hub, url):
        hub.sample(1, {metric: {2 * 252: 1.0} if metric == "load" else {} for metric in METRICS})
        page = look.at(url, nodes=0)
        expect(page.locator(".heads button")).to_have_count(18)
        matrix = page.locator("#stage canvas").last
        box = matrix.bounding_box()
        assert box is not None
        matrix.click(position=Position(x=box["width"] - 18, y=60))
        expect(page.locator("#panel h2")).to_have_text("rtsw252:ctsw1")
        page.locator(".heads button").last.click()
        expect(page.locator("#panel h2")).to_have_text("ctsw18")


def test_zones_are_folded_and_unfold_by_a_click(look: Looking) -> None:
    with planned("zones-1-28") as (_, url):
        page = look.at(url, nodes=7)  # 5 ATSWs and 2 zones
        zone = page.get_by_role("button", name="zone 2: 16 switches, 14 servers")
        zone.click()
        expect(page.get_by_role("button", name="z2-rtsw14: as planned")).to_be_visible()
        page.get_by_role("button", name="Fold zones").click()
        expect(zone).to_be_visible()
    assert look.complaints == []


def test_the_page_goes_on_when_its_server_comes_back(
    look: Looking, lab: Lab, server: Server
) -> None:
    page = look.at(server.url)
    server.end(signal.SIGKILL)
    expect(page.locator("#connection")).to_have_class("lost")
    with served(lab):
        is_live(page)
        break_the_link(page, "1s")
        expect(page.locator("#timeline ol")).to_contain_text("rtsw1 lost carrier")
