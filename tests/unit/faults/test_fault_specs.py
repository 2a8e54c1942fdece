"""Every kind of fault as a file has it: what it is on a fabric, and what does not fit one."""

from __future__ import annotations

import pytest

from rocelab.base.errors import InputError
from rocelab.faults.asked import kinds
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.fibre import BrokenFibre
from rocelab.faults.kinds.mtu_mismatch import MtuMismatch
from rocelab.faults.kinds.pause_deaf import PauseDeaf
from rocelab.faults.kinds.pause_storm import PauseStorm
from rocelab.faults.kinds.rate_degrade import RateDegrade
from rocelab.faults.kinds.session_reset import SessionReset
from rocelab.faults.kinds.slow_receiver import SlowDrain
from rocelab.lab.adoption.graph import lab_of
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from tests.helpers.adopted_sample import FRR, LEAF_SPINE, surveyed


def planned(**extra: object) -> Fabric:
    clos = {"kind": "clos", "racks": 3, "spines": 2, "servers_per_rack": 1}
    return plan(LabSpec.model_validate({"name": "specs", "fabric": clos, **extra}))


FABRIC = planned()
LOSSLESS = planned(queues={"pfc": {"classes": [2, 3]}})
OF_LOSSLESS_CLASSES = {"pause-storm", "pause-deaf"}
LINK: dict[str, object] = {"link": "rtsw1:ctsw1"}
SWITCH: dict[str, object] = {"switch": "rtsw1"}
NIC: dict[str, object] = {"server": "srv1-1"}
LEAST: dict[str, dict[str, object]] = {
    "carrier-down": LINK,
    "blackhole": LINK,
    "grey-loss": LINK,
    "corruption": LINK,
    "delay": LINK,
    "rate-degrade": LINK,
    "mtu-mismatch": LINK,
    "nic-port-down": NIC,
    "slow-receiver": NIC,
    "pause-storm": NIC,
    "pause-deaf": LINK,
    "host-pause": NIC,
    "power-loss": SWITCH,
    "daemon-crash": SWITCH,
    "daemon-hang": SWITCH,
    "drain": SWITCH,
    "abrupt-removal": SWITCH,
    "session-reset": SWITCH,
    "route-leak": SWITCH,
    "bad-prefix": {**SWITCH, "of": "rtsw2"},
}


def resolved(kind: str, **keys: object) -> object:
    fabric = LOSSLESS if kind in OF_LOSSLESS_CLASSES else FABRIC
    return SINGLE_FAULT.validate_python({"kind": kind, **LEAST[kind], **keys}).resolve(fabric)


def test_every_kind_that_is_one_fault_is_a_fault_of_that_kind_on_a_fabric() -> None:
    assert {kind.name for kind in kinds()} == {*LEAST, "flapping", "campaign"}
    for kind in LEAST:
        fault = resolved(kind)
        assert fault.kind == kind  # type: ignore[attr-defined]
        assert set(fault.nodes) <= set(FABRIC.node_by_name)  # type: ignore[attr-defined]


def test_a_side_is_one_fibre_and_an_mtu_is_the_upper_ends() -> None:
    assert isinstance(resolved("carrier-down", side="rtsw1"), BrokenFibre)
    mismatch = resolved("mtu-mismatch")
    assert isinstance(mismatch, MtuMismatch)
    assert mismatch.side == "ctsw1"


def test_sessions_are_reset_with_one_neighbour_or_with_all() -> None:
    every, one = resolved("session-reset"), resolved("session-reset", peer="ctsw2")
    assert isinstance(every, SessionReset)
    assert isinstance(one, SessionReset)
    assert [link.b.node for link in every.links] == ["ctsw1", "ctsw2"]
    assert [link.b.node for link in one.links] == ["ctsw2"]


@pytest.mark.parametrize("kind", sorted(OF_LOSSLESS_CLASSES))
def test_a_lab_without_lossless_classes_refuses_faults_of_them(kind: str) -> None:
    spec = SINGLE_FAULT.validate_python({"kind": kind, **LEAST[kind]})
    with pytest.raises(InputError, match="lab specs has no lossless classes") as refused:
        spec.resolve(FABRIC)
    assert refused.value.hint == "set queues.pfc in its file"


