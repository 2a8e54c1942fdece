"""The live page of a real lab in Chromium: what is seen, clicked, saved and typed there."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Position, expect

from rocelab.lab.inuse import in_use
from rocelab.lab.lab import RunningLab
from rocelab.linux.processes import name_of
from rocelab.live.state import METRICS
from rocelab.record import LabFiles
from tests.helpers.command import rocelab
from tests.helpers.live_page import (
    NODES,
    Elsewhere,
    Looking,
    break_the_link,
    has_no_red,
    has_red,
    is_live,
    is_lost,
    open_link,
    open_shell,
    planned,
)
from tests.helpers.live_server import (
    LINK,
    LONG_JOB,
    Server,
    agents_of,
    carrier_of,
    fault,
    live_lab,
    news,
    served,
)
from tests.helpers.replay_page import Opener
from tests.helpers.textboxes import cut, overlapping, text_boxes
from tests.helpers.waiting import LIMIT_S, wait_until, wait_until_whole

pytestmark = pytest.mark.side_by_side

LIGHT = """
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    // Relative luminance (WCAG 2.1) of a colour over another.
    const light = (...colours) => {
        for (const colour of colours.reverse()) {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
        }
        const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
        return 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    };
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
"""
FAINT = (
    "() => {"
    + LIGHT
    + """
    const behind = (at) => {
        if (!at) return 'white';
        const colour = getComputedStyle(at).backgroundColor;
        return colour === 'rgba(0, 0, 0, 0)' ? behind(at.parentElement) : colour;
    };
    const hasText = (node) => node.nodeType === 3 && node.data.trim();
    return [...document.querySelectorAll('body *')]
        .filter((each) => each.checkVisibility() && !each.disabled && !each.closest('.later'))
        .filter((each) => [...each.childNodes].some(hasText))
        .map((each) => {
            const least = ratio(light(getComputedStyle(each).color), light(behind(each)));
            return [least, each.className, each.textContent.slice(0, 40)];
        })
        .filter(([least]) => least < 4.5);
}"""
)
"""Elements whose text has less contrast than WCAG 2.1 asks for."""
LOADED = (
    "() => import('/page/format.js').then(({ scale, style }) => {"
    + LIGHT
    + """
    const loads = [0, 0.25, 0.5, 0.75, 1].map((load) => light(scale()(load)));
    const idles = ['--wire', '--cell'].map((idle) => light(style(idle)));
    return idles.flatMap((idle) => loads.map((load) => ratio(load, idle)));
})"""
)
"""The contrast of links with a load to those without."""

OUTAGE = re.compile(r"(f\d+): (?:out [^,]+, )?([\d,]+) lost .* → .*")

STRIP_PX = 283
"""Of the strip Impact below a verdict of three lines, on a screen of 900: more would scroll."""

TABS = 6
"""With the page that opens them one more than the connections that a browser has to one host."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with live_lab(tmp_path_factory.mktemp("live"), "live-seen") as lab:
        yield lab


@pytest.fixture(scope="module")
def server(lab: RunningLab) -> Iterator[Server]:
    with served(lab) as server:
        yield server


@pytest.fixture
def look(browser: Browser) -> Iterator[Looking]:
    expect.set_options(timeout=LIMIT_S * 1e3)
    looking = Looking(browser)
    yield looking
    for context in looking.contexts:
        context.close()


def test_a_link_turns_red_by_a_click_for_all_who_look_and_heals_by_another(
    look: Looking, server: Server
) -> None:
    page, other = look.at(server.url), look.at(server.url)
    assert has_no_red(page)
    break_the_link(page, "2m")
    for tab in (page, other):
        expect(tab.locator("#faults")).to_contain_text(f"carrier-down of {LINK}")
        expect(tab.locator(".countdown")).to_contain_text("s left")
        wait_until(partial(has_red, tab), "the link is red")
        expect(tab.get_by_role("button", name="rtsw1: degraded")).to_be_visible()
    other.get_by_role("button", name="Undo").click()
    for tab in (page, other):
        expect(tab.locator("#faults")).to_be_hidden()
        wait_until(partial(has_no_red, tab), "no link is red")
        expect(tab.get_by_role("button", name="rtsw1: as planned")).to_be_visible()
        log = tab.locator("#timeline ol")
        expect(log).to_contain_text("rtsw1 lost carrier")
        expect(log).to_contain_text(re.compile("BGP with ctsw1 down: (Interface down|carrier)"))
        expect(log).to_contain_text("carrier-down is undone")
    expect(page.locator("#panel table").first).to_contain_text("● yes")
    assert look.complaints == []


