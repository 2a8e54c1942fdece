"""What a simulation warns of: places that the model does not suit, keys that an engine ignores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocelab.base.errors import InputError
from rocelab.jobs.job_spec import SimulatedJob, find_jobs, load_jobs
from rocelab.jobs.placement import Placement
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.planning.limits import lab_limits, unreached_marks
from rocelab.results.engines import Engine
from rocelab.routes.arrays.build import network_of
from rocelab.routes.models import Model
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.options import Options
from rocelab.sim.placement import place_ranks
from rocelab.sim.reliability import event_cost
from rocelab.sim.simulate import simulate
from rocelab.sim.sweep.cells import run_cell
from tests.helpers.command import rocelab

RAIL = {"kind": "rail", "units": 2, "servers_per_unit": 8, "rails": 4, "spines": 2}
HPN = {"kind": "hpn", "segments": 2, "servers_per_segment": 8, "rails": 4, "aggs": 2}
CLOS = {"racks": 4, "spines": 2, "servers_per_rack": 4, "nics_per_server": 4}
SHAPE = {"layers": 4, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 1000, "sequence": 1024}
TRAINING = {
    "model": SHAPE,
    "tensor": 4,
    "data": 2,
    "pipeline": 2,
    "micro_batches": 4,
    "gpu_flops": "100T",
    "server_gpus": 4,
}
INFERENCE = {
    "model": SHAPE,
    "tensor": 4,
    "pipeline": 2,
    "prefill": 1,
    "decode": 1,
    "prompt": 512,
    "output": 16,
    "gpu_flops": "100T",
    "server_gpus": 4,
}


def spec_of(fabric: dict[str, Any], **keys: Any) -> LabSpec:
    return LabSpec.model_validate({"name": "lab", "fabric": fabric, **keys})


def job_of(**keys: Any) -> SimulatedJob:
    return SimulatedJob.model_validate({"name": "job", **keys})


def collective(**keys: Any) -> SimulatedJob:
    transport = keys.pop("transport", {})
    base = {"pattern": "allreduce", "ranks": 8, "size": "16MB", "iterations": 1}
    return job_of(collective={**base, **keys, "transport": transport})


def run(*arguments: str) -> tuple[int, str, str]:
    done = rocelab(*arguments)
    return done.returncode, done.stdout, done.stderr


def warned(report: Any, text: str) -> list[str]:
    return [warning for warning in report.warnings if text in warning]


# --- tensor parallel groups ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [{"training": TRAINING}, {"inference": INFERENCE}])
@pytest.mark.parametrize("fabric", [RAIL, HPN], ids=["rail", "hpn"])
def test_a_tensor_parallel_group_that_leaves_its_server_pays_the_network(
    fabric: dict[str, Any], kind: dict[str, Any]
) -> None:
    spec = spec_of(fabric)
    together, apart = (
        simulate(spec, [job_of(placement=placement, **kind)])
        for placement in ("contiguous", "topology-aware")
    )
    assert not warned(together, "tensor parallel")
    (text,) = warned(apart, "tensor parallel groups are not on one server")
    assert "4 of 4" in text
    assert "ranks 0 to 3 are on" in text
    assert "`placement: contiguous` keeps each group of 4 on one server" in text
    assert apart.jobs[0].payload_bytes > together.jobs[0].payload_bytes
    fast, slow = (report.jobs[0].headlines[0].modelled.median for report in (together, apart))
    assert slow > 1.2 * fast


def test_it_pays_the_network_only_where_servers_differ() -> None:
    """All NICs of a server are on one leaf of a Clos, so both placements are the same."""
    reports = [
        simulate(spec_of(CLOS), [job_of(placement=placement, training=TRAINING)])
        for placement in ("contiguous", "topology-aware")
    ]
    assert not any(warned(report, "tensor parallel") for report in reports)
    times = [report.jobs[0].iterations_ns for report in reports]
    assert times[0] == pytest.approx(times[1])


@pytest.mark.parametrize("kind", [{"training": TRAINING}, {"inference": INFERENCE}])
def test_groups_on_an_nvlink_slower_than_a_nic_are_refused_beside_groups_apart(
    kind: dict[str, Any],
) -> None:
    """What all wait for would be the NVLink of the others, which such a job has no time of."""
    spec = spec_of(CLOS, links={"rate": "400G", "server_rate": "400G"})
    (keys,) = kind.values()
    names = [f"srv1-{server}:{nic}" for server in range(1, 5) for nic in range(1, 5)]
    names[3], names[4] = names[4], names[3]  # the first two groups
    placed = {"placement": names, "name": "job"}

    def report(nvlink: str, **more: object) -> Any:
        job = {next(iter(kind)): {**keys, "nvlink": nvlink}, **more}
        return simulate(spec, [SimulatedJob.model_validate({"name": "job", **job})])

    assert warned(report("50GB/s", **placed), "2 of 4 tensor parallel groups")
    with pytest.raises(InputError, match=r"nvlink \(49 GB/s\) is slower than a NIC \(50 GB/s\)"):
        report("49GB/s", **placed)
    assert report("49GB/s").jobs[0].iterations_ns


def test_servers_with_too_few_nics_are_named() -> None:
    report = simulate(spec_of({**CLOS, "nics_per_server": 2}), [job_of(training=TRAINING)])
    (text,) = warned(report, "tensor parallel groups are not on one server")
    assert "No placement keeps 4 GPUs together on servers with 2 NICs" in text
    assert "`tensor: 2`" in text


def test_beside_another_job_the_advice_holds_what_that_one_leaves() -> None:
    first = job_of(
        placement=["srv1-1:1", "srv1-1:2"],
        training={**TRAINING, "tensor": 1, "data": 2, "pipeline": 1},
    )
    second = SimulatedJob.model_validate(
        {"name": "second", "placement": "random", "training": TRAINING}
    )
    report = simulate(spec_of(RAIL), [first, second])
    (text,) = [
        message for message in warned(report, "tensor parallel") if message.startswith("second")
    ]
    assert "`placement: contiguous` keeps each group of 4 on one server" in text


def test_the_network_carries_the_all_reduces_of_each_pass() -> None:
    """Two all-reduces a layer, forward and backward, of every micro-batch."""
    spec, sent = spec_of(RAIL), {}
    for placement in ("contiguous", "topology-aware"):
        sent[placement] = simulate(spec, [job_of(placement=placement, training=TRAINING)])
    more = sent["topology-aware"].jobs[0].payload_bytes - sent["contiguous"].jobs[0].payload_bytes
    tensor_bytes = 2 * 1024 * 4096
    layers, micro_batches, groups = 4 / 2, 4, 4
    expected = 2 * 3 * tensor_bytes * 4 * layers * micro_batches * groups
    assert more == pytest.approx(expected, rel=1e-3)


def test_the_shipped_job_is_placed_as_on_a_clos_before() -> None:
    (job,) = load_jobs(find_jobs("llama3-16k"))
    network = network_of(load_spec(find_lab("llama3-24k")))
    assert job.ranks is not None
    places = [
        place_ranks(network, job.ranks, how).tolist()
        for how in (job.placement, Placement.TOPOLOGY_AWARE)
    ]
    assert places[0] == places[1]


@pytest.mark.parametrize("name", ["llama3-16k", "gpt3-175b-hpn", "inference"])
@pytest.mark.parametrize("fabric", [RAIL, HPN, CLOS], ids=["rail", "hpn", "clos"])
def test_shipped_jobs_keep_their_groups_on_one_server(name: str, fabric: dict[str, Any]) -> None:
    """On every kind of fabric whose servers have eight NICs."""
    (job,) = load_jobs(find_jobs(name))
    block = {"clos": {"nics_per_server": 8}}.get(fabric.get("kind", "clos"), {"rails": 8})
    network = network_of(spec_of({**fabric, **block}))
    places = place_ranks(network, 64, job.placement).reshape(-1, 8)
    servers = network.nic_server[places]
    assert (servers == servers[:, :1]).all()


# --- hops within a server ------------------------------------------------------------------------


@pytest.mark.parametrize("fabric", [RAIL, HPN], ids=["rail", "hpn"])
def test_a_ring_within_servers_that_crosses_spines_is_named(fabric: dict[str, Any]) -> None:
    report = simulate(spec_of(fabric), [collective()])
    (text,) = warned(report, "of the same server")
    assert "75% of its bytes" in text
    assert "srv1-1:1 to srv1-1:2" in text
    assert "placement: topology-aware" in text
    aware = simulate(spec_of(fabric), [collective(placement="topology-aware")])
    assert not warned(aware, "of the same server")


@pytest.mark.parametrize(("share", "is_named"), [(0.0199, False), (0.0201, True)])
def test_hops_within_servers_are_named_from_a_fiftieth_of_the_bytes_on(
    share: float, is_named: bool, tmp_path: Path
) -> None:
    inside = round(share * 10**6)
    file = tmp_path / "flow.txt"
    file.write_text(f"2\n0 1 3 100 {inside} 2.0\n0 2 3 100 {10**6 - inside} 2.0\n")
    places = ["srv1-1:1", "srv1-1:2", "srv2-1:1"]
    report = simulate(spec_of(RAIL), [job_of(flows={"file": str(file)}, placement=places)])
    assert bool(warned(report, "of the same server")) == is_named


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        ("contiguous", ""),
        (
            "topology-aware",
            "placement topology-aware is not what schedulers and launchers do: 0 of 8",
        ),
        ("random", "with `placement: contiguous` it is 4 and 2 times"),
    ],
)
def test_ranks_that_no_launcher_places_so_are_named(placement: str, said: str) -> None:
    rail = {"kind": "rail", "units": 2, "servers_per_unit": 2, "rails": 2}
    report = simulate(spec_of(rail), [collective(placement=placement)])
    texts = warned(report, "launchers do")
    assert len(texts) == bool(said) and all(said in text for text in texts)
    assert not warned(
        simulate(spec_of(CLOS), [collective(placement="topology-aware")]), "launchers"
    )


def test_nics_on_one_leaf_cross_no_spine() -> None:
    assert not warned(simulate(spec_of(CLOS), [collective()]), "of the same server")


# --- windows -------------------------------------------------------------------------------------

ONE = {"pattern": "incast", "ranks": 2, "size": "64MB", "placement": ["srv1-1:1", "srv2-1:1"]}


def test_a_fluid_says_what_a_window_holds_back() -> None:
    spec = spec_of({"racks": 2, "spines": 2, "servers_per_rack": 1}, links={"delay": "25us"})
    job = collective(**ONE, transport={"window": 128})
    (text,) = warned(simulate(spec, [job]), "transport.window")
    assert "holds back 1 queue pair: srv2-1:1 to srv1-1:1 sends 128 packets of 4,096" in text
    assert "a round trip of 202 us, 20.8 Gb/s" in text
    assert not warned(simulate(spec, [job], Options(engine=Engine.PACKETS)), "transport.window")


@pytest.mark.parametrize(
    ("delay", "transport", "size"),
    [
        ("1us", {}, "64MB"),
        ("25us", {"window": 4096}, "64MB"),
        ("25us", {"window": 512}, "2MiB"),
        ("25us", {"qps": 16, "strategy": "split"}, "64MB"),
        ("1us", {"window": 16, "qps": 64, "strategy": "split"}, "64MB"),
    ],
)
def test_windows_that_hold_nothing_back_are_not_named(
    delay: str, transport: dict[str, Any], size: str
) -> None:
    spec = spec_of({"racks": 2, "spines": 2, "servers_per_rack": 1}, links={"delay": delay})
    job = collective(**{**ONE, "size": size}, transport=transport)
    assert not warned(simulate(spec, [job]), "window")


def test_short_sends_one_after_the_other_never_fill_a_window() -> None:
    spec = spec_of(CLOS, links={"delay": "50us"})
    report = simulate(spec, [collective(ranks=16, size="16MB")])
    assert not warned(report, "window")


def test_a_fluid_says_what_admission_changes() -> None:
    report = simulate(spec_of(CLOS), [collective(**ONE, transport={"admission": True})])
    assert warned(report, "transport.admission makes no message wait in a fluid")
    assert not warned(report, "transport.admission has no effect")


def test_whatif_longrun_and_sweeps_warn_too(tmp_path: Path) -> None:
    lab = {
        "name": "lab",
        "fabric": {"racks": 2, "spines": 2, "servers_per_rack": 1},
        "links": {"delay": "25us"},
    }
    spec = LabSpec.model_validate(lab)
    job = collective(**ONE, transport={"window": 128, "dcqcn": "hpcc-dcqcn"})
    cost = event_cost(spec, [job], parse_event("fail rtsw1:ctsw1 at 0s for 10s"))
    assert warned(cost, "transport.window holds back")
    assert warned(cost, "transport.dcqcn has no effect here")
    inputs = {
        "lab": spec.model_dump(mode="json"),
        "job": job.model_dump(mode="json"),
        "simulate": {"eps": None, "model": "kernel", "hop_latency": None},
    }
    assert "transport.window holds back" in run_cell(json.loads(json.dumps(inputs)))["warnings"]

    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(lab))
    (tmp_path / "job.yaml").write_text(
        yaml.safe_dump({"jobs": [json.loads(job.model_dump_json(exclude_defaults=True))]})
    )
    files = [str(tmp_path / "lab.yaml"), "--job", str(tmp_path / "job.yaml")]
    timeline = tmp_path / "events.yaml"
    timeline.write_text("events: []\n")
    for command in (
        ["whatif", *files[:1], "fail rtsw1:ctsw1 for 10s", *files[1:]],
        ["longrun", *files, "--timeline", str(timeline), "--work", "1h"],
    ):
        code, _, message = run(*command)
        assert code == 0
        assert "warning: job: transport.window holds back 1 queue pair" in message


@pytest.mark.parametrize(
    ("engine", "keys", "said"),
    [
        (Engine.FLUID, {"in_flight": 1}, "each iteration begins when all ranks have finished"),
        (Engine.PACKETS, {"in_flight": 1}, "--iterations 20 reports what repeated ones take"),
        (Engine.PACKETS, {"in_flight": 1, "iterations": 2}, ""),
        (Engine.PACKETS, {}, ""),
        (Engine.FLUID, {}, ""),
    ],
)
def test_alltoalls_in_rounds_say_whether_they_get_out_of_step(
    engine: Engine, keys: dict[str, Any], said: str
) -> None:
    job = collective(**{"pattern": "alltoall", "size": "64KB", **keys})
    texts = warned(simulate(spec_of(CLOS), [job], Options(engine=engine)), "out of step")
    assert len(texts) == bool(said) and all(said in text for text in texts)


def test_a_fluid_says_what_a_failed_link_costs_beside_packets() -> None:
    spec, job = spec_of(CLOS), collective()

    def said(event: str, engine: Engine = Engine.FLUID) -> list[str]:
        timeline = TimelineSpec(events=(parse_event(event),))
        report = simulate(spec, [job], Options(engine=engine, timeline=timeline))
        return warned(report, "first retry on a whole path")

    (text,) = said("fail rtsw1:ctsw1 at 0s for 10us")
    assert "every 4.29 s and 7 times at most" in text and "a window (42.8 us" in text
    assert not said("drain rtsw1:ctsw1 at 0s")
    assert not said("fail rtsw1:ctsw1 at 0s for 10us", Engine.PACKETS)
    assert warned(event_cost(spec, [job], parse_event("fail rtsw1:ctsw1 at 0s for 10s")), text)


# --- keys that an engine ignores -----------------------------------------------------------------


def test_a_fluid_names_the_keys_that_it_does_not_read() -> None:
    queues = {"buffer": "32MB", "ecn": {"kmin": "400KB"}, "marked": [3], "dscp": {"cs1": 4}}
    queues |= {"roles": {"rtsw": {"buffer": "8MB"}}}
    transport = {"ack_every": 4, "out_of_order": True, "dscp": 10, "ecn": "ce", "retries": 3}
    report = simulate(spec_of(CLOS, queues=queues), [collective(transport=transport)])
    (text,) = warned(report, "have no effect here: a fluid has no packets")
    for key in (
        *("queues.buffer", "queues.dscp", "queues.marked", "queues.roles", "queues.ecn.kmin"),
        *(f"transport.{key}" for key in ("ack_every", "out_of_order", "dscp", "ecn")),
    ):
        assert key in text
    assert warned(report, "transport.retries has no effect here: a fluid without failures")


def test_a_fluid_with_failures_reads_what_a_loss_costs() -> None:
    timeline = TimelineSpec(events=(parse_event("fail rtsw1:ctsw1 at 1us for 10us"),))
    job = collective(transport={"retries": 3, "ack_timeout": "2ms"})
    assert not warned(simulate(spec_of(CLOS), [job], Options(timeline=timeline)), "retries")
    assert warned(simulate(spec_of(CLOS), [job]), "retries")


def test_defaults_are_not_named() -> None:
    spec = spec_of(CLOS, queues={"buffer": "16MB"})
    report = simulate(spec, [collective(transport={"window": 512, "ecn": "ect0"})])
    assert report.warnings == ()


def test_packets_read_what_a_fluid_does_not() -> None:
    queues = {"buffer": "32MB", "ecn": {"kmin": "400KB"}}
    spec = spec_of(CLOS, queues=queues)
    job = collective(size="1MB", transport={"ack_every": 4, "dcqcn": "hpcc-dcqcn"})
    assert simulate(spec, [job], Options(engine=Engine.PACKETS)).warnings == ()


def test_an_asics_crc_ignores_scheme_and_policy() -> None:
    spec = spec_of(CLOS, scheme="e-ecmp")
    report = simulate(spec, [collective()], Options(model=Model.CRC32))
    assert warned(report, "scheme has no effect here: with --model crc32")


def test_a_prediction_names_options_that_change_no_load() -> None:
    code, text, message = run(
        *("predict", "zone-1-1", "--pattern", "allreduce", "--ranks", "8", "--size", "1MB"),
        *("--dcqcn", "hpcc-dcqcn", "--json"),
    )
    assert code == 0
    assert "note: --dcqcn has no effect here" in message
    assert any("--dcqcn" in note for note in json.loads(text)["notes"])


# --- limits that never come into play ------------------------------------------------------------


def test_packets_that_drop_before_they_are_marked_are_a_warning() -> None:
    spec = spec_of(CLOS, queues={"buffer": "400KB"})
    (text,) = unreached_marks(spec)
    assert "queues.ecn.kmin (800 kB) is not below queues.buffer (400 kB)" in text
    job = collective(size="1MB")
    report = simulate(spec, [job], Options(engine=Engine.PACKETS))
    assert warned(report, "queues.ecn.kmin (800 kB)")
    assert not warned(simulate(spec, [job]), "queues.ecn.kmin (800 kB)")


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ({"buffer": "1MB", "ecn": {"kmin": "800KB", "kmax": "2MB"}}, "queues.ecn.kmax (2 MB)"),
        ({"ecn": {"kmin": "16MB", "kmax": "20MB"}}, "queues.ecn.kmin (16 MB)"),
        ({"buffer": "400KB", "engine": "red"}, "queues.ecn.kmin (800 kB)"),
        ({"buffer": "400KB", "engine": "off"}, "no port of a lab has queues.buffer"),
        ({"pfc": {"watchdog": {}}}, "queues.pfc.watchdog.detection (400 ms) is 33.3 min"),
        ({"pfc": {"watchdog": {"detection": "1ms"}}}, "watchdog.restoration (2 s) is 2.78 h"),
    ],
)
def test_what_never_comes_into_play_in_a_lab_is_named(queues: dict[str, Any], said: str) -> None:
    assert any(said in text for text in lab_limits(spec_of(CLOS, queues=queues)))


def test_other_slow_timers_of_the_model_are_named() -> None:
    spec = spec_of(CLOS, links={"delay": "20ms"}, scheme={"kind": "flowlet", "gap": "20ms"})
    said = "\n".join(lab_limits(spec))
    assert "links.delay (20 ms) is 100 s" in said
    assert "scheme.gap (20 ms) is 100 s" in said


@pytest.mark.parametrize(
    "queues",
    [
        {},
        {"buffer": "400KB", "marked": []},
        {"buffer": "4MB"},
        {"buffer": "2MB", "ecn": {"kmin": "800KB", "kmax": "2MB"}},
        {"buffer": "400KB", "marked": [3], "pfc": {}},
        {"engine": "off"},
        {"pfc": {"watchdog": {"detection": "200us", "restoration": "400us"}}},
    ],
)
def test_what_comes_into_play_is_not_named(queues: dict[str, Any]) -> None:
    assert lab_limits(spec_of(CLOS, queues=queues)) == ()


def test_plan_warns_of_both(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    queues = {"buffer": "400KB", "pfc": {"watchdog": {}}}
    lab = {"name": "lab", "fabric": CLOS, "queues": queues}
    file.write_text(yaml.safe_dump(lab))
    code, _, message = run("plan", str(file))
    assert code == 0
    assert "warning: queues.ecn.kmin (800 kB) is not below queues.buffer (400 kB)" in message
    assert (
        "warning: queues.pfc.watchdog.detection (400 ms) is 33.3 min on the lab's clock" in message
    )
    _, text, _ = run("plan", str(file), "--json")
    assert len(json.loads(text)["warnings"]) == 3
