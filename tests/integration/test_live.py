"""The live page of a real lab: its stream and its faults over HTTP, then the page in Chromium."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Position, expect

from rocelab.kernel.links import read_counters
from rocelab.kernel.namespaces import inside
from rocelab.kernel.processes import name_of
from rocelab.live.state import METRICS
from rocelab.runtime.inuse import in_use, user_of
from rocelab.runtime.lab import Lab
from rocelab.runtime.record import LabFiles
from tests.integration.command import rocelab
from tests.integration.labs import running
from tests.integration.live_page import (
    LINK,
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
from tests.integration.live_server import Event, Server, Stream, served
from tests.integration.replay_page import Opener
from tests.integration.textboxes import cut, overlapping, text_boxes
from tests.integration.waiting import LIMIT_S, wait_until, wait_until_whole

pytestmark = pytest.mark.side_by_side

TABS = 8
"""More than the connections that a browser opens to one host."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    file = tmp_path_factory.mktemp("live") / "live-tiny.yaml"
    file.write_text("name: live-tiny\nfabric: {kind: clos, racks: 4, spines: 2}\n")
    with running(Lab.planned(file)) as lab:
        yield lab


def carrier_of(port: str, *, there: bool) -> Callable[[Event], bool]:
    node, _, interface = port.partition(":")
    wanted = {"kind": "carrier", "node": node, "interface": interface, "carrier": there}
    return lambda event: wanted.items() <= event.items()


def fault(**keys: str) -> Event:
    return {"kind": "carrier-down", "keys": {"link": LINK, **keys}}


def until_the_fault_ends(stream: Stream) -> list[Event]:
    """All events up to the end of the fault; samples are merged, and not for ever there."""
    events: list[Event] = []
    while not events or events[-1]["kind"] != "fault" or events[-1]["begins"]:
        kind, data = stream.next()
        events += [data] if kind == "event" else []
    return events


def has_carrier(lab: Lab) -> bool:
    return not lab.node("rtsw1").port_faults([lab.fabric.link_by_name[LINK]])


def test_a_link_that_the_page_breaks_is_dark_in_the_kernel_and_in_the_stream_and_comes_back(
    lab: Lab,
) -> None:
    with served(lab) as server:
        stream = Stream(server)
        kind, fabric = stream.next()
        assert kind == "fabric"
        assert [node["state"] for node in fabric["nodes"]] == ["ok"] * 10
        status, answer = server.post("/faults", fault(lasts="10m"))
        assert status == 201
        begun, noted, down, _ = stream.together(
            lambda event: event["kind"] == "carrier",
            lambda event: event["kind"] == "fault",
            lambda event: event["kind"] == "session",
            lambda e: e["kind"] == "node" and e["node"] == "rtsw1" and e["ports_down"],
        )
        assert begun["link"] == LINK
        assert begun["carrier"] is False
        assert (noted["number"], noted["subject"]) == (answer["number"], LINK)
        assert noted["begins"]
        assert (down["link"], down["up"], down["cause"]) == (LINK, False, "carrier")
        assert server.post(f"/faults/{answer['number']}/undo", {}) == (200, {})
        back, *_ = stream.together(
            carrier_of(LINK, there=True),
            lambda event: event["kind"] == "fault" and not event["begins"],
            lambda e: e["kind"] == "node" and e["node"] == "rtsw1" and e["state"] == "ok",
        )
        assert back["t_ns"] > begun["t_ns"]
    assert has_carrier(lab)


def test_a_fault_of_the_page_is_in_the_lab_s_record_until_it_is_undone(lab: Lab) -> None:
    with served(lab) as server:
        _, answer = server.post("/faults", fault(lasts="10m"))
        listed = json.loads(rocelab("fault", "list", lab.name, "--json").stdout)
        assert [(each["number"], each["kind"]) for each in listed] == [
            (answer["number"], "carrier-down")
        ]
        assert not has_carrier(lab)
        assert server.post(f"/faults/{answer['number']}/undo", {}) == (200, {})
        assert has_carrier(lab)
        assert server.read("/fabric.json")["faults"] == []
        status, refused = server.post("/faults/7/undo", {})
        assert status == 400
        assert refused["error"] == f"lab {lab.name} has no fault 7"


