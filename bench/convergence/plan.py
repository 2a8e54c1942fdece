"""The plan of the table of convergence times: fabrics, places and kinds of failures, and timers.

A `Cell` of the table is a fault class at one place of one fabric; it has its lab's spec and, on a
fabric, the fault's spec. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rocelab import Fabric, InputError, LabSpec
from rocelab.base.units import DURATION
from rocelab.fabrics.fabric_spec import FabricSpec
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.kinds.hpn import HpnSpec
from rocelab.fabrics.roles import Role
from rocelab.faults.base import SingleFaultSpec
from rocelab.faults.kinds.blackhole import BlackholeSpec
from rocelab.faults.kinds.carrier_down import CarrierDownSpec
from rocelab.faults.kinds.daemon_crash import DaemonCrashSpec
from rocelab.faults.kinds.drain import DrainSpec
from rocelab.faults.kinds.nic_port_down import NicPortDownSpec
from rocelab.faults.kinds.power_loss import PowerLossSpec
from rocelab.faults.selectors import LinkSelector
from rocelab.labfile.base import MS, SECOND
from rocelab.labfile.model import RoutingSpec
from rocelab.planning.fabric import Link
from rocelab.sim.events.reaction import Breakage, ReactionPlace

LAB_NAME = "convergence-table"


@dataclass(frozen=True, slots=True)
class Timers:
    """The detection of a silent failure: BFD (RFC 5880) if there is an interval, else BGP's hold
    timer (RFC 4271 section 4.4)."""

    keepalive_ns: int = 3 * SECOND
    hold_ns: int = 9 * SECOND
    bfd_interval_ns: int | None = None
    bfd_multiplier: int = 3

    @property
    def detection_ns(self) -> tuple[int, int]:
        """The earliest and the latest that a session is taken down after the last packet passed.

        The neighbour's last packet came up to one interval before the failure, and its timer
        started then (RFC 5880 section 6.8.4, RFC 4271 section 8).
        """
        if self.bfd_interval_ns is None:
            return self.hold_ns - self.keepalive_ns, self.hold_ns
        latest_ns = self.bfd_interval_ns * self.bfd_multiplier
        return latest_ns - self.bfd_interval_ns, latest_ns

    @property
    def period_ns(self) -> int:
        """The interval of a neighbour's packets."""
        return self.bfd_interval_ns or self.keepalive_ns


@dataclass(frozen=True, slots=True)
class FaultClass:
    """A kind of failure, with the timers that detect it."""

    key: str
    title: str
    breakage: Breakage
    timers: Timers = Timers()

    @property
    def theory_ns(self) -> tuple[int, int] | None:
        """The earliest and the latest detection by the protocol; None if no timer detects it."""
        return self.timers.detection_ns if self.breakage is Breakage.SILENT else None


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a fabric. `fan_out` is the number of equal links of the switch next to the
    failure."""

    key: str
    fabric_title: str
    place: ReactionPlace
    place_title: str
    fan_out: int
    fabric: FabricSpec
    lower: Role
    upper: Role


@dataclass(frozen=True, slots=True)
class Cell:
    """A fault class at a site: a row of the table."""

    fault: FaultClass
    site: Site

    @property
    def name(self) -> str:
        """The cell's unique name in the plan, and the name of its file."""
        return f"{self.fault.key}.{self.site.key}"


def _clos(fan_out: int) -> ClosSpec:
    return ClosSpec(racks=4, spines=fan_out, servers_per_rack=2)


_ZONES = ClosSpec(zones=2, racks=2, spines=4, servers_per_rack=2, atsws=4)
_HPN = HpnSpec(
    kind="hpn",
    segments=2,
    servers_per_segment=4,
    rails=1,
    ports_per_nic=2,
    planes=2,
    aggs=4,
    cores=2,
)
_TWO, _THREE, _DUAL = "2-tier Clos", "3-tier Clos", "HPN, dual ToR and plane"
_FAN_OUTS = (2, 4, 8, 16)

