"""The live page of a real lab over HTTP: its stream, its faults, its jobs and its end."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rocelab.lab.inuse import in_use, user_of
from rocelab.lab.lab import RunningLab
from rocelab.linux.links import read_counters
from rocelab.linux.namespaces import inside
from rocelab.record import LabFiles
from tests.helpers.command import PROGRAM, rocelab
from tests.helpers.live_server import (
    JOB,
    LINK,
    LONG_JOB,
    Event,
    Server,
    Stream,
    agents_of,
    carrier_of,
    fault,
    live_lab,
    news,
    served,
)
from tests.helpers.waiting import LIMIT_S, wait_until, wait_until_whole

pytestmark = pytest.mark.side_by_side


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with live_lab(tmp_path_factory.mktemp("live"), "live-tiny") as lab:
        yield lab


@pytest.fixture
def lab(made: RunningLab) -> RunningLab:
    """The lab of all tests, up again if one took it down."""
    if not made.is_running:
        made.start()
    return made


class Shared:
    """The server of most tests, which starts when one of them needs it: a lab has one."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server: Server | None = None

    def server_of(self, lab: RunningLab) -> Server:
        if self._server is None:
            self._server = self._stack.enter_context(served(lab))
        return self._server

    def end(self) -> None:
        if self._server is not None:
            self._server.end(signal.SIGTERM)
            self._server = None
        self._stack.close()


@pytest.fixture(scope="module")
def shared(made: RunningLab) -> Iterator[Shared]:
    shared = Shared()
    yield shared
    shared.end()


@pytest.fixture
def server(lab: RunningLab, shared: Shared) -> Server:
    return shared.server_of(lab)


@pytest.fixture
def unserved(shared: Shared) -> None:
    """The server of other tests has ended."""
    shared.end()


def is_end_of(number: int) -> Callable[[Event], bool]:
    return lambda e: e["kind"] == "fault" and e["number"] == number and not e["begins"]


def until_the_fault_ends(stream: Stream, number: int) -> list[Event]:
    """All events up to the end of the fault; samples are merged, and not for ever there."""
    events: list[Event] = []
    while not events or not is_end_of(number)(events[-1]):
        kind, data = stream.next()
        events += [data] if kind == "event" else []
    return events


def has_carrier(lab: RunningLab) -> bool:
    return not lab.node("rtsw1").port_faults([lab.fabric.link_by_name[LINK]])


def test_a_link_that_the_page_breaks_is_dark_in_the_kernel_and_in_the_stream_and_comes_back(
    lab: RunningLab, server: Server
) -> None:
    def states() -> list[str]:
        kind, fabric = Stream(server).next()
        assert kind == "fabric"
        return [node["state"] for node in fabric["nodes"]]

    wait_until(lambda: states() == ["ok"] * 10, "all nodes are as planned")
    stream = news(server)
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


def test_a_fault_of_the_page_is_in_the_lab_s_record_until_it_is_undone(
    lab: RunningLab, server: Server
) -> None:
    _, answer = server.post("/faults", fault(lasts="10m"))
    listed = json.loads(rocelab("fault", "list", lab.name, "--json").stdout)
    assert [(row["number"], row["kind"]) for row in listed] == [(answer["number"], "carrier-down")]
    assert not has_carrier(lab)
    assert server.post(f"/faults/{answer['number']}/undo", {}) == (200, {})
    assert has_carrier(lab)
    assert server.read("/fabric.json")["faults"] == []
    status, refused = server.post("/faults/7/undo", {})
    assert status == 400
    assert refused["error"] == f"lab {lab.name} has no fault 7"


def test_a_fault_from_elsewhere_is_shown_and_can_be_undone(lab: RunningLab, server: Server) -> None:
    stream = news(server)
    assert rocelab("fault", "inject", lab.name, "carrier-down", f"link={LINK}").returncode == 0
    noted = stream.until(lambda event: event["kind"] == "fault" and event["begins"])
    assert noted["ends_ns"] is None
    assert server.post(f"/faults/{noted['number']}/undo", {}) == (200, {})
    assert has_carrier(lab)


