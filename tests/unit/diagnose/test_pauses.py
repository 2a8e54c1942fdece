"""Who made a job wait with pauses: verdicts from pauses made by hand, one cause at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.documents import to_json
from rocelab.diagnose.diagnose import finding_of
from rocelab.diagnose.pauses import FAN_IN, LINE_RATE, Stops
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_job
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Direction, Fabric
from rocelab.planning.pauses import plan_pauses
from rocelab.planning.queues import lab_rate_bps
from rocelab.report.jobs.plots import pauses_plot
from rocelab.report.jobs.tables import propagation_table
from rocelab.report.jobs.text import lossless_text
from rocelab.results.diagnosis import Cause, CauseVerdict, Diagnosis
from rocelab.results.job import JobReport, LinkFigures
from rocelab.results.lossless import Lossless, PauseFigures, PauseSpan
from tests.helpers.directed import sent_by
from tests.helpers.job_cases import DILATION, MS, STEP_MS, diagnosed, flows, queue, report
from tests.unit.conftest import CommandLine

ALL = tuple(f"srv{rack}-{server}" for rack in (1, 2) for server in (1, 2, 3))
SLOW = "srv2-1"
OTHERS = tuple(name for name in ALL if name != SLOW)
RUN_MS = 2000


@lru_cache
def fabric(pfc: bool = True) -> Fabric:
    spec = {
        "name": "t",
        "dilation": DILATION,
        "fabric": {"kind": "clos", "racks": 2, "spines": 2, "servers_per_rack": 3},
        "queues": {"pfc": {}} if pfc else {},
    }
    return plan(LabSpec.model_validate(spec))


@lru_cache
def planned(ranks: tuple[str, ...] = ALL, pattern: str = "alltoall") -> JobPlan:
    job = {
        "pattern": pattern,
        "ranks": len(ranks),
        "size": "4MB",
        "iterations": 4,
        "warmup_iterations": 0,
        "placement": list(ranks),
        "transport": {"qps": 2},
        **({"in_flight": 1} if pattern == "alltoall" else {}),
    }
    return plan_job(fabric(), JobSpec.model_validate(job))


def span(node: str, peer: str, begin_ms: int, end_ms: int | None, number: int = 3) -> PauseSpan:
    """A pause that `peer` asked `node` for."""
    end_ns = None if end_ms is None else end_ms * MS
    return PauseSpan(node, peer, number, peer, begin_ms * MS, end_ns)


def figures(node: str, peer: str, **counts: int | None) -> PauseFigures:
    fields = dict.fromkeys(PauseFigures.__dataclass_fields__, 0)
    named = {"node": node, "interface": peer, "peer": peer, "traffic_class": 3}
    least: dict[str, object] = {"least_held_bytes": None}
    return PauseFigures(**(fields | least | named | counts))  # type: ignore[arg-type]


def buffer_of(server: str) -> tuple[int, int]:
    """Where a NIC asks for a pause and takes it back, in bytes."""
    pauses = plan_pauses(fabric())
    assert pauses is not None
    (port,) = pauses.ports_of[server]
    assert port.buffer is not None
    return port.buffer.full, port.buffer.empty


def paused(
    job: JobPlan,
    spans: Sequence[PauseSpan],
    *,
    least_held: int | None = None,
    carried: dict[str, float] | None = None,
    written: JobReport | None = None,
) -> JobReport:
    """A report of a job with these pauses. least_held: by the NIC of SLOW, when it asked. carried:
    for how many ms the port towards each server was busy, 1 ms if left out; None: by the job."""
    servers = {node.name for node in fabric().servers}
    ports = [
        figures(
            directed_link.sender,
            directed_link.port.interface,
            packets=int(directed_link.sender not in servers),
        )
        for directed_link in fabric().directed_links
    ]
    ports = [
        replace(port, least_held_bytes=least_held) if port.node == SLOW else port for port in ports
    ]
    whole = report(job) if written is None else written
    seen = {(link.link, link.sender): link for link in whole.links}
    for way in fabric().directed_links:
        if way.receiver in servers and carried is not None:
            busy_ms = carried.get(way.receiver, 1.0)
            size = round(busy_ms * lab_rate_bps(way.link, DILATION) / 8 / 1000)
            unused = LinkFigures(way.name, "", Direction.DOWN, way.sender, 0, 0, None)
            seen[way.name, way.sender] = replace(
                seen.get((way.name, way.sender), unused), bytes=size
            )
    lossless = Lossless(
        (3,), tuple(ports), tuple(spans), 0, MS, None, None, None, (), is_alive=True
    )
    fidelity = replace(whole.fidelity, elapsed_s=RUN_MS / 1000)
    return replace(whole, links=tuple(seen.values()), lossless=lossless, fidelity=fidelity)


def every(diagnosis: Diagnosis) -> dict[Cause, CauseVerdict]:
    return {other.cause: other for other in (diagnosis.verdict, *diagnosis.others)}


BACK_PRESSURE = (
    span("rtsw2", SLOW, 0, 600),
    span("ctsw1", "rtsw2", 100, 500),
    span("ctsw2", "rtsw2", 100, 500),
    span("rtsw1", "ctsw1", 200, 400),
    span("rtsw1", "ctsw2", 200, 400),
    span("rtsw2", SLOW, 1000, 1600),
)
INCAST = (
    span("ctsw1", "rtsw2", 0, 300),
    span("ctsw2", "rtsw2", 0, 300),
    span("srv2-2", "rtsw2", 0, 300),
    span("srv2-3", "rtsw2", 0, 300),
)


def test_a_receiver_whose_buffer_fills_is_slow_and_the_report_names_the_same_root() -> None:
    full, _ = buffer_of(SLOW)
    written = paused(planned(), BACK_PRESSURE, least_held=full)
    diagnosis = diagnosed(written)
    verdict = diagnosis.verdict
    assert (verdict.cause, verdict.server, verdict.subject) == (Cause.SLOW_RECEIVER, SLOW, SLOW)
    assert verdict.ranks == (ALL.index(SLOW),)
    assert [(link.sender, link.receiver) for link in verdict.links] == [("rtsw2", SLOW)]
    assert "2 pauses, 1,200 ms of the lab in all and 600 ms at once" in verdict.evidence[0]
    ((root, _, _, tree),) = propagation_table(written).rows
    assert root == SLOW
    assert verdict.evidence[-1].endswith(str(tree))


def test_every_view_of_single_pauses_says_that_short_ones_were_left_out() -> None:
    whole = paused(planned(), BACK_PRESSURE)
    assert whole.lossless is not None
    left_out = replace(whole, lossless=replace(whole.lossless, spans_left_out=994))
    for written, says in ((whole, False), (left_out, True)):
        plot = pauses_plot(written)
        assert plot is not None
        notes = " ".join(diagnosed(written).notes)
        for view in (lossless_text(written), plot.axes[0].get_title("left"), notes):
            assert ("the 6 longest of 1,000 pauses" in view) == says


def test_the_lateness_of_nics_is_shown_beside_that_of_all_ports() -> None:
    whole = paused(planned(), BACK_PRESSURE)
    assert whole.lossless is not None
    late = replace(whole.lossless, late_p50_ns=1000, late_p99_ns=9000, nics_late_p99_ns=5000)
    assert "(p99 9 us, of NICs 5 us)" in lossless_text(replace(whole, lossless=late))


def test_a_nic_that_pauses_while_its_buffer_is_not_full_storms() -> None:
    full, empty = buffer_of(SLOW)
    for least, cause in (
        (0, Cause.PAUSE_STORM),
        (empty - 1, Cause.PAUSE_STORM),
        (empty, Cause.SLOW_RECEIVER),
        (full, Cause.SLOW_RECEIVER),
    ):
        diagnosis = diagnosed(paused(planned(), [span("rtsw2", SLOW, 0, 900)], least_held=least))
        assert (diagnosis.verdict.cause, diagnosis.verdict.server) == (cause, SLOW)


def test_the_excess_is_the_time_that_pauses_stopped_the_critical_path() -> None:
    job = planned((SLOW, "srv1-1"), "incast")
    full, _ = buffer_of(SLOW)
    spans = [
        span("rtsw2", SLOW, 10, 40),
        span("rtsw2", SLOW, 30, 60),
        span("rtsw2", SLOW, 150, 250),
    ]
    verdict = diagnosed(paused(job, spans, least_held=full)).verdict
    assert (verdict.excess.lab_ns, verdict.iterations) == (150 * MS, (0, 1, 2))
    assert verdict.excess.modelled_ns == 150 * MS / DILATION


def test_a_job_that_sends_nothing_to_the_receiver_is_its_victim() -> None:
    full, _ = buffer_of(SLOW)
    diagnosis = diagnosed(paused(planned(OTHERS), BACK_PRESSURE, least_held=full))
    verdict = diagnosis.verdict
    assert verdict.cause is Cause.VICTIM
    assert verdict.subject.startswith(f"of slow-receiver {SLOW}, at ctsw")
    ((shared,)) = verdict.links
    assert (shared.sender[:4], shared.receiver) == ("ctsw", "rtsw2")
    assert "do not end at srv2-1" in verdict.evidence[0]
    assert Cause.SLOW_RECEIVER not in every(diagnosis)


def test_a_job_with_a_slow_receiver_has_it_as_its_cause_and_victims_beside() -> None:
    full, _ = buffer_of(SLOW)
    causes = every(diagnosed(paused(planned(), BACK_PRESSURE, least_held=full)))
    assert set(causes) == {Cause.SLOW_RECEIVER, Cause.VICTIM}
    assert causes[Cause.VICTIM].excess.lab_ns <= causes[Cause.SLOW_RECEIVER].excess.lab_ns
    assert set(causes[Cause.VICTIM].ranks) <= set(range(len(ALL)))


def test_a_pause_that_no_transfer_waited_for_is_no_finding() -> None:
    after = 4 * len(ALL) * STEP_MS
    diagnosis = diagnosed(paused(planned(), [span("rtsw2", SLOW, after, after + 50)], least_held=0))
    assert (diagnosis.verdict.cause, diagnosis.others, diagnosis.notes) == (Cause.NONE, (), ())


def test_a_switch_whose_port_to_a_server_is_full_and_not_paused_has_an_incast() -> None:
    verdict = diagnosed(paused(planned(), INCAST, carried={SLOW: 300.0})).verdict
    assert (verdict.cause, verdict.server) == (Cause.INCAST, None)
    assert verdict.ranks == (ALL.index(SLOW),)
    assert [(link.sender, link.receiver) for link in verdict.links] == [("rtsw2", SLOW)]
    assert (
        "rtsw2:srv2-1 was busy for 300 ms of the lab and was stopped for 0 ms"
        in verdict.evidence[0]
    )


def test_victims_of_an_incast_name_its_port() -> None:
    verdict = diagnosed(paused(planned(OTHERS), INCAST, carried={SLOW: 300.0})).verdict
    assert verdict.cause is Cause.VICTIM
    assert verdict.subject.startswith(f"of incast {SLOW}:rtsw2 towards {SLOW}, at ")


@pytest.mark.parametrize(
    ("ranks", "spans", "least_held", "finding"),
    [
        (ALL, (), 0, "none"),
        (ALL, BACK_PRESSURE, buffer_of(SLOW)[0], "slow-receiver srv2-1"),
        (ALL, BACK_PRESSURE, 0, "pause-storm srv2-1"),
        (OTHERS, BACK_PRESSURE, 0, "victim of pause-storm srv2-1"),
        (ALL, INCAST, None, "incast srv2-1:rtsw2 towards srv2-1"),
        (OTHERS, INCAST, None, "victim of incast srv2-1:rtsw2 towards srv2-1"),
    ],
)
def test_a_drill_expects_cause_and_subject(
    ranks: tuple[str, ...], spans: Sequence[PauseSpan], least_held: int | None, finding: str
) -> None:
    written = paused(planned(ranks), spans, least_held=least_held, carried={SLOW: 300.0})
    assert finding_of(written) == finding


def test_a_drill_expects_nothing_of_jobs_without_times() -> None:
    written = paused(planned(), BACK_PRESSURE, least_held=0)
    assert finding_of(replace(written, steps=None)) == ""
    stream = {"pattern": "incast", "ranks": 3, "duration": "1ms"}
    streamed = JobSpec.model_validate(stream).model_dump(mode="json", exclude_none=True)
    assert finding_of(replace(written, job=streamed, steps=None)) is None


@pytest.mark.parametrize(
    ("spans", "carried"),
    [
        (INCAST, {SLOW: (LINE_RATE - 0.01) * 300}),
        (INCAST, dict.fromkeys(ALL, 300.0)),
        (INCAST, {name: 300.0 if name == SLOW else 301 / FAN_IN for name in ALL}),
        ((*INCAST, span("rtsw2", SLOW, 310, 350)), {SLOW: 300.0}),
        (INCAST[:3], {SLOW: 300.0}),
    ],
    ids=["below its rate", "as the others", "less than twice the others", "paused", "one sender"],
)
def test_what_is_no_incast(spans: Sequence[PauseSpan], carried: dict[str, float]) -> None:
    full, _ = buffer_of(SLOW)
    diagnosis = diagnosed(paused(planned(), spans, least_held=full, carried=carried))
    assert Cause.INCAST not in every(diagnosis)


def test_pauses_that_begin_at_a_switch_for_no_known_cause_are_a_note() -> None:
    diagnosis = diagnosed(paused(planned(), INCAST))
    assert (diagnosis.verdict.cause, diagnosis.others) == (Cause.NONE, ())
    (note,) = diagnosis.notes
    assert "pauses that began at rtsw2 stopped the critical path for" in note
    assert "not a fault" in note


def test_pauses_of_a_switch_between_those_of_a_receiver_are_the_receivers() -> None:
    full, _ = buffer_of(SLOW)
    between = (*BACK_PRESSURE, span("ctsw1", "rtsw2", 700, 900), span("ctsw2", "rtsw2", 700, 900))
    alone = diagnosed(paused(planned(), BACK_PRESSURE, least_held=full)).verdict
    diagnosis = diagnosed(paused(planned(), between, least_held=full))
    assert diagnosis.verdict.cause is Cause.SLOW_RECEIVER
    assert diagnosis.verdict.excess.lab_ns > alone.excess.lab_ns
    assert diagnosis.notes == ()


def test_pauses_of_another_class_stop_no_packet_of_the_job() -> None:
    spans = [replace(span, traffic_class=4) for span in BACK_PRESSURE]
    diagnosis = diagnosed(paused(planned(), spans, least_held=0))
    assert (diagnosis.verdict.cause, diagnosis.others) == (Cause.NONE, ())


def test_a_lab_without_lossless_classes_has_no_such_verdict() -> None:
    written = paused(planned(), BACK_PRESSURE, least_held=0)
    bare = replace(written, lab=fabric(pfc=False).spec.model_dump(mode="json", exclude_none=True))
    assert set(every(diagnosed(bare))) == {Cause.NONE}


def test_a_queue_in_front_of_a_paused_port_is_neither_a_slow_nor_a_congested_link() -> None:
    job = planned()
    way = sent_by(fabric(), "srv2-1:rtsw2", "rtsw2")
    full, _ = buffer_of(SLOW)
    stood = report(job, queues=(queue(way, marked=0.5),), foreign_packets={way: 100_000})
    assert diagnosed(stood).verdict.cause is not Cause.SLOW_RECEIVER
    assert Cause.CONGESTED_LINK in every(diagnosed(stood))
    spans = [span("rtsw2", SLOW, 0, 900)]
    causes = every(diagnosed(paused(job, spans, least_held=full, written=stood)))
    assert set(causes) == {Cause.SLOW_RECEIVER}


def test_round_trips_that_pauses_lengthen_make_no_link_slow() -> None:
    job = planned()
    way = sent_by(fabric(), "srv1-1:rtsw1", "rtsw1")
    sent = [
        replace(flow, rtt_p50_ns=16 * MS) if job.places[flow.peer].server == "srv1-1" else flow
        for flow in flows(job)
    ]
    stood = report(job, sent=sent, queues=(queue(way, marked=0.0, mean=200_000),))
    assert Cause.SLOW_LINK in every(diagnosed(paused(job, [], written=stood)))
    spans = [span("srv1-2", "rtsw1", 0, 900)]
    assert Cause.SLOW_LINK not in every(diagnosed(paused(job, spans, written=stood)))


def test_timeouts_and_a_watchdogs_drops_are_no_grey_link() -> None:
    job = planned()
    sent = [
        replace(flow, timeouts=3, naks=3) if job.places[flow.peer].server == SLOW else flow
        for flow in flows(job)
    ]
    spans = [span("rtsw2", SLOW, 0, None)]
    lost = paused(job, spans, least_held=0, written=report(job, sent=sent))
    assert Cause.GREY_LINK in every(diagnosed(lost))
    assert lost.lossless is not None
    dropped = replace(
        lost.lossless,
        ports=tuple(
            replace(port, discarded_packets=100)
            if (port.node, port.peer) == ("rtsw2", SLOW)
            else port
            for port in lost.lossless.ports
        ),
    )
    assert set(every(diagnosed(replace(lost, lossless=dropped)))) == {Cause.PAUSE_STORM}
    only_late = [replace(flow, naks=0) for flow in sent]
    late = paused(job, spans, least_held=0, written=report(job, sent=only_late))
    assert set(every(diagnosed(late))) == {Cause.PAUSE_STORM}
    without = report(job, sent=only_late)
    assert Cause.GREY_LINK in every(diagnosed(without))


def test_without_paths_pauses_at_either_end_still_count() -> None:
    job = planned()
    full, _ = buffer_of(SLOW)
    written = paused(job, BACK_PRESSURE, least_held=full)
    diagnosis = diagnosed(replace(written, lab=written.lab | {"scheme": "spray"}))
    assert "paths are not known" in diagnosis.notes[0]
    assert (diagnosis.verdict.cause, diagnosis.verdict.server) == (Cause.SLOW_RECEIVER, SLOW)


@given(
    st.lists(st.tuples(st.integers(-50, 200), st.one_of(st.none(), st.integers(0, 60)))),
    st.integers(-10, 250),
    st.integers(0, 250),
)
def test_times_stopped_are_those_of_any_pause_within_the_run(
    pauses: list[tuple[int, int | None]], begin: int, length: int
) -> None:
    spans = [
        PauseSpan("a", "b", 3, "b", at, None if lasts is None else at + lasts)
        for at, lasts in pauses
    ]
    moments = {
        moment
        for span in spans
        for moment in range(max(0, span.begin_ns), 200 if span.end_ns is None else span.end_ns)
    }
    stops = Stops.of(spans, 200)
    assert stops.whole_ns == len(moments)
    (within,) = stops.within(np.array([begin]), np.array([begin + length]))
    assert within == len(moments & set(range(begin, begin + length)))


JUNK: tuple[object, ...] = (None, -1, 10**30, "srv9-9", [], {})


@pytest.mark.parametrize("field", ["node", "interface", "peer", "begin_ns", "end_ns"])
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_pauses_that_contradict_the_document_are_wrong_input(
    rocelab: CommandLine, tmp_path: Path, field: str, junk: object
) -> None:
    document = json.loads(to_json(paused(planned(), BACK_PRESSURE, least_held=0)))
    document["lossless"]["spans"][0][field] = junk
    (tmp_path / "result.json").write_text(json.dumps(document))
    outcome = rocelab("diagnose", str(tmp_path / "result.json"))
    assert outcome.code in (0, 2), outcome.err
    assert "Traceback" not in outcome.err
