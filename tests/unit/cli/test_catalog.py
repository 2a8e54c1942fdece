"""`rocelab labs`: every lab that ships, with the figures of its plan."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rocelab.cli.catalog import CatalogRow, available_memory, catalog_row, memory_text
from rocelab.labfile.catalog import LABS, find_lab, shipped_names
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from tests.unit.conftest import CommandLine

FABRICS = (Path(__file__).parents[3] / "docs/fabrics.md").read_text()
LARGE = {"fat-tree-48", "hpn-pod", "llama3-24k", "meta-32k", "zones-28-24k"}
SMALL = [name for name in shipped_names(LABS) if name not in LARGE]
EDGES = (
    "{kind: hpn, servers_per_segment: 0}",
    "{kind: hpn, servers_per_segment: 1, planes: 1, cores: 3, links_per_core: 2}",
    "{kind: hpn, ports_per_nic: 1, planes: 1, links_per_pair: 2}",
    "{kind: rail, servers_per_unit: 0, links_per_pair: 3}",
    "{kind: fat-tree, k: 2, servers_per_edge: 0}",
    "{kind: fat-tree, k: 4, servers_per_edge: 5}",
    "{kind: clos, zones: 3, atsws: 2, links_per_atsw: 3, links_per_pair: 2, servers_per_rack: 0}",
    # The first takes all of 198.18.0.0/15, the second would take more.
    "{kind: clos, racks: 255, spines: 1, servers_per_rack: 16, nics_per_server: 8}",
    "{kind: clos, racks: 255, spines: 2, servers_per_rack: 16, nics_per_server: 8}",
)


def catalog_rows(available_bytes: int) -> list[CatalogRow]:
    return [catalog_row(load_spec(find_lab(name)), available_bytes) for name in shipped_names(LABS)]


def assert_as_planned(spec: LabSpec) -> None:
    fabric = build_fabric(spec)
    counts = spec.counts()
    # A GPU has a NIC in the first network; those in further ones are no GPUs.
    first = fabric.parts[0] if fabric.parts else fabric
    nics = {(link.a.node, link.a.address) for link in first.links}
    servers = {node.name for node in fabric.servers}
    assert counts.switches == len(fabric.switches)
    assert counts.servers == len(servers)
    assert counts.nics == len({nic for nic in nics if nic[0] in servers})
    assert catalog_row(spec, 0).sessions == len(fabric.sessions)
    assert spec.is_numbered == fabric.numbered


@pytest.mark.parametrize("name", SMALL)
def test_counts_of_a_lab_that_ships_are_those_of_its_plan(name: str) -> None:
    assert_as_planned(load_spec(find_lab(name)))


@pytest.mark.parametrize("fabric", EDGES)
def test_counts_of_unusual_fabrics_are_those_of_their_plans(fabric: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: t-counts\nfabric: {fabric}\n")
    assert_as_planned(load_spec(file))


def test_every_lab_of_the_catalog_has_a_row() -> None:
    rows = catalog_rows(available_bytes=16 * 10**9)
    by_name = {row.name: row for row in rows}
    assert by_name["tiny"].fits and not by_name["meta-32k"].fits
    assert "BFD" in by_name["bfd"].uses and "BFD" not in by_name["tiny"].uses
    unnumbered = {row.name for row in rows if "IPv6 (unnumbered)" in row.uses}
    assert "unnumbered" in unnumbered and "tiny" not in unnumbered
    large = by_name["meta-32k"]
    assert (large.switches, large.servers, large.gpus) == (2178, 4032, 32256)


def test_a_lab_fits_where_there_is_just_its_memory() -> None:
    spec = load_spec(find_lab("tiny"))
    needed = catalog_row(spec, 0).memory_bytes
    assert needed == 6 * 14_000_000 + 2 * 8 * 229_376
    assert [catalog_row(spec, needed - less).fits for less in (0, 1)] == [True, False]


def test_the_estimate_is_near_what_the_benchmark_measured() -> None:
    estimate = catalog_row(load_spec(find_lab("zone-252x18")), 0).memory_bytes
    assert estimate == pytest.approx(5.995e9, rel=0.1)  # `rocelab status`, 28 November 2026


@pytest.mark.parametrize("row", catalog_rows(0), ids=lambda row: row.name)
def test_texts_give_the_memory_that_labs_gives(row: CatalogRow) -> None:
    memory = memory_text(row.memory_bytes)
    (line,) = (line for line in FABRICS.splitlines() if line.startswith(f"| `{row.name}` |"))
    counts = (row.switches, row.servers, row.gpus, row.sessions)
    cells = (f"`{row.name}`", row.kind, *(f"{count:,}" for count in counts), memory)
    assert line == f"| {' | '.join(cells)} |"
    comment = find_lab(row.name).read_text().partition("\nname:")[0].replace("\n# ", " ")
    assert set(re.findall(r"[\d.]+ GB", comment)) <= {memory}


def test_what_a_lab_uses_follows_from_its_spec(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    text = "name: t-uses\nfabric: {kind: clos}\n"
    file.write_text(text + 'hashing: 0\nqueues: {engine: "off"}\n')
    assert catalog_row(load_spec(file), 0).uses == ()
    file.write_text(text + "scheme: e-ecmp\nqueues: {engine: red}\n")
    assert catalog_row(load_spec(file), 0).uses == ("hash seed", "red queues", "bpf steering")


def test_available_memory_is_in_bytes() -> None:
    assert available_memory("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:    4 kB\n") == 4096


def test_the_catalog_is_listed_for_people_and_for_programs(rocelab: CommandLine) -> None:
    outcome = rocelab("labs", "--json")
    assert outcome.code == 0
    assert tuple(row["name"] for row in json.loads(outcome.out)) == shipped_names(LABS)
    result = rocelab("labs")
    assert result.code == 0
    assert all(f" {name} " in result.out for name in shipped_names(LABS))
    assert "simulate only" in result.out
