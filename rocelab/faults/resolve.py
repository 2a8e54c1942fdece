"""From a fault as written to the fault on a lab: every name looked up, every refusal made.

In: a fabric and a spec of a single fault. Out: the `Fault` that breaks and mends a running lab of
that fabric. Pure.
"""

from __future__ import annotations

from rocelab.errors import InputError
from rocelab.faults.base import Fault
from rocelab.faults.bgp import AbruptRemoval, Drain, SessionReset
from rocelab.faults.daemons import DaemonCrash, DaemonHang, check_planned
from rocelab.faults.fibre import BrokenFibre
from rocelab.faults.hosts import HostPause
from rocelab.faults.impairments import blackhole, corruption, delay, grey_loss
from rocelab.faults.leaks import BadPrefix, RouteLeak
from rocelab.faults.links import CarrierDown, MtuMismatch, RateDegrade
from rocelab.faults.power import SwitchPowerLoss
from rocelab.faults.selectors import (
    check_end,
    check_leaf,
    check_node,
    check_server,
    check_switch,
    find_nic_link,
)
from rocelab.faults.spec import (
    AbruptRemovalSpec,
    BadPrefixSpec,
    BlackholeSpec,
    CarrierDownSpec,
    CorruptionSpec,
    DaemonCrashSpec,
    DaemonHangSpec,
    DelaySpec,
    DrainSpec,
    GreyLossSpec,
    LinkFaultSpec,
    MtuMismatchSpec,
    NicFaultSpec,
    NicPortDownSpec,
    PowerLossSpec,
    RateDegradeSpec,
    ResetMode,
    RouteLeakSpec,
    SessionResetSpec,
    SingleFaultSpec,
    SlowReceiverSpec,
    SwitchFaultSpec,
)
from rocelab.plan.fabric import Fabric, Link


def resolve(fabric: Fabric, spec: SingleFaultSpec) -> Fault:
    """The fault on that fabric. Raises InputError where it does not fit it."""
    if isinstance(spec, LinkFaultSpec):
        return _of_links(fabric, spec, spec.find(fabric))
    if isinstance(spec, NicFaultSpec):
        return _of_nic(fabric, spec)
    if isinstance(spec, SwitchFaultSpec):
        check_switch(fabric, spec.switch)
        return _of_switch(fabric, spec)
    check_server(fabric, spec.server)
    return HostPause(spec.server)


def _of_links(fabric: Fabric, spec: LinkFaultSpec, links: tuple[Link, ...]) -> Fault:
    match spec:
        case CarrierDownSpec():
            _check_ends(links, spec.side)
            return CarrierDown(links) if spec.side is None else BrokenFibre(links, spec.side)
        case MtuMismatchSpec():
            side = spec.side or links[0].b.node
            _check_ends(links, side)
            return MtuMismatch(links, side, spec.mtu)
        case RateDegradeSpec():
            _check_ends(links, spec.towards)
            _check_senders(fabric, links, spec.towards)
            return RateDegrade(links, spec.rate, spec.towards)
        case BlackholeSpec():
            _check_ends(links, spec.towards)
            return blackhole(links, spec.towards)
        case GreyLossSpec():
            _check_ends(links, spec.towards)
            return grey_loss(links, spec.loss, spec.towards)
        case CorruptionSpec():
            _check_ends(links, spec.towards)
            return corruption(links, spec.share, spec.towards)
        case DelaySpec():
            _check_ends(links, spec.towards)
            return delay(links, spec.delay, spec.towards)
    raise AssertionError(f"no fault of links: {spec}")


def _check_ends(links: tuple[Link, ...], node: str | None) -> None:
    for link in links:
        if node is not None:
            check_end(link, node)


def _check_senders(fabric: Fabric, links: tuple[Link, ...], towards: str | None) -> None:
    for link in links:
        if not link.is_between_switches and towards != link.a.node:
            raise InputError(
                f"{link.a.node} paces itself: no port of a switch sends from it to {link.b.node}",
                hint=f"set towards: {link.a.node}",
            )


def _of_nic(fabric: Fabric, spec: NicFaultSpec) -> Fault:
    match spec:
        case NicPortDownSpec():
            link = find_nic_link(fabric, spec.server, spec.nic, spec.port)
            return CarrierDown((link,), kind=spec.kind)
        case SlowReceiverSpec():
            find_nic_link(fabric, spec.server, spec.nic, 1)
            links = fabric.nics(spec.server)[spec.nic - 1].links
            return RateDegrade(links, spec.rate, spec.server, kind=spec.kind)
    raise AssertionError(f"no fault of NICs: {spec}")


def _of_switch(fabric: Fabric, spec: SwitchFaultSpec) -> Fault:
    switch = spec.switch
    match spec:
        case PowerLossSpec():
            return SwitchPowerLoss(switch)
        case DaemonCrashSpec():
            check_planned(fabric, spec.daemon)
            return DaemonCrash(switch, spec.daemon.value)
        case DaemonHangSpec():
            check_planned(fabric, spec.daemon)
            return DaemonHang(switch, spec.daemon.value)
        case DrainSpec():
            return Drain(switch)
        case AbruptRemovalSpec():
            return AbruptRemoval(switch)
        case SessionResetSpec():
            links = _session_links(fabric, switch, spec.peer)
            return SessionReset(switch, links, spec.mode is ResetMode.SOFT)
        case RouteLeakSpec():
            check_leaf(fabric, switch)
            return RouteLeak(switch, spec.filtered)
        case BadPrefixSpec():
            check_leaf(fabric, switch)
            return BadPrefix(switch, _prefix_of(fabric, spec), spec.filtered)
    raise AssertionError(f"no fault of switches: {spec}")


def _session_links(fabric: Fabric, switch: str, peer: str | None) -> tuple[Link, ...]:
    """The links over which a switch has its sessions, with one neighbour or with all."""
    links = [link for link in fabric.links_of[switch] if link in fabric.sessions]
    if peer is None:
        return tuple(links)
    check_node(fabric, peer)
    found = tuple(link for link in links if link.far(switch).node == peer)
    if not found:
        neighbours = dict.fromkeys(link.far(switch).node for link in links)
        raise InputError(
            f"{switch} has no session with {peer}", hint=f"it has with {', '.join(neighbours)}"
        )
    return found


def _prefix_of(fabric: Fabric, spec: BadPrefixSpec) -> str:
    """The first prefix of the other rack's servers."""
    check_leaf(fabric, spec.of)
    if spec.of == spec.switch:
        raise InputError(
            f"{spec.of} announces its own prefix rightly", hint="name another switch in `of`"
        )
    return next(
        each.prefix for each in fabric.prefixes_of[spec.of] if not each.prefix.endswith("/32")
    )