def test_what_the_page_broke_is_undone_when_its_server_ends_or_is_killed(lab: Lab) -> None:
    with served(lab) as server:
        assert server.post("/faults", fault(lasts="10m"))[0] == 201
        assert server.end(signal.SIGTERM) == 143
        assert server.process.stderr is not None
        said = server.process.stderr.read()
        assert f"carrier-down of {LINK} was undone" in said
        assert said.count("\n") == 1
        assert has_carrier(lab)
    with served(lab) as server:
        assert server.post("/faults", fault(lasts="10m"))[0] == 201
        server.end(signal.SIGKILL)
        wait_until(lambda: has_carrier(lab) and not list(LabFiles(lab.name).faults.glob("*.json")))


def test_a_fault_from_elsewhere_is_shown_and_can_be_undone(lab: Lab) -> None:
    with served(lab) as server:
        stream = Stream(server)
        assert rocelab("fault", "inject", lab.name, "carrier-down", f"link={LINK}").returncode == 0
        noted = stream.until(lambda event: event["kind"] == "fault")
        assert noted["ends_ns"] is None
        assert server.post(f"/faults/{noted['number']}/undo", {}) == (200, {})
    assert has_carrier(lab)


@pytest.mark.long
def test_a_server_that_was_killed_and_started_again_is_the_same_page(lab: Lab) -> None:
    with served(lab) as first:
        stream = Stream(first)
        stream.next()
        first.end(signal.SIGKILL)
    with served(lab) as second:
        assert second.url == first.url
        assert first.read("/fabric.json")["lab"] == lab.name  # with the cookie of before
        kind, _ = Stream(first, stream.last_id).next()
        assert kind == "fabric"


def test_a_client_that_lost_its_connection_gets_what_it_missed(lab: Lab) -> None:
    with served(lab) as server:
        stream = Stream(server)
        stream.next()
        status, _ = server.post("/faults", fault(lasts="100ms"))
        assert status == 201
        last_id = stream.last_id
        missed = until_the_fault_ends(stream)
        assert {"fault", "carrier"} <= {event["kind"] for event in missed}
        assert until_the_fault_ends(Stream(server, last_id)) == missed


JOB = {"pattern": "allreduce", "ranks": 4, "size": "1MB", "transport": {"qps": 2}}
LONG_JOB = {**JOB, "iterations": 10_000}


def agents_of(lab: Lab) -> list[int]:
    return [pid for server in lab.fabric.servers for pid in lab.node(server.name).processes()]


def job_is(phase: str | None) -> Callable[[Event], bool]:
    return lambda event: event["kind"] == "job" and event["outcome"] == phase


def is_used_by(what: str | None) -> Callable[[Event], bool]:
    return lambda event: event["kind"] == "use" and event["user"] == what


def test_a_job_of_the_page_has_the_figures_of_the_command_and_excludes_others(lab: Lab) -> None:
    with served(lab) as server:
        stream = Stream(server)
        assert server.read("/traffic") == {"state": None}
        assert server.post("/traffic", LONG_JOB) == (201, {})
        stream.until(job_is(None))
        found = server.read("/traffic")
        assert (found["state"], found["progress"]["total"]) == ("running", 10_001)
        assert agents_of(lab)
        refused = rocelab("traffic", lab.name, "--pattern", "allreduce", "--ranks=4", "--size=1MB")
        assert "in use by a job (allreduce)" in refused.stderr
        assert "in use by a job (allreduce)" in rocelab("reach", lab.name).stderr
        status, answer = server.post("/reach", {})
        assert (status, "in use by a job (allreduce)" in answer["error"]) == (400, True)
        status, answer = server.post("/traffic", JOB)
        assert (status, answer["error"]) == (400, "a job of this page is under way")
        assert server.post("/traffic/stop", {}) == (200, {})
        assert server.read("/traffic")["state"] == "stopped"
        assert agents_of(lab) == []
        stream.until(job_is("stopped"))
        assert server.post("/traffic", JOB) == (201, {})
        ended = stream.until(lambda event: event["kind"] == "job" and event["outcome"])
        found, result = server.read("/traffic"), server.read("/traffic/result.json")
        assert found["state"] == ended["outcome"]
        assert found["problems"] == result["problems"]
        assert len(result["iterations"]) == 5
        titles = [each["title"] for each in found["headlines"]]
        assert titles == [each["title"] for each in result["headlines"]]


