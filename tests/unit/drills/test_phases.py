"""Drills of jobs: their files, the result of a phase, and the comparison of lab and model."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from rocelab.base.data import shipped
from rocelab.base.documents import to_json
from rocelab.base.errors import InputError, SpecError
from rocelab.drills.drill_spec import DrillSpec, load_drill
from rocelab.drills.plan import JobPhase, ProgramPhase, planned_drill
from rocelab.drills.run import run_drill
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import LabJob
from rocelab.jobs.performance import FRAME_OVERHEAD_BYTES
from rocelab.labfile.catalog import DRILLS, shipped_names
from rocelab.planning.pauses import plan_pauses
from rocelab.report.figures import figure_rows
from rocelab.report.jobs.text import job_text
from rocelab.results.drill import PhaseRun, compared_figures, from_json, summarise
from rocelab.results.expectations import parse_expectation, unmet
from rocelab.results.job import CountCheck, JobReport, RankFigures, StepRecords
from rocelab.results.kpis import KPIS, format_kpi, job_figures
from rocelab.results.kpis_of_requests import REQUEST_KPIS
from rocelab.results.kpis_of_storage import STORAGE_KPIS
from rocelab.results.lossless import Lossless, PauseSpan
from rocelab.wire.headers import EXTENSION_BYTES, Extension
from tests.helpers.phases_sample import (
    DRILL,
    MS,
    US,
    diagnosed,
    idle,
    of_jobs,
    repeat,
    result,
    shared,
    shares,
)
from tests.helpers.report_sample import result as probe_result

CATALOG = shipped("scripts")
RETH, IMM = EXTENSION_BYTES[Extension.RETH], EXTENSION_BYTES[Extension.IMM]
BASE = """name: both
lab: four-ports
phases:
  - name: one
    jobs: [{pattern: incast, ranks: 4, size: 1MB}]
"""
MODELLED = """  - name: two
    jobs:
      - pattern: incast
        ranks: 4
        duration: 30ms
        transport: {dcqcn: hpcc-dcqcn}
    model: {round_trip: one}
"""
TWO_AT_ONCE = """  - name: two
    jobs:
      - &incast {pattern: incast, ranks: 4, duration: 30ms, transport: {dcqcn: hpcc-dcqcn}}
      - *incast
    model: {round_trip: one}
"""


def refused(tmp_path: Path, text: str) -> list[str]:
    """The problems of a drill file, without the file's name."""
    path = tmp_path / "drill.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_drill(path)
    return [str(problem).partition("drill.yaml:")[2] for problem in caught.value.problems]


def without_number(job: LabJob) -> LabJob:
    """A job without the number of its ranks, which a plan knows and a file may leave open."""
    if isinstance(job, JobSpec) or job.workload is None:
        return job
    return job.model_copy(update={job.kind: job.workload.placed(1)})


@pytest.mark.parametrize("name", shipped_names(DRILLS))
def test_every_drill_that_ships_is_valid_and_fits_its_lab(name: str) -> None:
    path = CATALOG / f"{name}.yaml"
    drill = planned_drill(path)
    assert drill.spec.name == name
    assert drill.spec.description
    for phase in drill.phases:
        if isinstance(phase, JobPhase):
            planned = tuple(without_number(job.job) for job in phase.jobs)
            assert planned == tuple(map(without_number, phase.spec.jobs))
            assert phase.spec.expect.expectations()
        elif isinstance(phase, ProgramPhase):
            assert phase.faults and phase.spec.expect.expectations()
            assert any((path.parent / word).is_file() for word in phase.programs[0].argv)
        else:
            assert phase.faults
            assert len(phase.flows) == phase.traffic.flows