def test_the_fabric_is_shown_as_it_was_by_the_keyboard_and_live_again(
    look: Looking, server: Server
) -> None:
    now_ns = 10**19 - 1
    status, answer = server.post("/faults", fault(lasts="10m"))
    assert status == 201
    wait_until(lambda: server.read(f"/history/at?t_ns={now_ns}")["states"], "a degraded switch")
    # The slider moves by half a second: what is over sooner may lie between two of its places.
    begun_ns = server.read(f"/history/at?t_ns={now_ns}")["t_ns"]
    wait_until(
        lambda: server.read(f"/history/at?t_ns={now_ns}")["t_ns"] > begun_ns + 2 * 10**9,
        "it lasts for more than a step of the slider",
    )
    assert server.post(f"/faults/{answer['number']}/undo", {}) == (200, {})
    wait_until(lambda: not server.read(f"/history/at?t_ns={now_ns}")["states"], "none")
    page = look.at(server.url)
    scrub, slider = page.locator("#scrub"), page.get_by_label("Time")
    expect(page.locator("#read")).to_contain_text("last read at")

    def is_red_earlier() -> bool:
        with page.expect_response("**/history/at**"):
            slider.press("ArrowLeft")
        expect(scrub.locator("output")).to_contain_text("s ago")
        return has_red(page)

    assert has_no_red(page)
    wait_until(is_red_earlier, "the link is red where it was")
    expect(scrub.locator("output")).to_contain_text("as of")
    expect(page.get_by_role("button", name="rtsw1: degraded")).to_be_visible()
    expect(page.locator("#timeline li.later").filter(has_text="is undone")).not_to_have_count(0)
    slider.press("Escape")
    wait_until(partial(has_no_red, page), "no link is red now")
    expect(scrub.locator("output")).to_have_text("live")
    slider.press("Home")
    expect(scrub.locator("output")).to_contain_text("as of")
    scrub.get_by_role("button", name="Back to live").click()
    expect(scrub.locator("output")).to_have_text("live")
    expect(slider).to_be_focused()
    assert look.complaints == []


def test_the_last_minutes_are_saved_as_a_page_that_needs_no_server(
    look: Looking, server: Server, browser: Browser, tmp_path: Path
) -> None:
    stream = news(server)
    number = server.post("/faults", fault(lasts="10m"))[1]["number"]
    stream.together(
        carrier_of(LINK, there=False),
        lambda event: event["kind"] == "node" and event["state"] == "degraded",
    )
    assert server.post(f"/faults/{number}/undo", {}) == (200, {})
    stream.together(
        lambda event: event["kind"] == "fault" and not event["begins"],
        lambda event: event["kind"] == "node" and event["state"] == "ok",
    )
    page = look.at(server.url)
    with page.expect_download() as download:
        page.get_by_role("link", name="Save these minutes").click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert re.fullmatch(r"live-seen-\d{8}T\d{6}Z\.html", saved.name)
    opened = Opener(browser, saved, NODES).at()
    rows = opened.page.locator("#happenings li")
    rows.filter(has_text=f"is undone (fault {number})").get_by_role("button").first.click()
    expect(opened.instant).to_contain_text(f"carrier-down of {LINK} ends")
    texts = rows.all_text_contents()
    begun = next(row for row, text in enumerate(texts) if f"begins (fault {number})" in text)
    # As routing heals, a node can be degraded again when its link is not dark any more.
    degraded = next(row for row in range(begun, len(texts)) if "rtsw1 degraded" in texts[row])
    rows.nth(degraded).get_by_role("button").first.click()
    expect(opened.page.locator("#state")).to_contain_text("rtsw1: degraded")
    wait_until(lambda: opened.red() > 50)
    boxes = text_boxes(opened.page)
    assert "sent by all servers on the wire" in " ".join(box["text"] for box in boxes)
    assert cut(boxes) == []
    assert overlapping(boxes) == []
    assert opened.requests == [saved.as_uri()]
    assert opened.complaints == []
    opened.page.context.close()


def test_a_new_tab_shows_the_load_of_the_last_minutes_with_its_unit(
    look: Looking, lab: RunningLab, server: Server
) -> None:
    since_ns = server.read("/history?link=rtsw1:ctsw1")["t_ns"][-1]
    send = ["ping", "-c", "200", "-i", "0.001", "-s", "8000", "198.18.0.19"]
    lab.node("rtsw1").exec(send, timeout_s=LIMIT_S)

    def loads() -> list[float]:
        document = server.read(f"/history?link={LINK}&since={since_ns}")
        series = next(entry for entry in document["series"] if entry["to"] == "ctsw1")
        return list(series["values"])

    wait_until(lambda: any(loads()), "a sample with load")
    page = look.at(server.url)
    open_link(page)
    plot = page.locator(".plot").filter(has_text="load to ctsw1")
    expect(plot.locator(".value")).to_have_text(re.compile(r"^[\d.< ]+%\s+most .*[1-9].*%$"))
    assert look.complaints == []


