"""Kernel settings of nodes that others made: what would keep packets from the kernel's routes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rocelab import record
from rocelab.lab import wiring
from rocelab.lab.settings import Deviation, read_deviations
from rocelab.linux import links, namespaces, netlink
from rocelab.planning.build import build_fabric
from rocelab.record import LabFiles
from tests.helpers.adopted_sample import leaf_spine
from tests.helpers.nftables import change_table

pytestmark = pytest.mark.side_by_side

FABRIC = build_fabric(leaf_spine())
CONF = Path("/proc/sys/net/ipv4/conf")
NODES = ("leaf1", "host1")
links_of = FABRIC.links_of.__getitem__
MTU = links_of("leaf1")[0].mtu


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabFiles]:
    """A leaf that forwards and a host that does not, whose reverse-path filter is loose."""
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    files = LabFiles(FABRIC.name)
    files.netns.mkdir(parents=True)

    def make(node: str) -> None:
        os.close(namespaces.create(files.netns_of(node)))
        Path(CONF, "all/forwarding").write_text(str(int(node == "leaf1")))
        for where in ("all", "default"):
            Path(CONF, where, "rp_filter").write_text("2")
        with netlink.open_socket() as channel:
            mtu = netlink.attribute(links.IFLA_MTU, netlink.u32(MTU))
            pairs = [links.veth(link.port(node).interface, shared=mtu) for link in links_of(node)]
            netlink.send_batch(channel, [*pairs, links.veth("eth0")])

    for node in NODES:
        namespaces.on_own_thread(partial(make, node))
    yield files
    for node in NODES:
        namespaces.detach_mount(files.netns_of(node))


def write(files: LabFiles, node: str, setting: str, value: str) -> None:
    namespaces.inside(files.netns_of(node), lambda: Path(CONF, setting).write_text(value))


def test_a_loose_filter_and_a_host_that_does_not_forward_are_no_fault(files: LabFiles) -> None:
    write(files, "leaf1", "eth0/rp_filter", "1")  # of no link
    assert read_deviations(FABRIC, files) == ()


def test_a_strict_filter_is_found_at_the_port_and_for_all_ports(files: LabFiles) -> None:
    write(files, "leaf1", "all/rp_filter", "0")
    write(files, "leaf1", "eth1/rp_filter", "1")
    for where in ("all", "eth1"):
        write(files, "host1", f"{where}/rp_filter", "1")
    assert read_deviations(FABRIC, files) == tuple(
        Deviation(place, "ipv4/conf/*/rp_filter", "1", "0")
        for place in ("leaf1:eth1", "host1:eth1")
    )


def test_a_port_of_a_switch_that_does_not_forward_is_found(files: LabFiles) -> None:
    write(files, "leaf1", "eth2/forwarding", "0")
    (deviation,) = read_deviations(FABRIC, files)
    assert deviation == Deviation("leaf1:eth2", "ipv4/conf/*/forwarding", "0", "1")


@pytest.mark.parametrize(("mtu", "is_found"), [(MTU - 1, True), (MTU, False), (MTU + 1, False)])
def test_a_port_that_takes_less_than_its_link_is_found(
    files: LabFiles, mtu: int, is_found: bool
) -> None:
    def change() -> None:
        with netlink.open_socket() as channel:
            (port,) = (port for port in links.read_links(channel) if port.name == "eth1")
            netlink.send_batch(channel, [wiring.set_mtu(port.index, mtu)])

    namespaces.inside(files.netns_of("leaf1"), change)
    deviation = Deviation("leaf1:eth1", "MTU", str(mtu), str(MTU))
    assert read_deviations(FABRIC, files) == ((deviation,) if is_found else ())


def test_a_packet_filter_is_found(files: LabFiles) -> None:
    netns = files.netns_of("leaf1")
    namespaces.inside(netns, lambda: change_table("new", "probe"))
    assert read_deviations(FABRIC, files) == (
        Deviation("leaf1", "packet filter", "inet probe", "none"),
    )