def test_a_phase_has_the_fabric_of_its_conditions_and_shares_the_labs_without_any(
    tmp_path: Path,
) -> None:
    path = tmp_path / "drill.yaml"
    job = "jobs: [{pattern: incast, ranks: 4, size: 1MB}]"
    path.write_text(
        BASE + f"  - {{name: two, seed: 7, {job}}}\n  - {{name: three, scheme: spray, {job}}}\n"
    )
    drill = planned_drill(path)
    plain, seeded, sprayed = (phase.fabric for phase in drill.phases)
    assert plain is drill.fabric
    assert {node.hash_seed for node in seeded.switches} == {7}
    assert sprayed.spec.scheme.kind == "spray"
    for phase in drill.phases:
        assert isinstance(phase, JobPhase)
        assert [job.fabric for job in phase.jobs] == [phase.fabric]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("links_down: [rtsw1:ctsw9]", "lab four-ports has no link rtsw1:ctsw9"),
        ("faults: [{kind: drain, switch: ctsw9, at: 1s}]", "has no node ctsw9"),
    ],
)
def test_what_does_not_fit_the_lab_is_refused_with_its_phase(
    tmp_path: Path, keys: str, message: str
) -> None:
    path = tmp_path / "drill.yaml"
    job = "jobs: [{pattern: incast, ranks: 4, size: 1MB}]"
    path.write_text(BASE + f"  - {{name: two, {keys}, {job}}}\n")
    with pytest.raises(InputError, match=f"^phase two: .*{message}"):
        planned_drill(path)


def test_the_switch_teams_cases_ship_and_say_what_is_not_as_on_hardware() -> None:
    cases = [name for name in shipped_names(DRILLS) if name.startswith("roce-")]
    assert len(cases) == 10
    for name in cases:
        assert "hardware" in load_drill(CATALOG / f"{name}.yaml").description


def test_a_file_lists_its_phases_or_is_one(tmp_path: Path) -> None:
    path = tmp_path / "drill.yaml"
    path.write_text(BASE + MODELLED)
    spec = load_drill(path)
    assert [phase.name for phase in spec.phases] == ["one", "two"]
    assert spec.phases[1].model is not None
    assert spec.phases[1].model.seeds == (1, 2, 3, 4, 5)
    (phase,) = load_drill(CATALOG / "link-flap.yaml").phases
    assert phase.name == "link-flap"


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        (BASE + "faults: []\n", "6: faults", "unknown key"),
        (BASE.replace("incast", "incst"), "5: phases[0].jobs[0].pattern", "incast"),
        (BASE.replace("size: 1MB", "size: 1"), "5: phases[0].jobs[0].size", "a size such as"),
        (BASE.replace(", size: 1MB", ""), "5: phases[0].jobs[0]", "size or duration"),
        (BASE + "    expect: {cnp: 0}\n", "6: phases[0].expect.cnp", "unknown key"),
        (BASE + "    expect: {cnps: yes}\n", "6: phases[0].expect.cnps", 'expected 0 or "<= 500"'),
        (BASE + "    expect: {queue_max: 5}\n", "6: phases[0].expect.queue_max", '"<= 3MB"'),
        (BASE + "    expect: {busbw: 40GB}\n", "6: phases[0].expect.busbw", "GB/s"),
        (BASE + "    model: {round_trip: one}\n", "6: phases[0].model", "single queue pairs"),
        (BASE + MODELLED.replace("30ms", "29ms"), "12: phases[1].model", "needs 30ms"),
        (BASE + BASE.partition("phases:\n")[2], "3: phases", "two phases are called one"),
        (BASE + MODELLED.replace("p: one", "p: two"), "3: phases", "no earlier phase"),
        (BASE.replace("}]", "}, *j]").replace("[{", "[&j {") + MODELLED, "3: phases", "of one job"),
        (BASE + TWO_AT_ONCE, "10: phases[1].model", "single queue pairs"),
        (BASE.replace("jobs:", "job:"), "5: phases[0].job", "unknown key"),
        (BASE.partition("    jobs")[0] + "    jobs: []\n", "4: phases[0]", "probes needs a fault"),
        ("name: both\nlab: l\nphases: []\n", "3: phases", "needs a phase"),
    ],
)
def test_what_is_wrong_in_a_phase_is_told_with_its_place(
    tmp_path: Path, text: str, place: str, expected: str
) -> None:
    problems = refused(tmp_path, text)
    assert problems[0].startswith(place)
    assert expected in problems[0]