def test_a_client_that_lost_its_connection_gets_what_it_missed(
    lab: RunningLab, server: Server
) -> None:
    last_id = server.read("/fabric.json")["id"]
    stream = Stream(server, last_id)
    status, answer = server.post("/faults", fault(lasts="100ms"))
    assert status == 201
    missed = until_the_fault_ends(stream, answer["number"])
    assert {"fault", "carrier"} <= {event["kind"] for event in missed}
    assert until_the_fault_ends(Stream(server, last_id), answer["number"]) == missed


def job_is(phase: str | None) -> Callable[[Event], bool]:
    return lambda event: event["kind"] == "job" and event["outcome"] == phase


def is_used_by(what: str | None) -> Callable[[Event], bool]:
    return lambda event: event["kind"] == "use" and event["user"] == what


def test_a_job_of_the_page_has_the_figures_of_the_command_and_excludes_others(
    lab: RunningLab, server: Server
) -> None:
    stream = news(server)
    assert server.post("/traffic", LONG_JOB) == (201, {})
    stream.until(job_is(None))
    document = server.read("/traffic")
    assert (document["state"], document["progress"]["total"]) == ("running", 10_001)
    assert agents_of(lab)
    refused = rocelab("traffic", lab.name, "--pattern", "allreduce", "--ranks=4", "--size=1MB")
    assert "in use by a job (allreduce)" in refused.stderr
    assert "in use by a job (allreduce)" in rocelab("reach", lab.name).stderr
    status, answer = server.post("/reach", {})
    assert (status, "in use by a job (allreduce)" in answer["error"]) == (400, True)
    status, answer = server.post("/traffic", JOB)
    assert (status, answer["error"]) == (400, "traffic of this page is under way")
    assert server.post("/traffic/stop", {}) == (200, {})
    assert server.read("/traffic")["state"] == "stopped"
    assert agents_of(lab) == []
    stream.until(job_is("stopped"))
    assert server.post("/traffic", JOB) == (201, {})
    ended = stream.until(lambda event: event["kind"] == "job" and event["outcome"])
    document, result = server.read("/traffic"), server.read("/traffic/result.json")
    assert document["state"] == ended["outcome"]
    assert document["problems"] == result["problems"]
    assert len(result["iterations"]) == 5
    titles = [headline["title"] for headline in document["headlines"]]
    assert titles == [headline["title"] for headline in result["headlines"]]


