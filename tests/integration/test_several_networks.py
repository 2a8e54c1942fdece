"""A back end and a front end on the same servers: both whole, none reached from the other, and a
job of one is not disturbed by a broken cable of the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from rocelab.base.errors import InputError
from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.faults.base import Timed
from rocelab.faults.injector import Injector
from rocelab.faults.kinds.carrier_down import CarrierDownSpec
from rocelab.faults.kinds.pause_storm import PauseStormSpec
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.status import read_status
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.schemes.e_ecmp import EEcmpScheme
from rocelab.observe.evidence.bundle import collect_evidence
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.health.monitor import HealthMonitor
from rocelab.results.health import Sli
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from rocelab.runs.jobs import run_jobs
from rocelab.traffic.reachability import probe_crossings, probe_reachability
from rocelab.traffic.traceroute import probe_path
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.running import running

PORTS = range(50_000, 50_100)
DRILL = """name: front-end-flap
lab: {lab}
traffic: {{network: frontend, flows: 6, rate_pps: 500, payload: 64B, warmup: 500ms, duration: 2s}}
faults:
  - {{kind: carrier-down, at: 500ms, link: "fsw1:fsw2", lasts: 500ms}}
expect: {{restored: true, lost_outside_events: 0}}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("networks") / "it-networks.yaml"
    made.write_text(find_lab("two-networks").read_text().replace("two-networks", "it-networks"))
    return made


@pytest.fixture(scope="module")
def lab(file: Path) -> Iterator[RunningLab]:
    with running(Lab.planned(file)) as made:
        yield made


def netns(lab: RunningLab, name: str) -> Path:
    return lab.node(name).netns


def test_all_sessions_are_up_and_every_switch_is_in_its_network(lab: RunningLab) -> None:
    state = read_status(lab)
    assert state.converged, state.problems
    switches = {node.name: node.networks for node in state.nodes if node.role.tier}
    assert switches["rtsw1"] == ("backend",)
    assert switches["fsw1"] == ("frontend",)
    assert sum(node.sessions_expected for node in state.nodes) == 2 * (4 + 2)


def test_servers_reach_each_other_in_each_network_and_in_no_other(lab: RunningLab) -> None:
    pairs = {}
    for network in lab.fabric.networks:
        reached = probe_reachability(network, partial(netns, lab))
        assert reached.failed == ()
        pairs[network.network_name] = reached.pairs
    assert pairs == {"backend": 48, "frontend": 30}
    assert probe_crossings(lab.fabric, partial(netns, lab)) == ()


def test_a_network_that_leaks_is_seen(lab: RunningLab) -> None:
    """With a route by hand a back end's packets reach the front end of a server that forwards."""
    nic = lab.fabric.network("frontend").nics("srv1-2")[0]
    route = ["ip", "route", "add", f"{nic.ip}/32", "dev", "srv1-2"]
    lab.node("rtsw1").exec([*route, "src", lab.fabric.node("rtsw1").loopback or ""])
    try:
        port = lab.fabric.network("backend").links_of["rtsw1"]
        far = next(link for link in port if link.name == "srv1-2:rtsw1")
        neighbour = ["ip", "neigh", "replace", nic.ip, "lladdr", far.a.mac, "dev", "srv1-2"]
        lab.node("rtsw1").exec(neighbour)
        crossed = probe_crossings(lab.fabric, partial(netns, lab))
        assert {destination for _, destination in crossed} == {"frontend srv1-2:3"}
    finally:
        lab.node("rtsw1").exec(["ip", "route", "del", f"{nic.ip}/32"])


def test_programs_find_the_network_of_their_destination(lab: RunningLab) -> None:
    server = lab.node("srv1-1")
    storage = lab.fabric.nics("sto2")[0].ip
    (route,) = json.loads(server.exec(["ip", "-j", "route", "get", storage]).stdout)
    assert (route["dev"], route["prefsrc"]) == ("fsw1", lab.fabric.nics("srv1-1")[2].ip)
    hosts = lab.runtime.files.hosts.read_text().splitlines()
    assert f"{lab.fabric.nics('srv1-1')[0].ip} srv1-1" in hosts
    assert f"{lab.fabric.nics('srv1-1')[2].ip} srv1-1.frontend" in hosts


