"""The outer headers of tenants' packets, for one flow and for many, and the paths that follow."""

from __future__ import annotations

import random
import socket
from collections import Counter

import numpy as np
import pytest

from rocelab.base.errors import InputError
from rocelab.jobs.placement import NicRef, find_nic
from rocelab.labfile.schemes.base import Headers
from rocelab.labfile.schemes.e_ecmp import EEcmpScheme
from rocelab.linux.fibtable import FibOf
from rocelab.planning.build import build_fabric
from rocelab.planning.tenancy import forwarded_to
from rocelab.prediction.matrix import FlowRow
from rocelab.prediction.predictor import Setting, asked_fabric, paths_on
from rocelab.routes.bulk import address_words, outer_columns
from rocelab.routes.multipath import udp_flow
from rocelab.routes.path import possible_links, walk
from rocelab.routes.planned import planned_fibs
from rocelab.routes.reach import unreached
from rocelab.routes.tunnel import entropy, outer_flow
from rocelab.wire.vxlan import FIRST_SOURCE_PORT, LAST_SOURCE_PORT
from tests.helpers.labs import planned

FABRIC = planned("evpn-vxlan")
FIBS: FibOf = planned_fibs(FABRIC, FABRIC.prefixes)
RED = [find_nic(FABRIC, f"srv{rack}-1") for rack in range(1, 5)]
BLUE = find_nic(FABRIC, "srv3-2")


def test_the_outer_flow_is_between_loopbacks_to_port_4789() -> None:
    flow = udp_flow(RED[0].ip, RED[2].ip, 50001, 4791)
    outer = outer_flow(FABRIC, flow, RED[0], RED[2])

    assert outer is not None
    assert outer.source == FABRIC.node("rtsw1").loopback
    assert outer.destination == FABRIC.node("rtsw3").loopback
    assert (outer.protocol, outer.destination_port) == (17, 4789)
    assert outer.source_port == entropy(flow)


def test_the_entropy_is_the_one_that_a_kernel_was_seen_to_send() -> None:
    """Outer ports of a capture of Linux 6.18, whose bridge had rocelab's program on its port."""
    seen = {50001: 61561, 50002: 62222}

    for source_port, outer_port in seen.items():
        flow = udp_flow("172.16.0.1", "172.16.0.2", source_port, 4791)
        assert entropy(flow) == outer_port