def test_faults_come_and_go_beside_a_job_that_allows_them_and_the_result_names_them(
    lab: RunningLab, server: Server, tmp_path: Path
) -> None:
    options = "--pattern allreduce --ranks 4 --size 1MB --qps 2 --iterations 40 --allow-faults"
    stream = news(server)
    job = subprocess.Popen(
        [*PROGRAM, "traffic", lab.name, *options.split(), "--out", str(tmp_path / "made")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    stream.until(is_used_by("a job (allreduce)"))
    wait_until(lambda: agents_of(lab), "its agents")
    status, answer = server.post("/faults", fault(lasts="300ms"))
    assert status == 201, answer
    until_the_fault_ends(stream, answer["number"])
    said, _ = job.communicate(timeout=LIMIT_S)
    result = json.loads((tmp_path / "made" / "result.json").read_text())
    (disturbed,) = result["disturbed"]
    assert (disturbed["kind"], disturbed["subject"]) == ("carrier-down", LINK)
    assert 3 * 10**8 <= disturbed["ends_ns"] - disturbed["begins_ns"] < 10**9
    assert [event["change"] for event in result["events"]] == ["begin", "end"]
    assert f"disturbed by carrier-down of {LINK}, from " in said
    assert job.returncode == (3 if result["problems"] else 1 if result["errors"] else 0)


@pytest.mark.long
def test_a_flow_of_a_job_is_seen_where_it_was_predicted_and_the_job_s_counts_agree(
    lab: RunningLab, server: Server
) -> None:
    def seen(flow: Event) -> set[str]:
        status, document = server.post("/observe", flow)
        assert status == 200
        return {link["link"] for link in document["links"]}

    assert server.read("/flows") == {"flows": [], "total": 0}
    assert server.post("/traffic", {**JOB, "iterations": 60})[0] == 201
    document = server.read("/flows")
    assert document["total"] == len(document["flows"]) == 8
    for flow in document["flows"][:2]:
        status, path = server.post("/path", flow)
        assert status == 200
        assert len(path["links"]) == 4
        assert seen(flow) == set(path["links"])
    assert seen({**flow, "qp": 7}) == set()
    wait_until(lambda: server.read("/traffic")["state"] != "running")
    accounting = server.read("/traffic/result.json")["accounting"]
    assert accounting
    assert [count["differing"] for count in accounting] == [[]] * len(accounting)


def test_a_job_is_refused_while_another_command_uses_the_lab_which_is_shown(
    lab: RunningLab, server: Server
) -> None:
    stream = news(server)
    with in_use(LabFiles(lab.name), "a drill"):
        begun = stream.until(is_used_by("a drill"))
        assert begun["pid"] == os.getpid()
        assert server.read("/fabric.json")["use"]["user"] == "a drill"
        status, answer = server.post("/traffic", JOB)
        assert status == 400
        assert "is in use by a drill" in answer["error"]
    stream.until(is_used_by(None))
    assert server.read("/fabric.json")["use"] is None


def test_counters_are_those_of_the_kernel_between_two_of_its_own_readings(
    lab: RunningLab, server: Server
) -> None:
    def sent() -> int:
        return inside(lab.node("rtsw1").netns, read_counters)["ctsw1"].tx_packets

    before = sent()
    read_ns = server.read("/link?name=rtsw1:ctsw1")["t_ns"]
    result: dict[str, Any] = {}

    def read_later() -> bool:
        result.update(server.read("/link?name=rtsw1:ctsw1"))
        return bool(result["t_ns"] > read_ns)

    lab.node("rtsw1").exec(["ping", "-c", "20", "-i", "0.01", "198.18.0.19"])
    wait_until(read_later)
    wait_until(read_later)
    assert before <= result["ends"][0]["counters"]["tx_packets"] <= sent()


def test_losses_of_carrier_count_from_when_the_lab_was_up(lab: RunningLab, server: Server) -> None:
    ends = server.read("/link?name=rtsw4:ctsw2")["ends"]
    assert [end["counters"]["carrier_losses"] for end in ends] == [0, 0]


def test_a_node_s_panel_has_its_sessions_configuration_and_log(
    lab: RunningLab, server: Server
) -> None:
    document = server.read("/node/rtsw1")
    assert [session["state"] for session in document["sessions"]] == ["Established"] * 2
    assert [session["peer"] for session in document["sessions"]] == ["ctsw1", "ctsw2"]
    assert "router bgp" in document["configuration"]["bgpd"]
    assert document["log"]["bgpd"]
    assert server.read("/node/srv1-1")["sessions"] == []


def test_a_path_is_that_of_the_command(lab: RunningLab, server: Server) -> None:
    wait_until_whole(lab)
    flow = ("--src", "srv1-1", "--dst", "srv3-1", "--sport", "50000")
    expected = json.loads(rocelab("path", lab.name, *flow, "--json").stdout)
    asked = {"src": "srv1-1", "dst": "srv3-1", "sport": 50000}
    assert server.post("/path", asked) == (200, expected)
    assert server.post("/path", {**asked, "dst": "srv9-1"})[0] == 400


def test_nothing_listens_elsewhere_and_only_root_reads_the_secret(
    lab: RunningLab, server: Server
) -> None:
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


# Servers of their own


@pytest.mark.usefixtures("unserved")
def test_what_the_page_broke_is_undone_when_its_server_ends_or_is_killed(lab: RunningLab) -> None:
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


@pytest.mark.long
@pytest.mark.usefixtures("unserved")
def test_a_server_that_was_killed_and_started_again_is_the_same_page(lab: RunningLab) -> None:
    with served(lab) as first:
        stream = Stream(first)
        stream.next()
        first.end(signal.SIGKILL)
    with served(lab) as second:
        assert second.url == first.url
        assert first.read("/fabric.json")["lab"] == lab.name  # with the cookie of before
        kind, _ = Stream(first, stream.last_id).next()
        assert kind == "fabric"


@pytest.mark.long
@pytest.mark.usefixtures("unserved")
def test_a_job_ends_with_its_server(lab: RunningLab) -> None:
    with served(lab) as server:
        assert server.post("/traffic", LONG_JOB)[0] == 201
        assert server.end(signal.SIGTERM) == 143
        assert agents_of(lab) == []
        assert server.process.stderr is not None
        assert "the traffic of the page was stopped" in server.process.stderr.read()
    with served(lab) as server:
        assert server.post("/traffic", LONG_JOB)[0] == 201
        server.end(signal.SIGKILL)
        wait_until(lambda: agents_of(lab) == [] and user_of(LabFiles(lab.name)) is None)


@pytest.mark.usefixtures("unserved")
def test_probes_end_at_once_when_an_agent_is_killed(lab: RunningLab) -> None:
    with served(lab) as server:
        assert server.post("/probes", {"flows": 8, "duration": "5m"})[0] == 201
        os.kill(agents_of(lab)[0], signal.SIGKILL)
        wait_until(lambda: server.read("/traffic")["state"] == "failed")
        assert "something killed it" in server.read("/traffic")["error"]
        assert agents_of(lab) == []
        assert user_of(LabFiles(lab.name)) is None


@pytest.mark.usefixtures("unserved")
def test_read_only_breaks_nothing(lab: RunningLab) -> None:
    with served(lab, "--read-only") as server:
        assert server.read("/fabric.json")["read_only"] is True
        assert server.read("/traffic") == {"state": None}
        assert server.request("POST", "/faults", fault(lasts="1s")).status == 403
        flow = {"src": "srv1-1", "dst": "srv2-1", "sport": 50000}
        assert server.post("/path", flow)[0] == 200
    assert has_carrier(lab)
    refused = rocelab("live", lab.name, "--read-only", "--terminal")
    assert refused.returncode == 2
    assert "root's shell is not read-only" in refused.stderr


@pytest.mark.usefixtures("unserved")
def test_the_server_ends_with_the_lab(lab: RunningLab) -> None:
    with served(lab) as server:
        assert rocelab("down", lab.name).returncode == 0
        assert server.process.wait(LIMIT_S) == 1
        assert server.process.stderr is not None
        assert "went down while it was watched" in server.process.stderr.read()
        assert not LabFiles(lab.name).root.exists()


@pytest.mark.usefixtures("unserved")
def test_events_follow_a_lab_without_a_page(lab: RunningLab) -> None:
    assert rocelab("fault", "inject", lab.name, "carrier-down", f"link={LINK}").returncode == 0
    with subprocess.Popen(
        [*PROGRAM, "events", lab.name, "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = map(json.loads, process.stdout)
            began = next(event for event in lines if event["kind"] == "fault")
            assert (began["fault"], began["subject"], began["begins"]) == (
                "carrier-down",
                LINK,
                True,
            )
            assert rocelab("fault", "restore", lab.name, "--all").returncode == 0
            awaited = {"carrier", "session", "routes", "fault"}
            while awaited:
                event = next(lines)
                if event.get("carrier") or event.get("up") or not event.get("begins", True):
                    awaited.discard(event["kind"])
                elif event["kind"] == "routes":
                    awaited.discard("routes")
        finally:
            process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(LIMIT_S) == 130
