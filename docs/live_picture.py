"""Records docs/live.webp, the moving picture in README: the page of `rocelab live` while probes
cross zone-small and one of its cables is pulled. `python -m docs.live_picture`, as root.

Nothing is drawn: each frame is a screenshot, and the figures are those of this run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

LAB, LINK = "zone-small", ("rtsw1", "ctsw2")
PICTURE = Path(__file__).with_name("live.webp")
CHROMIUM = "/usr/bin/chromium-headless-shell"
ROCELAB = [str(Path(sys.executable).with_name("rocelab"))]
SIZE = ViewportSize(width=1280, height=860)
LIMIT_MS = 120_000
FRAME_S, BEFORE, AFTER, LAST = 0.2, 8, 26, 20
"""Time of a frame, frames before and after the cable is pulled, and for how many the last stays."""


def main() -> None:
    """Bring the lab up, record, take it down."""
    subprocess.run([*ROCELAB, "up", LAB], check=True)
    try:
        with served() as url:
            frames = record(url)
    finally:
        subprocess.run([*ROCELAB, "down", LAB], check=True)
    first, *others = frames
    durations = [int(FRAME_S * 1000)] * len(others) + [int(FRAME_S * 1000) * LAST]
    first.save(PICTURE, save_all=True, append_images=others, duration=durations, loop=0, quality=60)


@contextmanager
def served() -> Iterator[str]:
    """The address of the lab's page, for the time of the block."""
    with subprocess.Popen([*ROCELAB, "live", LAB], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address is not None, "the server has no address"
            yield address[0]
        finally:
            server.terminate()


def record(url: str) -> list[Image.Image]:
    """The frames: probes begin, a cable is pulled for a second, each flow's outage is named."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(url)
        page.get_by_role("button", name="Send probes").click()
        page.locator("#traffic", has_text="of 60 seconds").wait_for()
        page.get_by_role("button", name=re.compile(f"^{LINK[0]}: ")).click()
        page.locator("#panel table").get_by_role("button", name=LINK[1]).first.click()
        page.get_by_label("how long").select_option("1s")
        frames = list(shots(page, BEFORE))
        page.get_by_role("button", name="Break it").click()
        frames += shots(page, AFTER)
        page.locator("#outages li").first.wait_for(timeout=LIMIT_MS)
        frames += shots(page, 1)
        browser.close()
    return frames


def shots(page: Page, count: int) -> Iterator[Image.Image]:
    """That many screenshots, one every FRAME_S."""
    for _ in range(count):
        ends_s = time.monotonic() + FRAME_S
        yield Image.open(BytesIO(page.screenshot())).convert("RGB")
        page.wait_for_timeout(max(0.0, ends_s - time.monotonic()) * 1000)


if __name__ == "__main__":
    main()