@pytest.mark.long
def test_a_flow_of_a_job_is_seen_where_it_was_predicted_and_the_job_s_counts_agree(
    lab: Lab,
) -> None:
    def seen(flow: Event) -> set[str]:
        status, found = server.post("/observe", flow)
        assert status == 200
        return {each["link"] for each in found["links"]}

    with served(lab) as server:
        assert server.read("/flows") == {"flows": [], "total": 0}
        assert server.post("/traffic", {**JOB, "iterations": 60})[0] == 201
        found = server.read("/flows")
        assert found["total"] == len(found["flows"]) == 8
        for flow in found["flows"][:2]:
            status, path = server.post("/path", flow)
            assert status == 200
            assert len(path["links"]) == 4
            assert seen(flow) == set(path["links"])
        assert seen({**flow, "qp": 7}) == set()
        wait_until(lambda: server.read("/traffic")["state"] != "running")
        accounting = server.read("/traffic/result.json")["accounting"]
        assert accounting
        assert [each["differing"] for each in accounting] == [[]] * len(accounting)


@pytest.mark.long
def test_a_job_ends_with_its_server(lab: Lab) -> None:
    with served(lab) as server:
        assert server.post("/traffic", LONG_JOB)[0] == 201
        assert server.end(signal.SIGTERM) == 143
        assert agents_of(lab) == []
        assert server.process.stderr is not None
        assert "the job was stopped" in server.process.stderr.read()
    with served(lab) as server:
        assert server.post("/traffic", LONG_JOB)[0] == 201
        server.end(signal.SIGKILL)
        wait_until(lambda: agents_of(lab) == [] and user_of(LabFiles(lab.name)) is None)


def test_a_job_is_refused_while_another_command_uses_the_lab_which_is_shown(lab: Lab) -> None:
    with served(lab) as server:
        stream = Stream(server)
        with in_use(LabFiles(lab.name), "a drill"):
            begun = stream.until(is_used_by("a drill"))
            assert begun["pid"] == os.getpid()
            assert server.read("/fabric.json")["use"]["user"] == "a drill"
            status, answer = server.post("/traffic", JOB)
            assert status == 400
            assert "is in use by a drill" in answer["error"]
        stream.until(is_used_by(None))
        assert server.read("/fabric.json")["use"] is None


def test_counters_are_those_of_the_kernel_between_two_of_its_own_readings(lab: Lab) -> None:
    def sent() -> int:
        return inside(lab.node("rtsw1").netns, read_counters)["ctsw1"].tx_packets

    with served(lab) as server:
        before = sent()
        read_ns = server.read("/link?name=rtsw1:ctsw1")["t_ns"]
        found: dict[str, Any] = {}

        def read_later() -> bool:
            found.update(server.read("/link?name=rtsw1:ctsw1"))
            return bool(found["t_ns"] > read_ns)

        lab.node("rtsw1").exec(["ping", "-c", "20", "-i", "0.01", "198.18.0.19"])
        wait_until(read_later)
        wait_until(read_later)
        assert before <= found["ends"][0]["counters"]["tx_packets"] <= sent()


def test_losses_of_carrier_count_from_when_the_lab_was_up(lab: Lab) -> None:
    with served(lab) as server:
        ends = server.read("/link?name=rtsw4:ctsw2")["ends"]
        assert [end["counters"]["carrier_losses"] for end in ends] == [0, 0]


