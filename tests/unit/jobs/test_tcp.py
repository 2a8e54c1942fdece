"""TCP as the transport of a job: its keys, its connections, and the clock of its timers."""

from typing import Any

import pytest

from rocelab.base.errors import InputError, SpecError
from rocelab.base.family import Family
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_job, plan_jobs
from rocelab.jobs.tcp import FIRST_PORT, payload_bytes, segment_overhead_bytes, tcp_clock
from rocelab.jobs.transport import TransportSpec
from rocelab.labfile.load import validate
from rocelab.labfile.model import LabSpec
from rocelab.labfile.source import YamlSource
from rocelab.planning.build import build_fabric

MS, SECOND = 10**6, 10**9
LAB = LabSpec.model_validate(
    {"name": "t", "dilation": 100, "fabric": {"kind": "clos", "racks": 2, "servers_per_rack": 2}}
)


def job(**transport: Any) -> JobSpec:
    return JobSpec.model_validate(
        {"pattern": "incast", "ranks": 4, "size": "1MB", "transport": {"kind": "tcp"} | transport}
    )


def refusal(**transport: Any) -> str:
    source = YamlSource(
        "job.yaml",
        {"pattern": "incast", "ranks": 4, "size": "1MB", "transport": transport},
        {("transport", key): 3 for key in transport},
    )
    with pytest.raises(SpecError) as error:
        validate(source, JobSpec)
    return str(error.value)


@pytest.mark.parametrize("key", ["qps", "mtu", "window", "ack_timeout", "dcqcn", "ecn"])
def test_keys_of_queue_pairs_are_refused_with_tcp(key: str) -> None:
    value = {"dcqcn": "hpcc-dcqcn", "ecn": "not-ect", "ack_timeout": "2ms"}.get(key, 256)
    assert f"{key} means nothing with kind: tcp" in refusal(kind="tcp", **{key: value})


@pytest.mark.parametrize("key", ["congestion_control", "connections", "rto_min"])
def test_keys_of_tcp_are_refused_without_it(key: str) -> None:
    value = {"congestion_control": "bbr", "rto_min": "1ms"}.get(key, 4)
    assert f"{key} means nothing with kind: roce" in refusal(**{key: value})


def test_a_document_of_a_job_has_the_keys_of_its_transport_alone_and_reads_back() -> None:
    of_tcp = job(congestion_control="reno", connections=4)
    document = of_tcp.model_dump(mode="json", exclude_none=True)
    assert document["transport"] == {
        **{"kind": "tcp", "congestion_control": "reno", "connections": 4, "dscp": 0}
    }
    assert JobSpec.model_validate(document) == of_tcp
    of_roce = JobSpec.model_validate({"pattern": "incast", "ranks": 4, "size": "1MB"})
    assert not {"kind", "connections"} & of_roce.model_dump(mode="json")["transport"].keys()
    assert TransportSpec.model_validate({"kind": "tcp", "dscp": 10}).dscp == 10


def test_each_rank_that_sends_has_connections_from_its_nics_address() -> None:
    plan = plan_job(build_fabric(LAB), job(connections=2))
    assert plan.ends == ()
    assert [(path.number, path.rank, path.peer) for path in plan.tcp_paths] == [
        (number, 1 + number // 2, 0) for number in range(6)
    ]
    assert {path.port for path in plan.tcp_paths} == {FIRST_PORT}
    assert {path.destination_ip for path in plan.tcp_paths} == {plan.nic(0).ip}
    assert [path.source_ip for path in plan.tcp_paths[::2]] == [plan.nic(r).ip for r in (1, 2, 3)]


def test_jobs_at_once_share_no_port_and_no_number() -> None:
    first, second = plan_jobs(build_fabric(LAB), [job(), job()])
    assert [path.number for path in (*first.tcp_paths, *second.tcp_paths)] == list(range(6))
    assert {path.port for path in second.tcp_paths} == {FIRST_PORT + 1}


def test_a_roce_job_beside_one_of_tcp_keeps_its_queue_pairs() -> None:
    roce = JobSpec.model_validate({"pattern": "incast", "ranks": 4, "size": "1MB"})
    alone = plan_job(build_fabric(LAB), roce)
    _, beside = plan_jobs(build_fabric(LAB), [job(), roce])
    assert beside.ends == alone.ends


def test_a_host_model_is_refused() -> None:
    with_hosts = job().model_copy(update={"host_model": object()})
    with pytest.raises(InputError, match="with TCP hosts are the servers' kernels"):
        plan_job(build_fabric(LAB), with_hosts)


def test_the_bound_of_an_iteration_counts_segments_of_the_links_mtu() -> None:
    plan = plan_job(build_fabric(LAB), job())
    mtu = plan.nic_link(0).mtu
    packets = -(-(10**6) // payload_bytes(mtu, Family.IPV4))
    wire_bytes = 3 * (10**6 + packets * segment_overhead_bytes(Family.IPV4))
    assert plan.least_ns == pytest.approx(wire_bytes * 8e9 / plan.nic_rate_bps(0))
    assert payload_bytes(1500, Family.IPV4) == 1448
    assert payload_bytes(1500, Family.IPV6) == 1428


def test_timeouts_follow_the_dilation_up_to_a_limit_that_is_said() -> None:
    transport = job().transport
    assert tcp_clock(transport, 1).rto_min_ns == 200 * MS
    assert tcp_clock(transport, 1).words() == ()
    scaled = tcp_clock(transport, 10)
    assert scaled.rto_min_ns == 2 * SECOND
    assert "of 200ms at least are scaled." in scaled.words()[0]
    limited = tcp_clock(transport, 5000)
    assert limited.rto_min_ns == 5 * SECOND
    assert "would be 16.7 min of the lab and are scaled in part, to 5 s" in limited.words()[0]
    assert "1 ms modelled" in limited.words()[0]


def test_a_timeout_that_is_asked_for_may_be_as_long_as_linux_lets_it() -> None:
    asked = job(rto_min="20ms").transport
    assert tcp_clock(asked, 1000).rto_min_ns == 20 * SECOND
    assert tcp_clock(asked, 50_000).rto_min_ns == 120 * SECOND


def test_the_words_say_whose_window_grows_by_the_machines_clock() -> None:
    reno, cubic = (
        " ".join(tcp_clock(job(congestion_control=name).transport, 100).words())
        for name in ("reno", "cubic")
    )
    assert "grows by round trips" in reno
    assert "CUBIC's window grows by the machine's clock" in cubic
    unset = tcp_clock(job().transport, 100).words(is_settable=False)[0]
    assert "are not scaled" in unset