def test_paths_in_the_front_end_are_the_predicted_ones(lab: RunningLab) -> None:
    network = lab.network("frontend")
    fabric = network.fabric
    source, destination = fabric.nics("srv1-1")[0], fabric.nics("sto2")[0]
    taken = probe_path(fabric, partial(netns, lab), source, destination, PORTS)
    for fib_of in (network.read_fibs(), planned_fibs(fabric, fabric.prefixes)):
        links = {port: walk(fabric, fib_of, source, destination, port) for port in PORTS}
        assert {port: path.nodes for port, path in links.items()} == taken
    assert len({path.hops[1].link for path in links.values()}) == 2


def test_a_scheme_is_of_one_network(lab: RunningLab) -> None:
    back, front = lab.network("backend").steering, lab.network("frontend").steering
    before = front.read_scheme()
    with lab.locked():
        front.set_scheme(EEcmpScheme(kind="e-ecmp"))
    try:
        assert (back.read_scheme().kind, front.read_scheme().kind) == ("ecmp", "e-ecmp")
        assert not lab.has_own_scheme
    finally:
        with lab.locked():
            front.set_scheme(before)
    assert lab.has_own_scheme
    assert read_status(lab).converged


def test_a_broken_cable_of_the_front_end_disturbs_no_job_of_the_back_end(lab: RunningLab) -> None:
    """Jobs of both networks run at once on the same servers, whose NICs have the same numbers in
    each."""
    job = JobSpec.model_validate(
        {"pattern": "allreduce", "ranks": 8, "size": "1MiB", "iterations": 4}
    )
    storage = JobSpec.model_validate(
        {
            "pattern": "incast",
            "network": "frontend",
            "ranks": 3,
            "placement": ["sto1", "srv1-1", "srv2-1"],
            "size": "128KiB",
            "iterations": 2,
        }
    )
    flap = CarrierDownSpec.model_validate({"kind": "carrier-down", "link": "fsw1:fsw2"})
    faults = [Timed(flap, 100_000_000, 600_000_000)]
    report, beside = measured(
        lambda: run_jobs(lab, [job, storage], faults=faults).reports,
        lambda reports: reports[0].problems,
    )
    assert not report.errors
    assert [event.title for event in report.events] == [
        "carrier-down of fsw1:fsw2",
        "carrier-down of fsw1:fsw2 ends",
    ]
    assert report.roce.retransmitted == report.roce.timeouts == 0
    assert all(figures.dropped_packets == 0 for figures in report.queues)
    assert [rank.nic for rank in beside.ranks] == ["sto1:1", "srv1-1:1", "srv2-1:1"]
    assert beside.roce.delivered_bytes == 2 * 3 * 2**17
    back, front = (
        {end for link in job_report.links for end in link.link.split(":")}
        for job_report in (report, beside)
    )
    assert {"rtsw1", "ctsw1"} <= back
    assert {"fsw1", "fsw2", "sto1"} <= front
    assert not {name for name in back if name.startswith(("fsw", "sto"))}
    assert not {name for name in front if name.startswith(("rtsw", "ctsw"))}


def test_a_checkpoint_is_delivered_to_the_storage_servers_and_read_back(lab: RunningLab) -> None:
    """Every writer's bytes arrive at both, and no faster than their NICs take them."""
    store = {"size": "64KB", "storage": ["sto*"]}
    save = {"name": "save", "network": "frontend", "iterations": 2, "checkpoint": store}
    load = {"name": "load", "network": "frontend", "restore": {**store, "of": "save"}}
    jobs = [SimulatedJob.model_validate(block) for block in (save, load)]
    saved, loaded = measured(
        lambda: run_jobs(lab, jobs).reports, lambda reports: reports[0].problems
    )
    assert not saved.errors and not loaded.errors
    got = {rank.nic: rank.delivered_bytes for rank in saved.ranks if rank.delivered_bytes}
    runs = jobs[0].iterations + jobs[0].warmup_iterations
    assert got == dict.fromkeys(("sto1:1", "sto2:1"), runs * 4 * 32_000)
    assert {rank.nic for rank in loaded.ranks if rank.delivered_bytes} == {
        f"{name}:1" for name in ("srv1-1", "srv1-2", "srv2-1", "srv2-2")
    }
    least_ns = 4 * 32_000 * 8 / 200
    assert all(times.modelled_ns > least_ns for times in saved.iterations)