def test_a_drill_can_run_its_lab_on_a_slower_clock(tmp_path: Path) -> None:
    path = tmp_path / "drill.yaml"
    path.write_text(BASE + "dilation: 9000\n")
    assert planned_drill(path).fabric.spec.dilation == 9000
    (problem,) = refused(tmp_path, BASE + "dilation: 0.5\n")
    assert problem.startswith("6: dilation")


def test_a_dumped_drill_reads_back() -> None:
    for name in shipped_names(DRILLS):
        spec = load_drill(CATALOG / f"{name}.yaml")
        dumped = spec.model_dump(mode="json", exclude_none=True)
        assert DrillSpec.model_validate(dumped) == spec


def test_sizes_and_bandwidths_are_compared_in_bytes_and_gigabytes_per_second() -> None:
    assert parse_expectation("queue_max", "<= 2MB").met_by(2_000_000)
    assert not parse_expectation("queue_max", "<= 2MB").met_by(2_000_001)
    assert parse_expectation("busbw", ">= 40").met_by(40.0)
    assert parse_expectation("iteration_time", "<= 80ms").met_by(80 * 10**6)
    assert format_kpi("queue_max", 1_900_000) == "1.9 MB"
    assert format_kpi("busbw", 48.84) == "48.8 GB/s"


def test_the_figures_of_a_phase_are_those_of_its_report() -> None:
    (figures,) = job_figures([shared()], has_model=True, fair=shares())
    assert figures["goodput"] == pytest.approx(95 / 8)
    assert figures["cnps"] == figures["class_5_packets"] == figures["switch_marks"] == 90
    assert figures["marks_outside_data"] == 0
    assert figures["class_6_packets"] == 63
    assert figures["queue_max"] == 1_900_000
    assert figures["rtt_p99"] == 50 * US
    assert figures["rate_ratio"] == 1.02
    assert figures["completed"] is figures["accounted"] is True
    of_iterations = {"iteration_time", "busbw", "jct_ratio"}
    of_faults = {"jct_overhead", "zero_impact"}
    of_links = {"uplink_mmr", "uplink_jfi", "unused_links"}  # the sample has none
    of_pfc = {
        "deadlock",
        "pauses",
        "pause_share",
        "incast_share",
        "pause_depth",
        "lossless_drops",
        "watchdog_events",
    }
    of_neither = {"nic_port_share", "diagnosis"}
    of_flows = {"fct_p50", "fct_p99", "slowdown_p50", "slowdown_p99"}
    of_tcp = {"stalled_connections", "longest_stall", "tcp_resent"}
    of_requests = {kpi.name for kpi in REQUEST_KPIS}
    of_storage = {kpi.name for kpi in STORAGE_KPIS}
    inapplicable = (
        *(of_storage | of_tcp | of_requests | of_flows | of_iterations),
        *(of_faults | of_links | of_pfc | of_neither),
    )
    assert {name for name, kpi in KPIS.items() if kpi.of_job} - set(figures) == set(inapplicable)


def test_what_a_model_could_not_be_compared_with_is_not_measured_and_applies() -> None:
    """A job that sent nothing, and failed or not, has no fair shares."""
    of_model = {"time_to_fairness", "model_time_to_fairness", "time_to_fairness_ratio"}
    (figures,) = job_figures([shared()], has_model=True)
    assert {figures[name] for name in of_model} == {None}
    for report in (shared(), replace(shared(), errors=("a queue pair failed",))):
        (figures,) = job_figures([report])
        assert not of_model & set(figures)


