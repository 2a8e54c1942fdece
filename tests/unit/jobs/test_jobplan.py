"""Jobs resolved on a fabric: NICs, queue pairs, sends and the clock they are in."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_job, plan_jobs
from rocelab.lab.lab import Lab
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.traffic.jobparts import CONTROL, DATA, nic_links, parts_of
from rocelab.traffic.session import TrafficSession
from rocelab.wire.headers import BTH_OFFSET, PAYLOAD_OFFSET, UDP_OFFSET
from tests.unit.hosts.servers import server


def fabric(**changes: object) -> Fabric:
    layout = {"racks": 2, "spines": 2, "servers_per_rack": 2, "nics_per_server": 2}
    return build_fabric(LabSpec.model_validate({"name": "t", "fabric": layout, **changes}))


def job(**keys: object) -> JobSpec:
    return JobSpec.model_validate({"pattern": "allreduce", "ranks": 4, "size": "1MB", **keys})


def test_every_queue_pair_has_two_ends_that_name_each_other() -> None:
    plan = plan_job(fabric(), job(transport={"qps": 3}))
    by_number = {end.number: end for end in plan.ends}
    assert len(by_number) == len(plan.ends) == 2 * 3 * 4
    for end in plan.ends:
        other = by_number[end.remote]
        assert (other.remote, other.rank, other.peer) == (end.number, end.peer, end.rank)


@given(st.integers(2, 8), st.integers(1, 8), st.booleans())
def test_agents_are_told_of_every_send_receive_and_queue_pair_once(
    ranks: int, qps: int, admission: bool
) -> None:
    keys = {"pattern": "alltoall", "transport": {"qps": qps, "admission": admission}}
    plan = plan_job(fabric(), job(ranks=ranks, **keys))
    assert plan.schedule is not None
    parts = parts_of([plan])
    assert sum(len(part.fields["queue_pairs"]) for part in parts.values()) == len(plan.ends)
    assert all(len(p.frames) == len(p.fields["queue_pairs"]) for p in parts.values())
    numbers = [rank for part in parts.values() for rank in part.fields["ranks"]]
    sends = Counter(send[0] for rank in numbers for send in rank["sends"])
    receives = Counter(receive[0] for rank in numbers for receive in rank["receives"])
    assert sends == receives == Counter(range(len(plan.schedule.sends)))
    controls = [end for end in plan.ends if end.control]
    assert len(controls) == (ranks * (ranks - 1) if admission else 0)
    json.dumps([part.fields for part in parts.values()])


def test_a_header_carries_the_queue_pairs_own_port_and_the_other_ends_number() -> None:
    plan = plan_job(fabric(), job(ranks=2, placement=["srv1-1:2", "srv2-2:1"]))
    (part,) = [part for server, part in parts_of([plan]).items() if server == "srv1-1"]
    (end,) = [end for end in plan.ends if end.rank == 0]
    (header,) = part.frames
    assert len(header) == PAYLOAD_OFFSET
    assert int.from_bytes(header[UDP_OFFSET : UDP_OFFSET + 2], "big") == end.sport
    assert int.from_bytes(header[BTH_OFFSET + 5 : BTH_OFFSET + 8], "big") == end.remote
    ((port,),) = part.fields["nics"]
    assert (port["interface"], port["rate_bps"]) == ("rtsw1-2", 400e9 / 5000)
    assert bytes.fromhex(port["macs"]) == header[:12]


def test_times_and_rates_are_of_the_labs_clock_and_bytes_are_not_dilated() -> None:
    transport = {"ack_timeout": "2ms", "dcqcn": "hpcc-dcqcn", "message": "256KiB"}
    plan = plan_job(fabric(dilation=500.0), job(compute="3ms", transport=transport))
    part = next(iter(parts_of([plan]).values()))
    assert part.fields["nics"][0][0]["rate_bps"] == 400e9 / 500
    data, control = part.fields["kinds"][DATA], part.fields["kinds"][CONTROL]
    assert data["requester"]["ack_timeout_ns"] == 1_000_000_000
    assert data["dcqcn"]["alpha_interval_ns"] == 500_000
    assert control["dcqcn"] is None
    assert part.fields["ranks"][0]["compute_ns"] == 1_500_000_000
    assert part.fields["ranks"][0]["message_bytes"] == 256 * 1024


def test_streams_begin_when_the_job_says_and_repeat_no_iteration() -> None:
    keys = {"pattern": "incast", "size": None, "duration": "8ms", "starts": ["0ms", "2ms"]}
    plan = plan_job(fabric(), job(ranks=5, **keys))
    ranks = [rank for part in parts_of([plan]).values() for rank in part.fields["ranks"]]
    begins = sorted(stream[3] for rank in ranks for stream in rank["streams"])
    assert begins == [0, 0, 10_000_000_000, 10_000_000_000]
    assert {rank["iterations"] for rank in ranks} == {0}
    assert plan.duration_ns == 40_000_000_000


def test_admission_never_lets_a_message_be_longer_than_a_buffer() -> None:
    admission = {"channels": 2, "buffer": "64KiB"}
    plan = plan_job(fabric(), job(transport={"admission": admission, "message": "128KiB"}))
    assert plan.message_bytes == 64 * 1024
    assert next(iter(parts_of([plan]).values())).fields["ranks"][0]["admitted"] == 2


def test_jobs_that_run_at_once_have_no_queue_pair_in_common() -> None:
    jobs = [job(transport={"qps": 3}), job(pattern="incast", ranks=3), job(ranks=8)]
    plans = plan_jobs(fabric(), jobs)
    assert [plan.job for plan in plans] == jobs
    assert plans[0] == plan_job(fabric(), jobs[0])
    numbers = [end.number for plan in plans for end in plan.ends]
    assert len(set(numbers)) == len(numbers)
    remotes = [{end.remote for end in plan.ends} for plan in plans]
    assert remotes == [{end.number for end in plan.ends} for plan in plans]


def test_a_nic_that_two_jobs_use_is_one_nic_and_carries_the_queue_pairs_of_both() -> None:
    incast = job(pattern="incast", ranks=2, placement=["srv1-1:2", "srv2-1:1"])
    pairs = job(
        pattern="pairs",
        ranks=2,
        placement=["srv1-1:2", "srv1-1:1"],
        transport={"qps": 2, "dscp": 0, "mtu": 1024},
    )
    plans = plan_jobs(fabric(), [incast, pairs])
    assert [link.name for link in nic_links(plans)] == [
        "srv1-1:rtsw1-2",
        "srv2-1:rtsw2",
        "srv1-1:rtsw1",
    ]
    part = parts_of(plans)["srv1-1"]
    assert [port["interface"] for (port,) in part.fields["nics"]] == ["rtsw1-2", "rtsw1"]
    fields = [(nic, kind) for _, nic, _, kind in part.fields["queue_pairs"]]
    assert fields == [(0, DATA), (0, 2 + DATA), (0, 2 + DATA), (1, 2 + DATA), (1, 2 + DATA)]
    assert [kind["requester"]["tos"] >> 2 for kind in part.fields["kinds"]] == [26, 46, 0, 46]
    assert [(rank["job"], rank["rank"]) for rank in part.fields["ranks"]] == [
        (0, 0),
        (1, 0),
        (1, 1),
    ]
    assert len(part.frames) == 5


def dual() -> Fabric:
    hpn = {"kind": "hpn", "segments": 2, "servers_per_segment": 2, "rails": 2, "cores": 2}
    return build_fabric(LabSpec.model_validate({"name": "t", "fabric": hpn}))


@given(st.integers(2, 8), st.integers(1, 5), st.booleans(), st.booleans())
def test_queue_pairs_take_the_ports_of_their_nic_in_turn(
    ranks: int, qps: int, admission: bool, twice: bool
) -> None:
    keys = {"pattern": "alltoall", "transport": {"qps": qps, "admission": admission}}
    plans = plan_jobs(dual(), [job(ranks=ranks, **keys)] * (1 + twice))
    ports: dict[object, list[int]] = {}
    for plan in plans:
        for end in plan.ends:
            ports.setdefault(plan.places[end.rank], []).append(end.port)
    assert len(ports) == ranks
    assert all(taken == [n % 2 for n in range(len(taken))] for taken in ports.values())


def test_what_leaves_by_a_port_has_its_addresses_and_the_agent_knows_both() -> None:
    plan = plan_job(dual(), job(ranks=2, transport={"qps": 2}, placement=["srv1-1", "srv2-1"]))
    (part,) = [part for server, part in parts_of([plan]).items() if server == "srv1-1"]
    ((first, second),) = part.fields["nics"]
    nic = plan.nic(0)
    assert [first["interface"], second["interface"]] == [link.a.interface for link in nic.links]
    assert [port for _, _, port, _ in part.fields["queue_pairs"]] == [0, 1]
    assert [frame[:12].hex() for frame in part.frames] == [first["macs"], second["macs"]]
    assert first["macs"] != second["macs"]
    assert part.frames[0][26:34] == part.frames[1][26:34]
    assert plan.nic_rate_bps(0) == 2 * plan.nic_link(0).rate_bps


def test_the_links_of_a_job_are_those_of_every_port() -> None:
    plan = plan_job(dual(), job(ranks=2, placement=["srv1-1", "srv2-1:2"]))
    switches = [link.b.node for link in nic_links([plan])]
    assert switches == ["s1-tor1a", "s1-tor1b", "s2-tor2a", "s2-tor2b"]


def test_of_several_jobs_the_one_that_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match="job 2: 9 ranks"):
        plan_jobs(fabric(), [job(), job(ranks=9)])


def test_jobs_of_two_networks_use_their_own_nics_of_a_server() -> None:
    lab = Lab.planned("two-networks").fabric
    ends = {"ranks": 2, "placement": ["srv1-1", "srv2-1"]}
    plans = plan_jobs(lab, [job(**ends), job(**ends, network="frontend")])
    part = parts_of(plans)["srv1-1"]
    assert [port["interface"] for (port,) in part.fields["nics"]] == ["rtsw1", "fsw1"]
    assert [port["rate_bps"] for (port,) in part.fields["nics"]] == [20e6, 10e6]
    assert [nic for _, nic, _, _ in part.fields["queue_pairs"]] == [0, 1]
    numbers = [end.number for plan in plans for end in plan.ends]
    assert len(set(numbers)) == len(numbers)


def test_jobs_that_were_planned_apart_do_not_make_a_session() -> None:
    apart = [plan_job(fabric(), job()), plan_job(fabric(), job())]
    with pytest.raises(ValueError, match="plan them together"):
        TrafficSession(fabric(), Path, jobs=apart)


def test_more_ranks_than_nics_is_refused() -> None:
    with pytest.raises(InputError, match="9 ranks"):
        plan_job(fabric(), job(ranks=9))


def test_a_path_mtu_that_links_do_not_carry_is_refused_with_what_it_needs() -> None:
    with pytest.raises(InputError, match="path MTU of 4096 needs packets of 4160 bytes"):
        plan_job(fabric(links={"mtu": 2048}), job())


def test_two_nics_of_one_server_may_send_to_each_other() -> None:
    plan = plan_job(fabric(), job(ranks=2, placement=["srv1-1:1", "srv1-1:2"]))
    (part,) = parts_of([plan]).values()
    assert [port["interface"] for (port,) in part.fields["nics"]] == ["rtsw1", "rtsw1-2"]


def test_a_host_model_makes_of_a_collective_what_nccl_does_in_the_lab_too() -> None:
    hosts = server(gpus=2, nics=2, launch="8us", step="14us", cap="200G")
    keys = {"algorithm": "ring", "protocol": "simple", "size": "32MB"}
    plan = plan_job(fabric(), job(host_model=hosts, **keys))
    assert plan.hosts is not None and plan.hosts.cost is not None
    assert (plan.collective.channels, plan.collective.group) == (2, 2)
    assert "launch 8us" in plan.hosts.words and "NICs send 200G" in plan.hosts.words
    by_server = {plan.places[end.rank].server for end in plan.ends}
    assert all(plan.places[end.rank].server != plan.places[end.peer].server for end in plan.ends)
    assert len(by_server) == 2
    (part, _) = parts_of([plan]).values()
    assert {port["rate_bps"] for nic in part.fields["nics"] for port in nic} == {
        200e9 / plan.dilation
    }


@pytest.mark.parametrize(
    ("hosts", "keys", "says"),
    [
        (server(gpus=4, nics=2), {}, "2 GPUs to a NIC"),
        (server(gpus=2, nics=2, kind="pcie"), {}, "PCIe links"),
        (server(gpus=2, nics=2, servers=2), {}, "NVLink domains of 2 servers"),
        (server(), {}, "4 NICs a server"),
        (server(gpus=2, nics=2), {"ranks": 2}, "all ranks are in one server"),
        (server(gpus=2, nics=2), {"algorithm": "nvls-tree"}, "only a fluid"),
    ],
)
def test_hosts_that_agents_do_not_model_are_refused(
    hosts: object, keys: dict[str, object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        plan_job(fabric(), job(host_model=hosts, **keys))
