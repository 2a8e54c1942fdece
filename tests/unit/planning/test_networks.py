"""The fabric of a lab with several networks: disjoint addresses, one set of servers, no path
between networks."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from rocelab.base.errors import InputError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.labfile.load import load, load_spec
from rocelab.labfile.networks import NetworkSpec
from rocelab.linux.fibtable import Fib
from rocelab.planning.build import build_fabric, plan
from rocelab.planning.document import plan_document
from rocelab.planning.fabric import MAIN_TABLE, Fabric
from rocelab.planning.pauses import plan_pauses
from rocelab.planning.queues import plan_queues
from rocelab.planning.routes import expected_routes
from rocelab.render.graph import mermaid, svg
from rocelab.routes.arrays.build import network_of
from rocelab.routes.planned import planned_fibs
from rocelab.sim.simulate import simulate

JOB = JobSpec.model_validate({"pattern": "alltoall", "ranks": 4, "size": "1MiB"})
FRONT = JOB.model_copy(update={"network": "frontend"})


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return plan(load("two-networks"))


def addresses(fabric: Fabric) -> set[str]:
    ports = [end.ip for link in fabric.links for end in (link.a, link.b)]
    return {*ports, *(node.loopback or "" for node in fabric.switches)}


def test_networks_share_servers_and_nothing_else(fabric: Fabric) -> None:
    for one, other in combinations(fabric.parts, 2):
        assert addresses(one).isdisjoint(addresses(other))
        assert {node.asn for node in one.switches}.isdisjoint(node.asn for node in other.switches)
        shared = one.node_by_name.keys() & other.node_by_name.keys()
        assert shared == {"srv1-1", "srv1-2", "srv2-1", "srv2-2"}
        assert one.link_by_name.keys().isdisjoint(other.link_by_name)
    macs = [end.mac for link in fabric.links for end in (link.a, link.b)]
    assert len(set(macs)) == len(macs)
    for node in fabric.nodes:
        indexes = [link.port(node.name).index for link in fabric.links_of[node.name]]
        assert len(set(indexes)) == len(indexes)


def test_a_network_planned_alone_is_the_same(fabric: Fabric) -> None:
    for part in fabric.parts:
        assert build_fabric(part.spec) == part


def test_the_links_have_the_rates_of_their_networks(fabric: Fabric) -> None:
    rates = [nic.links[0].rate_bps // 10**9 for nic in fabric.nics("srv1-1")]
    assert rates == [400, 400, 200]
    assert {link.rate_bps // 10**9 for link in fabric.network("frontend").trunks} == {100}


def test_packets_bound_to_no_address_leave_by_the_network_of_their_destination(
    fabric: Fabric,
) -> None:
    first, second, front = fabric.nics("srv1-1")
    assert (first.table, first.destinations) == (MAIN_TABLE, ())
    assert (second.destinations, front.destinations) == ((), ("198.19.0.0/16",))
    assert len({nic.table for nic in (first, second, front)}) == 3
    assert all(nic.table < 253 for nic in (second, front))
    (alone,) = fabric.nics("sto1")
    assert (alone.table, alone.destinations) == (MAIN_TABLE, ())


def test_no_switch_has_a_route_to_another_network(fabric: Fabric) -> None:
    routes = expected_routes(fabric)
    for part in fabric.parts:
        prefixes = {prefix.prefix for prefix in part.prefixes}
        for switch in part.switches:
            assert routes[switch.name].keys() <= prefixes
    front = fabric.network("frontend").nics("srv1-1")[0].ip
    back = fabric.network("backend")
    fib_of = planned_fibs(fabric, fabric.prefixes)
    assert isinstance(fib_of("rtsw1"), Fib)
    assert all(fib_of(switch.name).lookup(front) is None for switch in back.switches)


def test_each_network_has_queues_of_its_own(fabric: Fabric) -> None:
    back, front = fabric.parts
    assert plan_pauses(back) is not None
    assert plan_pauses(front) is None
    assert plan_queues(front).buffer_bytes == 4 * 10**6
    assert {port.node for port in plan_queues(front).ports} == {"fsw1", "fsw2"}
    with pytest.raises(AssertionError):
        plan_queues(fabric)


def test_ranks_are_on_nics_of_the_network_that_a_job_names(fabric: Fabric) -> None:
    (back,) = plan_jobs(fabric, [JOB])
    (front,) = plan_jobs(fabric, [FRONT])
    assert {back.nic_rate_bps(rank) // 10**9 for rank in range(4)} == {400}
    assert {front.nic_rate_bps(rank) // 10**9 for rank in range(4)} == {200}
    both = plan_jobs(fabric, [FRONT, JOB])
    assert [job_plan.nic_rate_bps(0) // 10**9 for job_plan in both] == [200, 400]
    with pytest.raises(InputError, match="no network 'storage'"):
        plan_jobs(fabric, [JOB.model_copy(update={"network": "storage"})])
    with pytest.raises(InputError, match="9 ranks do not fit the 8 NICs"):
        plan_jobs(fabric, [JOB.model_copy(update={"ranks": 9})])


def test_a_job_without_networks_is_refused_one(fabric: Fabric) -> None:
    with pytest.raises(InputError, match="no network 'frontend'") as caught:
        plan_jobs(plan(load("tiny")), [FRONT])
    assert caught.value.hint == "it has one, unnamed"


def test_the_plan_has_a_document_for_each_network(fabric: Fabric) -> None:
    document = json.loads("".join(plan_document(fabric)))
    assert list(document["networks"]) == ["backend", "frontend"]
    assert "pfc" in document["networks"]["backend"]
    assert "pfc" not in document["networks"]["frontend"]
    alone = json.loads("".join(plan_document(fabric.network("frontend"))))
    assert document["networks"]["frontend"] == alone


def test_pictures_show_each_network(fabric: Fabric) -> None:
    text = mermaid(fabric)
    assert text.count("subgraph network") == 2
    assert 'subgraph network2["network frontend"]' in text
    assert svg(fabric).count("<svg ") == 3


@pytest.mark.long
def test_a_simulation_runs_in_the_network_of_its_jobs() -> None:
    spec = load("two-networks")
    back, front = simulate(spec, [JOB]), simulate(spec, [FRONT])
    tiers = [{tier.tier for tier in report.tiers} for report in (back, front)]
    assert tiers == [{"rtsw-ctsw"}, {"leaf-leaf"}]
    with pytest.raises(InputError, match="jobs are in several networks"):
        simulate(spec, [JOB, FRONT])
    network = network_of(spec.network("frontend"))
    assert isinstance(spec.network("frontend"), NetworkSpec)
    assert set(network.node_names) >= {"fsw1", "sto1"}


def test_two_networks_have_no_address_in_common(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    graph = (
        "{{fabric: {{kind: graph, nodes: {{{0}1: {{role: leaf}}, s*: {{role: server}}}},"
        " links: [{{a: s1, b: {0}1, addresses: [10.0.0.0/31, 10.0.0.1/31]}}]}}}}"
    )
    file.write_text(f"name: x\nnetworks:\n  a: {graph.format('a')}\n  b: {graph.format('b')}\n")
    with pytest.raises(InputError, match=r"10\.0\.0\.0 is an address of networks a and b"):
        plan(load_spec(file))
