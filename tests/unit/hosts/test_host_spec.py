"""Types of servers as users write them: what ships, a user's own, and topologies of NCCL."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.base.errors import InputError, SpecError
from rocelab.base.models import SpecModel
from rocelab.hosts.host_spec import ASSUMED, HostModelSpec, PcieSpec
from rocelab.hosts.model import LocalKind
from rocelab.labfile.catalog import SERVERS, shipped_names
from rocelab.labfile.load import load_spec
from rocelab.labfile.servers import read_server, server_named
from tests.unit.hosts.servers import server

ROOT = Path(__file__).parents[3]
DATA = ROOT.parents[1] / "shared/data/nccl"


def figures(block: SpecModel, before: str = "") -> list[str]:
    """The keys that a file sets, dotted, but for names, titles and sources."""
    keys = []
    for key in block.model_fields_set - {"name", "title", "sources", "costs.message"}:
        value = getattr(block, key)
        # A PCIe link has one source for both of its figures.
        if isinstance(value, SpecModel) and not isinstance(value, PcieSpec):
            keys += figures(value, f"{before}{key}.")
        else:
            keys.append(f"{before}{key}")
    return keys


@pytest.mark.parametrize("name", shipped_names(SERVERS))
def test_each_figure_that_ships_has_a_source_or_says_that_it_is_assumed(name: str) -> None:
    spec = server_named(name)
    assert spec.name == name
    assert sorted(figures(spec)) == sorted(set(spec.sources) - {"gpu.cap"})
    assert all(len(text) > len(ASSUMED) for text in spec.sources.values())


@pytest.mark.parametrize("name", shipped_names(SERVERS))
def test_a_model_reads_back_from_its_json(name: str) -> None:
    spec = server_named(name)
    again = HostModelSpec.model_validate_json(spec.model_dump_json(exclude_none=True))
    assert again.model == spec.model


def test_a_nic_is_capped_by_the_lower_of_its_pcie_link_and_its_cap() -> None:
    gen5 = {"generation": 5, "lanes": 16}
    assert server(nic={"pcie": gen5}).model.nic_cap_bps == 384e9
    assert server(nic={"pcie": gen5, "cap": "200G"}).model.nic_cap_bps == 200e9
    assert server().model.nic_cap_bps == float("inf")


def test_gpus_share_nics_in_order_unless_affinity_says_which() -> None:
    assert server(gpus=8, nics=4).model.nic_of_gpu == (0, 0, 1, 1, 2, 2, 3, 3)
    assert server(gpus=4, nics=2, affinity=[1, 0, 1, 0]).model.nic_of_gpu == (1, 0, 1, 0)


REFUSED = [
    ("nics: 3", "4 GPUs do not share 3 NICs evenly"),
    ("affinity: [0, 0, 1, 2]", "expected the NIC of each of 4 GPUs"),
    ("affinity: [0, 1, 2, 9]", "expected the NIC of each of 4 GPUs"),
    ("fabric: {kind: mesh, bandwidth: 30GB/s, servers: 2}", "spans 2 servers"),
    ("fabric: {kind: ring, bandwidth: 30GB/s}", "switch"),
    ("fabric: {kind: switch, bandwidth: 400G}", "bandwidth such as"),
    ("costs: {launch: 3}", "duration"),
    ("costs: {launch: 5s}", "1s"),
    ("sources: {fabric.speed: somewhere}", "no key with a value"),
    ("nic: {pcie: {generation: 9}}", "6"),
    ("gpu: 3", "block"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_a_mistake_is_refused_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    keys = {"nics": "nics: 4"}
    keys.pop(line.partition(":")[0], None)
    file = tmp_path / "mine.yaml"
    file.write_text("\n".join(["name: mine", "gpus: 4", *keys.values(), line, ""]))
    with pytest.raises(SpecError) as refused:
        read_server(file)
    (problem,) = refused.value.problems
    assert message in problem.message
    assert problem.line is not None and problem.file == str(file)


def test_a_lab_names_a_file_beside_it_and_holds_its_content(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\ngpus: 4\nnics: 4\ncosts: {launch: 5us}\n")
    lab = tmp_path / "lab.yaml"
    text = (ROOT / "labs/rail-small.yaml").read_text()
    lab.write_text(f"{text}host_model: mine.yaml\n")
    spec = load_spec(lab)
    assert spec.host_model is not None and spec.host_model.model.launch_ns == 5000
    (tmp_path / "mine.yaml").unlink()
    again = type(spec).model_validate_json(spec.model_dump_json())
    assert again.host_model == spec.host_model


def test_an_unknown_name_is_refused_at_the_key(tmp_path: Path) -> None:
    lab = tmp_path / "lab.yaml"
    text = (ROOT / "labs/rail-small.yaml").read_text()
    lab.write_text(f"{text}host_model: dgx-h10\n")
    with pytest.raises(SpecError) as refused:
        load_spec(lab)
    (problem,) = refused.value.problems
    assert problem.key == "host_model" and problem.line == len(text.splitlines()) + 1
    assert "dgx-h100" in (problem.hint or "")
    with pytest.raises(InputError, match="there is no server model"):
        server_named("dgx-h10")


GPU = (
    '<pci busid="{bus}" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">{inner}</pci>'
)
NIC = '<pci busid="{bus}" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16"/>'


def bridge(number: int, inner: str) -> str:
    gpu = GPU.format(bus=f"0000:{number}0:00.0", inner=inner)
    nic = NIC.format(bus=f"0000:{number}1:00.0")
    return f'<pci busid="0000:{number}f:00.0" class="0x060400">{gpu}{nic}</pci>'


def topology(links: list[str]) -> str:
    inner = "".join(bridge(number, link) for number, link in enumerate(links))
    return f'<system version="1"><cpu numaid="0">{inner}</cpu></system>'


def read_topology(folder: Path, text: str) -> HostModelSpec:
    file = folder / "topo.xml"
    file.write_text(text)
    return read_server(file)


def test_nvlink_to_a_switch_is_read_from_nccl_s_dump(tmp_path: Path) -> None:
    link = '<gpu dev="0" sm="90" rank="0"><nvlink target="0000:aa:00.0" count="18"/></gpu>'
    spec = read_topology(tmp_path, topology([link] * 4))
    assert spec.model.local is not None and spec.model.local.kind is LocalKind.SWITCH
    assert spec.model.local.bandwidth_bps == pytest.approx(8 * 18 * 20.6e9)
    assert spec.model.nic_cap_bps == 192e9 and spec.model.gpu_cap_bps == 384e9
    assert spec.model.nic_of_gpu == (0, 1, 2, 3)


def test_links_between_all_gpus_are_a_mesh(tmp_path: Path) -> None:
    links = [
        '<gpu sm="304" gcn="gfx942">'
        + "".join(
            f'<xgmi target="0000:{other}0:00.0" count="1"/>' for other in range(4) if other != gpu
        )
        + "</gpu>"
        for gpu in range(4)
    ]
    spec = read_topology(tmp_path, topology(links))
    assert spec.model.local is not None and spec.model.local.kind is LocalKind.MESH
    assert spec.model.local.bandwidth_bps == pytest.approx(8 * 3 * 48e9)


def test_without_links_gpus_take_pcie_and_the_source_says_that_it_is_assumed(
    tmp_path: Path,
) -> None:
    spec = read_topology(tmp_path, topology([""] * 2))
    assert spec.model.local is not None and spec.model.local.kind is LocalKind.PCIE
    assert {"fabric.kind", "fabric.bandwidth"} <= set(spec.model.assumed)


HOSTILE = [
    ('<!DOCTYPE x [<!ENTITY a "aaaa">]><system/>', "DOCTYPE"),
    ("<system>" + "<pci>" * 100 + "</pci>" * 100 + "</system>", "deeper than"),
    ("<system><cpu>", "not XML"),
    ("<graphs/>", "expected a topology"),
    ("<system/>", "no GPU in it"),
    (topology([""]).replace("0x0207", "0x0108"), "no NIC in it"),
    ("<system>" + "<cpu/>" * 30_000 + "</system>", "more than 20,000"),
    (
        topology(['<gpu sm="90"><nvlink target="x" count="18"/></gpu>', ""]),
        "different numbers",
    ),
]


@pytest.mark.parametrize(("text", "message"), HOSTILE, ids=[message for _, message in HOSTILE])
def test_a_hostile_or_uneven_topology_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_topology(tmp_path, text)


@pytest.mark.skipif(not DATA.is_dir(), reason="the published topologies are not here")
def test_published_topologies_are_read() -> None:
    azure = read_server(DATA / "azure-ndv5-topo.xml").model
    assert (azure.gpus, azure.nics, azure.nic_cap_bps) == (8, 8, 384e9)
    amd = read_server(DATA / "rccl-topo_8p_940.xml").model
    assert amd.nic_of_gpu == tuple(range(8))
    assert amd.local is not None and amd.local.kind is LocalKind.MESH
    assert amd.local.bandwidth_bps == 8 * 336e9