def test_what_is_focused_stays_so_when_the_panel_and_the_events_are_drawn_again(
    look: Looking, server: Server
) -> None:
    page = look.at(server.url)
    assert server.post("/faults", fault(lasts="100ms"))[0] == 201
    open_link(page)
    read = page.locator("#panel caption").first.text_content()
    assert read is not None
    page.locator("#panel .ends button").first.focus()
    expect(page.locator("#panel caption").first).not_to_have_text(read)
    expect(page.locator("#panel .ends button").first).to_be_focused()
    event = page.locator("#timeline li:not([hidden]) button").first
    event.evaluate("each => { each.dataset.marked = 'yes'; each.focus(); }")
    newest = page.locator("#timeline li").first.text_content()
    assert newest is not None
    assert server.post("/faults", fault(lasts="100ms"))[0] == 201
    wait_until(lambda: page.locator("#timeline li").first.text_content() != newest, "an event")
    expect(page.locator("#timeline [data-marked]")).to_be_focused()
    page.locator("#panel .ends button").first.press("Enter")
    expect(page.locator("#panel h2")).to_be_focused()


def test_a_scheme_is_switched_by_the_page_and_by_others_for_all_who_look(
    look: Looking, lab: RunningLab, server: Server
) -> None:
    page = look.at(server.url)
    scheme = page.locator("#scheme")
    expect(scheme).to_contain_text("Flows are spread by ecmp.")
    scheme.get_by_label("scheme").select_option("spray")
    scheme.get_by_role("button", name="Switch").click()
    expect(scheme).to_contain_text("Flows are spread by spray.")
    assert lab.steering.read_scheme().kind == "spray"
    assert rocelab("scheme", lab.name, "ecmp").returncode == 0
    expect(scheme).to_contain_text("Flows are spread by ecmp.")
    expect(page.locator("#timeline ol")).to_contain_text("flows are spread by spray")
    assert look.complaints == []


def test_who_does_not_reach_whom_is_named_after_a_click(look: Looking, server: Server) -> None:
    page = look.at(server.url)
    locator = page.locator("#reach")
    probe = locator.get_by_role("button", name="Probe all pairs")
    probe.click()
    expect(locator).to_contain_text("12 of 12 pairs of NICs reach.")
    cut_off = {"kind": "carrier-down", "keys": {"link": "srv1-1:rtsw1", "lasts": "10m"}}
    status, answer = server.post("/faults", cut_off)
    assert status == 201
    probe.click()
    expect(locator).to_contain_text("6 of 12 pairs of NICs reach.")
    assert locator.locator("tbody tr").all_inner_texts() == ["srv1-1\tany", "any\tsrv1-1"]
    locator.get_by_role("button", name="srv1-1").first.click()
    expect(page.locator("#panel h2")).to_contain_text("srv1-1")
    assert server.post(f"/faults/{answer['number']}/undo", {}) == (200, {})
    assert look.complaints == []


def test_the_path_of_a_flow_is_shown(look: Looking, lab: RunningLab, server: Server) -> None:
    wait_until_whole(lab)  # of srv1-1's port, which the test before has put back
    page = look.at(server.url)
    page.locator("#path [name=dst]").select_option("srv3-1")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#hops li")).to_have_count(5)
    expect(page.locator("#hops li").nth(1)).to_contain_text("of 2, hash 0x")
    expect(page.locator("#labels [data-path]")).to_have_count(5)


def test_a_job_is_started_watched_and_stopped_by_clicks_for_all_who_look(
    look: Looking, lab: RunningLab, server: Server
) -> None:
    page, other = look.at(server.url), look.at(server.url)
    traffic = page.locator("#traffic")
    traffic.get_by_label("ranks").fill("4")
    traffic.get_by_label("iterations").fill("10000")
    traffic.get_by_role("button", name="Run job").click()
    for tab in (page, other):
        expect(tab.locator("#traffic")).to_contain_text("of 10001 iterations")
    other.get_by_role("button", name="Stop").click()
    for tab in (page, other):
        expect(tab.locator("#traffic")).to_contain_text("Stopped: no trace of it remains.")
    assert agents_of(lab) == []
    traffic.get_by_label("iterations").fill("3")
    traffic.get_by_label("ranks").fill("400")
    traffic.get_by_role("button", name="Run job").click()
    expect(traffic.get_by_role("alert")).to_contain_text("NICs")
    traffic.get_by_label("ranks").fill("4")
    traffic.get_by_role("button", name="Run job").click()
    for tab in (page, other):
        expect(tab.locator("#traffic table")).to_contain_text("busbw")
    expect(other.locator("#timeline ol")).to_contain_text("allreduce of 4 ranks has ended")


