"""Health of a lab with several networks: each place has its network, with objectives and totals of
its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from rocelab.agent.live import LiveCounters, packed
from rocelab.base.errors import InputError
from rocelab.cli.health import print_report, sample_document
from rocelab.jobs.flow import ProbeStream
from rocelab.lab.lab import Lab
from rocelab.observe.health.endpoints import EndpointTracker
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.health.monitor import Snapshot
from rocelab.observe.health.networks import network_totals
from rocelab.observe.health.ports import PortReading
from rocelab.observe.health.prometheus import HealthCollector
from rocelab.observe.health.reading import Reading
from rocelab.observe.health.report import Account
from rocelab.observe.health.sample import Places, Sample, compare
from rocelab.planning.queues import plan_queues
from rocelab.record import LabFiles
from rocelab.results.health import HealthReport, Sli
from rocelab.traffic.demand import probe_demands, published

LAB = Lab.planned("two-networks")
FABRIC = LAB.fabric
PLACES = Places(FABRIC)
PLANS = [plan_queues(part) for part in FABRIC.networks]
FRONT_LINK = next(link for link in FABRIC.links if link.name == "fsw1:fsw2")
ON_FRONT = "fsw1:fsw2 to fsw2"


def port(sent: int = 0, *, carrier: bool = True) -> PortReading:
    return PortReading(carrier, 0, 0, sent, 0, 100 * sent, 0, 0)


def reading(time_s: int, sent: int = 0, **fields: Any) -> Reading:
    ends = [end for link in FABRIC.links for end in (link.a, link.b)]
    ports = {(end.node, end.interface): port(sent) for end in ends}
    whole: dict[str, Any] = {
        "time_ns": time_s * 10**9,
        "ports": ports,
        "queues": {},
        "lost": {},
        "endpoints": {},
        "routes_incomplete": {},
        "sessions": {link.name: True for link in FABRIC.sessions},
    }
    return Reading(**whole | fields)


def sample(**values: dict[str, float]) -> Sample:
    return Sample(10**9, 10**9, {sli: values.get(sli.value, {}) for sli in Sli})


def account(spec: HealthSpec) -> Account:
    return Account(spec, PLACES.networks, PLACES.networks_of)


def test_what_is_at_a_place_has_a_network() -> None:
    assert PLACES.networks_of(Sli.LINKS_DOWN, "srv1-1:fsw1") == ("frontend",)
    assert PLACES.networks_of(Sli.LINK_LOSS, ON_FRONT) == ("frontend",)
    assert PLACES.networks_of(Sli.ROUTES_INCOMPLETE, "rtsw1") == ("backend",)
    assert PLACES.networks_of(Sli.ACK_TIMEOUTS, "srv1-1 in backend") == ("backend",)
    assert PLACES.nodes_of(Sli.ACK_TIMEOUTS, "sto1 in frontend") == ("sto1", "fsw1")
    alone = Places(FABRIC.network("frontend"))
    assert alone.networks_of(Sli.LINK_LOSS, ON_FRONT) == ("frontend",)
    assert Places(Lab.planned("tiny").fabric).networks_of(Sli.FLAPS, "elsewhere") == ()


def test_objectives_of_a_network_are_not_those_of_the_other() -> None:
    spec = HealthSpec.model_validate(
        {"flaps": 1, "networks": {"frontend": {"queue_drops": "off", "flaps": 5}}}
    )
    counted = account(spec)
    drops = {ON_FRONT: 7.0, "rtsw1:ctsw1 to ctsw1": 3.0}
    missed = counted.add(sample(queue_drops=drops, flaps={"fsw1:fsw2": 4.0}))
    assert missed == {Sli.QUEUE_DROPS: {"rtsw1:ctsw1 to ctsw1": 3.0}}
    (drops_of,) = (sli for sli in counted.slis() if sli.sli == "queue_drops")
    assert drops_of.worst_place == f"{ON_FRONT} (frontend)"
    assert [
        (of.network, of.objective, of.worst, of.breached_samples) for of in drops_of.networks
    ] == [
        ("backend", 0, 3.0, 1),
        ("frontend", None, 7.0, 0),
    ]
    assert drops_of.objective_text("{:g}".format) == "0, frontend off"
    assert drops_of.places[0].networks == ("backend",)
    assert counted.missed("backend") == ("queue_drops",)
    assert counted.missed("frontend") == ()


def test_of_endpoints_in_two_networks_the_strictest_objective_counts() -> None:
    spec = HealthSpec.model_validate(
        {"networks": {"frontend": {"ack_timeouts": 9}, "backend": {"ack_timeouts": "off"}}}
    )
    assert spec.objective(Sli.ACK_TIMEOUTS, ("backend", "frontend")) == 9
    assert spec.objective(Sli.ACK_TIMEOUTS, ("backend",)) is None


def test_objectives_of_an_unknown_network_are_refused() -> None:
    spec = HealthSpec.model_validate({"networks": {"frontnd": {"flaps": 5}}})
    with pytest.raises(InputError, match="frontnd, which the lab does not have") as error:
        spec.check_networks(["backend", "frontend"])
    assert "frontend" in (error.value.hint or "")
    with pytest.raises(InputError, match="which the lab does not have"):
        spec.check_networks([None])
    with pytest.raises(ValidationError):
        HealthSpec.model_validate({"networks": {"frontend": {"interval": "1s"}}})


def test_totals_are_of_each_network() -> None:
    dark = {("fsw1", "fsw2"): port(4, carrier=False)}
    now = reading(1, sent=4)
    last = reading(
        1,
        ports={**now.ports, **dark},
        lost={FRONT_LINK.up: 6},
        sessions={**now.sessions, "fsw1:fsw2": False},
    )
    back, front = network_totals(FABRIC, reading(0), last, lambda name: (f"of {name}",))
    assert (back.network, back.switches, back.links, back.sessions) == ("backend", 4, 12, 4)
    assert (back.links_down, back.sessions_down, back.lost_packets) == (0, 0, 0)
    assert (front.links, front.links_down, front.sessions_down, front.lost_packets) == (8, 1, 1, 6)
    assert (front.sent_packets, front.sent_bytes) == (4 * 2 * 8, 100 * 4 * 2 * 8)
    assert front.missed == ("of frontend",)
    assert network_totals(Lab.planned("tiny").fabric, last, last, lambda name: ()) == ()


@contextmanager
def running(files: LabFiles, network: str, ends: tuple[str, str], pid: int) -> Iterator[None]:
    """Agents of two servers, and what their run publishes."""
    source, destination = ends
    flow = ProbeStream(
        id=1,
        source=source,
        source_nic=1,
        destination=destination,
        destination_nic=1,
        sport=50_000,
        dest_qp=16,
        rate_pps=100,
        payload_bytes=64,
    )
    folder = files.root / "endpoints"
    for server in ends:
        (folder / server).write_bytes(packed(LiveCounters(pid=pid, sent=10)))
    with published(files, probe_demands(FABRIC.network(network), [flow])):
        yield
    for server in ends:
        (folder / server).unlink()


def test_endpoints_are_of_the_network_in_which_their_run_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocelab.record.RUN_ROOT", tmp_path)
    files = LabFiles("t-networks")
    (files.root / "endpoints").mkdir(parents=True)
    tracker = EndpointTracker(files, FABRIC)
    with running(files, "backend", ("srv1-1", "srv2-1"), os.getpid()):
        tracker.update()
    with running(files, "frontend", ("srv1-1", "sto2"), os.getpid() + 1):
        tracker.update()
    tracker.update()
    assert {name: counters.sent for name, counters in tracker.totals().items()} == {
        "srv1-1 in backend": 10,
        "srv2-1 in backend": 10,
        "srv1-1 in frontend": 10,
        "sto2 in frontend": 10,
    }
    (files.root / "endpoints" / "srv1-2").write_bytes(packed(LiveCounters(pid=7)))
    tracker.update()
    assert "srv1-2" not in "".join(tracker.totals())
    tracker.close()


def snapshot(seen: Sample) -> Snapshot:
    lab: Any = SimpleNamespace(name="two-networks", fabric=FABRIC)
    now = reading(1, endpoints={"srv1-1 in backend": LiveCounters(sent=3)})
    counts = dict.fromkeys(Sli, 0)
    of_networks = dict.fromkeys(PLACES.networks, counts)
    return Snapshot(lab, HealthSpec(), PLACES, now, seen, counts, 1, 0.1, of_networks)


def test_every_metric_of_a_place_says_its_network() -> None:
    collector = HealthCollector()
    collector.snapshot = snapshot(compare(PLACES, PLANS, reading(0), reading(1)))
    series = [one for family in collector.collect() for one in family.samples]
    of_lab = ("rocelab_health_", "rocelab_pfc_process_up")
    assert {one.labels["network"] for one in series if not one.name.startswith(of_lab)} == {
        "backend",
        "frontend",
    }
    sent = {
        one.labels["network"] for one in series if one.name == "rocelab_endpoint_sent_packets_total"
    }
    assert sent == {"backend"}
    buffers = {one.labels["network"]: one.value for one in series if "buffer_bytes" in one.name}
    assert buffers["frontend"] == 4e6


def test_a_sample_and_the_report_say_where(capsys: pytest.CaptureFixture[str]) -> None:
    lost = sample(link_loss={ON_FRONT: 3.0})
    document = sample_document(snapshot(lost))
    assert document["networks"] == {ON_FRONT: ("frontend",)}
    counted = account(HealthSpec())
    counted.add(lost)
    networks = network_totals(FABRIC, reading(0), reading(1), counted.missed)
    report = HealthReport(
        *("two-networks", 0, 10**9, 1, 1, counted.slis(), (), 0.0), networks=networks
    )
    print_report(report)
    printed = capsys.readouterr().out
    assert f"{ON_FRONT} (frontend)" in printed
    (row,) = (line for line in printed.splitlines() if line.split()[:1] == ["frontend"])
    assert row.split()[-2:] == ["link", "loss"]
    assert json.loads(json.dumps(document))["breaches"] == {"link_loss": {ON_FRONT: 3.0}}
