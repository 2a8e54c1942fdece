"""The live page of a real lab over real HTTP: its stream, its faults, a server that is killed."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Empty, Queue
from typing import Any
from urllib.parse import urlsplit

import pytest

from rocelab.kernel.links import read_counters
from rocelab.kernel.namespaces import inside
from rocelab.runtime.lab import Lab
from rocelab.runtime.record import LabFiles
from tests.integration.command import rocelab
from tests.integration.labs import running
from tests.integration.live_server import Server, served
from tests.integration.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.side_by_side

LINK = "rtsw1:ctsw1"
Event = Mapping[str, Any]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    file = tmp_path_factory.mktemp("live") / "live-tiny.yaml"
    file.write_text("name: live-tiny\nfabric: {kind: clos, racks: 4, spines: 2}\n")
    with running(Lab.planned(file)) as lab:
        yield lab


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
        while True:
            kind, data = self.next()
            if kind == "event" and fits(data):
                return data


def carrier_of(port: str, *, there: bool) -> Callable[[Event], bool]:
    node, _, interface = port.partition(":")
    wanted = {"kind": "carrier", "node": node, "interface": interface, "carrier": there}
    return lambda event: wanted.items() <= event.items()


def fault(**keys: str) -> Event:
    return {"kind": "carrier-down", "keys": {"link": LINK, **keys}}


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
        begun = stream.until(lambda event: event["kind"] == "carrier")
        assert begun["link"] == LINK
        assert begun["carrier"] is False
        noted = stream.until(lambda event: event["kind"] == "fault")
        assert (noted["number"], noted["subject"]) == (answer["number"], LINK)
        assert noted["begins"]
        down = stream.until(lambda event: event["kind"] == "session")
        assert (down["link"], down["up"], down["cause"]) == (LINK, False, "carrier")
        stream.until(lambda e: e["kind"] == "node" and e["node"] == "rtsw1" and e["ports_down"])
        assert server.post(f"/faults/{answer['number']}/undo", {}) == (200, {})
        back = stream.until(carrier_of(LINK, there=True))
        assert back["t_ns"] > begun["t_ns"]
        stream.until(lambda event: event["kind"] == "fault" and not event["begins"])
        stream.until(lambda e: e["kind"] == "node" and e["node"] == "rtsw1" and e["state"] == "ok")
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
        stream.until(lambda event: event["kind"] == "fault" and not event["begins"])
        again = Stream(server, last_id)
        kind, event = again.next()
        assert (kind, event["kind"]) == ("event", "carrier")
        again.until(lambda event: event["kind"] == "fault" and not event["begins"])


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


def test_a_node_s_panel_has_its_sessions_configuration_and_log(lab: Lab) -> None:
    with served(lab) as server:
        found = server.read("/node/rtsw1")
        assert [each["state"] for each in found["sessions"]] == ["Established"] * 2
        assert "router bgp" in found["configuration"]["bgpd"]
        assert found["log"]["bgpd"]
        assert server.read("/node/srv1-1")["sessions"] == []


def test_a_path_is_that_of_the_command(lab: Lab) -> None:
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


def test_the_server_ends_with_the_lab(lab: Lab) -> None:
    with served(lab) as server:
        assert rocelab("down", lab.name).returncode == 0
        assert server.process.wait(LIMIT_S) == 1
        assert server.process.stderr is not None
        assert "went down while it was watched" in server.process.stderr.read()
        assert not LabFiles(lab.name).root.exists()
