"""Hosts in simulations: NVLink domains, caps of NICs, and the time that hosts take.

Times are compared with sums done by hand. Links take no time, so that only hosts and bytes do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.hosts.host_spec import HostModelSpec
from rocelab.hosts.model import TIMELESS, HostModel
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, collective_job
from rocelab.labfile.load import load
from rocelab.labfile.model import LabSpec
from rocelab.report.renderers.terminal import print_document
from rocelab.report.simulation.document import simulation_document
from rocelab.report.simulation.whatif import what_if_document
from rocelab.results.engines import Engine, PortModel
from rocelab.results.simulation import SimulationReport
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.options import Options
from rocelab.sim.reliability import event_cost
from rocelab.sim.simulate import Simulation, simulate
from tests.unit.hosts.servers import server

US = 1e3
MB = 10**6
WIRE = (4096 + 58 + 24) / 4096
"""Bytes of a packet of 4,096 on the wire over its data; messages of 1 MiB have whole packets."""


@pytest.fixture(scope="module")
def rails() -> LabSpec:
    """Four servers of four GPUs, a NIC of 400G each, on four rails."""
    return load("rail-small")


def run(
    spec: LabSpec, model: HostModel | None, job: Mapping[str, Any], **options: Any
) -> SimulationReport:
    spec_of_job = JobSpec.model_validate({"iterations": 1, **job})
    chosen = Options(host_model=model, hop_latency_ns=0.0, **options)
    return simulate(spec, (collective_job(spec_of_job),), chosen)


def time_ns(
    spec: LabSpec, model: HostModel | None, job: Mapping[str, Any], **options: Any
) -> float:
    report = run(spec, model, job, **options)
    return report.jobs[0].headline("iteration_time").modelled.median


PAIR = {"pattern": "permutation", "ranks": 2, "size": "8MiB"}
TWO_SERVERS = {**PAIR, "placement": ("srv1:1", "srv2:1")}


def names_of(spec: LabSpec) -> list[str]:
    simulation = Simulation(spec, (collective_job(JobSpec.model_validate(PAIR)),), Options())
    network = simulation.network
    return list(dict.fromkeys(network.node_names[node] for node in network.nic_server.tolist()))


def between(spec: LabSpec) -> dict[str, Any]:
    """Two ranks on the first NICs of two servers, which send each other."""
    first, second = names_of(spec)[:2]
    return {**PAIR, "placement": (f"{first}:1", f"{second}:1")}


RING: dict[str, object] = {"algorithm": "ring", "protocol": "simple", "channels": 1}
"""What NCCL would not choose at every size."""


def test_a_ring_on_one_server_takes_nvlink_and_its_latency(rails: LabSpec) -> None:
    model = server(launch="8us", step="14us", bandwidth="100GB/s", latency="3us").model
    job = {"pattern": "allreduce", "ranks": 4, "size": "40MB", **RING}
    # 2 (n - 1) = 6 steps of a chunk of 10 MB at 100 GB/s.
    assert time_ns(rails, model, job) == pytest.approx(8 * US + 6 * (3 * US + 100 * US))


def test_ranks_of_two_servers_take_the_network_at_the_cap_of_their_nics(rails: LabSpec) -> None:
    model = server(launch="8us", step="14us", cap="200G").model
    taken = 8 * 8 * 2**20 * WIRE / 200
    assert time_ns(rails, model, between(rails)) == pytest.approx(22 * US + taken, rel=1e-3)


def test_a_cap_above_the_line_rate_changes_nothing(rails: LabSpec) -> None:
    job = between(rails)
    assert time_ns(rails, server(cap="800G").model, job) == time_ns(rails, None, job)


def test_a_model_without_costs_caps_and_fabric_is_none(rails: LabSpec) -> None:
    plain = server(fabric=None).model
    for job in (
        {"pattern": "allreduce", "ranks": 16, "size": "64MB"},
        {"pattern": "alltoall", "ranks": 8, "size": "8MB"},
        {"pattern": "broadcast", "ranks": 8, "size": "8MB"},
    ):
        with_model, without = run(rails, plain, job), run(rails, None, job)
        assert with_model.jobs[0].iterations_ns == without.jobs[0].iterations_ns
        assert with_model.uses == without.uses
        assert with_model.slowest == without.slowest


def test_each_two_gpus_of_a_mesh_have_a_link_of_their_own(rails: LabSpec) -> None:
    # Three senders to one GPU: 30 GB/s are 10 for each other GPU.
    model = server(kind="mesh", bandwidth="30GB/s", latency="2us").model
    job = {"pattern": "incast", "ranks": 4, "size": "1MB"}
    assert time_ns(rails, model, job) == pytest.approx(2 * US + 100 * US)


def test_senders_to_one_gpu_share_what_its_port_of_a_switch_takes(rails: LabSpec) -> None:
    model = server(bandwidth="30GB/s", latency="2us").model
    job = {"pattern": "incast", "ranks": 4, "size": "1MB"}
    assert time_ns(rails, model, job) == pytest.approx(2 * US + 100 * US)
    model = server(bandwidth="60GB/s", latency="2us").model
    assert time_ns(rails, model, job) == pytest.approx(2 * US + 50 * US)


def test_a_domain_of_two_servers_reaches_both_without_the_network(rails: LabSpec) -> None:
    model = server(bandwidth="100GB/s", latency="3us", step="14us", servers=2).model
    assert time_ns(rails, model, between(rails)) == pytest.approx(3 * US + 8 * 2**20 / 100)
    report = run(rails, model, {"pattern": "allreduce", "ranks": 8, "size": "8MB"})
    assert all(use.balance.total == 0 for use in report.uses)


def test_gpus_that_share_a_nic_share_its_rate(rails: LabSpec) -> None:
    model = server(gpus=8, nics=4, fabric=None).model
    first, second = names_of(rails)[:2]
    places = [f"{name}:1" for name in (first, first, second, second)]
    job = {"pattern": "permutation", "ranks": 4, "size": "8MiB", "placement": tuple(places)}
    report = run(rails, model, {**job, "pattern": "incast", "ranks": 3, "placement": places[1:4]})
    assert report.jobs[0].nics == tuple(places[1:4])
    alone = time_ns(rails, model, between(rails))
    four = {"pattern": "alltoall", "ranks": 4, "size": "32MiB", "placement": tuple(places)}
    # Each of two GPUs sends 8 MiB to each of three others by the same NIC.
    assert time_ns(rails, model, four) == pytest.approx(6 * alone, rel=0.01)


def test_contiguous_ranks_fill_the_gpus_of_a_server_first(rails: LabSpec) -> None:
    model = server(gpus=8, nics=4, bandwidth="100GB/s").model
    report = run(rails, model, {"pattern": "allreduce", "ranks": 8, "size": "8MB"})
    assert all(use.balance.total == 0 for use in report.uses)
    with pytest.raises(InputError, match="33 ranks do not fit the 32"):
        run(rails, model, {"pattern": "allreduce", "ranks": 33, "size": "8MB"})


def test_pcie_carries_what_goes_to_gpus_and_to_nics(rails: LabSpec) -> None:
    model = server(kind="pcie", bandwidth="25GB/s", gpu_cap="200G").model
    first, second = names_of(rails)[:2]
    # Ranks 1 (the same server) and 2 (another) send to 0, whose PCIe link takes 25 GB/s.
    places = (f"{first}:1", f"{first}:2", f"{second}:1")
    job = {"pattern": "incast", "ranks": 3, "size": "10MiB", "placement": places}
    both = 10 * 2**20 * (1 + WIRE) / 25
    assert time_ns(rails, model, job) == pytest.approx(both, rel=2e-3)


def test_a_sender_posts_one_message_after_the_other(rails: LabSpec) -> None:
    # 8 MiB in 128 messages of 64 KiB, 5 us each: the NIC would take 1.3 us.
    small = {**between(rails), "transport": {"message": "64KiB"}}
    slow = server(costs={"message": "5us"}).model
    assert time_ns(rails, slow, small) == pytest.approx(128 * 5 * US, rel=1e-3)
    # In messages of 1 MiB the NIC is slower than the host.
    assert time_ns(rails, slow, between(rails)) == time_ns(rails, server().model, between(rails))
    packets = run(rails, slow, small, engine=Engine.PACKETS)
    assert any("costs.message has no effect" in text for text in packets.warnings)


SLOWER: list[tuple[str, dict[str, Any]]] = [
    ("launch", {"launch": "20us"}),
    ("step", {"step": "30us"}),
    ("latency", {"latency": "9us"}),
    ("bandwidth", {"bandwidth": "50GB/s"}),
    ("cap", {"cap": "100G"}),
]


@pytest.mark.parametrize(("name", "change"), SLOWER, ids=lambda part: str(part))
@pytest.mark.parametrize("pattern", ["allreduce", "alltoall", "broadcast"])
def test_no_slower_host_makes_a_job_faster(
    rails: LabSpec, pattern: str, name: str, change: dict[str, Any]
) -> None:
    usual: dict[str, Any] = {
        "launch": "8us",
        "step": "14us",
        "latency": "3us",
        "bandwidth": "100GB/s",
        "cap": "300G",
    }
    slower = server(**{**usual, **change}).model
    for ranks in (4, 8):
        way = RING if pattern == "allreduce" else {}
        job = {"pattern": pattern, "ranks": ranks, "size": "64MB", **way}
        before, after = time_ns(rails, server(**usual).model, job), time_ns(rails, slower, job)
        # On one server nothing waits for a NIC; on two NVLink waits for NICs, and a later send may
        # meet fewer others on a link.
        is_felt = (name in ("latency", "bandwidth", "launch")) == (ranks == 4) or name == "launch"
        assert after > before if is_felt else after > 0.99 * before


@pytest.mark.parametrize(
    ("pattern", "algorithm", "most"),
    [
        ("allreduce", None, 0.05),
        ("alltoall", "direct", 0.05),
        ("alltoall", "hierarchical", 0.05),
        ("alltoall", "pxn", 0.13),
    ],
)
def test_packets_take_what_a_fluid_takes(
    rails: LabSpec, pattern: str, algorithm: str | None, most: float
) -> None:
    """A relay has a piece before it sends it: a quarter of what it gets from each here."""
    model = server(launch="8us", step="14us", bandwidth="100GB/s", latency="3us", cap="384G").model
    job = {"pattern": pattern, "algorithm": algorithm, "ranks": 8, "size": "4MB"}
    fluid = time_ns(rails, model, job)
    assert time_ns(rails, model, job, engine=Engine.PACKETS) == pytest.approx(fluid, rel=most)


def test_packets_on_one_server_mark_nothing_and_meet_no_switch(rails: LabSpec) -> None:
    model = server(bandwidth="100GB/s", latency="3us").model
    job = {"pattern": "incast", "ranks": 4, "size": "4MB"}
    report = run(rails, model, job, engine=Engine.PACKETS)
    assert report.packets is not None
    assert report.packets.marks == report.packets.drops == len(report.packets.queues) == 0
    time = report.jobs[0].headline("iteration_time").modelled.median
    assert time == pytest.approx(3 * US + 12e6 / 100, rel=0.02)


def test_links_by_themselves_take_what_packets_take(rails: LabSpec) -> None:
    model = server(step="14us", bandwidth="100GB/s", latency="3us", cap="384G").model
    poisson = {"sizes": "websearch", "load": "30%", "duration": "200us"}
    jobs = (SimulatedJob.model_validate({"name": "p", "poisson": poisson}),)
    medians = []
    for engine in (Engine.PACKETS, Engine.LINKS):
        report = simulate(rails, jobs, Options(host_model=model, engine=engine))
        assert report.flow_times is not None
        assert report.flow_times.slowdown.p50 >= 1
        medians.append(report.flow_times.time_ns.p50)
    assert medians[1] == pytest.approx(medians[0], rel=0.1)


def test_a_lab_s_hosts_and_a_host_model_exclude_each_other(rails: LabSpec) -> None:
    with pytest.raises(InputError, match="ports of a lab and a host model"):
        run(rails, server().model, PAIR, engine=Engine.PACKETS, ports=PortModel.LAB)


@pytest.mark.parametrize(("ranks", "uneven"), [(8, False), (6, True)])
def test_servers_that_ranks_do_not_fill_evenly_are_warned_of(
    rails: LabSpec, ranks: int, uneven: bool
) -> None:
    job = {"pattern": "allreduce", "ranks": ranks, "size": "64MB"}
    warnings = run(rails, server().model, job).warnings
    assert any("other numbers of ranks" in text for text in warnings) is uneven


def test_servers_have_as_many_nics_as_the_model_says(rails: LabSpec) -> None:
    with pytest.raises(InputError, match=r"has 8 NICs a server, and servers of rail-small have 4"):
        run(rails, server(gpus=8, nics=8).model, PAIR)


def test_results_say_in_their_first_line_what_hosts_were_taken_for(rails: LabSpec) -> None:
    for model, words in ((None, TIMELESS), (server().model, "hosts as four")):
        report = run(rails, model, PAIR)
        document = simulation_document(report)
        assert document.title == f"Simulation of rail-small, {words}"
        assert document.card is not None and words in document.card.sentence[:40].lower()
        assert json.loads(to_json(report))["method"]["hosts"] == words


def test_the_cost_of_a_failure_says_it_too(rails: LabSpec) -> None:
    jobs = (collective_job(JobSpec.model_validate({**PAIR, "ranks": 16, "pattern": "allreduce"})),)
    event = parse_event("drain spine1 for 1m")
    for model, words in ((None, TIMELESS), (server().model, "hosts as four")):
        cost = event_cost(rails, jobs, event, Options(host_model=model))
        assert what_if_document(cost).title.endswith(words)


def test_a_failure_of_the_network_does_not_reach_nvlink(rails: LabSpec) -> None:
    model = server(bandwidth="100GB/s", latency="3us").model
    simulation = Simulation(
        rails,
        (
            collective_job(
                JobSpec.model_validate({"pattern": "allreduce", "ranks": 8, "size": "8MB"})
            ),
        ),
        Options(host_model=model),
    )
    up = np.ones(simulation.network.links, np.bool_)
    usual = simulation.iteration_times(up, simulation.network.capacity_bps)
    dead = simulation.iteration_times(up, np.zeros(simulation.network.sends))
    assert np.isfinite([*usual.values()]).all() and np.isinf([*dead.values()]).all()
    alone = Simulation(
        rails,
        (
            collective_job(
                JobSpec.model_validate({"pattern": "allreduce", "ranks": 4, "size": "8MB"})
            ),
        ),
        Options(host_model=model),
    )
    assert np.isfinite(
        [*alone.iteration_times(up, np.zeros(simulation.network.sends)).values()]
    ).all()


def test_a_lab_and_a_job_may_name_the_model_and_an_option_beats_both(rails: LabSpec) -> None:
    slow, fast = server(name="slow", launch="1ms"), server(name="fast", launch="1us")
    spec = rails.model_copy(update={"host_model": slow})
    job = JobSpec.model_validate(PAIR)
    of_job = job.model_copy(update={"host_model": fast})
    cases: list[tuple[JobSpec, HostModelSpec | None, str]] = [
        (job, None, "slow"),
        (of_job, None, "fast"),
        (of_job, slow, "slow"),
    ]
    for asked, option, name in cases:
        model = None if option is None else option.model
        report = simulate(spec, (collective_job(asked),), Options(host_model=model))
        assert report.method.hosts == f"hosts as {name}"


def test_jobs_of_several_types_of_servers_are_refused(rails: LabSpec) -> None:
    job = collective_job(JobSpec.model_validate(PAIR))
    with_model = job.model_copy(update={"host_model": server(), "name": "other"})
    with pytest.raises(InputError, match="host_model differs"):
        simulate(rails, (job, with_model), Options())


def test_assumed_figures_are_warned_of(rails: LabSpec) -> None:
    model = replace(server().model, assumed=("costs.step",))
    assert any("costs.step are assumed" in text for text in run(rails, model, PAIR).warnings)


def test_the_terminal_begins_with_it(rails: LabSpec, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    print_document(simulation_document(run(rails, None, PAIR)), Console(width=200))
    assert TIMELESS in capsys.readouterr().out.splitlines()[0]