def test_a_node_s_panel_has_its_sessions_configuration_and_log(lab: Lab) -> None:
    with served(lab) as server:
        found = server.read("/node/rtsw1")
        assert [each["state"] for each in found["sessions"]] == ["Established"] * 2
        assert [each["peer"] for each in found["sessions"]] == ["ctsw1", "ctsw2"]
        assert "router bgp" in found["configuration"]["bgpd"]
        assert found["log"]["bgpd"]
        assert server.read("/node/srv1-1")["sessions"] == []


def test_a_path_is_that_of_the_command(lab: Lab) -> None:
    wait_until_whole(lab)
    flow = ("--src", "srv1-1", "--dst", "srv3-1", "--sport", "50000")
    expected = json.loads(rocelab("path", lab.name, *flow, "--json").stdout)
    with served(lab) as server:
        asked = {"src": "srv1-1", "dst": "srv3-1", "sport": 50000}
        assert server.post("/path", asked) == (200, expected)
        assert server.post("/path", {**asked, "dst": "srv9-1"})[0] == 400


def test_nothing_listens_elsewhere_and_only_root_reads_the_secret(lab: Lab) -> None:
    with served(lab) as server:
        port = urlsplit(server.url).port
        listening = [
            line.split()[1]
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/{server.process.pid}/net/{name}").read_text().splitlines()[1:]
            if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
        ]
        assert listening == [f"0100007F:{port:04X}"]
        file = LabFiles(lab.name).root / "live.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.stat().st_uid == os.getuid()
        token = server.url.partition("token=")[2]
        assert token not in Path(f"/proc/{server.process.pid}/cmdline").read_text()
        refused = rocelab("live", lab.name)
        assert refused.returncode == 2
        assert f"is served already on port {port}" in refused.stderr


def test_read_only_breaks_nothing(lab: Lab) -> None:
    with served(lab, "--read-only") as server:
        assert server.read("/fabric.json")["read_only"] is True
        assert server.request("POST", "/faults", fault(lasts="1s")).status == 403
    assert has_carrier(lab)
    refused = rocelab("live", lab.name, "--read-only", "--terminal")
    assert refused.returncode == 2
    assert "root's shell is not read-only" in refused.stderr


# In a browser


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[Server]:
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
    stream = Stream(server, server.read("/fabric.json")["id"])
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
    assert re.fullmatch(r"live-tiny-\d{8}T\d{6}Z\.html", saved.name)
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
    look: Looking, lab: Lab, server: Server
) -> None:
    since_ns = server.read("/history?link=rtsw1:ctsw1")["t_ns"][-1]
    send = ["ping", "-c", "200", "-i", "0.001", "-s", "8000", "198.18.0.19"]
    lab.node("rtsw1").exec(send, timeout_s=LIMIT_S)

    def loads() -> list[float]:
        found = server.read(f"/history?link={LINK}&since={since_ns}")
        series = next(each for each in found["series"] if each["to"] == "ctsw1")
        return list(series["values"])

    wait_until(lambda: any(loads()), "a sample with load")
    page = look.at(server.url)
    open_link(page)
    plot = page.locator(".plot").filter(has_text="load to ctsw1")
    expect(plot.locator(".value")).to_have_text(re.compile(r"^[\d.< ]+ %\s+most .*[1-9].* %$"))
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
    event = page.locator("#timeline li button").first
    event.evaluate("each => { each.dataset.marked = 'yes'; each.focus(); }")
    newest = page.locator("#timeline li").first.text_content()
    assert newest is not None
    assert server.post("/faults", fault(lasts="100ms"))[0] == 201
    wait_until(lambda: page.locator("#timeline li").first.text_content() != newest, "an event")
    expect(page.locator("#timeline [data-marked]")).to_be_focused()
    page.locator("#panel .ends button").first.press("Enter")
    expect(page.locator("#panel h2")).to_be_focused()