def test_a_cable_is_pulled_under_probes_and_the_page_names_the_outage_of_each_flow(
    look: Looking, server: Server
) -> None:
    page = look.at(server.url)
    page.get_by_role("button", name="Send probes").click()
    impact = page.locator("#impact")
    expect(impact.locator("#verdict")).to_contain_text("break it")
    expect(page.locator("#traffic")).to_contain_text("of 60 seconds")
    open_link(page)
    page.get_by_label("how long").select_option("1s")
    page.get_by_role("button", name="Break it").click()
    expect(page.locator("#faults")).to_contain_text(f"carrier-down of {LINK}")
    # They end by themselves once the lab has recovered.
    verdict = impact.locator("#verdict")
    expect(verdict).to_contain_text(
        re.compile("Disturbed: not a measurement|Invalid: this machine")
    )
    expect(verdict).to_contain_text(
        re.compile(f"Disturbed by carrier-down of {LINK}, from [\\d.]+ m?s after the start for 1")
    )
    result = server.read("/traffic/result.json")
    lost = {
        flow["flow"]["name"]: flow["measurement"]["lost"]
        for flow in result["run"]["flows"]
        if flow["measurement"]["lost"]
    }
    assert lost
    rows = impact.locator("#outages li")
    expect(rows.first).to_be_visible()
    outages = [re.fullmatch(OUTAGE, text) for text in rows.all_text_contents()]
    named = {outage[1]: outage[2] for outage in outages if outage}
    assert all(outages)
    assert set(named) <= set(lost)
    assert {int(count.replace(",", "")) for count in named.values()} <= set(lost.values())
    # The lane of losses has it too, and BGP's steps are on the axis of the plots.
    lane = page.locator("#history .lane").last
    expect(lane).to_contain_text("lost")
    expect(lane.locator("i.bad").first).to_have_attribute("title", re.compile("packets of .* lost"))
    expect(impact.locator(".lane i.hold").first).to_be_visible()
    expect(impact.locator(".lane i.noticed").first).to_have_attribute(
        "title", re.compile("rtsw1|ctsw1")
    )
    assert impact.locator("canvas").count() == 2
    assert impact.locator(".strip").evaluate("strip => strip.scrollHeight") <= STRIP_PX
    expect(page.locator("#panel")).to_contain_text("Queues that had packets")
    tables = page.locator(".scroll")
    assert tables.evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")
    assert result["disturbed"][0]["kind"] == "carrier-down"
    assert result["disturbed"][0]["ends_ns"] > 10**9
    assert look.complaints == []


@pytest.mark.long
def test_a_job_of_the_page_is_broken_by_a_click_and_is_disturbed(
    look: Looking, server: Server
) -> None:
    page = look.at(server.url)
    traffic = page.locator("#traffic")
    traffic.get_by_label("ranks").fill("4")
    traffic.get_by_label("iterations").fill("60")
    traffic.get_by_role("button", name="Run job").click()
    expect(traffic).to_contain_text("of 61 iterations")
    impact = page.locator("#impact")
    expect(impact.locator("figcaption").first).to_contain_text("packets/s of all traffic, per 10")
    expect(impact.locator("figcaption").last).to_contain_text("packets sent again, per 10 ms")
    status, _ = server.post("/faults", fault(lasts="1s"))
    assert status == 201
    expect(traffic).to_contain_text(f"Disturbed by carrier-down of {LINK}")
    expect(impact.locator("#verdict")).to_contain_text("data packets were sent again")
    result, measured = server.read("/traffic/result.json"), server.read("/traffic/impact")
    # What agents counted 10 ms apart is all but what they sent between the last look and their end.
    counted, sent = sum(measured["steps"]["sent"]), result["transport"]["data_packets"]
    assert 0 < counted <= sent
    assert {outage["flow"] for outage in measured["outages"]} <= {
        flow["name"] for flow in measured["run"]["flows"]
    }
    assert impact.locator("#outages li").count() == len(measured["outages"])
    expect(impact.locator(".lane i.noticed").first).to_have_attribute(
        "title", re.compile("rtsw1|ctsw1")
    )
    assert server.read("/traffic")["state"] in ("disturbed", "invalid", "failed")