def test_the_entropy_spreads_over_the_dynamic_ports() -> None:
    ports = [entropy(udp_flow("10.0.0.1", "10.0.0.2", port, 4791)) for port in range(49152, 53248)]

    assert FIRST_SOURCE_PORT <= min(ports) < FIRST_SOURCE_PORT + 100
    assert LAST_SOURCE_PORT - 100 < max(ports) <= LAST_SOURCE_PORT
    eighths = Counter((port - FIRST_SOURCE_PORT) * 8 // 16384 for port in ports)
    assert min(eighths.values()) > 4096 / 8 * 0.8


@pytest.mark.parametrize("ends", [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2:9")])
def test_arrays_of_flows_have_the_ports_of_single_ones(ends: tuple[str, str]) -> None:

    family = socket.AF_INET6 if ":" in ends[0] else socket.AF_INET
    source_ports = np.arange(49152, 49452)
    words = [
        address_words(np.frombuffer(socket.inet_pton(family, end), np.uint8).reshape(1, -1))
        for end in ends
    ]
    columns = [np.repeat(word, len(source_ports)).astype(np.uint64) for word in words]
    zeros = np.zeros(len(source_ports), np.uint64)
    headers = Headers(columns[0], columns[1], source_ports.astype(np.uint64), zeros)
    leaf = np.tile(np.array([10, 0, 0, 9], np.uint8), (len(source_ports), 1))

    outer = outer_columns(headers, leaf, leaf)

    singles = [entropy(udp_flow(*ends, int(port), 4791)) for port in source_ports]
    assert outer.source_port.tolist() == singles
    assert set(outer.destination_port.tolist()) == {4789}


def test_many_flows_take_the_paths_of_single_ones_by_planned_and_by_read_tables() -> None:
    draw = random.Random(7)
    rows, walked = [], []
    for _ in range(150):
        source, destination = draw.sample(RED, 2)
        port = draw.randrange(49152, 65536)
        rows.append(
            FlowRow(
                NicRef(source.server, 1), NicRef(destination.server, 1), port, 17, None, None, 0
            )
        )
        path = walk(FABRIC, FIBS, source, destination, port)
        walked.append(tuple(hop.link for hop in path.hops))

    assert paths_on(FABRIC, rows, Setting()) == walked
    assert paths_on(FABRIC, rows, Setting(FIBS)) == walked
    assert len(set(walked)) == 24, "both ways of each pair"


def test_a_flow_within_a_leaf_is_bridged_and_has_no_outer_header() -> None:
    spec = FABRIC.spec.model_dump(mode="json")
    spec["tenants"]["red"]["members"] = ["rtsw1"]
    del spec["tenants"]["blue"]
    fabric = build_fabric(type(FABRIC.spec).model_validate(spec))
    source, destination = (find_nic(fabric, name) for name in ("srv1-1", "srv1-2"))

    path = walk(fabric, planned_fibs(fabric, fabric.prefixes), source, destination, 50000)

    assert (path.nodes, path.outer) == (("srv1-1", "rtsw1", "srv1-2"), None)


def test_no_path_leads_from_a_tenant_to_another() -> None:
    with pytest.raises(InputError, match="nothing leads from one to the other"):
        walk(FABRIC, FIBS, RED[0], BLUE, 50000)
    with pytest.raises(InputError, match="nothing leads from one to the other"):
        possible_links(FABRIC, FIBS, RED[0], BLUE)
    row = FlowRow(NicRef("srv1-1", 1), NicRef("srv3-2", 1), 50000, 17, None, None, 0)
    with pytest.raises(
        InputError, match="srv1-1:1 is in tenant red and srv3-2:1 is in tenant blue"
    ):
        paths_on(FABRIC, [row], Setting())


def test_possible_links_are_those_of_all_paths_of_a_pair() -> None:
    links = {link.name for link in possible_links(FABRIC, FIBS, RED[0], RED[1])}

    assert links == {
        *("srv1-1:rtsw1", "srv2-1:rtsw2"),
        *(f"rtsw{rack}:ctsw{spine}" for rack in (1, 2) for spine in (1, 2)),
    }


def test_every_pair_within_a_tenant_arrives_by_the_planned_tables() -> None:
    assert list(unreached(FABRIC, FIBS)) == []
    without = planned_fibs(FABRIC, [one for one in FABRIC.prefixes if one.origins != ("rtsw2",)])

    assert set(unreached(FABRIC, without)) == {
        (nic.ip, find_nic(FABRIC, name).ip)
        for name, number in (("srv2-1", "1"), ("srv2-2", "2"))
        for rack in (1, 3, 4)
        for nic in [find_nic(FABRIC, f"srv{rack}-{number}")]
    }


def test_a_prefix_of_a_path_is_that_of_the_leafs_loopback() -> None:
    needed = FABRIC.prefixes_holding(forwarded_to(FABRIC, RED[2]))

    assert [prefix.origins for prefix in needed] == [("rtsw3",)]
    assert walk(FABRIC, planned_fibs(FABRIC, needed), RED[0], RED[2], 50000).nodes[3] == "rtsw3"


def test_a_scheme_that_reads_roce_headers_is_refused_wherever_it_is_asked_for() -> None:
    with pytest.raises(InputError, match="scheme e-ecmp reads the headers of RoCE"):
        asked_fabric(FABRIC, EEcmpScheme(kind="e-ecmp"))