def pair_beside(**counts: int) -> JobReport:
    """The incast's neighbour: a pair in another class, on the same queues."""
    job = {**idle().job, "transport": {"dscp": 0}}
    transport = replace(idle().roce, **counts)
    return replace(idle(), job=job, transport=transport, queues=shared().queues)


def test_each_of_several_jobs_has_figures_of_its_own_and_devices_those_of_all() -> None:
    incast, pair = job_figures([shared(), pair_beside(retransmitted=3)])
    assert (incast["retransmitted_packets"], pair["retransmitted_packets"]) == (0, 3)
    assert (incast["cnps"], pair["cnps"]) == (90, 0)
    assert "busbw" not in incast
    assert pair["busbw"] == 11.0
    assert pair["iteration_time"] == 5500
    for kpi in ("class_6_packets", "queue_max", "switch_marks", "marks_outside_data"):
        assert incast[kpi] == pair[kpi]
    assert incast["marks_outside_data"] == 0


def test_a_phase_is_judged_by_the_counts_of_all_jobs_and_by_the_figures_of_each() -> None:
    runs = [[of_jobs("both", shared(), pair_beside(timeouts=n, retransmitted=3))] for n in (1, 2)]
    expected = {
        "timeouts": 2,
        "retransmitted_packets": "<= 2",
        "busbw": ">= 10",
        "rtt_p99": "<= 1us",
    }
    phase = summarise("both", runs, [parse_expectation(*pair) for pair in expected.items()])
    verdicts = {verdict.kpi: (verdict.observed, verdict.passed) for verdict in phase.verdicts}
    assert verdicts["timeouts"] == (1, False)
    assert verdicts["retransmitted_packets"] == (3, False)
    assert verdicts["busbw"] == (11.0, True)
    assert verdicts["rtt_p99"] == (50 * US, False)
    assert [job.spread["timeouts"].median for job in phase.figures] == [0, 1.5]
    assert "busbw" not in {**phase.figures[0].spread, **phase.figures[0].unmeasured}


def test_what_one_job_of_two_did_not_measure_is_not_met_by_the_other() -> None:
    runs = [[of_jobs("both", pair_beside(), replace(pair_beside(), headlines=()))]]
    expected = [parse_expectation("busbw", ">= 1"), parse_expectation("goodput", ">= 1")]
    phase = summarise("both", runs, expected)
    of_busbw, of_goodput = phase.verdicts
    assert (of_busbw.passed, of_busbw.shown()) == (False, "not measured")
    assert (of_goodput.passed, of_goodput.shown()) == (False, "not applicable")
    assert phase.figures[1].unmeasured["busbw"] == 1
    values = {row.name: row.value for row in figure_rows(phase.figures[1], phase.valid_runs)}
    assert values["busbw"] == "not measured"
    assert "goodput" not in values


FOUND = ("victim of slow-receiver srv2-1", "slow-receiver srv2-1")
BESIDE = """name: beside
lab: lossless
jobs:
  - {pattern: alltoall, ranks: 4, size: 1MB}
  - {pattern: incast, ranks: 3, size: 1MB}
  - {pattern: incast, ranks: 3, duration: 1ms}
expect: {diagnosis: %s}
"""


@pytest.mark.parametrize(
    ("expected", "passed"),
    [
        (list(FOUND), True),
        (list(reversed(FOUND)), False),
        ([FOUND[0], "slow-receiver srv2-2"], False),
        ([FOUND[0], "pause-storm srv2-1"], False),
    ],
)
def test_a_diagnosis_is_expected_of_each_job_with_a_size(expected: list[str], passed: bool) -> None:
    run = diagnosed(of_jobs("both", pair_beside(), pair_beside(), shared()), *FOUND, None)
    (verdict,) = summarise("both", [[run]], [parse_expectation("diagnosis", expected)]).verdicts
    assert (verdict.passed, verdict.shown()) == (passed, "; ".join(FOUND))
    assert [figures.get("diagnosis") for figures in run.figures()] == [*FOUND, None]