def test_a_scheme_is_switched_by_the_page_and_by_others_for_all_who_look(
    look: Looking, lab: Lab, server: Server
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
    shown = page.locator("#reach")
    probe = shown.get_by_role("button", name="Probe all pairs")
    probe.click()
    expect(shown).to_contain_text("12 of 12 pairs of NICs reach.")
    cut_off = {"kind": "carrier-down", "keys": {"link": "srv1-1:rtsw1", "lasts": "10m"}}
    status, answer = server.post("/faults", cut_off)
    assert status == 201
    probe.click()
    expect(shown).to_contain_text("6 of 12 pairs of NICs reach.")
    assert shown.locator("tbody tr").all_inner_texts() == ["srv1-1\tany", "any\tsrv1-1"]
    shown.get_by_role("button", name="srv1-1").first.click()
    expect(page.locator("#panel h2")).to_contain_text("srv1-1")
    assert server.post(f"/faults/{answer['number']}/undo", {}) == (200, {})
    assert look.complaints == []


def test_the_path_of_a_flow_is_shown(look: Looking, server: Server) -> None:
    page = look.at(server.url)
    page.locator("#path [name=dst]").select_option("srv3-1")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#hops li")).to_have_count(5)
    expect(page.locator("#hops li").nth(1)).to_contain_text("of 2, hash 0x")
    expect(page.locator("#labels [data-path]")).to_have_count(5)


def test_a_job_is_started_watched_and_stopped_by_clicks_for_all_who_look(
    look: Looking, lab: Lab, server: Server
) -> None:
    page, other = look.at(server.url), look.at(server.url)
    traffic = page.locator("#traffic")
    traffic.get_by_label("ranks").fill("4")
    traffic.get_by_label("iterations").fill("10000")
    traffic.get_by_role("button", name="Send").click()
    for each in (page, other):
        expect(each.locator("#traffic")).to_contain_text("of 10001 iterations")
    other.get_by_role("button", name="Stop").click()
    for each in (page, other):
        expect(each.locator("#traffic")).to_contain_text("Stopped: nothing of it remains.")
    assert agents_of(lab) == []
    traffic.get_by_label("iterations").fill("3")
    traffic.get_by_label("ranks").fill("400")
    traffic.get_by_role("button", name="Send").click()
    expect(traffic.get_by_role("alert")).to_contain_text("NICs")
    traffic.get_by_label("ranks").fill("4")
    traffic.get_by_role("button", name="Send").click()
    for each in (page, other):
        expect(each.locator("#traffic table")).to_contain_text("busbw")
    expect(other.locator("#timeline ol")).to_contain_text("allreduce of 4 ranks has ended")


def test_a_queue_pair_that_sends_is_chosen_and_seen_on_its_path(
    look: Looking, lab: Lab, server: Server
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
    look: Looking, lab: Lab, server: Server
) -> None:
    page = look.at(server.url)
    traffic = page.locator("#traffic")
    with in_use(LabFiles(lab.name), "a drill"):
        expect(traffic).to_contain_text("In use by a drill that was started elsewhere")
        expect(traffic.get_by_role("button", name="Send")).to_be_hidden()
    expect(traffic.get_by_role("button", name="Send")).to_be_visible()


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
    look: Looking, lab: Lab, server: Server
) -> None:
    page = look.at(server.url)
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


def test_vtysh_answers_in_the_page_and_what_a_shell_has_started_ends_with_its_tab_or_the_server(
    look: Looking, lab: Lab
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
        page.keyboard.type("seq 60000; echo $((6 * 7)) lines; setsid -f sleep 5000\n")
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


def test_the_server_ends_with_the_lab(lab: Lab) -> None:
    with served(lab) as server:
        assert rocelab("down", lab.name).returncode == 0
        assert server.process.wait(LIMIT_S) == 1
        assert server.process.stderr is not None
        assert "went down while it was watched" in server.process.stderr.read()
        assert not LabFiles(lab.name).root.exists()
