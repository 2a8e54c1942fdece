"""What the page's server answers to those who may use it, and what of a request it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from rocelab.base.errors import ExpectationError, InputError, MachineError, RocelabError
from rocelab.drills.drill_spec import TrafficSpec
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import Lab
from rocelab.live import app as app_module
from rocelab.live.access import Access
from rocelab.live.app import MOST_BODY_BYTES, PAGE, live_app
from rocelab.live.captures import CaptureRequest
from rocelab.live.events import CarrierEvent, document
from rocelab.live.faults import FaultRequest
from rocelab.live.history import LoadHistory
from rocelab.live.state import METRICS, LabState
from rocelab.live.stream import STOPPED, Hub
from rocelab.live.traffic import NO_TRAFFIC
from tests.unit.live.test_state import reading

ACCESS = Access(801, "the-token")
ORIGIN = "http://127.0.0.1:801"
LINK = "rtsw1:ctsw1"


class NoFaults:
    """Takes what is asked for, and breaks nothing."""

    def __init__(self) -> None:
        self.asked: list[FaultRequest] = []
        self.refusal: RocelabError | None = None

    def inject(self, asked: FaultRequest) -> int:
        asked.spec()
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(asked)
        return len(self.asked)


class NoTraffic:
    """Takes jobs and probes, and sends none."""

    def __init__(self) -> None:
        self.asked: list[JobSpec] = []
        self.probed: list[TrafficSpec] = []

    def probe(self, probes: TrafficSpec) -> None:
        self.probed.append(probes)

    def start(self, job: JobSpec) -> None:
        self.asked.append(job)

    def stop(self) -> None:
        raise InputError("no traffic of this page is under way")

    def document(self) -> Mapping[str, object]:
        return NO_TRAFFIC


@pytest.fixture
def feed() -> SimpleNamespace:
    lab = Lab.planned("tiny").unstarted()
    state = LabState(lab.fabric, read_only=False)
    hub, history = Hub(METRICS, state.document), LoadHistory(lab.fabric)
    return SimpleNamespace(lab=lab, state=state, hub=hub, history=history)


@pytest.fixture
def faults() -> NoFaults:
    return NoFaults()


@pytest.fixture
def traffic() -> NoTraffic:
    return NoTraffic()


@pytest.fixture
def client(feed: SimpleNamespace, faults: NoFaults, traffic: NoTraffic) -> TestClient:
    app = live_app(feed, faults, traffic, ACCESS, read_only=False)  # type: ignore[arg-type]
    client = TestClient(app, base_url=ORIGIN, raise_server_exceptions=False)
    client.cookies.set("rocelab-tiny", ACCESS.derived("cookie"))
    client.headers.update({"origin": ORIGIN, "x-rocelab-key": ACCESS.derived("key")})
    return client


def test_the_page_has_no_inline_script_and_every_file_that_it_names(client: TestClient) -> None:
    html = client.get("/").text
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|javascript:", html)
    named = set(re.findall(r'(?:src|href)="([^"]+)"', html))
    for script in PAGE.glob("*.js"):
        text = script.read_text()
        named |= {
            f"/page/{name}" for name in re.findall(r'(?:from |import\()"\./([\w./-]+)"', text)
        }
        named |= set(re.findall(r'SharedWorker\("([^"]+)"\)', text))
    assert len(named) > 10
    named.remove("/recording.html")  # of a lab that has been sampled
    assert {name: client.get(name).status_code for name in named} == dict.fromkeys(named, 200)
    assert client.get("/page/app.js").headers["content-type"].startswith("text/javascript")


def test_nothing_is_loaded_from_elsewhere() -> None:
    for file in (*PAGE.glob("*.html"), *PAGE.glob("*.js"), *PAGE.glob("*.css")):
        links = re.findall(r"https?://[^\s\"']+", file.read_text())
        assert links == [], file


@pytest.mark.parametrize(
    "path",
    [
        "/page/../access.py",
        "/page/%2e%2e/access.py",
        "/page/..%2f..%2fdata.py",
        "/page//etc/passwd",
        "/page/vendor/d3-LICENSE",
        "/terminal/rtsw1",
        "/page/",
        "/live.json",
    ],
)
def test_other_files_cannot_be_read(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_fabric_has_nodes_links_and_what_events_have_changed(
    client: TestClient, feed: SimpleNamespace
) -> None:
    event = CarrierEvent(7, "rtsw1:ctsw1", "rtsw1", "ctsw1", carrier=False)
    feed.hub.publish(document(event), lambda: feed.state.apply(event))
    planned = client.get("/fabric.json").json()
    assert planned["lab"] == "tiny"
    assert len(planned["nodes"]) == 10
    link = next(link for link in planned["links"] if link["name"] == "rtsw1:ctsw1")
    assert (link["a"], link["b"], link["carrier"]) == ("rtsw1", "ctsw1", [False, True])
    assert planned["id"].endswith("-1")


def stream(client: TestClient, url: str, **headers: str) -> list[tuple[str, object]]:
    """The messages of a stream that has an end, by kind."""
    answer = client.get(url, headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    matches = re.findall(r"event: (\w+)\ndata: (.*)\n\n", answer.text)
    return [(kind, json.loads(data)) for kind, data in matches]


def test_the_stream_begins_with_the_state_and_goes_on_where_it_was_left(
    client: TestClient, feed: SimpleNamespace
) -> None:
    feed.hub.publish({"kind": "note", "text": "one"})
    feed.hub.sample(5, {metric: {} for metric in METRICS})
    since = feed.hub.snapshot()["id"]
    feed.hub.publish({"kind": "note", "text": "two"})
    feed.hub.close()
    kinds = [kind for kind, _ in stream(client, "/events")]
    assert kinds == ["fabric", "event", "event", "sample", "end"]
    for again in (
        stream(client, "/events?metric=drops", **{"last-event-id": since}),
        stream(client, f"/events?metric=drops&since={since}"),
    ):
        assert again == [
            ("event", {"kind": "note", "text": "two"}),
            ("sample", {"t_ns": 5, "metric": "drops", "values": {}, "traffic": {}, "steps": []}),
            ("end", {"text": STOPPED}),
        ]
    assert not feed.hub._clients, "a stream that is over is kept"


def test_an_unknown_metric_is_refused_with_those_that_there_are(client: TestClient) -> None:
    answer = client.get("/events?metric=beauty")
    assert answer.status_code == 400
    assert "load" in answer.json()["hint"]


def fault(**keys: str) -> Mapping[str, object]:
    return {"kind": "carrier-down", "keys": {"link": "rtsw1:ctsw1", "lasts": "3s", **keys}}


def test_a_fault_is_asked_for_with_the_keys_of_the_command_line(
    client: TestClient, faults: NoFaults
) -> None:
    answer = client.post("/faults", json=fault())
    assert (answer.status_code, answer.json()) == (201, {"number": 1})
    spec, lasts_ns = faults.asked[0].spec()
    assert (spec.kind, lasts_ns) == ("carrier-down", 3_000_000_000)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kind": "carrier-up", "keys": {}}, "no kind of fault"),
        ({"kind": "carrier-down", "keys": {"link": "rtsw1:ctsw1"}}, "lasts for a time"),
        ({"kind": "carrier-down", "keys": {"link": "rtsw1:ctsw1", "at": "1s"}}, "begins at once"),
        ({"kind": "carrier-down", "keys": {"lnk": "x", "lasts": "3s"}}, "unknown key"),
        ({"kind": "carrier-down", "keys": {"link": "x", "lasts": "3s"}}, "NODE:INTERFACE"),
        ({"kind": "carrier-down", "keys": {"link": "rtsw1:ctsw1", "lasts": "1h"}}, "lasts"),
        ({"kind": "flapping", "keys": {"link": "rtsw1:ctsw1"}}, "no fault of the page"),
        ({"kind": "carrier-down"}, "keys"),
        ({"kind": 7, "keys": {}}, "kind"),
        ({"kind": "carrier-down", "keys": {"lasts": 3}}, "lasts"),
        ({"kind": "carrier-down", "keys": {}, "more": 1}, "more"),
        ({"kind": "x" * 100, "keys": {}}, "kind"),
    ],
)
def test_what_is_wrong_with_a_fault_is_said(
    client: TestClient, faults: NoFaults, asked: object, said: str
) -> None:
    answer = client.post("/faults", json=asked)
    assert answer.status_code == 400
    assert said in json.dumps(answer.json())
    assert faults.asked == []


@pytest.mark.parametrize(
    ("error", "status"),
    [(InputError("no"), 400), (ExpectationError("no"), 409), (MachineError("no"), 503)],
)
def test_a_refusal_says_whether_the_request_the_lab_or_the_machine_is_in_the_way(
    client: TestClient, faults: NoFaults, error: RocelabError, status: int
) -> None:
    faults.refusal = error
    answer = client.post(
        "/faults", json={"kind": "carrier-down", "keys": {"link": LINK, "lasts": "5s"}}
    )
    assert (answer.status_code, answer.json()) == (status, {"error": "no", "hint": None})


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[" * 10_000, "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"kind": "\\ud800"}', "application/json", 400),
        (b"", "application/json", 400),
        (b" " * (MOST_BODY_BYTES + 1), "application/json", 413),
        (b"{}", "text/plain", 415),
        (b"kind=carrier-down", "application/x-www-form-urlencoded", 415),
    ],
)
def test_a_body_that_is_no_small_json_object_is_refused(
    client: TestClient, faults: NoFaults, body: bytes, kind: str, status: int
) -> None:
    answer = client.post("/faults", content=body, headers={"content-type": kind})
    assert answer.status_code == status
    assert answer.json()["error"]
    assert faults.asked == []


def test_a_scheme_that_there_is_not_is_refused(client: TestClient) -> None:
    assert "e-ecmp" in client.get("/fabric.json").json()["schemes"]
    for asked in ({"scheme": "sprey"}, {"scheme": {"kind": "flowlet", "gap": "1h"}}, {}):
        assert client.post("/scheme", json=asked).status_code == 400


def test_a_job_is_asked_for_with_the_keys_of_a_job_file(
    client: TestClient, traffic: NoTraffic
) -> None:
    job = {"pattern": "alltoall", "ranks": 8, "size": "16MB", "transport": {"qps": 4}}
    assert client.post("/traffic", json=job).status_code == 201
    assert (traffic.asked[0].ranks, traffic.asked[0].transport.qps) == (8, 4)
    wrong = client.post("/traffic", json={**job, "ranks": 1, "size": "much"}).json()
    assert {problem["key"] for problem in wrong["problems"]} == {"ranks", "size"}
    assert len(traffic.asked) == 1
    assert client.post("/traffic/stop", json={}).status_code == 400
    assert client.get("/traffic").json() == {"state": None}


def test_probes_are_asked_for_with_the_keys_of_a_drill(
    client: TestClient, traffic: NoTraffic
) -> None:
    asked = {"flows": 24, "rate_pps": 1000, "duration": "20s"}
    assert client.post("/probes", json=asked).status_code == 201
    assert traffic.probed == [TrafficSpec(flows=24, rate_pps=1000, duration="20s")]  # type: ignore[arg-type]
    wrong = client.post("/probes", json={**asked, "flows": 0}).json()
    assert [problem["key"] for problem in wrong["problems"]] == ["flows"]
    for missing in ("x-rocelab-key", "origin"):
        headers = {name: value for name, value in client.headers.items() if name != missing}
        bare = TestClient(client.app, base_url=ORIGIN, cookies=client.cookies)
        bare.headers.update({**headers, missing: "other"})
        assert bare.post("/probes", json=asked).status_code == 403
    assert len(traffic.probed) == 1


def test_a_capture_is_a_file_and_needs_what_a_fault_needs(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []

    def captured(_: object, asked: CaptureRequest) -> tuple[bytes, int]:
        taken.append((asked.port, asked.seconds))
        return b"pcapng", 7

    monkeypatch.setattr(app_module, "captured", captured)
    asked = {"port": "rtsw1:ctsw1", "seconds": 2}
    answer = client.post("/capture", json=asked)
    assert (answer.content, answer.headers["x-rocelab-packets"]) == (b"pcapng", "7")
    assert client.post("/capture", json={**asked, "seconds": 900}).status_code == 400
    assert client.get("/capture").status_code == 405
    bare = TestClient(client.app, base_url=ORIGIN, cookies=client.cookies)
    bare.headers["origin"] = ORIGIN
    assert bare.post("/capture", json=asked).status_code == 403
    assert taken == [("rtsw1:ctsw1", 2)]


def test_an_error_of_keys_has_its_hint_beside_it_and_speaks_of_no_command_line(
    client: TestClient, faults: NoFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "inject", lambda asked: asked.spec())
    keys = {"link": "rtsw1:ctsw1", "lasts": "soon"}
    said = client.post("/faults", json={"kind": "carrier-down", "keys": keys}).json()
    assert said["error"].startswith("lasts: expected a duration")
    assert "hint:" not in said["error"]
    (problem,) = said["problems"]
    assert said["hint"] == problem["hint"]

    keys["unheard"] = "of"
    said = client.post("/faults", json={"kind": "carrier-down", "keys": keys}).json()
    assert "command line" not in said["error"]


def test_what_there_is_not_is_said(client: TestClient) -> None:
    answer = client.get("/node/rtsw9")
    assert answer.status_code == 400
    assert answer.json()["error"] == "lab tiny has no node rtsw9"
    assert client.get("/link?name=nothing").json()["error"] == "lab tiny has no link nothing"
    assert client.get("/nothing").status_code == 404
    assert client.get("/faults").status_code == 405


def test_the_history_of_links_is_asked_for_since_a_time(client: TestClient) -> None:
    asked = "/history?link=rtsw1:ctsw1&link=rtsw2:ctsw1"
    assert client.get(asked).json()["t_ns"] == []
    assert len(client.get(f"{asked}&since=1795681459833941000").json()["series"]) == 4
    assert client.get(f"{asked}&since=soon").json()["error"] == "since is a time in ns"
    assert client.get("/history?link=nothing").json()["error"] == "lab tiny has no link nothing"


def test_what_held_at_a_time_is_asked_for_with_a_metric(
    client: TestClient, feed: SimpleNamespace
) -> None:
    assert client.get("/history/at?t_ns=5").json()["error"] == "nothing has been read yet"
    feed.history.add({"marks": {3: 0.5}}, {}, None, reading(feed.lab.fabric, 7))
    document = client.get("/history/at?t_ns=1795681459833941000&metric=marks").json()
    assert (document["t_ns"], document["values"]) == (7, {"3": 0.5})
    assert client.get("/history/at?t_ns=soon").json()["error"] == "t_ns is a time in ns"
    assert client.get("/history/at?metric=beauty").status_code == 400


def test_without_being_allowed_there_is_no_terminal(client: TestClient) -> None:
    headers = {"host": "127.0.0.1:801"}
    subprotocols = ["rocelab", ACCESS.derived("key")]
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect("/terminal/rtsw1", subprotocols, headers=headers),
    ):
        pass


def test_the_kinds_of_faults_are_those_of_the_command_line(client: TestClient) -> None:
    names = [kind["name"] for kind in client.get("/kinds").json()]
    assert {"carrier-down", "drain", "slow-receiver"} <= set(names)