def test_a_diagnosis_shows_the_repeat_that_found_another_and_meets_nothing_without_one() -> None:
    def ran(finding: str) -> PhaseRun:
        return diagnosed(of_jobs("idle", idle()), finding)

    expected = [parse_expectation("diagnosis", "none")]
    repeats = [[ran("none")], [ran("incast a towards b")], [ran("none")]]
    phase = summarise("idle", repeats, expected)
    assert [(verdict.passed, verdict.observed) for verdict in phase.verdicts] == [
        (False, "incast a towards b")
    ]
    assert "diagnosis" not in {row.name for row in figure_rows(phase.figures[0], 3)}
    assert summarise("idle", [[ran("none")]], expected).passed
    (silent,) = summarise("idle", [[ran("")]], expected).verdicts
    assert (silent.passed, silent.shown()) == (False, "not measured")


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("[none]", "diagnosis lists 1, and jobs with a size are 2"),
        ("[none, none, none]", "diagnosis lists 3, and jobs with a size are 2"),
        ("[none, slow srv2-1]", "expected none, slow-receiver srv2-1, or a list"),
        ("[none, 5]", "expected none, slow-receiver srv2-1, or a list"),
        ("true", "expected none, slow-receiver srv2-1, or a list"),
    ],
)
def test_a_diagnosis_that_no_run_can_have_is_refused(
    written: str, problem: str, tmp_path: Path
) -> None:
    (message,) = refused(tmp_path, BESIDE % written)
    assert problem in message


def test_a_diagnosis_of_each_job_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "drill.yaml"
    path.write_text(BESIDE % f"[{', '.join(FOUND)}]")
    spec = load_drill(path)
    assert DrillSpec.model_validate(spec.model_dump(mode="json", exclude_none=True)) == spec


def test_the_sizes_of_headroom_exact_are_those_of_its_labs_plan() -> None:
    """To the byte: with a byte more of XOFF, or less of headroom, the drill fails."""
    path = CATALOG / "headroom-exact.yaml"
    drill = planned_drill(path)
    fabric = drill.fabric
    pauses = plan_pauses(fabric)
    assert pauses is not None
    assert pauses.pfc.xoff is not None
    (job,) = drill.spec.phases[0].jobs
    receiver, sender = job.placement
    (port,) = (
        pauses.by_slot[pauses.slots["rtsw1", link.port("rtsw1").interface]]
        for link in fabric.nics(sender)[0].links
    )

    def held(packets: int) -> int:
        """What the switch counts of the first packets of a message that is longer."""
        return packets * (job.transport.mtu + FRAME_OVERHEAD_BYTES) + RETH

    to_xoff = next(n for n in count(1) if held(n) >= pauses.pfc.xoff)
    assert held(to_xoff) == pauses.pfc.xoff
    fitting, rest = divmod(port.headroom, job.transport.mtu + FRAME_OVERHEAD_BYTES)
    assert rest == 0
    full = to_xoff + fitting
    packets = (
        (to_xoff - 1, False),
        (to_xoff, False),
        (full, True),
        (full + 1, True),
        (full + 1, False),
    )
    for phase, (sent, is_deaf) in zip(drill.phases, packets, strict=True):
        (job,) = phase.spec.jobs
        assert isinstance(job, JobSpec)
        assert job.size == sent * job.transport.mtu - IMM, "the last packet is as long as others"
        assert job.size <= job.transport.message
        storm, *deaf = phase.faults
        assert storm.spec.resolve(fabric).subject == f"{receiver}:rtsw1"
        assert [timed.spec.resolve(fabric).subject for timed in deaf] == [
            f"{sender}:rtsw1"
        ] * is_deaf
        assert storm.ends_ns is not None
        assert storm.begins_ns < job.compute * fabric.spec.dilation
        timeout_ns = (job.compute + job.transport.ack_timeout) * fabric.spec.dilation
        assert storm.ends_ns < timeout_ns, "nothing is sent again while the storm lasts"


