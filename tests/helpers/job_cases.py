"""Reports of jobs computed by hand for `rocelab.diagnose`: a send takes 100 ms, or more if told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from rocelab.base.documents import to_json
from rocelab.diagnose.diagnose import diagnose_report
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_job
from rocelab.jobs.patterns.base import Send
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import DirectedLink, Direction, Fabric
from rocelab.prediction.matrix import FlowRow, rows_of_jobs
from rocelab.prediction.predictor import Setting, paths_on
from rocelab.results.diagnosis import Diagnosis
from rocelab.results.job import (
    Clock,
    FlowFigures,
    Goodput,
    HostStall,
    JobFidelity,
    JobReport,
    LinkFigures,
    QueueFigures,
    RankFigures,
    StepRecords,
    Times,
    Transport,
)
from rocelab.results.job import from_json as read_report
from tests.helpers.job_sample import ENVIRONMENT

MS = 10**6
DILATION = 1000.0
STEP_MS = 100
ITERATIONS = 4
Late = Callable[[int, Send], int]
"""How many ms longer a send of an iteration takes."""


def on_time(iteration: int, send: Send) -> int:
    return 0


def fabric(scheme: str = "ecmp") -> Fabric:
    shape = {"kind": "clos", "racks": 4, "spines": 2, "servers_per_rack": 2}
    return plan(
        LabSpec.model_validate(
            {"name": "t", "dilation": DILATION, "fabric": shape, "scheme": scheme}
        )
    )


@lru_cache
def planned(scheme: str = "ecmp", placement: str = "fragmented", qps: int = 4) -> JobPlan:
    return plan_job(
        fabric(scheme),
        JobSpec.model_validate(
            {
                "pattern": "allreduce",
                "ranks": 8,
                "size": "4MB",
                "iterations": ITERATIONS,
                "warmup_iterations": 0,
                "placement": placement,
                "transport": {"qps": qps},
            }
        ),
    )


def steps(job: JobPlan, late: Late = on_time) -> StepRecords:
    """Each send begins when the last that it waits for has come, and takes 100 ms and `late`."""
    assert job.schedule is not None
    posted, arrived, began, ended = [], [], [], []
    start = 0
    for iteration in range(ITERATIONS):
        at, came = [0] * len(job.schedule.sends), [0] * len(job.schedule.sends)
        for send in job.schedule.sends:
            at[send.id] = max((came[before] for before in send.after), default=start)
            came[send.id] = at[send.id] + (STEP_MS + late(iteration, send)) * MS
        over = [start] * job.ranks
        for send in job.schedule.sends:
            for rank in (send.source, send.destination):
                over[rank] = max(over[rank], came[send.id])
        posted.append(tuple(at))
        arrived.append(tuple(came))
        began.append((start,) * job.ranks)
        ended.append(tuple(over))
        start = max(over)
    return StepRecords(0, tuple(began), tuple(ended), tuple(posted), tuple(arrived), tuple(arrived))


def flows(
    job: JobPlan, lost: Callable[[tuple[DirectedLink, ...]], int] = lambda ways: 0
) -> Sequence[FlowFigures]:
    """1,000 packets of each queue pair with data; `lost` says how many NAKs by their way."""
    ends = {end.number: end for end in job.ends}
    rows = rows_of_jobs([job])
    ways = paths_on(job.fabric, rows, Setting())
    flows = {(end.remote, end.sport): end for end in job.ends}
    figures = []
    for row, way in zip(rows, ways, strict=True):
        end = flows[row.dest_qp, row.sport]
        far = ends[end.remote]
        naks = lost(way)
        figures.append(
            FlowFigures(
                rank=end.rank,
                peer=end.peer,
                sport=end.sport,
                dest_qp=end.remote,
                port=end.port,
                acks_sport=far.sport,
                acks_qp=end.number,
                acks_port=far.port,
                bytes=4_000_000,
                packets=1000,
                messages=10,
                retransmitted=30 * naks,
                naks=naks,
                timeouts=0,
                cnps=0,
                out_of_order=30 * naks,
                duplicates=0,
                ce=0,
                rtt_p50_ns=None,
                rtt_p99_ns=None,
            )
        )
    return figures


def report(
    job: JobPlan,
    *,
    late: Late = on_time,
    sent: Sequence[FlowFigures] | None = None,
    stalls: tuple[HostStall, ...] = (),
    queues: tuple[QueueFigures, ...] = (),
    foreign_packets: dict[DirectedLink, int] | None = None,
) -> JobReport:
    """The report that `rocelab traffic` would have written; links carry the flows and foreign
    traffic."""
    sent = flows(job) if sent is None else sent
    packets: dict[DirectedLink, int] = {}
    places = job.places
    rows = [
        FlowRow(places[f.rank], places[f.peer], f.sport, f.dest_qp, leaves_by=f.port) for f in sent
    ]
    for flow, way in zip(sent, paths_on(job.fabric, rows, Setting()), strict=True):
        for link in way:
            packets[link] = packets.get(link, 0) + flow.packets
    for link, more in (foreign_packets or {}).items():
        packets[link] += more
    times = Times(0.0, 0.0)
    return JobReport(
        schema_version=2,
        job=job.job.model_dump(mode="json", exclude_none=True),
        lab=job.fabric.spec.model_dump(mode="json", exclude_none=True),
        environment=ENVIRONMENT,
        clock=Clock(DILATION),
        warnings=(),
        problems=(),
        errors=(),
        fidelity=JobFidelity(0.0, 0, 0, 0.0, 0.0, 0.0, 0, 0),
        headlines=(),
        iterations=(),
        roofline=None,
        completion=None,
        ranks=tuple(
            RankFigures(rank, str(place), None, 0, 0, 0) for rank, place in enumerate(places)
        ),
        transport=Transport(*[0] * 17),
        round_trips=None,
        queue_engine="bpf",
        queues=queues,
        links=tuple(
            LinkFigures(link.name, "", Direction.UP, link.sender, count, 4154 * count, None)
            for link, count in packets.items()
        ),
        tiers=(),
        goodput=Goodput(times, ()),
        fairness=None,
        accounting=(),
        flows=tuple(sent),
        steps=steps(job, late),
        stalls=stalls,
    )


def diagnosed(written: JobReport) -> Diagnosis:
    """The diagnosis of the document in a file."""
    return diagnose_report(read_report(to_json(written)))[0]


def queue(
    way: DirectedLink, *, marked: float, mean: float = 500_000, dropped: int = 0
) -> QueueFigures:
    """The queue before a link."""
    port = way.port
    return QueueFigures(
        port.node, port.interface, 3, 1000, 4_154_000, int(1000 * marked), dropped, 0, 10**6, mean
    )


def uplinks(job: JobPlan) -> list[DirectedLink]:
    """The ways between switches that the job's data crosses, most used first."""
    count: dict[DirectedLink, int] = {}
    for ways in paths_on(job.fabric, rows_of_jobs([job]), Setting()):
        for way in ways[1:-1]:
            count[way] = count.get(way, 0) + 1
    return sorted(count, key=lambda way: (-count[way], way.name, way.sender))


def over(way: DirectedLink, job: JobPlan) -> set[tuple[int, int]]:
    """Ranks whose data crosses a way."""
    rows = rows_of_jobs([job])
    ranks = {place: rank for rank, place in enumerate(job.places)}
    return {
        (ranks[row.source], ranks[row.destination])
        for row, ways in zip(rows, paths_on(job.fabric, rows, Setting()), strict=True)
        if way in ways
    }


def late_over(way: DirectedLink, job: JobPlan, ms: int) -> Late:
    pairs = over(way, job)
    return lambda iteration, send: ms if (send.source, send.destination) in pairs else 0