def test_tcp_of_the_front_end_leaves_roce_of_the_back_end_its_checks(lab: RunningLab) -> None:
    ring = {"pattern": "allreduce", "ranks": 4, "size": "200KB", "iterations": 2}
    save = {"pattern": "incast", "ranks": 3, "size": "64KiB", "iterations": 2}
    save |= {"network": "frontend", "placement": ["sto1", "srv1-1", "srv2-1"]}
    save |= {"transport": {"kind": "tcp", "congestion_control": "reno", "connections": 2}}
    jobs = [JobSpec.model_validate(job) for job in (ring, save)]
    back, front = measured(lambda: run_jobs(lab, jobs).reports, lambda reports: reports[0].problems)
    assert len(back.accounting) > 1
    assert all(check.agrees for check in back.accounting)
    assert back.tcp is None
    assert front.transport is None
    assert [rank.acked_bytes for rank in front.ranks] == [0, 3 * 2**16, 3 * 2**16]
    assert front.ranks[0].delivered_bytes == 2 * 3 * 2**16
    assert front.tcp is not None
    assert {(one.source, one.destination) for one in front.tcp.connections} == {
        ("srv1-1:1", "sto1:1"),
        ("srv2-1:1", "sto1:1"),
    }
    carried = sum(one.delivered_bytes for one in front.tcp.connections)
    assert carried > 2 * 3 * 2**16, "the kernel counts the sends' own headers too"
    assert "scaled in part, to 5 s" in front.tcp.clock[0]
    timeout = lab.node("sto1").exec(["cat", "/proc/sys/net/ipv4/tcp_rto_min_us"]).stdout
    assert timeout.split() == ["200000"], "only the job's sockets have another"


def test_a_fault_of_lossless_classes_is_of_the_network_that_has_them(lab: RunningLab) -> None:
    storm = PauseStormSpec.model_validate({"kind": "pause-storm", "server": "srv1-1:2"})
    with Injector(lab) as injector:
        fault = storm.resolve(lab.fabric)
        fault.prepare(lab)
        fault.inject(lab)
        assert fault.remains(lab)
        fault.restore(lab)
        injector.restore_all()
    with pytest.raises(Exception, match="has no lossless classes"):
        PauseStormSpec.model_validate({"kind": "pause-storm", "server": "srv1-1:3"}).resolve(
            lab.fabric
        )


def test_health_says_in_which_network_a_cable_broke(lab: RunningLab) -> None:
    flap = CarrierDownSpec.model_validate({"kind": "carrier-down", "link": "fsw1:fsw2"})
    with ExitStack() as stack:
        whole, back, front = (
            stack.enter_context(HealthMonitor(watched, HealthSpec(), asks=True))
            for watched in (lab, lab.network("backend"), lab.network("frontend"))
        )
        injector = stack.enter_context(Injector(lab))
        fault = flap.resolve(lab.fabric)
        fault.prepare(lab)
        fault.inject(lab)
        fault.restore(lab)
        injector.restore_all()
    for monitor in (whole, back, front):
        assert monitor.failure is None
    assert whole.report.sli(Sli.FLAPS).worst_place == "fsw1:fsw2 (frontend)"
    of_back, of_front = whole.report.networks
    assert "flaps" not in of_back.missed
    assert "flaps" in of_front.missed
    assert back.report.sli(Sli.FLAPS).met
    assert front.report.sli(Sli.FLAPS).places[0].networks == ("frontend",)
    assert {sli.sli for sli in whole.report.slis} >= {"queue_depth", "lossless_drops"}
    assert "lossless_drops" not in {sli.sli for sli in front.report.slis}


def test_evidence_is_of_the_network_that_is_asked_for(lab: RunningLab, tmp_path: Path) -> None:
    network = lab.network("frontend")
    bundle = collect_evidence(network, ["fsw1", "srv1-1"], tmp_path / "bundle", capture_s=0)
    assert bundle.networks == {"fsw1": ("frontend",), "srv1-1": ("backend", "frontend")}
    assert not bundle.gaps
    with pytest.raises(InputError, match="has no node rtsw1"):
        collect_evidence(network, ["rtsw1"], tmp_path / "other")


def test_a_drill_probes_the_network_that_it_names(
    lab: RunningLab, file: Path, tmp_path: Path
) -> None:
    drill = tmp_path / "flap.yaml"
    drill.write_text(DRILL.format(lab=file))
    use = kept(lambda text: None)
    result = measured(lambda: run_drill(drill, use=use, lab=lab, retries=0), problems_of_drill)
    (phase,) = result.repeats[0]
    assert phase.probes is not None
    assert {link.split(":")[0] for flow in phase.probes.flows for link in flow.path} <= {
        *("fsw1", "fsw2", "srv1-1", "srv1-2", "srv2-1", "srv2-2", "sto1", "sto2")
    }