def busbw(gbps: float, name: str) -> PhaseRun:
    return of_jobs(name, idle(busbw=gbps))


@pytest.mark.parametrize(
    ("written", "passed"),
    [
        (">= 1.5 x slow", True),
        (">= 1.51 x slow", False),
        ("<= 2 x slow", True),
        ("< 2 x slow", False),
    ],
)
def test_a_figure_may_be_held_against_another_phase_of_the_same_repeat(
    written: str, passed: bool
) -> None:
    repeats = [
        [busbw(10.0, "slow"), busbw(20.0, "fast")],
        [busbw(40.0, "slow"), busbw(60.0, "fast")],
    ]
    (verdict,) = summarise("fast", repeats, [parse_expectation("busbw", written)]).verdicts
    assert verdict.passed is passed
    assert verdict.observed == (60.0 if written.startswith(">") else 20.0)


def test_without_the_other_phase_nothing_is_held_against_it() -> None:
    invalid = of_jobs("slow", idle(problems=("late",)))
    repeats = [[invalid, busbw(20.0, "fast")]]
    (verdict,) = summarise("fast", repeats, [parse_expectation("busbw", ">= 1 x slow")]).verdicts
    assert (verdict.passed, verdict.observed) == (False, None)
    held = compared_figures(repeats[0], "fast")
    assert unmet([verdict], held.figures, held.others) == ()


def test_a_repeat_whose_other_phase_is_invalid_says_nothing_of_a_comparison() -> None:
    invalid = of_jobs("slow", idle(problems=("late",)))
    repeats = [[invalid, busbw(5.0, "fast")], [busbw(10.0, "slow"), busbw(20.0, "fast")]]
    (verdict,) = summarise("fast", repeats, [parse_expectation("busbw", ">= 1 x slow")]).verdicts
    assert (verdict.passed, verdict.observed) == (True, 20.0)


def test_what_queues_count_does_not_apply_to_a_lab_without() -> None:
    (figures,) = job_figures([replace(idle(), queue_engine="off", queues=())])
    assert "dropped_packets" not in figures
    assert "class_6_packets" not in figures
    assert figures["retransmitted_packets"] == 0


def test_marks_outside_the_datas_class_are_told_apart() -> None:
    dscp_0 = replace(shared(), job={**shared().job, "transport": {"dscp": 0}})
    assert shared().data_class == 3
    assert dscp_0.data_class == 0
    assert job_figures([dscp_0])[0]["marks_outside_data"] == 90


@pytest.mark.parametrize(
    ("peer", "share"),
    [("rtsw1", 1.0), ("srv1-1", 0.0), (None, None)],
    ids=["receiver's switch", "receiver", "no pauses"],
)
def test_pauses_of_an_incast_begin_at_the_switch_of_a_receiver_of_any_job(
    peer: str | None, share: float | None
) -> None:
    spans = () if peer is None else (PauseSpan("srv1-2", "rtsw1", 3, peer, 0, 10**6),)
    lossless = Lossless((3,), (), spans, 0, 10**6, None, None, None, (), is_alive=True)
    receives = RankFigures(0, "srv1-1:1", None, 0, 0, 4096)
    sends = RankFigures(1, "srv1-2:1", None, 4096, 4096, 0)
    reports = [
        replace(idle(), lossless=lossless, ranks=ranks) for ranks in ((receives, sends), (sends,))
    ]
    assert [figures["incast_share"] for figures in job_figures(reports)] == [share, share]


def test_what_receives_in_another_network_is_no_incast_of_this_one() -> None:
    """Its servers may not even be in this network."""
    lossless = Lossless((3,), (), (), 0, 10**6, None, None, None, (), is_alive=True)
    place = {"network": "frontend", "number": 1, "servers": [], "alike": len(idle().fabric.servers)}
    here = replace(idle(), lossless=lossless)
    stored = RankFigures(0, "sto1:1", None, 0, 0, 4096)
    there = replace(idle(), lab={**here.lab, "place": place}, ranks=(stored,))
    assert (here.network_name, there.network_name) == (None, "frontend")
    figures = job_figures([here, there])
    assert "incast_share" in figures[0]
    assert "incast_share" not in figures[1]


