"""Measures the page of `rocelab live`: what a storm of events does to a browser's main thread, and
what the server costs.

`make bench-live`. The zone of 252 x 18 does not run: the real server gets readings of it in which
all counters change, and events as they would come. Only the kernel's answers are made up, so of
that lab the cost of reading is missing; 16 x 4 is a lab that runs.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.study import Measure, Series, Study, of_this_machine
from rocelab import Fabric, HealthSpec, Lab
from rocelab.linux.bracket import realtime_ns
from rocelab.linux.counters import QueueCounters
from rocelab.live.access import Access
from rocelab.live.app import live_app
from rocelab.live.events import CarrierEvent, Event, RoutesEvent, SessionEvent
from rocelab.live.feed import Feed
from rocelab.live.server import HttpServer
from rocelab.live.traffic import NO_TRAFFIC
from rocelab.observe.health.monitor import Snapshot
from rocelab.observe.health.ports import PortReading
from rocelab.observe.health.reading import Reading
from rocelab.observe.health.sample import Places, compare
from rocelab.planning.queues import plan_queues

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SMALL, ZONE = "bench-16x4", "zone-252x18"
CHROMIUM = "/usr/bin/chromium-headless-shell"
SECONDS = 60
"""Of each measurement."""
RATE = 1000
"""Events a second of the storm."""
SAMPLE_S = 0.5
READINGS = 6
"""Different ones, which follow each other again and again."""
BURST_S = 0.01
SETTLED_S = 5.0
LIMIT_MS = 600_000
OVER = "the storm is over"
LONG_MS = 50
WATCH = """
Object.assign(window, { longTasks: [], events: 0, missed: 0, said: "" });
new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) window.longTasks.push(duration);
}).observe({ type: "longtask", buffered: true });
window.SharedWorker = class extends SharedWorker {
    constructor(...given) {
        super(...given);
        this.port.addEventListener("message", ({ data: { kind, data } }) => {
            if (kind !== "event") return;
            window.events += 1;
            if (data.kind === "gap") window.missed += data.missed;
            if (data.kind === "note") window.said = data.text;
        });
    }
};
"""
"""Counts the events that a page gets, and its main thread's tasks of 50 ms and more (W3C Long Tasks
API)."""


@dataclass(frozen=True, slots=True)
class Storm:
    """Events at a page for some seconds, and the tasks of its main thread that took 50 ms or more:
    while it opened and during the storm, and of the latter also the CPU time, in which what else
    runs on the machine does not count."""

    seconds: float
    events: int
    at_start_ms: tuple[float, ...]
    tasks_ms: tuple[float, ...]
    tasks_cpu_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of a server for some seconds, with so many pages open; `samples`: how many it took,
    None where only the server knows."""

    lab: str
    pages: int
    seconds: float
    cpu_s: float
    samples: int | None = None


def series() -> list[Series]:
    """The costs of the zone and of a lab that runs, then the storm."""
    zone, lab = (
        Series({f"{name}, {pages} pages": pages for pages in (0, 1)}, prepared)
        for name, prepared in ((ZONE, _zone_costs), (SMALL, _lab_costs))
    )
    return [zone, lab, Series({"storm": RATE}, _storms)]


def figures(document: Document) -> dict[str, Any]:
    """The storm's tasks by kind, and costs."""
    (storm,) = document.samples("storm") or (None,)
    costs = [samples[0] for name, samples in document.measured.items() if name != "storm"]
    return {"storm": storm, "costs": costs, "zone": ZONE, "long_ms": LONG_MS}


@contextmanager
def _chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def environment() -> dict[str, Any]:
    """The machine with its browser."""
    with _chromium() as browser:
        return {**of_this_machine(), "Chromium": f"{browser.version}, headless"}


# The zone, made up


@contextmanager
def _storms(_: Sequence[str]) -> Iterator[Measure]:
    with _chromium() as browser:
        yield lambda rate: asdict(_storm(browser, rate))