def test_a_storm_pauses_every_lossless_class_or_those_that_are_named() -> None:
    every, one = resolved("pause-storm"), resolved("pause-storm", classes=[3, 3])
    assert isinstance(every, PauseStorm)
    assert isinstance(one, PauseStorm)
    assert (every.classes, one.classes) == ((2, 3), (3,))
    assert every.subject == "srv1-1:rtsw1"


def test_ports_are_deaf_at_both_ends_or_where_they_send_towards_a_node() -> None:
    deaf = resolved("pause-deaf", link="srv1-1:rtsw1", towards="rtsw1")
    assert isinstance(deaf, PauseDeaf)
    assert deaf.towards == "rtsw1"


def test_a_slow_receiver_fills_its_own_buffer_only_in_a_lab_with_lossless_classes() -> None:
    spec = SINGLE_FAULT.validate_python({"kind": "slow-receiver", **NIC})
    assert isinstance(spec.resolve(FABRIC), RateDegrade)
    slow = spec.resolve(LOSSLESS)
    assert isinstance(slow, SlowDrain)
    assert slow.kind == "slow-receiver"


@pytest.mark.parametrize(
    ("kind", "keys", "said"),
    [
        ("blackhole", {"link": "rtsw1:ctsw9"}, "no interface ctsw9"),
        ("delay", {"towards": "rtsw2"}, "rtsw1:ctsw1 does not end at rtsw2"),
        ("carrier-down", {"side": "ctsw2"}, "does not end at ctsw2"),
        ("mtu-mismatch", {"side": "ctsw2"}, "does not end at ctsw2"),
        ("rate-degrade", {"link": "srv1-1:rtsw1"}, "srv1-1 paces itself"),
        ("nic-port-down", {"nic": 9}, "srv1-1 has no NIC 9"),
        ("nic-port-down", {"port": 2}, "has no port 2"),
        ("pause-storm", {"nic": 2}, "has no NIC 2"),
        ("pause-storm", {"classes": [1, 3]}, "class 1 of lab specs is not lossless"),
        ("pause-deaf", {"towards": "rtsw2"}, "rtsw1:ctsw1 does not end at rtsw2"),
        ("host-pause", {"server": "rtsw1"}, "rtsw1 is a switch"),
        ("power-loss", {"switch": "srv1-1"}, "srv1-1 is a server"),
        ("daemon-crash", {"daemon": "bfdd"}, "runs no bfdd"),
        ("session-reset", {"peer": "rtsw2"}, "rtsw1 has no session with rtsw2"),
        ("route-leak", {"switch": "ctsw1"}, "ctsw1 has no rack"),
        ("bad-prefix", {"of": "rtsw1"}, "announces its own prefix"),
    ],
)
def test_what_does_not_fit_the_fabric_is_refused(
    kind: str, keys: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        resolved(kind, **keys)


def test_there_is_no_leak_where_switches_pass_on_all_routes() -> None:
    routing = {"valley_free": False}
    open_fabric = plan(LabSpec.model_validate({"name": "specs", "fabric": {}, "routing": routing}))
    leak = SINGLE_FAULT.validate_python({"kind": "route-leak", "switch": "rtsw1"})
    with pytest.raises(InputError, match="already announces every route that it learns"):
        leak.resolve(open_fabric)


def test_a_switch_without_sessions_has_none_to_reset() -> None:
    adopted = plan(lab_of("theirs", surveyed(LEAF_SPINE, {"leaf1": FRR})))
    reset = SINGLE_FAULT.validate_python({"kind": "session-reset", "switch": "leaf1"})
    with pytest.raises(InputError, match="leaf1 has no BGP session to reset"):
        reset.resolve(adopted)


@pytest.mark.parametrize("kind", ["nic-port-down", "slow-receiver", "pause-storm"])
def test_a_nic_is_named_as_in_every_command(kind: str) -> None:
    by_name = SINGLE_FAULT.validate_python({"kind": kind, "server": "srv2-1:2"})
    assert by_name == SINGLE_FAULT.validate_python({"kind": kind, "server": "srv2-1", "nic": 2})