def test_the_share_of_a_run_that_a_port_was_paused_leaves_out_what_came_after_it() -> None:
    elapsed_ns = idle().fidelity.elapsed_ns
    spans = tuple(
        PauseSpan("srv1-2", "rtsw1", 3, "rtsw1", begin_ns, end_ns)
        for begin_ns, end_ns in (
            (0, elapsed_ns // 4),
            (elapsed_ns * 3 // 4, elapsed_ns * 5),
            (elapsed_ns * 6, elapsed_ns * 7),
        )
    )
    lossless = Lossless((3,), (), spans, 0, 10**6, None, None, None, (), is_alive=True)
    (figures,) = job_figures([replace(idle(), lossless=lossless)])
    assert figures["pause_share"] == pytest.approx(0.5)


def test_figures_of_each_pause_are_unknown_where_some_were_left_out() -> None:
    spans = (PauseSpan("srv1-2", "rtsw1", 3, "rtsw1", 0, 10**6),)
    for left_out in (0, 1):
        lossless = Lossless((3,), (), spans, left_out, 10**6, None, None, None, (), is_alive=True)
        (figures,) = job_figures([replace(idle(), lossless=lossless)])
        for name in ("pause_share", "incast_share", "pause_depth"):
            assert (figures[name] is None) == bool(left_out)
        assert figures["deadlock"] is False


def test_the_farthest_pause_is_as_many_cables_from_where_pauses_began() -> None:
    switch = PauseSpan("rtsw1", "srv1-1", 3, "srv1-1", 0, 10**6)
    server = PauseSpan("srv1-2", "rtsw1", 3, "rtsw1", 10**5, 10**6)
    for spans, depth in (((), 0), ((server,), 1), ((switch, server), 2)):
        lossless = Lossless((3,), (), spans, 0, 10**6, None, None, None, (), is_alive=True)
        (figures,) = job_figures([replace(idle(), lossless=lossless)])
        assert figures["pause_depth"] == depth


def test_bytes_that_were_not_delivered_or_counters_that_differ_show() -> None:
    short = replace(idle(), transport=replace(idle().roce, delivered_bytes=1))
    assert job_figures([short])[0]["completed"] is False
    check = CountCheck("CNPs", "sent", 1, "counted", 0, 1, ("rank 0",))
    assert job_figures([replace(idle(), accounting=(check,))])[0]["accounted"] is False


def test_the_time_to_fair_shares_is_counted_from_the_last_start_in_lab_and_model() -> None:
    fair = shares()
    assert fair.starts_ns == (0, 10 * MS)
    # Uneven for 4 ms: the mean over 20 ms, or since the start, is within 10 % some time later.
    assert fair.lab_ns is not None
    assert 4 * MS < fair.lab_ns < 24 * MS
    assert len(fair.model_times_ns) == 2
    assert fair.port.node == "rtsw1"
    assert fair.port.feedback_ns == 40 * US
    assert fair.port.packet_bytes == 4096 + 58 + 24
    assert fair.lab_settled.queue_bytes == 900_000
    assert fair.lab_settled.use == pytest.approx(95 / 98.04, rel=0.01)
    assert len(fair.model.rates_bps) == 2
    assert max(fair.lab.queue_times_ns) <= 60 * MS


def test_the_model_fills_the_port_that_lab_and_model_share() -> None:
    assert shares().model_settled.use == pytest.approx(1.0, abs=0.15)


def test_shares_that_never_become_fair_have_no_time() -> None:
    never = shares(30 * MS)
    assert never.lab_ns is None
    assert never.ratio is None
    (verdict,) = [
        verdict
        for verdict in result(repeat(30 * MS)).phases[1].verdicts
        if verdict.kpi == "time_to_fairness"
    ]
    assert not verdict.passed


def test_a_drill_passes_when_every_valid_run_of_every_phase_meets_its_expectations() -> None:
    assert result().passed
    assert not result(repeat(), repeat(30 * MS)).passed
    three = result(repeat(), repeat(5 * MS), repeat(problems=("the clock jumped",)))
    assert [phase.valid_runs for phase in three.phases] == [2, 3]
    assert three.passed
    assert three.repeats[2][0].problems == ("the clock jumped",)
    assert three.phases[1].figures[0].spread["time_to_fairness"].n == 3


def test_a_phase_without_a_valid_run_does_not_pass() -> None:
    nothing = result(repeat(problems=("the clock jumped",)))
    assert not nothing.passed
    assert nothing.phases[0].valid_runs == 0
    assert nothing.phases[0].figures == ()


def test_the_document_reads_back_into_the_same_object_and_the_same_bytes() -> None:
    text = to_json(result())
    assert from_json(text) == result()
    assert to_json(from_json(text)) == text
    document = json.loads(text)
    assert document["schema_version"] == 3
    assert document["drill"]["phases"][1]["name"] == DRILL["phases"][1]["name"]


def test_a_document_of_an_older_version_is_refused_with_what_to_do() -> None:
    for older in ({"kind": "jobs", "schema_version": 2}, {"schema_version": 2}):
        with pytest.raises(InputError, match="schema version 2; this tool reads 3") as caught:
            from_json(json.dumps(older))
        assert "older version" in (caught.value.hint or "")
    assert from_json(to_json(probe_result())) == probe_result()


def test_a_drill_names_the_phase_that_does_not_fit_its_lab(tmp_path: Path) -> None:
    many = [{"name": "x", "jobs": [{"pattern": "incast", "ranks": 9, "size": "1MB"}]}]
    file = tmp_path / "drill.yaml"
    first = {"name": "fits", "jobs": [{"pattern": "incast", "ranks": 2, "size": "1MB"}]}
    file.write_text(json.dumps({**DRILL, "lab": "tiny", "phases": [first, *many]}))
    with pytest.raises(InputError, match=r"^phase x: "):
        run_drill(file)
    file.write_text(json.dumps({**DRILL, "lab": "tiny", "phases": many}))
    with pytest.raises(InputError, match=r"^(?!phase)"):
        run_drill(file)


def test_the_job_of_a_phase_is_that_of_its_first_valid_run() -> None:
    invalid, valid = repeat(problems=("not valid because of it",)), repeat()
    drill = result(invalid, valid)
    assert drill.job_of("idle") == valid[0].reports[0]
    assert drill.job_of("shared") == invalid[1].reports[0]
    assert result(invalid).job_of("idle") == invalid[0].reports[0]


def test_of_several_jobs_the_first_with_times_of_its_sends_is_taken() -> None:
    timed = replace(idle(), steps=StepRecords(0, (), (), (), (), ()))
    both = of_jobs("idle", idle(), timed), repeat()[1]
    assert result(both).job_of("idle") == timed


def test_a_phase_without_jobs_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(InputError) as refused:
        result(repeat()).job_of("nothing")
    assert (refused.value.message, refused.value.hint) == (
        "the drill two-to-one has no phase nothing with jobs",
        "it has idle and shared",
    )


def test_jobs_of_a_drill_in_several_networks_say_theirs() -> None:
    drill = planned_drill(CATALOG / "frontend-loss-training.yaml")
    (both,) = (phase for phase in drill.phases if len(phase.spec.jobs) == 2)
    jobs = [job.model_dump(mode="json", exclude_none=True) for job in both.spec.jobs]
    assert [job_text(job).partition(";")[0] for job in jobs] == [
        "allreduce, 8 ranks, 1MB in backend",
        "alltoall, 6 ranks, 600KB in frontend",
    ]