def test_a_queue_pair_that_sends_is_chosen_and_seen_on_its_path(
    look: Looking, lab: RunningLab, server: Server
) -> None:
    page = look.at(server.url)
    flow = page.locator("#flow")
    running = flow.get_by_label("a queue pair that sends now")
    expect(running).to_be_hidden()
    assert server.post("/traffic", LONG_JOB)[0] == 201
    running.select_option(index=1)
    expect(flow.get_by_label("from")).to_have_value("srv1-1")
    expect(flow.get_by_label("QP", exact=True)).not_to_have_value("")
    flow.get_by_role("button", name="Show").click()
    expect(flow).to_contain_text("Seen where it was predicted, and nowhere else")
    expect(flow.locator("li b")).to_have_count(4)
    assert server.post("/traffic/stop", {})[0] == 200
    expect(running).to_be_hidden()
    assert look.complaints == []


def test_what_else_uses_the_lab_is_shown_instead_of_the_form(
    look: Looking, lab: RunningLab, server: Server
) -> None:
    page = look.at(server.url)
    traffic = page.locator("#traffic")
    with in_use(LabFiles(lab.name), "a drill"):
        expect(traffic).to_contain_text("In use by a drill that was started elsewhere")
        expect(traffic.get_by_role("button", name="Run job")).to_be_hidden()
    expect(traffic.get_by_role("button", name="Run job")).to_be_visible()


@pytest.mark.long
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


def test_a_server_on_another_port_gets_the_cookie_and_can_break_nothing_with_it(
    look: Looking, server: Server
) -> None:
    page = look.at(server.url)
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as elsewhere:
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
    page.get_by_role("tab", name="BGP").click()
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


def test_a_zone_of_252_by_18_is_a_matrix_of_links_with_its_servers_in_the_whole_height(
    look: Looking,
) -> None:
    with planned("zone-252x18") as (hub, url):
        hub.sample(1, {metric: {2 * 252: 1.0} if metric == "load" else {} for metric in METRICS})
        page = look.at(url, nodes=0)
        expect(page.locator(".heads button")).to_have_count(18)
        stage, key = page.locator("#stage").bounding_box(), page.locator("#key").bounding_box()
        last = page.locator(".heads > *").last
        expect(last).to_have_text("servers")
        head, matrix = last.bounding_box(), page.locator("#stage canvas").last
        box = matrix.bounding_box()
        assert stage is not None
        assert key is not None
        assert head is not None
        assert box is not None
        assert 0 <= key["y"] - head["y"] - head["height"] < 30
        matrix.click(position=Position(x=86, y=head["y"] - stage["y"] + head["height"] / 2))
        expect(page.locator("#panel h2")).to_have_text("srv1-1:rtsw1")
        matrix.click(position=Position(x=box["width"] - 18, y=60))
        expect(page.locator("#panel h2")).to_have_text("rtsw252:ctsw1")
        page.locator(".heads button").last.click()
        expect(page.locator("#panel h2")).to_have_text("ctsw18")