def _storm(browser: Browser, rate: int) -> Storm:
    with _zone(rate) as run, _opened(browser, run.url) as page:
        at_start = tuple(page.evaluate("window.longTasks.splice(0)"))
        before = page.evaluate("window.events")
        browser.start_tracing(page=page, categories=["-*", "toplevel"])
        seen = run.measure(SECONDS)
        page.wait_for_function("over => window.said === over", arg=OVER, timeout=LIMIT_MS)
        traced = json.loads(browser.stop_tracing())["traceEvents"]
        tasks = tuple(page.evaluate("window.longTasks"))
        if page.evaluate("window.missed"):
            raise SystemExit("the page did not get all events")
        events = page.evaluate("window.events") - before
    return Storm(seen.seconds, events, at_start, tasks, tuple(_cpu_ms(traced)))


def _cpu_ms(traced: list[dict[str, Any]]) -> Iterator[float]:
    """The CPU time of the long tasks of pages' main threads."""
    main_threads = {
        (event["pid"], event["tid"])
        for event in traced
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    for event in traced:
        if event["name"].endswith("::RunTask") and (event["pid"], event["tid"]) in main_threads:
            cpu_ms = event.get("tdur", 0) / 1e3
            if cpu_ms >= LONG_MS:
                yield cpu_ms


@contextmanager
def _zone_costs(_: Sequence[str]) -> Iterator[Measure]:
    with _chromium() as browser, _zone(0) as run:

        def cost(pages: int) -> dict[str, Any]:
            with _opened(browser, run.url) if pages else nullcontext():
                return asdict(run.cost(pages))

        yield cost


@contextmanager
def _opened(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_init_script(WATCH)
    page = context.new_page()
    page.goto(url)
    page.locator("#connection.up").wait_for(timeout=LIMIT_MS)
    page.locator("#read").get_by_text("last read").wait_for(timeout=LIMIT_MS)
    time.sleep(SETTLED_S)
    yield page
    context.close()


@dataclass(frozen=True, slots=True)
class Seen:
    """What the process of the made-up zone has done in some seconds."""

    seconds: float
    cpu_s: float
    samples: int


@dataclass(frozen=True, slots=True)
class _Zone:
    """The page of the zone, served by another process."""

    url: str
    pipe: Connection

    def measure(self, seconds: int) -> Seen:
        self.pipe.send(seconds)
        seen = self.pipe.recv()
        assert isinstance(seen, Seen)
        return seen

    def cost(self, pages: int) -> Cost:
        seen = self.measure(SECONDS)
        place = f"{ZONE}, without reading it"
        return Cost(place, pages, seen.seconds, seen.cpu_s, seen.samples)


@contextmanager
def _zone(rate: int) -> Iterator[_Zone]:
    context = get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=_serve_zone, args=(far, rate), daemon=True)
    process.start()
    try:
        yield _Zone(near.recv(), near)
    finally:
        process.kill()
        process.join()


def _serve_zone(pipe: Connection, rate: int) -> None:
    """Serve the page; for each number of seconds from `pipe` publish `rate` events a second, and
    answer with what that has cost."""
    lab = Lab.planned(ZONE).unstarted()
    feed = Feed(lab, read_only=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        access = Access(listener.getsockname()[1], "token")
        traffic = SimpleNamespace(document=lambda: NO_TRAFFIC)
        app = live_app(feed, SimpleNamespace(), traffic, access, read_only=False)  # type: ignore[arg-type]
        with HttpServer(app, listener), closing(feed.hub):
            samples = itertools.count()
            threading.Thread(target=_sample, args=(feed, samples), daemon=True).start()
            pipe.send(access.url)
            while True:
                seconds, before = pipe.recv(), next(samples)
                began_s, began_cpu_s = time.monotonic(), time.process_time()
                _publish(feed, began_s + seconds, rate)
                cpu_s = time.process_time() - began_cpu_s
                taken = next(samples) - before - 1
                pipe.send(Seen(time.monotonic() - began_s, cpu_s, taken))


def _publish(feed: Feed, until_s: float, rate: int) -> None:
    """Publish `rate` events a second until a time of the monotonic clock."""
    began_s, published = time.monotonic(), 0
    made = _events(feed.lab.fabric)
    while (now_s := time.monotonic()) < until_s:
        while published < (now_s - began_s) * rate:
            feed.publish(next(made))
            published += 1
        time.sleep(BURST_S if rate else SAMPLE_S)
    if rate:
        feed.note(OVER)


def _events(fabric: Fabric) -> Iterator[Event]:
    """Ports that flap, with the sessions and routes that follow, all over the zone."""
    rng = random.Random(1)
    ports = [port for link in fabric.trunks for port in (link.a, link.b)]
    link_of = {str(port): link for link in fabric.trunks for port in (link.a, link.b)}
    is_up = dict.fromkeys(map(str, ports), True)
    while True:
        port = rng.choice(ports)
        link, name = link_of[str(port)], port.node
        up = is_up[str(port)] = not is_up[str(port)]
        t_ns, peer = realtime_ns(), link.far(name).node
        yield CarrierEvent(t_ns, link.name, name, port.interface, up)
        cause = "session up" if up else "carrier"
        yield SessionEvent(t_ns, link.name, name, str(link.far(name).ip), peer, up, cause, "")
        yield RoutesEvent(t_ns, t_ns + 10**6, name, rng.randint(1, 300), 0)


def _sample(feed: Feed, samples: Iterator[int]) -> None:
    """Give the feed a snapshot twice a second, as the health monitor does."""
    fabric = feed.lab.fabric
    places, plan, spec = Places(fabric), plan_queues(fabric), HealthSpec()
    made = [_reading(fabric, number) for number in range(READINGS)]
    for then, now in itertools.cycle(itertools.pairwise(made)):
        began_s = time.monotonic()
        t_ns = realtime_ns()
        before = replace(then, time_ns=t_ns - round(SAMPLE_S * 1e9))
        dark = {port: replace(now.ports[port], carrier=False) for port in set(feed.state.dark)}
        reading = replace(now, time_ns=t_ns, ports={**now.ports, **dark})
        sample = compare(places, [plan], before, reading)
        feed._before = before
        feed._take_sample(Snapshot(feed.lab, spec, places, reading, sample, {}, 0, 0.0))
        next(samples)
        time.sleep(max(0.0, SAMPLE_S - (time.monotonic() - began_s)))


def _reading(fabric: Fabric, number: int) -> Reading:
    """All counters of the zone, each other than in the reading before."""
    rng = random.Random(number)
    ports, queues = {}, {}
    for link in fabric.directed_links:
        place = link.sender, link.port.interface
        packets = 10_000 * number + rng.randint(0, 5_000)
        ports[place] = PortReading(True, 0, packets, packets, 0, 4_000 * packets, 0, 0)
        queues[place] = {3: QueueCounters(packets, 4_000 * packets, 0, 0, 0, None, None, None)}
    sessions = {link.name: True for link in fabric.sessions}
    return Reading(1, ports, queues, {}, {}, {}, sessions)


# A lab that runs


@contextmanager
def _lab_costs(_: Sequence[str]) -> Iterator[Measure]:
    with (
        _chromium() as browser,
        Lab.planned(SMALL).brought_up() as lab,
        _served(lab.name) as (process, url),
    ):

        def cost(pages: int) -> dict[str, Any]:
            with _opened(browser, url) if pages else nullcontext():
                return asdict(_cost(lab.name, pages, process))

        yield cost


@contextmanager
def _served(lab: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    program = [sys.executable, "-c", "from rocelab.cli.main import main; main()"]
    with subprocess.Popen([*program, "live", lab], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[-1]
        process.terminate()


def _cost(lab: str, pages: int, process: subprocess.Popen[str]) -> Cost:
    began_s, began_cpu_s = time.monotonic(), _cpu_s(process.pid)
    time.sleep(SECONDS)
    return Cost(lab, pages, time.monotonic() - began_s, _cpu_s(process.pid) - began_cpu_s)


def _cpu_s(pid: int) -> float:
    """utime and stime of a process (proc(5), stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


STUDY = Study(
    name="live_page",
    about="the page of `rocelab live` under 1,000 events a second, and its server",
    series=series,
    figures=figures,
    environment=environment,
)

if __name__ == "__main__":
    command.run(STUDY.name)
