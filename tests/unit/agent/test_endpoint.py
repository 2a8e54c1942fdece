"""Servers of planned jobs over links in memory: from sends of a schedule to frames and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from rocelab.agent.demux import Demux
from rocelab.agent.endpoint import Endpoint
from rocelab.agent.nic import NEVER_NS, FrameOutlet
from rocelab.agent.rc.responder import NAK_SEQUENCE
from rocelab.base.family import Family
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_job, plan_jobs
from rocelab.jobs.served import Carried
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.runs.workloadfigures import (
    iteration_times_ns,
    workload_figures,
    workload_headlines,
)
from rocelab.traffic.jobparts import parts_of
from rocelab.traffic.jobresult import JobResult, read_jobs
from rocelab.wire.headers import IP_OFFSET
from tests.helpers.rc_fakes import MS, Copy, FakeOutlet, FakeRing, Fate, Link
from tests.unit.hosts.servers import server as type_of_server

DILATION = 1000
STEP_NS = 200_000
LIMIT_NS = 20_000 * MS


def fabric() -> Fabric:
    shape = {"kind": "clos", "racks": 2, "servers_per_rack": 2, "nics_per_server": 1}
    return build_fabric(
        LabSpec.model_validate({"name": "t", "dilation": DILATION, "fabric": shape})
    )


class Servers:
    """Every server of jobs that run at once with its endpoint, and a link into each."""

    def __init__(self, plans: Sequence[JobPlan], fates: Mapping[str, list[Fate]]) -> None:
        self.plans = plans
        self.plan = plans[0]
        self.told: list[dict[str, object]] = []
        self.links: dict[str, Link] = {}
        self.rings: dict[str, FakeRing] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.demuxes: dict[str, Demux] = {}
        self._by_address: dict[bytes, str] = {}
        for server, part in parts_of(plans).items():
            self.links[server] = Link(fates.get(server, []), repeats=True)
            self.rings[server] = FakeRing()
            for port in self.plan.fabric.nics(server):
                self._by_address[bytes(map(int, port.ip.split(".")))] = server
            endpoint = Endpoint(part.fields, part.frames, self._outlet, self.told.append)
            self.endpoints[server] = endpoint
            self.demuxes[server] = Demux(
                self.rings[server],  # type: ignore[arg-type]
                Family.IPV4,
                endpoint.queue_pairs,
                endpoint.on_message,
                endpoint.on_acknowledged,
            )
        self.now_ns = 0

    def _outlet(self, interface: str) -> FrameOutlet:
        return FakeOutlet(self._deliver)  # type: ignore[return-value]

    def _deliver(self, frames: list[bytes]) -> None:
        for frame in frames:
            server = self._by_address[frame[IP_OFFSET + 16 : IP_OFFSET + 20]]
            self.links[server].enter([frame])

    def run(self, until: Callable[[], bool]) -> None:
        for endpoint in self.endpoints.values():
            endpoint.start(STEP_NS)
        while not until():
            assert self.now_ns < LIMIT_NS, "it goes on for ever"
            self.now_ns += STEP_NS
            for link in self.links.values():
                link.now_ns = self.now_ns
            for server, endpoint in self.endpoints.items():
                self.links[server].leave(self.rings[server])
                self.demuxes[server].drain(self.now_ns)
                while endpoint.turn(self.now_ns) <= self.now_ns:
                    pass

    @property
    def idle(self) -> bool:
        return all(endpoint.idle for endpoint in self.endpoints.values())

    def pairs(self) -> list[Mapping[str, Mapping[str, int]]]:
        return [
            pair
            for endpoint in self.endpoints.values()
            for pair in endpoint.report()[0]["queue_pairs"]  # type: ignore[attr-defined]
        ]

    def total(self, half: str, name: str) -> int:
        return sum(pair[half][name] for pair in self.pairs())

    def check(self) -> None:
        assert all(pair["error"] is None for pair in self.pairs())
        posted = self.total("requester", "posted_bytes")
        assert posted == self.total("requester", "acked_bytes") == self.total("responder", "bytes")
        done = Counter((m["rank"], m["iteration"]) for m in self.told)
        assert done == Counter(
            (rank, iteration)
            for plan in self.plans
            for rank in range(plan.ranks)
            for iteration in range(plan.iterations)
        )
        assert posted == sum(planned_bytes(plan) for plan in self.plans)

    def results(self) -> tuple[JobResult, ...]:
        reports = {server: endpoint.report() for server, endpoint in self.endpoints.items()}
        fields = {server: report[0] for server, report in reports.items()}
        columns = {server: report[1] for server, report in reports.items()}
        return read_jobs(self.plans, fields, columns, STEP_NS)


def planned_bytes(plan: JobPlan) -> int:
    assert plan.schedule is not None
    return sum(send.size_bytes for send in plan.schedule.sends) * plan.iterations


def servers(fates: Mapping[str, list[Fate]] | None = None, **keys: object) -> Servers:
    values: dict[str, object] = {"pattern": "allreduce", "ranks": 4, "size": "200KB"}
    values |= {"iterations": 3, "warmup_iterations": 1}
    return Servers([plan_job(fabric(), JobSpec.model_validate(values | keys))], fates or {})


LOSSY: list[Fate] = [
    *[(Copy(100_000),)] * 17,
    (),
    *[(Copy(100_000),)] * 12,
    (Copy(100_000), Copy(900_000)),
    (Copy(2 * MS, is_marked=True),),
]


@pytest.mark.parametrize("pattern", ["allreduce", "alltoall", "gather", "broadcast", "incast"])
@pytest.mark.parametrize(
    "transport",
    [
        {},
        {"qps": 3, "strategy": "split", "admission": True},
        {"qps": 4, "dcqcn": "sigcomm15", "mtu": 1024, "window": 40},
    ],
    ids=["plain", "split with admission", "DCQCN"],
)
def test_a_job_ends_with_every_byte_posted_acknowledged_and_delivered_over_bad_links(
    pattern: str, transport: dict[str, object]
) -> None:
    lab = servers(
        {"srv1-1": LOSSY, "srv2-2": LOSSY},
        pattern=pattern,
        transport=transport,
    )
    count = lab.plan.iterations * lab.plan.ranks
    lab.run(lambda: len(lab.told) >= count and lab.idle)
    lab.check()
    assert lab.total("requester", "retransmitted") > 0


def test_over_links_that_harm_nothing_nothing_is_sent_twice() -> None:
    lab = servers(transport={"qps": 2})
    count = lab.plan.iterations * lab.plan.ranks
    lab.run(lambda: len(lab.told) >= count and lab.idle)
    lab.check()
    assert lab.total("requester", "retransmitted") == 0
    assert lab.total("requester", "packets") == lab.total("responder", "packets")


def jobs_at_once(fates: Mapping[str, list[Fate]], *jobs: dict[str, object]) -> Servers:
    return Servers(plan_jobs(fabric(), [JobSpec.model_validate(job) for job in jobs]), fates)


def test_jobs_that_share_every_nic_end_with_every_byte_of_each_delivered_once() -> None:
    lab = jobs_at_once(
        {"srv1-1": LOSSY, "srv2-2": LOSSY},
        {"pattern": "incast", "ranks": 4, "size": "200KB", "iterations": 3},
        {
            "pattern": "broadcast",
            "ranks": 4,
            "size": "300KB",
            "iterations": 2,
            "transport": {"qps": 2, "strategy": "split", "admission": True},
        },
    )
    lab.run(lambda: len(lab.told) >= 4 * (4 + 3) and lab.idle)
    lab.check()
    results = lab.results()
    assert [result.problems for result in results] == [(), ()]
    assert [len(result.iteration_ns) for result in results] == [3, 2]
    for result in results:
        assert [rank.rank for rank in result.ranks] == [0, 1, 2, 3]
        assert result.posted_bytes == result.delivered_bytes == planned_bytes(result.plan)


def test_a_stream_beside_a_collective_ends_at_its_own_time() -> None:
    lab = jobs_at_once(
        {},
        {"pattern": "incast", "ranks": 4, "duration": "20us", "transport": {"message": "16KiB"}},
        {"pattern": "allreduce", "ranks": 4, "size": "2MB", "iterations": 3},
    )
    lab.run(lambda: len(lab.told) >= 4 * 4 and lab.idle)
    streams, allreduce = lab.results()
    assert allreduce.ranks[0].ended_ns[-1] > 10 * streams.plan.duration_ns
    nics_bytes = 3 * streams.plan.lab_rate_bps(0) / 8 * streams.plan.duration_ns / 1e9
    outstanding = 2 * 3 * 16 * 1024
    assert 0 < streams.posted_bytes < nics_bytes + outstanding
    assert streams.posted_bytes == streams.delivered_bytes


def test_a_queue_pair_that_fails_ends_all_jobs_and_is_named_with_its_own() -> None:
    lab = jobs_at_once(
        {"srv2-1": [()]},
        {"pattern": "pairs", "ranks": 2, "size": "64KB"},
        {
            "pattern": "pairs",
            "ranks": 2,
            "size": "64KB",
            "placement": ["srv1-2", "srv2-1"],
            "transport": {"retries": 1},
        },
    )
    lab.run(lambda: lab.idle and lab.now_ns > 50 * MS)
    first, second = lab.results()
    assert first.errors == second.errors
    assert "of job 2 of rank 0 (srv1-2:1) to rank 1 (srv2-1:1) is in error" in first.errors[0]
    assert not len(first.iteration_ns)


def test_a_dead_link_is_told_once_for_each_queue_pair_that_fails() -> None:
    lab = servers({"srv1-1": [()]}, transport={"retries": 2})
    lab.run(lambda: lab.idle and lab.now_ns > 50 * MS)
    failed = [message["queue_pair"] for message in lab.told if "error" in message]
    assert len(failed) == len(set(failed)) > 0
    assert all("not acknowledged after 2 retries" in str(message["error"]) for message in lab.told)


def test_a_queue_pair_that_naks_ended_is_told_too() -> None:
    lab = servers(transport={"retries": 0})
    lab.run(lambda: lab.now_ns >= STEP_NS)
    endpoint = lab.endpoints["srv1-1"]
    pair = next(pair for pair in endpoint.queue_pairs.values() if not pair.requester.idle)
    assert pair.requester.next > pair.requester.una
    pair.on_ack(pair.requester.una & 0xFFFFFF, NAK_SEQUENCE, lab.now_ns)
    endpoint.turn(lab.now_ns + pair.requester.settings.ack_timeout_ns)
    assert [m["queue_pair"] for m in lab.told if "error" in m] == [pair.number]


def test_a_server_without_a_job_has_nothing_to_do() -> None:
    fields = {"frame_bytes": 0, "sample_ns": 0, "nics": [], "queue_pairs": [], "ranks": []}
    fields |= {"local_bps": 0.0, "is_mesh": False, "tcp": {"kinds": []}}
    endpoint = Endpoint(fields, [], lambda interface: pytest.fail(interface), lambda message: None)
    assert endpoint.turn(5) == NEVER_NS
    assert endpoint.idle
    endpoint.stop()
    report, _ = endpoint.report()
    assert report["nics"] == report["queue_pairs"] == report["ranks"] == []


def test_ranks_of_one_server_send_each_other_no_packet_and_end_with_every_byte() -> None:
    shape = {"kind": "clos", "racks": 2, "servers_per_rack": 1, "nics_per_server": 2}
    two = LabSpec.model_validate({"name": "t", "dilation": DILATION, "fabric": shape})
    hosts = type_of_server(gpus=2, nics=2, launch="8us", step="14us", latency="3us")
    keys = {"pattern": "alltoall", "algorithm": "direct", "ranks": 4, "size": "400KB"}
    keys |= {"iterations": 2, "warmup_iterations": 0}
    job = JobSpec.model_validate(keys | {"host_model": hosts})
    lab = Servers([plan_job(build_fabric(two), job)], {})
    lab.run(lambda: len(lab.told) >= 8 and lab.idle)
    over_network = lab.plan.over_network
    assert over_network is not None
    # Each rank sends two of the three others over the network.
    assert len(over_network.sends) == 8
    assert lab.total("requester", "posted_bytes") == 8 * 100_000 * 2
    (result,) = lab.results()
    assert not result.problems
    assert all(rank.received_bytes == 3 * 100_000 * 2 for rank in result.ranks)
    # 22 us before the first packet leaves, and its bytes at 400 Gb/s, on a clock 1,000 times slow.
    assert result.iteration_ns.min() > 1000 * (22_000 + 200_000 * 8 / 400)


SMALL = {
    "model": {
        "block": "llama",
        "hidden": 64,
        "layers": 4,
        "heads": 4,
        "ffn": 128,
        "vocab": 1000,
        "sequence": 64,
    },
    "pipeline": 2,
    "data": 2,
    "micro_batches": 4,
    "gpu_flops": "100G",
}


def workloads(fates: Mapping[str, list[Fate]], *jobs: dict[str, object]) -> Servers:
    return Servers(plan_jobs(fabric(), [SimulatedJob.model_validate(job) for job in jobs]), fates)


def ended(lab: Servers) -> bool:
    rows = sum(plan.ranks * plan.iterations for plan in lab.plans)
    return len(lab.told) >= rows and lab.idle


def test_flows_begin_at_their_times_on_queue_pairs_of_their_own_over_bad_links() -> None:
    poisson = {"sizes": "fb-hadoop", "load": "20%", "duration": "20us"}
    lab = workloads(
        {"srv1-1": LOSSY}, {"name": "p", "poisson": poisson, "start": "5us", "iterations": 1}
    )
    lab.run(lambda: ended(lab))
    lab.check()
    (result,) = lab.results()
    schedule = lab.plan.schedule
    assert schedule is not None and result.steps is not None
    begin_ns = int(result.ranks[0].began_ns[0])
    assert 0 <= begin_ns - 5_000 * DILATION < STEP_NS
    due_ns = np.array([round(send.at_ns * DILATION) for send in schedule.sends])
    assert (result.steps.posted_ns[0] - begin_ns == due_ns).all()
    assert len(lab.plan.ends) == 2 * len(schedule.sends) > 4
    figures = workload_figures(result, {})
    assert figures is not None and figures.flow_times is not None
    assert figures.flow_times.transfers == len(schedule.sends)


def test_ranks_of_a_training_job_compute_before_they_send_and_after_the_last() -> None:
    lab = workloads({}, {"name": "t", "iterations": 2, "training": SMALL})
    lab.run(lambda: ended(lab))
    lab.check()
    (result,) = lab.results()
    plan = lab.plan
    assert plan.of_workload is not None and plan.least_ns is not None
    # Links without a rate add their latency to each step on the longest chain.
    assert (result.iteration_ns >= plan.least_ns * DILATION * 0.9).all()
    computed_ns = sum(step.compute_s for step in plan.of_workload.workload.steps) * 1e9
    assert plan.longest_wait_ns <= computed_ns
    figures = workload_figures(result, {})
    assert figures is not None
    steps = {step.name: step for step in figures.steps}
    first, last = steps["pass forward 0"], steps["pass backward 1"]
    assert first.start_ns is not None and first.end_ns is not None and last.start_ns is not None
    assert 0 < first.start_ns < first.end_ns < last.start_ns
    assert {line.name for line in workload_headlines(result)} >= {"iteration_time", "tokens"}


def test_storage_is_written_at_its_interval_beside_the_job_whose_ranks_write() -> None:
    ranks = ["srv1-1", "srv1-2"]
    ring = {"pattern": "allreduce", "ranks": 2, "size": "100KB", "placement": ranks}
    saved = {"of": "train", "size": "10KB", "storage": ["srv2-2"], "every": "30us"}
    lab = workloads(
        {},
        {"name": "train", "collective": ring},
        {"name": "save", "iterations": 3, "checkpoint": saved},
    )
    lab.run(lambda: ended(lab))
    lab.check()
    _, save = lab.results()
    assert [str(place) for place in save.plan.places] == ["srv1-1:1", "srv1-2:1", "srv2-2:1"]
    assert save.steps is not None
    begun_us = (save.steps.posted_ns[0] - save.steps.posted_ns[0].min()) / (1000 * DILATION)
    assert sorted(set(begun_us.round(3).tolist())) == [0, 30, 60]
    assert len(iteration_times_ns(save)) == 3


def test_requests_feel_when_their_caches_were_over() -> None:
    model = SMALL["model"]
    serving = {"model": model, "gpu": "h100", "prefill": 2, "decode": 2, "ttft": "1s"}
    requests = {"duration": "200us", "rate": 50_000, "prompt": {"p50": 8, "p99": 16}}
    requests["output"] = {"p50": 4, "p99": 8}
    lab = workloads({}, {"name": "chat", "serving": {**serving, "requests": requests}})
    lab.run(lambda: ended(lab))
    lab.check()
    (result,) = lab.results()
    figures = workload_figures(result, {})
    assert figures is not None and figures.served is not None
    carried, none = (figures.served.by(network) for network in (Carried.CARRIED, Carried.NONE))
    assert carried.answered == figures.served.requests > 1
    assert carried.goodput == 1
    ttft_ns = carried.latency("ttft").p50_ns, none.latency("ttft").p50_ns
    assert ttft_ns[0] is not None and ttft_ns[1] is not None and ttft_ns[0] > ttft_ns[1]
    assert {"ttft_p99", "itl_p99"} <= {line.name for line in workload_headlines(result)}