@pytest.mark.parametrize(
    ("width", "height", "scheme"),
    [
        (1400, 900, "light"),
        (390, 844, "dark"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in [
                (1400, 900, "dark"),
                (800, 1000, "light"),
                (800, 1000, "dark"),
                (390, 844, "light"),
            ]
        ),
    ],
)
def test_the_page_fits_and_is_readable_at_each_size_in_light_and_dark(
    look: Looking, server: Server, width: int, height: int, scheme: Literal["light", "dark"]
) -> None:
    page = look.at(server.url, width, height, scheme=scheme)
    page.get_by_role("button", name="rtsw1: as planned").click()
    for tab in ("BGP", "Configuration", "Log", "Ports"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel", name=tab)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(FAINT) == []
    assert min(page.evaluate(LOADED)) >= 3
    for control in page.locator("#steps button, .breaking button, #views button").all():
        box = control.bounding_box()
        assert box is not None
        assert 0 <= box["x"] < box["x"] + box["width"] <= width
        assert box["height"] >= 22
    assert look.complaints == []


def test_a_panel_says_what_it_is_then_breaks_it_then_plots_then_has_tabs(
    look: Looking, server: Server
) -> None:
    page = look.at(server.url)
    page.get_by_role("button", name="rtsw1: as planned").click()
    panel = page.locator("#panel")
    expect(panel.locator(".plot")).to_have_count(3)
    parts = [".state", ".breaking", ".plots", ".plot-key", "[role=tablist]", "[role=tabpanel]"]
    tops = [panel.locator(part).bounding_box() for part in parts]
    assert [box["y"] for box in tops if box] == sorted(box["y"] for box in tops if box)
    assert len([box for box in tops if box]) == len(parts)
    tabs = panel.get_by_role("tab")
    assert tabs.all_text_contents() == ["Ports", "BGP", "Configuration", "Log"]
    tabs.first.press("ArrowRight")
    expect(panel.get_by_role("tab", name="BGP")).to_be_focused()
    expect(panel.get_by_role("tabpanel")).to_contain_text("Established")
    expect(page.locator("#scale-high")).to_have_text("100% of the rate")


def test_what_was_chosen_is_shown_as_it_was_and_without_buttons(
    look: Looking, server: Server
) -> None:
    number = server.post("/faults", fault(lasts="10m"))[1]["number"]
    now_ns = 10**19 - 1
    wait_until(lambda: server.read(f"/history/at?t_ns={now_ns}")["carrier"], "a dark link")
    broken_ns = server.read(f"/history/at?t_ns={now_ns}")["t_ns"]
    wait_until(
        lambda: server.read(f"/history/at?t_ns={now_ns}")["t_ns"] > broken_ns + 3 * 10**9,
        "it lasts",
    )
    server.post(f"/faults/{number}/undo", {})
    wait_until(lambda: not server.read(f"/history/at?t_ns={now_ns}")["states"], "none")
    page = look.at(server.url)
    open_link(page)
    panel = page.locator("#panel")
    expect(panel.locator(".state")).to_contain_text("has carrier")
    expect(panel.get_by_role("button", name="Break it")).to_be_visible()
    expect(page.locator("#read")).to_contain_text("last read at")
    # A click on the lane of faults goes to that time.
    mark = page.locator("#history .lane").first.locator("i.bad").last
    box = mark.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#scrub output")).to_contain_text("as of")
    expect(panel.locator(".state")).to_contain_text("without carrier")
    expect(panel).to_contain_text("As it was at")
    for button in ("Break it", "Capture", "Send probes", "Run job", "Probe all pairs"):
        expect(page.get_by_role("button", name=button)).to_have_count(0)
    page.get_by_role("button", name="Back to live").click()
    expect(panel.locator(".state")).to_contain_text("has carrier")
    expect(panel.get_by_role("button", name="Break it")).to_be_visible()


@pytest.mark.long
def test_the_first_steps_send_pull_a_cable_and_lead_to_the_impact(
    look: Looking, server: Server
) -> None:
    page = look.at(server.url, 390, 844)
    steps = page.locator("#steps")
    wait_until(lambda: server.read("/traffic")["state"] != "running", "no traffic")
    steps.get_by_role("button", name="1 Send traffic").click()
    # It can be pulled once packets count: before, the outage would be in no flow's figures.
    steps.get_by_role("button", name="2 Pull a cable").click()
    assert server.read("/traffic")["progress"] is not None
    expect(page.locator("#faults")).to_contain_text("carrier-down of")
    read = steps.get_by_role("button", name="3 Read impact")
    expect(read).to_be_disabled()
    expect(read).to_be_enabled()
    read.click()
    expect(page.locator("#verdict")).to_contain_text("Disturbed by carrier-down of")
    expect(page.locator("#verdict")).to_be_in_viewport()


def test_packets_of_a_port_are_captured_to_a_file(
    look: Looking, lab: RunningLab, server: Server, tmp_path: Path
) -> None:
    page = look.at(server.url)
    page.get_by_role("button", name="rtsw1: as planned").click()
    send = ["ping", "-c", "60", "-i", "0.1", "198.18.0.19"]
    with ThreadPoolExecutor(1) as pool, page.expect_download() as download:
        sent = pool.submit(lab.node("rtsw1").exec, send, timeout_s=LIMIT_S)
        page.locator("#panel tr").filter(has_text="ctsw1").get_by_role(
            "button", name="Capture"
        ).click()
        sent.result()
    assert download.value.suggested_filename == "rtsw1-ctsw1.pcapng"
    file = tmp_path / "some.pcapng"
    download.value.save_as(file)
    assert file.read_bytes()[:4] == b"\x0a\x0d\x0d\x0a"
    line = f"rocelab capture {lab.name} rtsw1:ctsw1 -o - | wireshark -k -i -"
    expect(page.locator("#panel code")).to_have_text(line)
    assert look.complaints == []


def test_hpn_has_its_planes_above_its_segments(look: Looking) -> None:
    with planned("hpn-small") as (_, url):
        page = look.at(url, nodes=18)
        frames = {
            frame.text_content(): frame.bounding_box() for frame in page.locator(".frame").all()
        }
        assert set(frames) == {"plane 1", "plane 2", "segment 1", "segment 2"}
        low = max(frames[f"plane {n}"]["y"] + frames[f"plane {n}"]["height"] for n in (1, 2))  # type: ignore[index]
        assert low < min(frames[f"segment {n}"]["y"] for n in (1, 2))  # type: ignore[index]


def test_a_network_of_several_is_shown_alone_with_its_totals_and_its_events(look: Looking) -> None:
    with planned("two-networks") as (hub, url):
        page = look.at(url, nodes=12)
        totals = page.locator("#networks label")
        expect(totals).to_have_text(
            ["all", "backend: 4 switches, 12 links", "frontend: 2 switches, 8 links"]
        )
        for link, node, port in (("fsw1:fsw2", "fsw1", "fsw2"), ("rtsw1:ctsw1", "rtsw1", "ctsw1")):
            ends = {"link": link, "node": node, "interface": port, "carrier": False}
            hub.publish({"kind": "carrier", "t_ns": 10**18, **ends})
        expect(totals.last).to_have_text("frontend: 2 switches, 8 links, 1 link without carrier")
        expect(page.locator("#timeline li")).to_have_count(2)
        totals.last.click()
        expect(page.locator("#timeline li")).to_have_count(1)
        expect(page.locator("#timeline li")).to_contain_text("fsw1:fsw2")
        expect(page.locator("#labels button.node")).to_have_count(8)
        expect(page.locator(".frame")).to_have_count(0)
        totals.first.click()
        expect(page.locator("#labels button.node")).to_have_count(12)


SMALLEST_PX = """async (least) => {
    const smallest = () => Math.min(
        ...[...document.querySelectorAll('#labels button.node')].map(
            (box) => parseFloat(getComputedStyle(box).fontSize)
                * box.getBoundingClientRect().height / box.offsetHeight));
    for (let frame = 0; frame < 600 && smallest() < least; frame++)
        await new Promise(requestAnimationFrame);
    return smallest();
}"""
"""The size of the smallest name of a node on the screen, once it is at least so large, or after 600
frames. The page's policy lets no text be evaluated, as `wait_for_function` does."""


@pytest.mark.parametrize(
    ("name", "nodes", "width", "least_px"),
    [("hpn-small", 18, 1400, 8), ("zone-small", 16, 1400, 9), ("zone-small", 16, 390, 8)],
)
def test_names_of_nodes_are_readable_beside_an_open_strip(
    look: Looking, name: str, nodes: int, width: int, least_px: int
) -> None:
    with planned(name) as (_, url):
        page = look.at(url, width, nodes=nodes)
        page.evaluate(
            """() => {
                document.querySelector('#impact').hidden = false;
                document.querySelector('#plotted').style.height = '600px';
            }"""
        )
        assert page.evaluate(SMALLEST_PX, least_px) >= least_px


def test_one_fault_of_many_racks_is_one_row_and_amber_at_its_own_switches_only(
    look: Looking,
) -> None:
    with planned("bench-16x4") as (hub, url):
        page = look.at(url, nodes=36)
        at_ns, link = 10**18, "rtsw1:ctsw1"
        about = {"number": 1, "fault": "carrier-down", "subject": link, "ends_ns": None}
        hub.publish({"kind": "fault", "t_ns": at_ns, "begins": True, **about})
        for node, interface in (("rtsw1", "ctsw1"), ("ctsw1", "rtsw1")):
            port = {"link": link, "node": node, "interface": interface, "carrier": False}
            hub.publish({"kind": "carrier", "t_ns": at_ns + 10**6, **port})
        counts = {"ports_down": 0, "sessions_down": 0, "routes_incomplete": 1}
        for rack in range(2, 17):
            routes = {
                "node": f"rtsw{rack}",
                "changes": 1,
                "removed": 0,
                "until_ns": at_ns + 7 * 10**7,
            }
            hub.publish({"kind": "routes", "t_ns": at_ns + 6 * 10**7, **routes})
            state = {"node": f"rtsw{rack}", "state": "rerouted", **counts}
            hub.publish({"kind": "node", "t_ns": at_ns + 5 * 10**8, **state})
        state = {**counts, "ports_down": 1, "state": "degraded"}
        for node in ("rtsw1", "ctsw1"):
            hub.publish({"kind": "node", "t_ns": at_ns + 5 * 10**8, "node": node, **state})
        rows = page.locator("#timeline li")
        expect(page.locator(".node.rerouted")).to_have_count(15)
        expect(page.locator(".node.degraded")).to_have_count(2)
        wait_until(lambda: has_red(page), "the link is red")
        expect(rows.locator("visible=true").filter(has=page.locator("time"))).to_have_count(1)
        expect(rows.first.or_(rows.last).locator("visible=true").first).to_contain_text(
            "2 ports lost carrier, 15 switches changed routes"
        )
        page.get_by_role("button", name="One by one").click()
        expect(
            rows.locator("visible=true").filter(has_text="rtsw2, rtsw3, rtsw4 and 12 more")
        ).to_have_count(2)


def test_a_page_that_is_read_only_has_what_changes_nothing_and_no_empty_parts(
    look: Looking,
) -> None:
    with planned("tiny", read_only=True) as (_, url):
        page = look.at(url)
        for name in ("#traffic", "#reach", "#scheme form"):
            expect(page.locator(name)).to_be_hidden()
        expect(page.get_by_role("button", name="Show", exact=True)).to_be_visible()
        expect(page.locator("#scheme")).to_contain_text("Flows are spread by ecmp.")
        assert "`" not in page.locator("body").inner_text()


def test_events_beyond_the_newest_are_shown_when_they_are_asked_for(look: Looking) -> None:
    with planned("tiny") as (hub, url):
        for number in range(70):
            hub.publish({"kind": "note", "t_ns": 10**18 + number * 10**9, "text": f"note {number}"})
        page = look.at(url)
        rows = page.locator("#timeline li")
        expect(rows.first).to_contain_text("note 69")
        expect(rows).to_have_count(60)
        page.get_by_role("button", name="Older events").click()
        expect(rows.last).to_contain_text("note 0")
        expect(page.get_by_role("button", name="Older events")).to_be_hidden()


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
    look: Looking, lab: RunningLab, server: Server
) -> None:
    page = look.at(server.url)
    expect(page.locator("#read")).to_contain_text("read at")
    server.process.send_signal(signal.SIGSTOP)
    is_lost(page)
    server.process.send_signal(signal.SIGCONT)
    is_live(page)
    server.end(signal.SIGKILL)
    is_lost(page)
    with served(lab):
        is_live(page)
        expect(page.locator("body")).not_to_have_class("stale")
        break_the_link(page, "1s")
        expect(page.locator("#timeline ol")).to_contain_text("rtsw1 lost carrier")


