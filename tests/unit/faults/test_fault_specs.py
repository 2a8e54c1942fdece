"""Every kind of fault as a file has it: what it is on a fabric, and what does not fit one."""

from __future__ import annotations

import pytest

from rocelab.errors import InputError
from rocelab.faults.asked import kinds
from rocelab.faults.bgp import SessionReset
from rocelab.faults.fibre import BrokenFibre
from rocelab.faults.links import MtuMismatch
from rocelab.faults.spec import SINGLE_FAULT
from rocelab.plan.build import plan
from rocelab.spec.model import LabSpec

FABRIC = plan(
    LabSpec.model_validate(
        {
            "name": "specs",
            "fabric": {"kind": "clos", "racks": 3, "spines": 2, "servers_per_rack": 1},
        }
    )
)
LINK, SWITCH, NIC = {"link": "rtsw1:ctsw1"}, {"switch": "rtsw1"}, {"server": "srv1-1"}
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
    return SINGLE_FAULT.validate_python({"kind": kind, **LEAST[kind], **keys}).resolve(FABRIC)


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
    with pytest.raises(InputError, match="announces all that it learns already"):
        leak.resolve(open_fabric)
