"""A capture of several ports, with programs in place of tcpdump: the order of packets, where it
ends, and what it says was lost."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocelab.base.errors import InputError
from rocelab.lab.lab import Lab
from rocelab.observe import portcapture
from rocelab.observe.portcapture import PortCapture, PortName, ports_named

TCPDUMP = """
import signal, struct, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)  # tcpdump says what it counted, then ends
print("listening on it", file=sys.stderr, flush=True)
sys.stdout.buffer.write(struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
sys.stdout.flush()
time.sleep(float(sys.argv[1]))
for time_ns in map(int, sys.argv[2:]):
    sys.stdout.buffer.write(struct.pack("=IIII", *divmod(time_ns, 10**9), 1, 1) + b"x")
sys.stdout.flush()
print("2 packets captured\\n9 packets received by filter\\n3 packets dropped", file=sys.stderr)
"""
NOW_NS = time.time_ns()
PORTS = (PortName("rtsw1", "ctsw1", "ctsw1"), PortName("ctsw1", "rtsw1", "rtsw1"))


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Captures ports whose packets have these times, in ns after NOW_NS."""

    def of(times: Sequence[Sequence[int]], **limits: int) -> tuple[list[tuple[int, int]], int]:
        waiting = list(times)

        def start(netns: Path, interface: str, *options: str, output: int) -> Any:
            # A later port's packets are read later.
            delay_s = 0.2 * (len(times) - len(waiting))
            words = [str(NOW_NS + after) for after in waiting.pop(0)]
            program = [sys.executable, "-c", TCPDUMP, str(delay_s), *words]
            return subprocess.Popen(program, stdout=output, stderr=subprocess.PIPE)

        monkeypatch.setattr(portcapture, "start_tcpdump", start)
        lab: Any = SimpleNamespace(node=lambda name: SimpleNamespace(netns=Path(name)))
        with PortCapture(lab, PORTS[: len(times)]) as capture:
            data = b"".join(capture.blocks(**limits))
        packets = list(packets_of(data))
        assert capture.packets == len(packets)
        return packets, capture.lost

    return of


def packets_of(data: bytes) -> Any:
    """The number of the interface and the time after NOW_NS of every packet."""
    while data:
        kind, length, interface, high, low = struct.unpack_from("=IIIII", data)
        if kind == 6:
            yield interface, (high << 32 | low) - NOW_NS
        data = data[length:]


def test_packets_of_several_ports_come_in_order_of_time(
    captured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As long as both programs may take to start.
    monkeypatch.setattr(portcapture, "_HOLD_NS", 3_600 * 10**9)
    packets, _ = captured([(10, 30, 50), (20, 40)])
    assert packets == [(0, 10), (1, 20), (0, 30), (1, 40), (0, 50)]


def test_it_ends_after_as_many_packets_of_all_ports(captured: Any) -> None:
    packets, _ = captured([(10, 30, 50), (20, 40)], count=3)
    assert len(packets) == 3


def test_packets_that_a_port_lost_are_counted_and_those_after_the_last_one_are_not(
    captured: Any,
) -> None:
    # 3 were dropped, and 4 of 9 that passed the filter were not read.
    assert captured([(10,)])[1] == 7
    assert captured([(10, 20)], count=1)[1] == 3
    assert captured([(10,), (20,)])[1] == 14


@pytest.mark.parametrize(
    ("lab", "text", "ports"),
    [
        ("zone-small", "rtsw1:ctsw2", ["rtsw1:ctsw2"]),
        ("zone-small", "srv2-1:1", ["srv2-1:rtsw2"]),
        ("hpn-small", "srv2-1:2", ["srv2-1:s2-tor2a", "srv2-1:s2-tor2b"]),
    ],
)
def test_a_port_is_named_by_its_interface_or_its_nic(lab: str, text: str, ports: list[str]) -> None:
    named = ports_named(Lab.planned(lab).unstarted(), text)
    assert list(map(str, named)) == ports


@pytest.mark.parametrize("text", ["leaf1:eth1/1", "leaf1:eth1-1"])
def test_a_port_is_captured_by_its_name_on_the_switch_or_its_interface(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "named.yaml"
    file.write_text(
        "name: named\nfabric:\n  kind: graph\n"
        "  nodes: {leaf1: {role: leaf}, srv1: {role: server}}\n"
        "  links: ['srv1:e0 -- leaf1:eth1/1']\n"
    )
    lab = Lab.planned(file).unstarted()
    (port,) = ports_named(lab, text)
    assert (str(port), port.interface) == ("leaf1:eth1/1", "eth1-1")
    with pytest.raises(InputError) as caught:
        ports_named(lab, "leaf1:eth1/9")
    assert caught.value.hint == "its interfaces are eth1/1"


def test_a_nic_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match="srv2-1 has no NIC 9"):
        ports_named(Lab.planned("zone-small").unstarted(), "srv2-1:9")