UPLINKS = {
    fan_out: Site(
        f"clos-{fan_out}", _TWO, ReactionPlace.RACK, "RTSW-CTSW link", fan_out, _clos(fan_out),
        Role.RTSW, Role.CTSW,
    )
    for fan_out in _FAN_OUTS
}  # fmt: skip
SPINES = {
    fan_out: Site(
        f"clos-{fan_out}-spine", _TWO, ReactionPlace.SPINE, "CTSW", fan_out, _clos(fan_out),
        Role.RTSW, Role.CTSW,
    )
    for fan_out in _FAN_OUTS
}  # fmt: skip
ZONES_RACK = Site(
    "zones-4-rack", _THREE, ReactionPlace.RACK, "RTSW-CTSW link", 4, _ZONES, Role.RTSW, Role.CTSW
)
ZONES_TRUNK = Site(
    "zones-4-trunk", _THREE, ReactionPlace.TRUNK, "CTSW-ATSW link", 4, _ZONES, Role.CTSW, Role.ATSW
)
ZONES_SPINE = Site(
    "zones-4-spine", _THREE, ReactionPlace.SPINE, "CTSW", 4, _ZONES, Role.RTSW, Role.CTSW
)
HPN_NIC = Site(
    "hpn-4-nic", _DUAL, ReactionPlace.NIC, "NIC-ToR link", 2, _HPN, Role.SERVER, Role.TOR
)
HPN_TOR = Site("hpn-4-tor", _DUAL, ReactionPlace.RACK, "ToR-Agg link", 4, _HPN, Role.TOR, Role.AGG)
HPN_AGG = Site("hpn-4-agg", _DUAL, ReactionPlace.SPINE, "Agg", 4, _HPN, Role.TOR, Role.AGG)

ABOVE = (*UPLINKS.values(), ZONES_RACK, ZONES_TRUNK, HPN_TOR)
"""Sites with a BGP session: at a NIC's link no protocol detects a silent failure."""

SWITCHES = (*SPINES.values(), ZONES_SPINE, HPN_AGG)
FEW = (UPLINKS[2], UPLINKS[16], ZONES_TRUNK)
MOST = (UPLINKS[2], UPLINKS[4], UPLINKS[16], ZONES_TRUNK, HPN_TOR)

FAST_BFD = (*(UPLINKS[fan_out] for fan_out in (2, 4, 8)), HPN_TOR)
"""Sites whose lab two CPUs carry with BFD at 50 ms: with 48 sessions (3-tier Clos) FRR's bfdd
leaves too little CPU time for traffic."""


def _bfd(interval_ms: int) -> FaultClass:
    timers = Timers(bfd_interval_ns=interval_ms * MS)
    title = f"silent failure, BFD 3 x {interval_ms} ms"
    return FaultClass(f"bfd-{interval_ms}", title, Breakage.SILENT, timers)


def _hold(hold_s: int, keepalive_s: int) -> FaultClass:
    timers = Timers(keepalive_s * SECOND, hold_s * SECOND)
    title = f"silent failure, hold timer {hold_s} s (keepalive {keepalive_s} s)"
    return FaultClass(f"hold-{hold_s}", title, Breakage.SILENT, timers)


PLAN: Sequence[tuple[FaultClass, Sequence[Site]]] = (
    (FaultClass("carrier", "cable pulled", Breakage.CABLE), (*ABOVE, HPN_NIC)),
    (FaultClass("flap", "carrier away for 200 ms", Breakage.FLAP), (*ABOVE, HPN_NIC)),
    (_bfd(50), FAST_BFD),
    (_bfd(100), FEW),
    (_bfd(300), MOST),
    (_hold(3, 1), MOST),
    (_hold(9, 3), (UPLINKS[4],)),
    (FaultClass("crash", "bgpd killed (SIGKILL)", Breakage.CRASH), SWITCHES),
    (
        FaultClass("power", "switch without power", Breakage.POWER),
        (SPINES[4], ZONES_SPINE, HPN_AGG),
    ),
    (FaultClass("drain", "graceful drain", Breakage.DRAIN), SWITCHES),
)
"""If a timer or the first of several causes decides, more fan-outs would show the same, so a few
are enough."""

