"""Tables of tenants: what is planned, and what the leaves of a running lab know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocelab.base.quantities import Unit
from rocelab.base.wording import counted
from rocelab.report.console import say, show_blocks
from rocelab.report.document import Column, Row, Table, Tone, Toned, columns

if TYPE_CHECKING:
    from rocelab.lab.segments import LeafSegment
    from rocelab.lab.status import LabStatus
    from rocelab.planning.fabric import Fabric

MOST_ROWS = 40


def print_tenants(fabric: Fabric) -> None:
    """Print the plan of a fabric's tenants."""
    from rocelab.planning.tenancy import leaves_of

    rows = tuple(
        (
            tenant.name,
            tenant.vni,
            ", ".join(tenant.subnets),
            len(tenant.links),
            len(leaves_of(fabric, tenant)),
            min(fabric.link_by_name[name].mtu for name in tenant.links),
            fabric.link_by_name[tenant.links[0]].a.ip,
            fabric.link_by_name[tenant.links[-1]].a.ip,
        )
        for tenant in fabric.tenants
    )
    head = (
        Column("tenant"),
        Column("VNI", Unit.NUMBER),
        Column("subnet"),
        *columns(Unit.COUNT, "NICs", "leaves"),
        Column("MTU", Unit.NUMBER),
        *columns(Unit.FIGURE, "first", "last"),
    )
    show_blocks(Table("Tenants: EVPN-VXLAN, bridged", head, rows[:MOST_ROWS]))
    if len(rows) > MOST_ROWS:
        say(f"and {len(rows) - MOST_ROWS} more: see --json")
    routed = sum(len(fabric.nics(server.name)) for server in fabric.servers)
    routed -= sum(len(tenant.links) for tenant in fabric.tenants)
    if routed:
        say(f"In no tenant, and routed: {counted(routed, 'NIC')}.")


def print_segments(state: LabStatus) -> None:
    """Print what leaves know of tenants, if the lab has any."""
    from rocelab.lab.segments import lacks

    if not state.segments:
        return
    is_long = len(state.segments) > MOST_ROWS
    listed = [one for one in state.segments if not is_long or not one.is_complete][:MOST_ROWS]
    if listed:
        head = (
            *columns(Unit.TEXT, "leaf", "tenant"),
            Column("VNI", Unit.NUMBER),
            *columns(Unit.FIGURE, "far leaves", "MACs"),
        )
        show_blocks(Table("Tenants, as their leaves know them", head, tuple(map(_row, listed))))
    for segment in state.segments:
        if not segment.is_whole:
            for text in lacks(segment):
                say(text)
    up = sum(sessions.established for sessions in state.evpn_sessions.values())
    expected = sum(sessions.expected for sessions in state.evpn_sessions.values())
    say(f"EVPN: {up // 2:,} of {expected // 2:,} sessions")


def _row(segment: LeafSegment) -> Row:
    return (
        Toned(segment.leaf, Tone.PLAIN if segment.is_whole else Tone.BAD),
        segment.tenant.name,
        segment.tenant.vni,
        f"{segment.far_leaves}/{segment.far_leaves_expected}",
        f"{segment.macs}/{segment.macs_expected}",
    )
