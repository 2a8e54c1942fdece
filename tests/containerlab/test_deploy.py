"""What `rocelab render --target containerlab` writes, deployed by containerlab itself."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rocelab.lab.engine import ContainerEngine
from rocelab.lab.lab import Lab
from rocelab.planning.fabric import Fabric
from rocelab.planning.routes import expected_routes, expected_width
from rocelab.render.containerlab import container_name, topology_file
from rocelab.render.files import write_containerlab
from tests.containerlab.labs import deployed as deployed_by_containerlab
from tests.helpers.waiting import wait_until

CONVERGES_WITHIN_S = 300.0
LABS = ("tiny", "zone-small", "hpn-small", "rail-small", "unnumbered", "bfd")


@pytest.fixture(scope="module", params=LABS)
def fabric(request: pytest.FixtureRequest) -> Fabric:
    return Lab.planned(request.param).fabric


@pytest.fixture(scope="module")
def deployed(
    fabric: Fabric, engine: ContainerEngine, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fabric]:
    """The rendered lab, deployed by `containerlab deploy` and destroyed afterwards."""
    folder = tmp_path_factory.mktemp("rendered")
    write_containerlab(fabric, folder, image)
    with deployed_by_containerlab(folder / topology_file(fabric.name)):
        yield fabric
    assert fabric.name not in engine.run("ps", "--all", "--format", "{{.Names}}")


def in_node(engine: ContainerEngine, fabric: Fabric, node: str, *command: str) -> str:
    return engine.run("exec", container_name(fabric.name, node), *command)


def routes(engine: ContainerEngine, fabric: Fabric, node: str) -> dict[str, int]:
    """The number of next hops of each prefix in a node's main table."""
    document = json.loads(in_node(engine, fabric, node, "ip", "-json", "route", "show"))
    return {
        route["dst"] if "/" in route["dst"] else f"{route['dst']}/32": len(
            route.get("nexthops", [None])
        )
        for route in document
    }


def is_converged(engine: ContainerEngine, fabric: Fabric) -> bool:
    """Whether every switch has every expected route at full width: the proof that `up` asks for."""
    for node, expected in expected_routes(fabric).items():
        widths = routes(engine, fabric, node)
        for prefix, links in expected.items():
            if widths.get(prefix, 0) != expected_width(fabric, links):
                return False
    return True


def test_every_table_has_every_route_at_full_width(
    deployed: Fabric, engine: ContainerEngine
) -> None:
    wait_until(lambda: is_converged(engine, deployed), "every route", limit_s=CONVERGES_WITHIN_S)


def test_servers_reach_each_other(deployed: Fabric, engine: ContainerEngine) -> None:
    wait_until(lambda: is_converged(engine, deployed), "every route", limit_s=CONVERGES_WITHIN_S)
    first, last = deployed.servers[0].name, deployed.servers[-1].name
    target = deployed.nics(last)[0].ip
    source = deployed.nics(first)[0].ip
    said = in_node(engine, deployed, first, "ping", "-c", "3", "-I", source, target)
    assert " 0% packet loss" in said


def test_daemons_run_and_vtysh_answers(deployed: Fabric, engine: ContainerEngine) -> None:
    for node in deployed.switches:
        said = in_node(engine, deployed, node.name, "vtysh", "-c", "show running-config")
        assert f"bgp router-id {node.loopback}" in said