def test_a_page_says_that_its_lab_is_down_and_what_to_do(look: Looking, tmp_path: Path) -> None:
    with live_lab(tmp_path, "live-down") as lab, served(lab) as server:
        page = look.at(server.url)
        is_live(page)
        rocelab("down", lab.name)
        expect(page.locator("#ended")).to_contain_text(
            "lab live-down is down: bring it up with `rocelab up live-down`"
        )
        expect(page.locator("#connection")).not_to_contain_text("reconnecting")
        expect(page.locator("body")).to_have_class("stale")


def test_vtysh_answers_in_the_page_and_what_a_shell_has_started_ends_with_its_tab_or_the_server(
    look: Looking, lab: RunningLab
) -> None:
    node = lab.node("rtsw1")
    before = set(node.processes())

    def are_two_asleep() -> bool:
        return [name_of(pid) for pid in set(node.processes()) - before].count("sleep") == 2

    def is_as_before() -> bool:
        return set(node.processes()) == before

    with served(lab, "--terminal") as server:
        page = look.at(server.url)
        screen = page.locator(".xterm-rows")
        page.get_by_role("button", name="rtsw1: as planned").click()
        page.get_by_role("button", name="Open vtysh").click()
        expect(screen).to_contain_text("#")
        page.keyboard.type("show bgp summary\n")
        expect(screen).to_contain_text("Total number of neighbors 2")
        open_shell(page)
        page.keyboard.type("seq 20000; echo $((6 * 7)) lines; setsid -f sleep 5000\n")
        expect(screen).to_contain_text("42 lines")
        page.keyboard.type("nohup sleep 5000 >/dev/null &\n")
        wait_until(are_two_asleep, "both run")
        page.reload()
        wait_until(is_as_before, "nothing of the shell runs after its tab")
        page.get_by_role("button", name="rtsw1: as planned").click()
        open_shell(page)
        page.keyboard.type("setsid -f sleep 5000; nohup sleep 5000 >/dev/null &\n")
        wait_until(are_two_asleep, "both run")
        server.end(signal.SIGKILL)
        wait_until(is_as_before, "nothing of the shell runs after the server")
        expect(screen).to_contain_text("The terminal has ended.")


@pytest.mark.long
def test_a_browser_without_shared_workers_or_websockets_has_the_page_without_terminals(
    look: Looking, lab: RunningLab
) -> None:
    with served(lab, "--terminal") as server:
        page = look.at(server.url, lacks=("SharedWorker", "WebSocket"))
        expect(page.locator("#read")).to_contain_text("last read at")
        page.get_by_role("button", name="rtsw1: as planned").click()
        page.get_by_role("button", name="Open shell").click()
        expect(page.locator(".xterm-rows")).to_contain_text("lets no WebSocket through")
        break_the_link(page, "1s")
        expect(page.locator("#timeline ol")).to_contain_text("rtsw1 lost carrier")
    assert look.complaints == []
