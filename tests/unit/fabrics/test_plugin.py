"""A kind of fabric of an installed package does what those that ship do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rocelab.fabrics.door import KINDS
from tests.helpers.plugin import PLUGINS, ROOT, PluginEnvironment

POINTS = {"fabrics:super-spine": "lab_fabrics:SuperSpineSpec"}
LAB = "name: pods\nfabric: {kind: super-spine, pods: 2, leaves: 2, servers: 2, per_plane: 2}\n"
PROGRAM = """
import json
from pathlib import Path
from rocelab.faults.selectors import node_name
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.load import load_spec
from rocelab.labfile.schema import lab_schema
from rocelab.planning.build import plan
from rocelab.planning.routes import expected_routes
from rocelab.planning.zones import divisions
from rocelab.render.graph import svg
from rocelab.importing.roles import group_tier
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.routes import Routes
from rocelab.results.engines import Engine
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
import numpy as np

spec = load_spec(Path("pods.yaml"))
fabric, network = plan(spec), network_of(spec)
routes, expected = Routes(network), expected_routes(fabric)
differences = []
for nic in range(network.nics):
    ip = fabric.nics(network.node_names[network.nic_server[nic]])[0].ip
    (prefix,) = fabric.prefixes_holding(ip)
    for node in fabric.switches:
        number = network.node_number(node.name)
        hops = routes.next_hops(np.array([number], np.int32), np.array([nic], np.int32))
        sends = {network.sender[send] for send in routes.members(hops, 0)}
        links = {int(send) // 2 for send in routes.members(hops, 0)}
        names = {network.link_name(link) for link in links}
        own = node.name in prefix.origins
        wanted = {link.name for link in expected[node.name].get(prefix.prefix, ())}
        if not own and names != wanted:
            differences.append((node.name, ip, sorted(names), sorted(wanted)))
collective = {"pattern": "alltoall", "ranks": 8, "size": "64KB"}
job = SimulatedJob.model_validate({"name": "j", "collective": collective})
report = simulate(spec, (job,), Options(engine=Engine.PACKETS))
picture = svg(fabric)
print(json.dumps({
    "nodes": len(fabric.nodes),
    "counts": [spec.fabric.counts().nics, spec.fabric.counts().sessions],
    "numbered": spec.is_numbered is fabric.numbered,
    "leaf_ports": spec.fabric.leaf_ports,
    "zones": [[division.word, len(division.zones)] for division in divisions(fabric)],
    "picture": [words for words in ("Super", "super-spines: 4", "2 pods") if words in picture],
    "schema": "SuperSpineSpec" in lab_schema()["$defs"],
    "place": node_name(fabric, "superspine#2"),
    "tier": group_tier("superspine"),
    "again": recorded_spec(spec.model_dump(mode="json")) == spec,
    "convergence": spec.fabric.convergence,
    "differences": differences,
    "delivered": report.jobs[0].headlines[0].modelled.median > 0,
    "tiers": [tier.tier for tier in report.tiers],
}))
"""
GONE = """
from rocelab.labfile.adopted import recorded_spec
try:
    recorded_spec({"name": "pods", "fabric": {"kind": "super-spine", "pods": 2}})
except ValueError as error:
    print(error.message)
"""
BROKEN = {"fabrics:super-spine": "lab_fabrics:SuperSpineSpec", "fabrics:torus": "lab_fabrics:Torus"}


@pytest.fixture
def there(tmp_path: Path) -> PluginEnvironment:
    (tmp_path / "pods.yaml").write_text(LAB)
    return PluginEnvironment.with_package(tmp_path, "lab_fabrics", POINTS)


def test_the_page_shows_the_package() -> None:
    page = (ROOT / "docs/fabrics.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    assert code == (PLUGINS / "lab_fabrics/__init__.py").read_text()
    assert len(code.splitlines()) < 80


def test_it_is_planned_drawn_routed_and_simulated(there: PluginEnvironment) -> None:
    done = there.run(PROGRAM, NUMBA_DISABLE_JIT="1")
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == {
        "nodes": 20,
        "counts": [8, 16],
        "numbered": True,
        "leaf_ports": [2, 2],
        "zones": [[None, 0], ["pod", 2]],
        "picture": ["Super", "super-spines: 4", "2 pods"],
        "schema": True,
        "place": "superspine2",
        "tier": 3,
        "again": True,
        "convergence": "3-tier Clos",
        "differences": [],
        "delivered": True,
        "tiers": ["spine-superspine", "spine-superspine", "leaf-spine", "leaf-spine"],
    }


def test_mistakes_in_its_keys_are_named_with_their_line(there: PluginEnvironment) -> None:
    (there.folder / "pods.yaml").write_text(
        "name: pods\nfabric:\n  kind: super-spine\n  leafs: 2\n"
    )
    done = there.rocelab("plan", "pods.yaml")
    assert done.returncode == 2
    assert "pods.yaml:4: fabric.leafs: unknown key\n  hint: did you mean leaves?" in done.stderr


def test_a_kind_is_suggested_for_a_word_like_it(there: PluginEnvironment) -> None:
    (there.folder / "pods.yaml").write_text("name: pods\nfabric: {kind: superspine}\n")
    done = there.rocelab("plan", "pods.yaml")
    assert (
        "expected clos, fat-tree, graph, hpn, rail or super-spine, got 'superspine'" in done.stderr
    )
    assert "did you mean super-spine?" in done.stderr


def test_one_that_cannot_be_loaded_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    there = PluginEnvironment.with_package(tmp_path, "lab_fabrics", BROKEN)
    (there.folder / "pods.yaml").write_text(LAB)
    (there.folder / "torus.yaml").write_text("name: torus\nfabric: {kind: torus}\n")
    planned, done = there.in_turn(("plan", "pods.yaml"), ("plan", "torus.yaml"))
    assert (planned.returncode, done.returncode) == (0, 2)
    assert "torus.yaml:2: fabric: kind of fabric torus of lab-fabrics 1.2 cannot be" in done.stderr


def test_a_layout_that_breaks_a_rule_is_refused_by_the_kinds_name(there: PluginEnvironment) -> None:
    module = there.site / "lab_fabrics/__init__.py"
    module.write_text(module.read_text().replace('node_name("leaf", index, f"p{pod}")', '"leaf"'))
    done = there.rocelab("plan", "pods.yaml")
    assert done.returncode == 2
    assert "kind of fabric super-spine of lab-fabrics 1.2" in done.stderr
    assert "4 nodes have the name leaf" in done.stderr


def test_a_record_of_a_kind_that_is_gone_says_so(tmp_path: Path) -> None:
    assert (
        PluginEnvironment(tmp_path).run(GONE).stdout == "there is no kind of fabric 'super-spine'\n"
    )
    assert "super-spine" not in KINDS.names
