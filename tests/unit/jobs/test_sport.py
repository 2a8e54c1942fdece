"""Source ports against values computed by hand from the kernel's formulas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.jobs.sport import (
    SourcePort,
    flow_label,
    hash_32,
    source_port,
    udp_sport,
    unchecked_source_port,
)

QPNS = st.integers(0, 2**24 - 1)
PORTS = st.integers(0xC000, 0xFFFF)


@pytest.mark.parametrize(
    ("local", "remote", "label", "port"),
    [
        # 0x11 * 0x12 = 0x132: nothing above bit 19 to fold in.
        (0x11, 0x12, 0x00132, 0xC132),
        # 0x100 * 0x4000 = 0x400000; >> 20 gives 4; the low 20 bits are 0.
        (0x100, 0x4000, 0x00004, 0xC004),
        # 0x1234 * 0x5678 = 0x6260060; ^ 0x62 = 0x6260002; low 20 bits 0x60002.
        # Port: 0x0002 ^ (0x60002 >> 14 = 0x18) = 0x001A.
        (0x1234, 0x5678, 0x60002, 0xC01A),
        # (2^24-1)^2 = 0xFFFFFE000001; ^ >> 20 (0xFFFFFE0) = 0xFFFFF1FFFFE1; ^ >> 40 (0xFF) =
        # ...FF1E. Port: 0x3F1E ^ 0x3F = 0x3F21.
        (0xFFFFFF, 0xFFFFFF, 0xFFF1E, 0xFF21),
    ],
)
def test_the_flow_label_formula_gives_what_linux_gives(
    local: int, remote: int, label: int, port: int
) -> None:
    assert flow_label(local, remote) == label
    assert udp_sport(label) == port
    mode = SourcePort.FLOW_LABEL
    assert source_port(mode, local_qpn=local, remote_qpn=remote, base=0xC000) == port


@pytest.mark.parametrize(
    ("local", "port"),
    [
        (0, 0xC000),
        # 0x61C88647 >> 18 = 0x1872.
        (1, 0xD872),
        # 2 * 0x61C88647 = 0xC3910C8E; >> 18 = 0x30E4.
        (2, 0xF0E4),
        # 17 * 0x61C88647 = 0x67E50EAB7, of which 32 bits are 0x7E50EAB7; >> 18 = 0x1F94.
        (17, 0xDF94),
    ],
)
def test_the_rxe_formula_gives_what_linux_gives(local: int, port: int) -> None:
    for remote in (0, 99):
        mode = SourcePort.RXE
        assert source_port(mode, local_qpn=local, remote_qpn=remote, base=0xC123) == port


def test_the_hash_is_the_upper_bits_of_a_multiplication_by_the_golden_ratio() -> None:
    assert hash_32(1, bits=32) == 0x61C88647
    assert hash_32(1, bits=8) == 0x61


@given(QPNS, QPNS)
def test_both_ends_of_a_connection_compute_one_flow_label(local: int, remote: int) -> None:
    assert flow_label(local, remote) == flow_label(remote, local) < 2**20


@given(st.sampled_from(SourcePort), QPNS, QPNS, PORTS)
def test_every_source_port_is_in_the_range_of_rocev2(
    mode: SourcePort, local: int, remote: int, base: int
) -> None:
    assert 0xC000 <= source_port(mode, local_qpn=local, remote_qpn=remote, base=base) <= 0xFFFF


@given(st.integers(0, 2**24 - 257), PORTS)
def test_per_qp_gives_the_queue_pairs_of_a_connection_ports_of_their_own(
    first: int, base: int
) -> None:
    ports = {
        source_port(SourcePort.PER_QP, local_qpn=first + qp, remote_qpn=9, base=base)
        for qp in range(256)
    }
    assert len(ports) == 256


def test_fixed_gives_every_queue_pair_the_base_port() -> None:
    ports = {
        source_port(SourcePort.FIXED, local_qpn=qp, remote_qpn=qp + 1, base=0xC0DE)
        for qp in range(2, 258)
    }
    assert ports == {0xC0DE}


def test_sixteen_queue_pairs_in_a_row_nearly_always_differ_by_linuxs_formula() -> None:
    for first in range(100, 4000, 16):
        ports = {
            source_port(SourcePort.FLOW_LABEL, local_qpn=qp, remote_qpn=qp + 7, base=0xC000)
            for qp in range(first, first + 16)
        }
        assert len(ports) >= 14


@given(st.sampled_from(SourcePort), st.lists(st.tuples(QPNS, QPNS), min_size=1), PORTS)
def test_the_simulators_arrays_give_the_ports_that_a_lab_computes_one_by_one(
    mode: SourcePort, ends: list[tuple[int, int]], base: int
) -> None:
    local, remote = np.array(ends, np.int64).T
    assert unchecked_source_port(mode, local, remote, base).tolist() == [
        source_port(mode, local_qpn=end, remote_qpn=other, base=base) for end, other in ends
    ]


@pytest.mark.parametrize(("local", "base"), [(2**24, 0xC000), (-1, 0xC000), (2, 0xBFFF)])
def test_a_number_that_no_packet_can_carry_is_refused(local: int, base: int) -> None:
    with pytest.raises(ValueError, match=r"24 bits|0xC000"):
        source_port(SourcePort.RXE, local_qpn=local, remote_qpn=2, base=base)


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport rocelab.jobs.sport\n"
        "known = {*sys.stdlib_module_names, 'rocelab'}\n"
        "print({name.partition('.')[0] for name in set(sys.modules) - before} - known)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "set()"
