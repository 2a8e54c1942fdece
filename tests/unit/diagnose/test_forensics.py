"""Diagnoses from reports computed by hand, with one problem at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.cli.diagnose import diagnose
from rocelab.diagnose.critical import lateness, step_of, timing
from rocelab.diagnose.diagnose import diagnose_report, make_case
from rocelab.diagnose.document import diagnosis_document, heat_map, path_table
from rocelab.diagnose.losses import lossy_links
from rocelab.diagnose.page import drawn
from rocelab.diagnose.paths import predicted_paths, suspects
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_job
from rocelab.labfile.load import load
from rocelab.planning.build import plan
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.predictor import Setting, paths_on
from rocelab.report.renderers.terminal import print_blocks, print_document
from rocelab.results.diagnosis import Cause, CauseVerdict, from_json
from rocelab.results.job import (
    HostStall,
    JobReport,
)
from tests.helpers.directed import sent_by
from tests.helpers.job_cases import (
    DILATION,
    ITERATIONS,
    MS,
    STEP_MS,
    Late,
    diagnosed,
    flows,
    late_over,
    over,
    planned,
    queue,
    report,
    steps,
    uplinks,
)
from tests.helpers.narrow import broken
from tests.unit.conftest import CommandLine


def test_a_job_on_time_has_no_cause() -> None:
    diagnosis = diagnosed(report(planned()))
    assert (diagnosis.verdict.cause, diagnosis.others, diagnosis.notes) == (Cause.NONE, (), ())
    assert diagnosis.typical.lab_ns == diagnosis.took.lab_ns == 14 * STEP_MS * MS
    assert diagnosis.typical.modelled_ns == diagnosis.typical.lab_ns / DILATION


def test_the_critical_path_of_a_ring_is_the_chain_that_was_late() -> None:
    job = planned()
    assert job.schedule is not None
    slow = job.schedule.sends[job.schedule.sends[-1].after[0]]
    timed = timing(
        steps(job, lambda iteration, send: 70 if (iteration, send.id) == (2, slow.id) else 0),
        job.schedule,
    )
    chain = timed.paths[2]
    assert timed.worst() == 2
    assert timed.took.tolist() == [1400 * MS, 1400 * MS, 1470 * MS, 1400 * MS]
    assert [(link.send, link.excess_ns) for link in chain if link.excess_ns] == [(slow.id, 70 * MS)]
    assert len(chain) == 14
    for before, after in pairwise(chain):
        assert before.send in job.schedule.sends[after.send].after
        assert before.ended_ns == after.ready_ns
    table = lateness(timed, 8, 2)
    step = step_of(job.schedule)[slow.id]
    assert (table > 0).sum() == 1
    assert table[slow.destination, step] == 70 * MS


@given(st.lists(st.integers(0, 400), min_size=112 * ITERATIONS, max_size=112 * ITERATIONS))
def test_a_critical_path_has_no_gaps_and_is_as_long_as_its_iteration(delays: list[int]) -> None:
    job = planned()
    assert job.schedule is not None
    timed = timing(
        steps(job, lambda iteration, send: delays[112 * iteration + send.id]), job.schedule
    )
    for path, took in zip(timed.paths, timed.took.tolist(), strict=True):
        assert sum(link.ended_ns - link.ready_ns for link in path) == took


def pause(server: str, began_ms: int, ms: int) -> HostStall:
    return HostStall(server, began_ms * MS, ms * MS)


def paused_in(job: JobPlan, ms: int) -> Late:
    """The send from rank 3 in step 5 of iteration 1 takes longer."""
    assert job.schedule is not None
    at = step_of(job.schedule)
    return lambda iteration, send: ms if (iteration, send.source, at[send.id]) == (1, 3, 5) else 0


def test_a_server_that_stood_still_while_a_send_waited_is_a_host_pause() -> None:
    job = planned()
    server = job.places[3].server
    verdict = diagnosed(
        report(job, late=paused_in(job, 210), stalls=(pause(server, 1910, 210),))
    ).verdict
    assert (verdict.cause, verdict.server, verdict.ranks) == (Cause.HOST_PAUSE, server, (3,))
    assert verdict.excess.lab_ns == 210 * MS
    assert verdict.iterations == (1,)
    assert f"rank 3 on {server}" in verdict.evidence[0]
    assert "210 ms" in verdict.evidence[0]
    assert "in step 5 of iteration 1" in verdict.evidence[0]


def test_a_server_that_stood_still_before_it_could_begin_is_blamed_for_all_of_it() -> None:
    job = planned()
    assert job.schedule is not None
    at = step_of(job.schedule)
    first = next(send for send in job.schedule.sends if send.source == 3 and not at[send.id])
    late = steps(job, lambda iteration, send: 210 if (iteration, send) == (0, first) else 0)
    begun, posted = (np.array(table) for table in (late.began_ns, late.posted_ns))
    begun[0, 3] = posted[0, first.id] = 210 * MS
    stalls = (pause(job.places[3].server, 0, 210),)
    verdict = diagnosed(
        replace(
            report(job, stalls=stalls),
            steps=replace(
                late,
                began_ns=tuple(map(tuple, begun.tolist())),
                posted_ns=tuple(map(tuple, posted.tolist())),
            ),
        )
    ).verdict
    assert (verdict.cause, verdict.excess.lab_ns) == (Cause.HOST_PAUSE, 210 * MS)


def test_a_verdict_says_which_network_the_job_is_in(tmp_path: Path) -> None:
    spec = {"pattern": "allreduce", "ranks": 6, "size": "4MB", "iterations": ITERATIONS}
    job = plan_job(
        plan(load("two-networks")),
        JobSpec.model_validate({**spec, "warmup_iterations": 0, "network": "frontend"}),
    )
    server = job.places[3].server
    written = report(job, late=paused_in(job, 210), stalls=(pause(server, 1510, 210),))
    diagnosis, case = diagnose_report(written)
    assert (diagnosis.network, diagnosis.verdict.server) == ("frontend", server)
    console = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    print_document(diagnosis_document(diagnosis, case, 160), console)
    assert f"host-pause: rank 3 on {server} of network frontend; 210 ms" in console.export_text()
    result = tmp_path / "result.json"
    result.write_text(to_json(written))
    with pytest.raises(InputError, match="is not in network backend") as refused:
        diagnose(result, network="backend")
    assert refused.value.hint == "it is in frontend"


def test_a_pause_that_cost_nothing_is_told_but_not_blamed() -> None:
    job = planned()
    diagnosis = diagnosed(report(job, stalls=(pause(job.places[3].server, 1910, 60),)))
    assert diagnosis.verdict.cause is Cause.NONE
    assert [other.cause for other in diagnosis.others] == [Cause.HOST_PAUSE]
    assert diagnosis.others[0].excess.lab_ns == 0


def test_a_stall_of_all_servers_at_once_is_the_machines() -> None:
    job = planned()
    stalls = tuple(pause(place.server, 1910, 210) for place in job.places)
    diagnosis = diagnosed(report(job, late=paused_in(job, 210), stalls=stalls))
    assert diagnosis.verdict.cause is Cause.NONE
    assert "8 stalls hit several servers at once" in diagnosis.notes[0]


def test_a_hiccup_of_another_server_within_a_pause_does_not_hide_it() -> None:
    job = planned()
    stalls = (pause(job.places[3].server, 1910, 210), pause(job.places[5].server, 1950, 20))
    diagnosis = diagnosed(report(job, late=paused_in(job, 210), stalls=stalls))
    assert (diagnosis.verdict.cause, diagnosis.verdict.ranks) == (Cause.HOST_PAUSE, (3,))


def test_a_pause_must_stand_out_from_the_hiccups_of_the_other_servers() -> None:
    job = planned()
    hiccups = tuple(
        pause(place.server, 100 * rank, 50) for rank, place in enumerate(job.places) if rank != 3
    )
    stall = pause(job.places[3].server, 1910, 120)
    diagnosis = diagnosed(report(job, late=paused_in(job, 120), stalls=(*hiccups, stall)))
    assert diagnosis.verdict.cause is Cause.NONE


def test_a_link_whose_flows_lose_packets_and_others_do_not_is_grey() -> None:
    job = planned()
    for way in uplinks(job)[::4]:
        written = report(
            job,
            late=late_over(way, job, 50),
            sent=flows(job, lambda ways, way=way: 20 if way in ways else 0),  # type: ignore[misc]
        )
        verdict = diagnosed(written).verdict
        assert verdict.cause is Cause.GREY_LINK
        assert suspects([way])[0] in verdict.links
        assert verdict.excess.lab_ns > 0
        assert "(2%)" in verdict.evidence[0]
        assert "0 times, 0 sent again" in verdict.evidence[1]


def test_links_that_the_same_flows_cross_are_named_together() -> None:
    job = planned("path-pinning", qps=1)
    first = paths_on(job.fabric, rows_of_jobs([job]), Setting())[0]
    pair = over(first[0], job)
    together = [way for way in first if over(way, job) == pair]
    assert len(together) > 1
    diagnosis = diagnosed(report(job, sent=flows(job, lambda ways: 20 if first[0] in ways else 0)))
    grey = [
        other for other in (diagnosis.verdict, *diagnosis.others) if other.cause is Cause.GREY_LINK
    ]
    assert set(suspects(together)) <= set(grey[0].links)
    assert "cannot distinguish these" in grey[0].evidence[-1]


def test_timeouts_towards_a_server_that_stood_still_are_no_losses() -> None:
    job = planned()
    server = job.places[3].server
    sent = [
        replace(flow, timeouts=3) if 3 in (flow.rank, flow.peer) else flow for flow in flows(job)
    ]
    assert {verdict.cause for verdict in _all(report(job, sent=sent))} >= {Cause.GREY_LINK}
    stalled = report(job, sent=sent, stalls=(pause(server, 1000, 900),))
    assert Cause.GREY_LINK not in {verdict.cause for verdict in _all(stalled)}


@pytest.mark.parametrize(
    ("waited", "had", "is_lost"), [(1.0, 60, False), (1.0, 59, True), (0.4, 60, True)]
)
def test_timeouts_of_packets_that_waited_and_arrived_are_no_losses(
    waited: float, had: int, is_lost: bool
) -> None:
    """In queues, as long as the ACK timeout or not, where no pause was as long."""
    job = planned()
    timeout_ns = job.job.transport.ack_timeout * job.dilation
    late: dict[str, Any] = {
        "timeouts": 3,
        "retransmitted": 60,
        "duplicates": had,
        "rtt_p99_ns": waited * timeout_ns,
    }
    sent = [replace(flow, **late) if flow.peer == 3 else flow for flow in flows(job)]
    causes = {verdict.cause for verdict in _all(report(job, sent=sent))}
    assert (Cause.GREY_LINK in causes) == is_lost


def _all(written: JobReport) -> tuple[CauseVerdict, ...]:
    diagnosis = diagnosed(written)
    return (diagnosis.verdict, *diagnosis.others)


def test_losses_that_a_queue_dropped_are_no_grey_link() -> None:
    job = planned()
    way = uplinks(job)[0]
    sent = flows(job, lambda ways: 20 if way in ways else 0)
    dropped = queue(way, marked=0.9, mean=10**7, dropped=sum(flow.naks for flow in sent))
    written = report(
        job,
        late=late_over(way, job, 50),
        sent=sent,
        queues=(dropped,),
        foreign_packets={way: 10_000},
    )
    diagnosis = diagnosed(written)
    assert diagnosis.verdict.cause is Cause.CONGESTED_LINK
    assert Cause.GREY_LINK not in {other.cause for other in diagnosis.others}


def test_what_a_queue_elsewhere_dropped_explains_no_loss_here() -> None:
    job = planned()
    way = uplinks(job)[0]
    ends = {way.sender, way.receiver}
    elsewhere = next(
        uplink
        for uplink in uplinks(job)
        if not (over(way, job) & over(uplink, job)) and not ends & {uplink.sender, uplink.receiver}
    )
    sent = flows(job, lambda ways: 20 if way in ways else 0)
    dropped = queue(elsewhere, marked=0.0, dropped=10 * sum(flow.naks for flow in sent))
    diagnosis = diagnosed(report(job, late=late_over(way, job, 50), sent=sent, queues=(dropped,)))
    assert diagnosis.verdict.cause is Cause.GREY_LINK
    assert suspects([way])[0] in diagnosis.verdict.links


def test_of_an_invalid_run_nothing_is_blamed_and_what_was_seen_is_told() -> None:
    job = planned()
    way = uplinks(job)[0]
    sent = flows(job, lambda ways: 20 if way in ways else 0)
    written = report(job, late=late_over(way, job, 50), sent=sent)
    why = "not valid because senders were late"
    diagnosis = diagnosed(replace(written, problems=(why,)))
    assert (diagnosis.verdict.cause, diagnosis.verdict.evidence) == (Cause.INVALID, (why,))
    assert diagnosis.problems == (why,)
    assert [other.cause for other in diagnosis.others] == [diagnosed(written).verdict.cause]


def test_what_a_run_is_invalid_for_may_be_what_was_found() -> None:
    job = planned()
    server = job.places[3].server
    stalls = (pause(server, 1910, 210),)
    paused = report(job, late=paused_in(job, 210), stalls=stalls)
    idle = (
        "not valid because this machine could not keep 1 of 8 NICs busy: {}:1 sat idle for 210 ms"
    )
    diagnosis = diagnosed(replace(paused, problems=(idle.format(server),)))
    assert (diagnosis.verdict.cause, diagnosis.problems) == (
        Cause.HOST_PAUSE,
        (idle.format(server),),
    )
    for other in (job.places[5].server, f"{server}0"):
        diagnosis = diagnosed(replace(paused, problems=(idle.format(other),)))
        assert diagnosis.verdict.cause is Cause.INVALID
    way = uplinks(job)[0]
    sent = flows(job, lambda ways: 20 if way in ways else 0)
    grey = report(job, late=late_over(way, job, 50), sent=sent)
    missing = "not valid because counters disagree on packets between NICs: 2 into, 1 out"
    assert diagnosed(replace(grey, problems=(missing,))).verdict.cause is Cause.GREY_LINK
    late = "not valid because senders were late"
    assert diagnosed(replace(grey, problems=(missing, late))).verdict.cause is Cause.INVALID
    assert diagnosed(replace(paused, problems=(missing,))).verdict.cause is Cause.INVALID


def test_a_queue_in_front_of_a_link_that_others_use_is_congestion() -> None:
    job = planned()
    way = uplinks(job)[0]
    total = sum(way in ways for ways in paths_on(job.fabric, rows_of_jobs([job]), Setting()))
    written = report(
        job,
        late=late_over(way, job, 50),
        queues=(queue(way, marked=0.31),),
        foreign_packets={way: 1000 * total},
    )
    verdict = diagnosed(written).verdict
    assert (verdict.cause, verdict.links) == (Cause.CONGESTED_LINK, suspects([way]))
    assert "marked 31% of 1,000 packets" in verdict.evidence[0]
    assert "50% were not of this job" in verdict.evidence[1]


def test_a_link_that_the_jobs_own_flows_fill_is_no_fault() -> None:
    job = planned(qps=1)
    way = uplinks(job)[0]
    # Chunks of 500 kB in 10 ms at 400 Mb/s of the lab: the link is full.
    fast = way.link.rate_bps / DILATION
    assert fast == 400_000_000
    written = report(job, late=lambda iteration, send: -90, queues=(queue(way, marked=0.3),))
    diagnosis = diagnosed(written)
    assert diagnosis.verdict.cause is Cause.NONE
    assert "the job's own flows fill" in diagnosis.notes[0]
    assert "not a fault" in diagnosis.notes[0]


def test_a_link_with_a_queue_that_never_carried_its_rate_is_slow() -> None:
    job = planned()
    way = uplinks(job)[0]
    pairs = over(way, job)
    # 200 kB are 4 ms at the link's 400 Mb/s of the lab.
    waits = queue(way, marked=0.0, mean=200_000)

    def written(rtt_ns: int) -> JobReport:
        sent = [
            replace(flow, rtt_p50_ns=rtt_ns) if (flow.rank, flow.peer) in pairs else flow
            for flow in flows(job)
        ]
        return report(job, late=late_over(way, job, 50), sent=sent, queues=(waits,))

    verdict = diagnosed(written(16 * MS)).verdict
    assert (verdict.cause, verdict.links) == (Cause.SLOW_LINK, suspects([way]))
    assert "of its 400 Gb/s" in verdict.evidence[1]
    assert "4.0 times as long" in verdict.evidence[1]
    assert diagnosed(written(5 * MS)).verdict.cause is Cause.NONE


def test_without_paths_hosts_are_still_told_and_links_are_not_named() -> None:
    job = planned("spray")
    sent = flows(planned(), lambda ways: 20)
    written = replace(report(planned(), sent=sent), lab=job.fabric.spec.model_dump(mode="json"))
    diagnosis = diagnosed(written)
    assert "paths are not known" in diagnosis.notes[0]
    assert [(other.cause, other.links) for other in (diagnosis.verdict, *diagnosis.others)][-1] == (
        Cause.GREY_LINK,
        (),
    )


def test_without_paths_losses_beside_drops_of_any_queue_are_no_links() -> None:
    job = planned("spray")
    sent = flows(planned(), lambda ways: 20)
    dropped = (queue(uplinks(planned())[0], marked=0.0, dropped=1),)
    written = report(planned(), sent=sent, queues=dropped)
    diagnosis = diagnosed(replace(written, lab=job.fabric.spec.model_dump(mode="json")))
    assert Cause.GREY_LINK not in {other.cause for other in (diagnosis.verdict, *diagnosis.others)}
    assert any("it is unknown whether a link lost any" in note for note in diagnosis.notes)


def test_counters_that_contradict_the_predicted_paths_are_believed_rather_than_these() -> None:
    job = planned()
    written = report(job)
    way = uplinks(job)[0]
    silent = tuple(
        replace(link, packets=0) if (link.link, link.sender) == (way.name, way.sender) else link
        for link in written.links
    )
    diagnosis = diagnosed(replace(written, links=silent))
    assert f"{way.name} carried 0 packets from {way.sender}" in diagnosis.notes[0]


def test_a_document_without_steps_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match="no times of steps") as refused:
        make_case(replace(report(planned()), steps=None), None)
    assert "a job with a size" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("name", "picture", "message"),
    [
        ("none.json", None, "none.json cannot be read"),
        ("other.json", None, "not a job's document"),
        ("other.json", "map.pdf", "neither .svg nor .png"),
        ("other.json", "no/map.svg", "there is no folder"),
        ("other.json", "there.svg", "there.svg is there already"),
    ],
)
def test_what_can_not_be_diagnosed_is_refused(
    tmp_path: Path, name: str, picture: str | None, message: str
) -> None:
    (tmp_path / "other.json").write_text("no json")
    (tmp_path / "there.svg").write_text("kept")
    with pytest.raises(InputError, match=message):
        diagnose(tmp_path / name, None if picture is None else tmp_path / picture)


def test_a_diagnosis_reads_back_and_is_plain_json() -> None:
    job = planned()
    diagnosis = diagnosed(
        report(job, late=paused_in(job, 210), stalls=(pause(job.places[3].server, 1910, 210),))
    )
    assert from_json(to_json(diagnosis)) == diagnosis
    assert json.loads(to_json(diagnosis))["verdict"]["cause"] == "host-pause"


def test_the_map_shows_the_slow_row_and_the_text_says_who(tmp_path: Path) -> None:
    job = planned()
    server = job.places[3].server
    written = report(job, late=paused_in(job, 210), stalls=(pause(server, 1910, 210),))
    diagnosis, case = diagnose_report(written)
    rows = heat_map(diagnosis, case, 160)[1:]
    full = [row for row in rows if "█" in row]
    assert len(full) == 1
    assert full[0].index("█") == full[0].index("|") + 1 + 5
    narrow = heat_map(diagnosis, case, 28)
    assert "2 steps per block" in narrow[0]
    assert max(map(len, narrow[1:])) <= 28
    late = full[0].partition("|")[0]
    assert any("█" in row and row.startswith(late) for row in narrow[1:])
    console = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    print_document(diagnosis_document(diagnosis, case, 160), console)
    text = console.export_text()
    assert f"host-pause: rank 3 on {server}; 210 ms of the lab" in text
    assert "in iteration 1" in text
    for width in (80, 60):
        assert (
            broken(lambda console: print_blocks([path_table(diagnosis)], console), width) == set()
        )
    for name in ("map.svg", "map.png"):
        assert len(drawn(diagnosis, case, Path(name).suffix)) > 5000


@settings(max_examples=8)
@given(st.integers(0, 15), st.floats(0.01, 0.05), st.integers(0, 2**32 - 1))
def test_the_link_that_loses_is_among_the_named(place: int, share: float, seed: int) -> None:
    job = planned()
    ways = uplinks(job)
    way = ways[place % len(ways)]
    rng = np.random.default_rng(seed)
    sent = flows(job, lambda crossed: int(rng.poisson(1000 * share)) if way in crossed else 0)
    written = report(job, sent=sent)
    case = make_case(written, predicted_paths(written))
    (verdict,) = lossy_links(case)
    assert suspects([way])[0] in verdict.links
    crossing = over(way, job)
    assert all(
        crossing & over(sent_by(job.fabric, link.link, link.sender), job) for link in verdict.links
    )


@pytest.fixture(scope="module")
def suspicious() -> str:
    """A document with a problem to find."""
    job = planned()
    return to_json(
        report(
            job,
            late=paused_in(job, 210),
            stalls=(pause(job.places[3].server, 1910, 210),),
            queues=(queue(uplinks(job)[0], marked=0.5),),
        )
    )


JUNK: tuple[object, ...] = (None, -1, 10**30, 1e308, "\x1b[31mx", [], {})


@pytest.mark.parametrize(
    "place",
    [
        ("lab",),
        ("lab", "name"),
        ("lab", "fabric"),
        ("job",),
        ("job", "ranks"),
        ("clock", "dilation"),
        ("flows", 0, "rank"),
        ("flows", 0, "peer"),
        ("flows", 0, "port"),
        ("flows", 0, "packets"),
        ("ranks", 0, "nic"),
        ("ranks",),
        ("links", 0, "link"),
        ("links", 0, "packets"),
        ("queues", 0, "node"),
        ("queues", 0, "depth_mean_bytes"),
        ("stalls", 0, "server"),
        ("stalls", 0, "began_ns"),
        ("steps", "began_ns"),
        ("steps", "posted_ns"),
        ("steps", "arrived_ns", 0),
        ("steps", "first"),
        ("problems",),
    ],
    ids=str,
)
@pytest.mark.parametrize("junk", [*JUNK, "srv9-9", "srv9-9:9", [[1]]], ids=repr)
def test_a_document_that_contradicts_itself_is_wrong_input(
    rocelab: CommandLine,
    tmp_path: Path,
    suspicious: str,
    place: tuple[str | int, ...],
    junk: object,
) -> None:
    document = json.loads(suspicious)
    *within, last = place
    inner = document
    for part in within:
        inner = inner[part]
    inner[last] = junk
    (tmp_path / "result.json").write_text(json.dumps(document))

    outcome = rocelab("diagnose", str(tmp_path / "result.json"))

    assert outcome.code in (0, 2), outcome.err
    assert "Traceback" not in outcome.err
    assert "\x1b" not in outcome.out + outcome.err
