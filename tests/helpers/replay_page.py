"""A page that replays, in Chromium: opened as a file and looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, ViewportSize, expect

from tests.helpers.live_page import RED_PIXELS

OPEN_FOLDS = "document.querySelectorAll('details.fold').forEach((fold) => { fold.open = true; })"
LIMIT_S = 60
"""No lab and no server takes part."""


@dataclass
class Opened:
    """The page, with what it complained of and asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def note(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.complaints.append(said.text)

    @property
    def instant(self) -> Locator:
        return self.page.locator("#instant")

    @property
    def slider(self) -> Locator:
        return self.page.get_by_role("slider", name="Instant")

    def red(self) -> int:
        """Pixels of links with a fault, once the fabric is drawn again."""
        self.page.evaluate("() => new Promise(requestAnimationFrame)")
        return int(self.page.evaluate(RED_PIXELS))


class Opener:
    """Opens the file, which shows so many nodes, each time in a browser of its own."""

    def __init__(self, browser: Browser, file: Path, nodes: int) -> None:
        self.browser, self.file = browser, file
        self.nodes = nodes

    def at(self, width: int = 1400, scheme: str = "light", *, scripts: bool = True) -> Opened:
        theme: Literal["light", "dark"] = "dark" if scheme == "dark" else "light"
        context = self.browser.new_context(
            viewport=ViewportSize(width=width, height=1000),
            color_scheme=theme,
            java_script_enabled=scripts,
        )
        context.set_default_timeout(LIMIT_S * 1e3)
        opened = Opened(context.new_page())
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on("console", opened.note)
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(self.file.as_uri())
        if scripts:
            opened.page.evaluate(OPEN_FOLDS)
            expect(opened.page.locator("#labels button.node")).to_have_count(self.nodes)
        return opened
