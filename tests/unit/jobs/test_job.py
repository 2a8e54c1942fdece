"""Job files: what is accepted, what is refused and where, and the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.base.errors import InputError, SpecError
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.dcqcn_profiles import PROFILES
from rocelab.jobs.job import JobSpec, Stream, schedule_of, streams_of
from rocelab.jobs.patterns.base import Algorithm
from rocelab.jobs.placement import Placement
from rocelab.jobs.sport import SourcePort
from rocelab.jobs.transport import AdmissionSpec, Ecn, Strategy, TransportSpec
from rocelab.labfile.load import read_model
from rocelab.labfile.schema import schema_of

MS = 10**6
MIB = 2**20
ALLREDUCE = "pattern: allreduce\nranks: 8\nsize: 64MB\n"
STREAMS = "pattern: permutation\nranks: 8\nduration: 10ms\n"


def read(tmp_path: Path, text: str) -> JobSpec:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return read_model(path, JobSpec)


def refused(tmp_path: Path, text: str) -> list[str]:
    """The problems of a job's file, without the file's name."""
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text)
    return [str(problem).partition("job.yaml:")[2] for problem in caught.value.problems]


def test_three_keys_are_a_whole_job(tmp_path: Path) -> None:
    job = read(tmp_path, ALLREDUCE)
    assert (job.pattern, job.ranks, job.size) == (Pattern.ALLREDUCE, 8, 64 * 10**6)
    assert job.algorithm is None
    assert job.placement is Placement.CONTIGUOUS
    assert (job.iterations, job.warmup_iterations, job.compute) == (5, 1, 0)
    assert (job.channels, job.group, job.root, job.starts) == (None, None, 0, (0,))


def test_transport_that_is_left_out_is_what_nics_do_by_default(tmp_path: Path) -> None:
    transport = read(tmp_path, ALLREDUCE).transport
    assert (transport.qps, transport.strategy) == (1, Strategy.ROUND_ROBIN)
    assert (transport.message, transport.mtu) == (MIB, 4096)
    assert (transport.window, transport.ack_every) == (512, 16)
    assert (transport.ack_timeout, transport.retries) == (MS, 7)
    assert transport.source_port is SourcePort.PER_QP
    assert (transport.dscp, transport.ack_dscp, transport.cnp_dscp) == (26, 46, 48)
    assert (transport.ecn, transport.dcqcn, transport.admission) == (Ecn.ECT0, "off", None)


def test_every_key_is_read_with_its_unit(tmp_path: Path) -> None:
    job = read(
        tmp_path,
        """
pattern: allreduce
algorithm: hierarchical
ranks: 4
size: 1GiB
iterations: 20
warmup_iterations: 0
compute: 2ms
placement: [srv1-1, "srv1-2:2", srv2-1, srv2-2]
seed: 7
channels: 2
group: 2
transport:
  qps: 16
  strategy: split
  message: 64KiB
  mtu: 1024
  window: 64
  ack_every: 4
  ack_timeout: 500us
  retries: 3
  source_port: flow-label
  dscp: 24
  ack_dscp: 24
  cnp_dscp: 40
  ecn: ce
  dcqcn: hpcc-dcqcn
  admission: {channels: 2, buffer: 1MiB}
