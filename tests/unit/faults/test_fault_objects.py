"""Faults without a running lab: names, rates, filters, and the requests to the kernel."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.dataplane.queues import htb, rates
from rocelab.faults import policy
from rocelab.faults.base import ALL_PPM, Fault
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.fibre import BrokenFibre
from rocelab.faults.kinds.abrupt_removal import AbruptRemoval
from rocelab.faults.kinds.bad_prefix import BadPrefix
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.faults.kinds.daemon_crash import DaemonCrash, DaemonCrashSpec
from rocelab.faults.kinds.daemon_hang import DaemonHang
from rocelab.faults.kinds.drain import Drain
from rocelab.faults.kinds.host_pause import HostPause
from rocelab.faults.kinds.mtu_mismatch import MtuMismatch
from rocelab.faults.kinds.power_loss import SwitchPowerLoss
from rocelab.faults.kinds.rate_degrade import RateDegrade
from rocelab.faults.kinds.route_leak import RouteLeak
from rocelab.faults.kinds.session_reset import SessionReset
from rocelab.lab import wiring
from rocelab.lab.lab import RunningLab
from rocelab.labfile.model import LabSpec
from rocelab.linux import netlink, tc
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import lab_rate_bps


def fabric(**extra: object) -> Fabric:
    clos = {"kind": "clos", "racks": 3, "spines": 2, "servers_per_rack": 1, "links_per_pair": 2}
    return plan(LabSpec.model_validate({"name": "faults", "fabric": clos, **extra}))


FABRIC = fabric()
UPLINKS = FABRIC.uplinks("rtsw1")


@pytest.mark.parametrize(
    ("fault", "kind", "subject", "nodes"),
    [
        (CarrierDown(UPLINKS[:2]), "carrier-down", "rtsw1:ctsw1,ctsw1-2", ("rtsw1", "ctsw1")),
        (BrokenFibre(UPLINKS[:1], "ctsw1"), "carrier-down", "rtsw1:ctsw1 at ctsw1", None),
        (MtuMismatch(UPLINKS[:1], "ctsw1", 1500), "mtu-mismatch", "rtsw1:ctsw1", None),
        (RateDegrade(UPLINKS[:1], 1, kind="slow-receiver"), "slow-receiver", "rtsw1:ctsw1", None),
        (SwitchPowerLoss("ctsw1"), "power-loss", "ctsw1", ("ctsw1",)),
        (DaemonCrash("ctsw1", "bgpd"), "daemon-crash", "bgpd of ctsw1", ("ctsw1",)),
        (DaemonHang("ctsw1", "zebra"), "daemon-hang", "zebra of ctsw1", ("ctsw1",)),
        (Drain("ctsw1"), "drain", "ctsw1", ("ctsw1",)),
        (AbruptRemoval("ctsw1"), "abrupt-removal", "ctsw1", ("ctsw1",)),
        (SessionReset("ctsw1", UPLINKS[:1]), "session-reset", "ctsw1:rtsw1", ("ctsw1", "rtsw1")),
        (RouteLeak("rtsw1"), "route-leak", "rtsw1", ("rtsw1",)),
        (BadPrefix("rtsw1", "198.18.0.4/30"), "bad-prefix", "198.18.0.4/30 at rtsw1", ("rtsw1",)),
        (HostPause("srv1-1"), "host-pause", "srv1-1", ("srv1-1",)),
    ],
)
def test_a_fault_says_what_it_breaks_and_which_nodes_it_concerns(
    fault: Fault, kind: str, subject: str, nodes: tuple[str, ...] | None
) -> None:
    assert (fault.kind, fault.subject) == (kind, subject)
    assert fault.nodes == (nodes or ("rtsw1", "ctsw1"))


@given(share_ppm=st.integers(1, ALL_PPM - 1))
def test_a_degraded_link_has_its_share_of_the_lab_s_rate_and_never_none(share_ppm: int) -> None:
    link = UPLINKS[0]
    rate_bps = lab_rate_bps(link, FABRIC.spec.dilation)
    left = RateDegrade((link,), share_ppm).rate_bps(FABRIC, link)
    assert 8 <= left < rate_bps
    assert left == 8 or abs(left - rate_bps * share_ppm / ALL_PPM) < 1


@pytest.mark.parametrize("towards", [None, "rtsw1"])
def test_what_a_server_sends_can_not_be_slowed(towards: str | None) -> None:
    link = {"node": "srv1-1", "uplink": 1}
    asked = {"kind": "rate-degrade", "link": link, "towards": towards}
    with pytest.raises(InputError, match="srv1-1 paces"):
        SINGLE_FAULT.validate_python(asked).resolve(FABRIC)
    SINGLE_FAULT.validate_python({**asked, "towards": "srv1-1"}).resolve(FABRIC)


def test_an_mtu_may_not_take_the_address_from_a_port() -> None:
    unnumbered = fabric(routing={"numbering": "unnumbered"})
    for planned, least in ((FABRIC, 68), (unnumbered, 1280)):
        link = planned.uplinks("rtsw1")[0]
        MtuMismatch((link,), "rtsw1", least).prepare(RunningLab(planned))
        with pytest.raises(InputError, match=str(least - 1)):
            MtuMismatch((link,), "rtsw1", least - 1).prepare(RunningLab(planned))


def dead_bfdd() -> DaemonCrashSpec:
    return DaemonCrashSpec(kind="daemon-crash", switch="rtsw1", daemon="bfdd")


def test_bfdd_can_fail_only_where_it_runs() -> None:
    with pytest.raises(InputError, match=r"routing\.bfd"):
        dead_bfdd().resolve(FABRIC)
    assert dead_bfdd().resolve(fabric(routing={"bfd": True})).daemon == "bfdd"


def test_the_filters_of_a_rack_and_of_its_neighbours_are_read_from_what_is_rendered() -> None:
    out = policy.filters(FABRIC, "rtsw1", "out")
    assert [change.line for change in out] == ["neighbor CTSWS prefix-list OWN out"]
    assert policy.peer_groups(FABRIC, "ctsw1") == ("RTSWS",)
    peers = [policy.peer_name(link, "ctsw1") for link in UPLINKS[:2]]
    filters = policy.filters(FABRIC, "ctsw1", "in", peers)
    assert [rule.line for rule in filters] == [
        f"neighbor {peer} prefix-list rtsw1 in" for peer in peers
    ]


def test_a_neighbour_on_an_unnumbered_link_goes_by_the_interface() -> None:
    planned = fabric(routing={"numbering": "unnumbered"})
    assert policy.peer_name(planned.uplinks("rtsw1")[1], "ctsw1") == "rtsw1-2"


def test_a_dormant_port_is_asked_for_in_one_message() -> None:
    attributes = netlink.attributes(wiring.set_dormant(7, dormant=True)[32:])
    assert (attributes[16][0], attributes[17][0]) == (5, 1)
    attributes = netlink.attributes(wiring.set_dormant(7, dormant=False)[32:])
    assert (attributes[16][0], attributes[17][0]) == (6, 0)


def test_a_tree_s_rate_is_changed_and_not_made() -> None:
    request = rates.change(80_000_000, 9000, queued=True, buffer_bytes=0)
    (flags,) = struct.unpack_from("=H", request, 6)
    assert flags == netlink.REQUEST_ACK
    attributes = netlink.attributes(request[36:])
    assert attributes[tc.TCA_KIND] == b"htb\0"
    spec = netlink.attributes(attributes[tc.TCA_OPTIONS])[1]
    assert htb.RATESPEC.unpack_from(spec)[-1] == 10_000_000


def test_a_token_bucket_takes_the_rate_and_holds_the_buffer() -> None:
    request = rates.change(80_000_000, 9000, queued=False, buffer_bytes=1_000_000)
    attributes = netlink.attributes(netlink.attributes(request[36:])[tc.TCA_OPTIONS])
    assert struct.unpack("=Q", attributes[4]) == (10_000_000,)
    assert struct.unpack_from("=I", attributes[1], 2 * htb.RATESPEC.size) == (1_000_000,)
    assert struct.unpack("=I", attributes[6])[0] >= 9014
