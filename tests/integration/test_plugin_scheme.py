"""A scheme of another package in a real lab: a hash of fields that it chooses."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.helpers.plugin import PluginEnvironment
from tests.unit.routes.test_plugin_schemes import POINTS

pytestmark = pytest.mark.side_by_side

LAB = "t-chosen"
FILE = f"""
name: {LAB}
fabric: {{kind: clos, racks: 2, spines: 4, servers_per_rack: 1}}
scheme: {{kind: chosen-fields, fields: qp}}
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginEnvironment]:
    """An environment with the package and the file of the lab, which is up."""
    folder = tmp_path_factory.mktemp("there")
    there = PluginEnvironment.with_package(folder, "lab_hashing", POINTS)
    (folder / "lab.yaml").write_text(FILE)
    try:
        up = there.rocelab("up", "lab.yaml")
        assert up.returncode == 0, up.stderr
        yield there
    finally:
        there.rocelab("down", LAB)


def hops(
    there: PluginEnvironment, *flows: tuple[int, int], scheme: str | None = None
) -> list[tuple[str, ...]]:
    """The paths of flows, by source port and QP, which packets take that are sent. The lab has
    that scheme before."""
    switch = [] if scheme is None else [("scheme", LAB, scheme)]
    ask = ("path", LAB, "--src", "srv1-1", "--dst", "srv2-1", "--probe", "--json")
    paths = [(*ask, "--sport", str(port), "--qp", str(qp)) for port, qp in flows]
    ran = there.in_turn(*switch, *paths)
    assert [done.stderr for done in ran if done.returncode] == []
    return [tuple(json.loads(done.stdout)["hops"]) for done in ran[len(switch) :]]


@pytest.mark.long
def test_packets_take_the_paths_of_a_hash_of_the_fields_that_it_names(
    there: PluginEnvironment,
) -> None:
    of_qps = hops(there, *((50000, qp) for qp in range(17, 25)), scheme="chosen-fields")
    assert len(set(of_qps)) > 1, "the QP decides"
    of_ports = hops(there, *((port, 17) for port in range(5000, 5008)))
    assert set(of_ports) == {of_qps[0]}, "the port does not"
    refused, scheme = there.in_turn(("scheme", LAB, "modulo"), ("scheme", LAB))
    assert refused.returncode == 2
    assert "scheme modulo has no program for a lab" in refused.stderr
    assert "chosen-fields" in scheme.stdout


def test_packets_take_the_paths_of_a_program_of_the_package(there: PluginEnvironment) -> None:
    flows = [(50000, qp) for qp in range(16, 24)]
    of_qps = hops(there, *flows, scheme="turns")
    assert of_qps[:4] == of_qps[4:], "the uplinks are taken in turn"
    assert len(set(of_qps)) == 4
    # Another program goes in its place, and out again.
    assert hops(there, *flows, scheme="e-ecmp") != of_qps


@pytest.mark.long
def test_a_controller_of_the_package_places_what_runs(there: PluginEnvironment) -> None:
    assert there.rocelab("scheme", LAB, "first-way").returncode == 0
    job = ("--pattern", "pairs", "--ranks", "2", "--size", "1MB", "--iterations", "3", "--qps", "8")
    done = there.rocelab("traffic", LAB, *job, "--json")
    assert done.returncode in (0, 3), done.stderr  # 3: other work had the machine
    packets = {
        link["link"]: link["packets"]
        for link in json.loads(done.stdout)["links"]
        if (link["sender"], link["tier"]) == ("rtsw1", "rtsw-ctsw")
    }
    assert packets["rtsw1:ctsw1"] >= 720, "three messages of 240 packets"
    # Of those that a switch hashes (the plan's answer without a controller), six of eight QPs
    # would take another uplink. Between both, at most the packets before its first round.
    assert packets["rtsw1:ctsw1"] > 0.9 * sum(packets.values())
    rounds = json.loads(there.rocelab("te", LAB, "--last", "100", "--json").stdout)["rounds"]
    assert max(done["total"] for done in rounds) >= 8
    assert not any(done["problems"] for done in rounds)


def test_a_controller_that_cannot_begin_is_named(there: PluginEnvironment) -> None:
    controller = there.site / "lab_hashing/controller.py"
    text = controller.read_text()
    controller.write_text(text.replace("self._lab = lab", "raise KeyError(7)"))
    try:
        refused = there.rocelab("scheme", LAB, "first-way")
    finally:
        controller.write_text(text)
    assert refused.returncode == 3
    assert "scheme first-way of lab-hashing 1.2 failed: KeyError: 7" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert there.rocelab("scheme", LAB, "ecmp").returncode == 0