COMPARED = (
    *("carrier.clos-4", "carrier.hpn-4-nic", "flap.clos-4", "bfd-50.clos-4", "bfd-300.clos-4"),
    *("hold-3.clos-4", "crash.clos-4-spine", "power.clos-4-spine", "drain.clos-4-spine"),
)
"""The cells for the comparison of FRR releases: each kind of failure at one fan-out, a NIC's link,
whose prefix is withdrawn with it, and both BFD timers. Other fan-outs and the longer hold timer
would show the same."""

QUICK = ("carrier.clos-4", "flap.clos-4", "bfd-50.clos-4", "hold-3.clos-4", "crash.clos-4-spine")


def all_cells() -> tuple[Cell, ...]:
    """The cells of the whole table, in its order."""
    return tuple(Cell(fault, site) for fault, sites in PLAN for site in sites)


def chosen_cells(pattern: str, names: Sequence[str] = ()) -> tuple[Cell, ...]:
    """The cells whose name fits `pattern`, as a shell's glob, of `names` if there are any.

    Raises InputError if there is none.
    """
    cells = [cell for cell in all_cells() if not names or cell.name in names]
    matches = tuple(cell for cell in cells if fnmatchcase(cell.name, pattern))
    if not matches:
        raise InputError(
            f"no cell fits {pattern}", hint=f"cells are {', '.join(cell.name for cell in cells)}"
        )
    return matches


def lab_spec(cell: Cell) -> LabSpec:
    """The lab of a cell: its fabric and timers."""
    timers = cell.fault.timers
    bfd = {
        "interval": DURATION.written(timers.bfd_interval_ns or 0),
        "multiplier": timers.bfd_multiplier,
    }
    routing = {
        "keepalive": DURATION.written(timers.keepalive_ns),
        "hold": DURATION.written(timers.hold_ns),
        "bfd": bfd if timers.bfd_interval_ns else False,
    }
    return LabSpec(
        name=LAB_NAME,
        fabric=cell.site.fabric,
        routing=RoutingSpec.model_validate(routing),
    )


def candidate_links(fabric: Fabric, site: Site) -> tuple[Link, ...]:
    """The links between the two kinds of node of a site, in build order."""
    return tuple(
        link
        for link in fabric.links
        if fabric.node(link.a.node).role is site.lower
        and fabric.node(link.b.node).role is site.upper
    )


def fault_spec(cell: Cell, fabric: Fabric, link: Link) -> SingleFaultSpec:
    """The cell's fault at `link`, or at its upper end if a whole switch fails."""
    selector = LinkSelector(node=link.a.node, interface=link.a.interface)
    switch = link.b.node
    match cell.fault.breakage:
        case Breakage.CRASH:
            return DaemonCrashSpec(kind="daemon-crash", switch=switch, daemon="bgpd")
        case Breakage.POWER:
            return PowerLossSpec(kind="power-loss", switch=switch)
        case Breakage.DRAIN:
            return DrainSpec(kind="drain", switch=switch)
        case Breakage.SILENT:
            return BlackholeSpec(kind="blackhole", link=selector)
        case Breakage.CABLE | Breakage.FLAP if cell.site.place is ReactionPlace.NIC:
            nic, port = _nic_port(fabric, link)
            return NicPortDownSpec(kind="nic-port-down", server=link.a.node, nic=nic, port=port)
        case Breakage.CABLE | Breakage.FLAP:
            return CarrierDownSpec(kind="carrier-down", link=selector)


def _nic_port(fabric: Fabric, link: Link) -> tuple[int, int]:
    """A server's link as NIC and port, both from 1."""
    return next(
        (nic.number, nic.links.index(link) + 1)
        for nic in fabric.nics(link.a.node)
        if link in nic.links
    )
