"""Commands name a port that was removed or renamed in its node, and mend the others."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocelab import record
from rocelab.base.errors import ExpectationError, MachineError
from rocelab.faults import injector
from rocelab.faults.asked import asked_fault
from rocelab.faults.base import Fault
from rocelab.faults.kinds.carrier_down import CarrierDown, CarrierDownSpec
from rocelab.faults.kinds.power_loss import PowerLossSpec
from rocelab.faults.record import read_faults, write_fault
from rocelab.faults.running import inject_and_leave
from rocelab.lab import wiring
from rocelab.lab.lab import Lab
from rocelab.lab.node import NamespaceNode, PortGoneError
from rocelab.linux import namespaces
from rocelab.linux.bracket import Bracket
from rocelab.observe import devices
from rocelab.record import LabFiles
from rocelab.traffic import taps

PLANNED = Lab.planned("tiny").unstarted()
UPLINKS = PLANNED.fabric.uplinks("rtsw1")
GONE, KEPT = UPLINKS[:2]


def interface(index: int) -> SimpleNamespace:
    return SimpleNamespace(index=index, up=False)


@pytest.fixture(params=["removed", "renamed", "replaced"])
def ports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel says of the ports of rtsw1, all of which are down."""
    ports = {KEPT.a.interface: interface(KEPT.a.index)}
    if request.param == "renamed":
        ports["x"] = interface(GONE.a.index)
    if request.param == "replaced":
        ports[GONE.a.interface] = interface(99)

    def kernel(_: Path, read: Callable[[], object]) -> object:
        return (ports, set()) if "port_faults" in read.__qualname__ else ports

    monkeypatch.setattr(namespaces, "inside", kernel)


def test_a_port_that_is_gone_is_one_of_the_problems_of_its_node(ports: None) -> None:
    node = PLANNED.node("rtsw1")
    assert node.port_faults([GONE, KEPT]) == [f"{GONE.a} is gone", f"{KEPT.a} is down"]


def test_only_the_ports_that_are_there_are_set_up_and_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[bytes] = []

    def send(_: NamespaceNode, messages: Sequence[bytes]) -> Bracket:
        sent.extend(messages)
        return Bracket.now()

    result = {"x": interface(KEPT.a.index)}
    monkeypatch.setattr(namespaces, "inside", lambda *_: result)
    monkeypatch.setattr(NamespaceNode, "send", send)
    node = PLANNED.node("rtsw1")
    node.lower_ports([GONE, KEPT])
    assert sent == [wiring.set_up(KEPT.a.index, up=False)]
    sent.clear()
    node.raise_ports([GONE, KEPT])
    assert sent == wiring.bring_up(KEPT, "rtsw1")


@pytest.mark.parametrize("asked", ["carrier-down link=rtsw1:ctsw1", "power-loss switch=rtsw1"])
def test_a_fault_of_a_port_that_is_gone_is_refused_and_not_recorded(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    monkeypatch.setattr(namespaces, "inside", lambda *_: {})
    LabFiles("tiny").root.mkdir()
    kind, *keys = asked.split()
    spec = asked_fault(kind, keys)
    assert isinstance(spec, CarrierDownSpec | PowerLossSpec)
    with pytest.raises(MachineError, match=r"^\S+:\S+ is gone.*\n  hint: take the lab down"):
        inject_and_leave(PLANNED, spec)
    assert read_faults(LabFiles("tiny")) == ()


def cannot_be_undone(*_: object) -> Bracket:
    raise MachineError("no such device")


@pytest.mark.parametrize(
    ("restore", "said"),
    [
        (lambda *_: Bracket.now(), f"not undone: {GONE.a} is gone\n"),
        (
            lambda fault, _: cannot_be_undone() if GONE in fault.links else Bracket.now(),
            "no such device",
        ),
    ],
)
def test_a_fault_that_cannot_be_undone_keeps_no_other_broken_or_recorded(
    restore: Callable[..., Bracket], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it waited for, since nothing will change."""
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    monkeypatch.setattr(namespaces, "inside", lambda *_: {})
    monkeypatch.setattr(CarrierDown, "restore", restore)
    monkeypatch.setattr(
        CarrierDown,
        "remains",
        lambda fault, _: (f"{GONE.a} is gone",) if GONE in fault.links else (),
    )
    files = LabFiles("tiny")
    files.root.mkdir()
    faults: list[Fault] = [CarrierDown((GONE,)), CarrierDown((KEPT,))]
    recorded = []
    for link, fault in zip((GONE, KEPT), faults, strict=True):
        spec = asked_fault("carrier-down", [f"link={link.a}"])
        assert isinstance(spec, CarrierDownSpec)
        recorded.append(write_fault(files, spec, fault, driver=None))
    with pytest.raises((ExpectationError, MachineError), match=said):
        injector.undo(PLANNED, list(zip(faults, recorded, strict=True)))
    assert [fault.number for fault in read_faults(files)] == [recorded[0].number]


def test_counters_say_which_port_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = devices.DeviceWatch(PLANNED, ())
    monkeypatch.setattr(watch, "_netns_of", {}, raising=False)
    monkeypatch.setattr(watch, "_before", {}, raising=False)
    monkeypatch.setattr(devices, "_all_counters", lambda _: {n: {} for n in PLANNED.fabric.nodes})
    with pytest.raises(PortGoneError, match=r"^\S+:\S+ is gone"):
        watch.read(0)


def test_a_tap_says_which_port_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket:
        def __init__(self, *_: int) -> None: ...

        def setsockopt(self, *_: int) -> None: ...

        def close(self) -> None: ...

        def bind(self, address: tuple[str, int]) -> None:
            if address[0] == GONE.a.interface:
                raise OSError(errno.ENODEV, "No such device")

    def visit(netns_of: Mapping[str, int], listen: Callable[[str], None]) -> None:
        for node in netns_of:
            listen(node)

    monkeypatch.setattr(socket, "socket", Socket)
    monkeypatch.setattr(taps, "attach_filter", lambda *_: None)
    monkeypatch.setattr(namespaces, "inside_each", visit)
    taps.Taps(PLANNED.fabric, {"rtsw1": 0}, [KEPT], b"").close()
    with pytest.raises(MachineError, match=f"^{GONE.a} is gone"):
        taps.Taps(PLANNED.fabric, {"rtsw1": 0}, [KEPT, GONE], b"")