""",
    )
    assert job.algorithm is Algorithm.HIERARCHICAL
    assert job.placement == ("srv1-1", "srv1-2:2", "srv2-1", "srv2-2")
    assert job.compute == 2 * MS
    transport = job.transport
    assert (transport.qps, transport.strategy, transport.message) == (16, Strategy.SPLIT, 65_536)
    assert (transport.mtu, transport.window, transport.ack_every) == (1024, 64, 4)
    assert (transport.ack_timeout, transport.retries) == (MS // 2, 3)
    assert transport.source_port is SourcePort.FLOW_LABEL
    assert (transport.dscp, transport.ack_dscp, transport.cnp_dscp) == (24, 24, 40)
    assert (transport.ecn, transport.dcqcn) == (Ecn.CE, "hpcc-dcqcn")
    assert transport.admission is not None
    assert (transport.admission.channels, transport.admission.buffer) == (2, 2**20)


def test_off_and_on_may_be_written_as_yaml_reads_them(tmp_path: Path) -> None:
    off = read(tmp_path, f"{ALLREDUCE}transport: {{dcqcn: off, admission: off}}\n").transport
    assert (off.dcqcn, off.admission) == ("off", None)
    on = read(tmp_path, f"{ALLREDUCE}transport: {{admission: on}}\n").transport
    assert on.admission == AdmissionSpec.model_validate({"channels": 1, "buffer": "4MiB"})


@pytest.mark.parametrize(
    "text",
    [
        ALLREDUCE + "transport: {qps: 4, admission: on}\n",
        "pattern: alltoall\nranks: 2\nsize: 1MiB\nplacement: [srv1-1, srv1-2]\n",
        STREAMS + "starts: [0ms, 5ms]\n",
    ],
)
def test_a_dumped_job_reads_back(tmp_path: Path, text: str) -> None:
    job = read(tmp_path, text)
    dumped = job.model_dump(mode="json", exclude_none=True)
    assert JobSpec.model_validate(dumped) == job
    assert "iterations" in dumped


@pytest.mark.parametrize("profile", PROFILES)
def test_every_published_dcqcn_profile_may_be_named(tmp_path: Path, profile: str) -> None:
    assert read(tmp_path, f"{ALLREDUCE}transport: {{dcqcn: {profile}}}\n").transport.dcqcn


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        (ALLREDUCE.replace("allreduce", "allreduced"), "1: pattern", "expected allreduce", "did"),
        (ALLREDUCE.replace("8", "1"), "2: ranks", "from 2 to 131072", "NIC of its own"),
        (ALLREDUCE.replace("64MB", "0B"), "3: size", "from 1B to 64GB", "nccl-tests"),
        (ALLREDUCE.replace("64MB", "64"), "3: size", "expected a size", "bytes"),
        (ALLREDUCE.replace("64MB", "7B"), "3: size", "7B does not divide into 8", "a byte per"),
        ("pattern: allreduce\nranks: 8\n", "1", "size or duration", "64MB"),
        (ALLREDUCE + "duration: 5ms\n", "4: duration", "size or duration", "64MB"),
        (
            "pattern: alltoall\nranks: 8\nduration: 5ms\n",
            "3: duration",
            "means nothing for alltoall",
            "it is for incast, pairs and permutation",
        ),
        (ALLREDUCE + "root: 1\n", "4: root", "nothing for allreduce", "broadcast and gather"),
        (
            "pattern: alltoall\nranks: 8\nsize: 1MB\nalgorithm: tree\n",
            "4: algorithm",
            "alltoall has no algorithm tree",
            "it has direct, hierarchical and pxn",
        ),
        (
            "pattern: gather\nranks: 8\nsize: 1MB\ngroup: 2\n",
            "4: group",
            "nothing for gather",
            "allgather, allreduce, alltoall, alltoallv, broadcast and reducescatter",
        ),
        (ALLREDUCE + "starts: [0ms, 1ms]\n", "4: starts", "goes with duration", "remove it"),
        (STREAMS + "iterations: 3\n", "4: iterations", "goes with size", "remove it"),
        (STREAMS + "channels: 3\n", "4: channels", "goes with size", "remove it"),
        (STREAMS + "starts: [5ms, 0ms]\n", "4: starts", "later than the one before", "half of"),
        (STREAMS + "starts: [0ms, 10ms]\n", "4: starts", "start at 10ms is not before", "lengthen"),
        (STREAMS + "starts: [0ms, 1ms, 2ms]\n", "4: starts", "8 senders do not divide", "starts"),
        (STREAMS + "starts: []\n", "4: starts", "expected one start or more", "half of"),
        (STREAMS + "starts: [0]\n", "4: starts[0]", "expected a duration", None),
        ("pattern: gather\nranks: 8\nsize: 1MB\nroot: 8\n", "4: root", "no rank 8", "0 to 7"),
        ("pattern: pairs\nranks: 7\nsize: 1MB\n", "2: ranks", "do not make pairs", "even"),
        (ALLREDUCE + "group: 3\n", "4: group", "groups of 3", "divides"),
        (
            ALLREDUCE + "placement: spread\n",
            "4: placement",
            "topology-aware, fragmented, random",
            None,
        ),
        (ALLREDUCE + "placement: [srv1-1]\n", "4: placement", "lists 1 NICs for 8", "one per rank"),
        (ALLREDUCE + "placement: [1, 2]\n", "4: placement[0]", "expected text, got 1", None),
        (ALLREDUCE + "qps: 4\n", "4: qps", "unknown key", "did you mean transport.qps?"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_where_it_says_so(
    tmp_path: Path, text: str, place: str, message: str, hint: str | None
) -> None:
    problem = refused(tmp_path, text)[0]
    assert problem.startswith(place)
    assert message in problem
    assert (hint or "") in problem.partition("hint: ")[2]


@pytest.mark.parametrize(
    ("keys", "place", "message", "hint"),
    [
        ("qps: 257", "transport.qps", "from 1 to 256", "queue pairs"),
        ("mtu: 1501", "transport.mtu", "an even number, got 1501", "1500 is one"),
        ("mtu: 128", "transport.mtu", "256", "path MTU"),
        ("strategy: spray", "transport.strategy", "expected split or round-robin", "split"),
        ("message: 3GB", "transport.message", "from 1B to 2GiB", "messages"),
        ("retries: 8", "transport.retries", "from 0 to 7", "timeouts"),
        ("dscp: 64", "transport.dscp", "from 0 to 63", "data packets"),
        ("ack_timeout: 0s", "transport.ack_timeout", "above 0", "silence"),
        ("source_port: random", "transport.source_port", "fixed, per-qp, flow-label or rxe", "UDP"),
        ("ecn: ect1", "transport.ecn", "expected ect0, not-ect or ce", "did you mean ect0?"),
        ("dcqcn: sigcomm", "transport.dcqcn", "expected off, sigcomm15", "mean sigcomm15?"),
        ("dcqcn: on", "transport.dcqcn", "got true", "congestion control"),
        ("dcqcn: 3", "transport.dcqcn", "got 3", "congestion control"),
        (
            "dcqcn: sigcomm15, ecn: not-ect",
            "transport.ecn",
            "never acts on packets",
            "set ecn: ect0",
        ),
        ("admission: 3", "transport.admission", "true, false or a block", "clear-to-send"),
        (
            "message: 8MiB, admission: {buffer: 4MiB}",
            "transport.message",
            "a message of 8MiB is never cleared",
            "admission.channels",
        ),
    ],
)
def test_a_transport_that_makes_no_sense_is_refused_where_it_says_so(
    tmp_path: Path, keys: str, place: str, message: str, hint: str
) -> None:
    (problem,) = refused(tmp_path, f"{ALLREDUCE}transport: {{{keys}}}\n")
    assert problem.startswith(f"4: {place}: ")
    assert message in problem
    assert hint in problem.partition("hint: ")[2]


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = "pattern: ring\nranks: one\nsize: 5\ntransport: {qps: 0, mtu: 9217}\n"
    assert len(refused(tmp_path, text)) == 5


def test_a_job_gives_the_schedule_of_one_iteration(tmp_path: Path) -> None:
    job = read(tmp_path, "pattern: gather\nranks: 4\nsize: 4KB\nroot: 2\nchannels: 2\n")
    plan = schedule_of(job)
    assert (plan.pattern, plan.ranks, plan.size_bytes) == (Pattern.GATHER, 4, 4000)
    assert {send.destination for send in plan.sends} == {2}
    assert len(plan.sends) == 6


def test_a_job_may_be_larger_than_what_can_be_planned_send_by_send(tmp_path: Path) -> None:
    job = read(tmp_path, "pattern: alltoall\nranks: 8192\nsize: 1MB\n")
    with pytest.raises(InputError, match="67,100,672 sends") as caught:
        schedule_of(job)
    assert "fewer ranks" in (caught.value.hint or "")


def test_a_hierarchy_takes_the_jobs_group_or_else_the_placements(tmp_path: Path) -> None:
    text = ALLREDUCE + "algorithm: hierarchical\n"
    left_out = read(tmp_path, text)
    with pytest.raises(InputError, match="needs groups"):
        schedule_of(left_out)
    stated = read(tmp_path, text + "group: 4\n")
    assert schedule_of(left_out, group=4) == schedule_of(stated, group=2)


def test_streams_start_in_equal_groups_one_after_another(tmp_path: Path) -> None:
    job = read(tmp_path, "pattern: incast\nranks: 5\nduration: 10ms\nstarts: [0ms, 5ms]\n")
    assert streams_of(job) == (
        Stream(1, 0, 0),
        Stream(2, 0, 0),
        Stream(3, 0, 5 * MS),
        Stream(4, 0, 5 * MS),
    )


def test_a_job_has_a_schedule_or_streams_and_not_both(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has streams"):
        schedule_of(read(tmp_path, STREAMS))
    with pytest.raises(ValueError, match="has a schedule"):
        streams_of(read(tmp_path, ALLREDUCE))


@pytest.mark.parametrize("model", [JobSpec, TransportSpec, AdmissionSpec])
def test_every_key_says_what_it_is_for(model: type[JobSpec]) -> None:
    assert all(field.description for field in model.model_fields.values())


def test_the_json_schema_lets_an_editor_complete_choices() -> None:
    definitions = JobSpec.model_json_schema()["$defs"]
    transport = definitions["TransportSpec"]["properties"]
    assert transport["dcqcn"]["enum"] == ["off", False, *PROFILES]  # YAML: off
    assert (transport["mtu"]["minimum"], transport["mtu"]["multipleOf"]) == (256, 2)
    assert set(definitions["Pattern"]["enum"]) == {pattern.value for pattern in Pattern}


def test_the_json_schema_has_a_list_of_times_as_people_write_it() -> None:
    starts = schema_of(JobSpec)["properties"]["starts"]
    assert starts["default"] == ["0ns"]
    assert starts["items"]["examples"] == ["50ms", "3s"]
    assert starts["description"].endswith(
        ": each a duration such as 50ms, 3s or 300us, from 0ns to 600s"
    )
