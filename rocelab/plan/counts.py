"""The size of a fabric, counted from its spec without planning a node.

The numbers of switches, servers, NICs and BGP sessions equal those of `rocelab.plan.build`, and
take microseconds for 32,256 GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.labfile.fabrics import ClosSpec, FabricSpec, FatTreeSpec, HpnSpec, RailSpec
from rocelab.labfile.model import LabSpec, Numbering
from rocelab.plan.addressing import SPACE_SIZE, block_size


@dataclass(frozen=True, slots=True)
class Counts:
    """The size of a fabric. A GPU has one NIC; a session is a cable between two switches.

    homes: switches of the lowest tier with their own NICs, or pairs that share two-port NICs.
    home_addresses: the addresses for the NICs and loopback of each.
    """

    switches: int
    servers: int
    nics: int
    sessions: int
    homes: int
    home_addresses: int


def counts_of(fabric: FabricSpec) -> Counts:
    """The size of a spec's fabric."""
    match fabric:
        case ClosSpec():
            racks = fabric.zones * fabric.racks
            spines = fabric.zones * fabric.spines
            servers = racks * fabric.servers_per_rack
            return Counts(
                switches=racks + spines + fabric.atsws,
                servers=servers,
                nics=servers * fabric.nics_per_server,
                sessions=racks * fabric.spines * fabric.links_per_pair
                + spines * fabric.atsws * fabric.links_per_atsw,
                homes=racks,
                home_addresses=2 * fabric.servers_per_rack * fabric.nics_per_server + 1,
            )
        case RailSpec():
            leaves = fabric.units * fabric.rails
            return Counts(
                switches=leaves + fabric.spines,
                servers=fabric.units * fabric.servers_per_unit,
                nics=leaves * fabric.servers_per_unit,
                sessions=leaves * fabric.spines * fabric.links_per_pair,
                homes=leaves,
                home_addresses=2 * fabric.servers_per_unit + 1,
            )
        case HpnSpec():
            return _hpn(fabric)
        case FatTreeSpec():
            half = fabric.k // 2
            edges = fabric.k * half
            servers = edges * fabric.servers
            return Counts(
                switches=2 * edges + half * half,
                servers=servers,
                nics=servers,
                sessions=2 * edges * half,
                homes=edges,
                home_addresses=2 * fabric.servers + 1,
            )


def _hpn(fabric: HpnSpec) -> Counts:
    rails = fabric.segments * fabric.rails
    tors = rails * fabric.ports_per_nic
    aggs = fabric.planes * fabric.aggs
    # Two ToRs share the two-port NICs, if there are any.
    dual = fabric.ports_per_nic == 2 and fabric.servers_per_segment > 0
    return Counts(
        switches=tors + aggs + fabric.cores,
        servers=fabric.segments * fabric.servers_per_segment,
        nics=rails * fabric.servers_per_segment,
        sessions=tors * fabric.aggs * fabric.links_per_pair
        + aggs * fabric.cores * fabric.links_per_core,
        homes=rails if dual else tors,
        home_addresses=max(2, fabric.servers_per_segment)
        if dual
        else 2 * fabric.servers_per_segment + 1,
    )


def is_numbered(spec: LabSpec) -> bool:
    """Whether links between switches have addresses: `auto` numbers them if they fit."""
    if spec.routing.numbering is not Numbering.AUTO:
        return spec.routing.numbering is Numbering.NUMBERED
    counts = counts_of(spec.fabric)
    # A home with an odd number of addresses includes its switch's loopback.
    within = counts.homes if counts.home_addresses % 2 else 0
    loopbacks = counts.switches - within
    used = counts.homes * block_size(counts.home_addresses) + loopbacks
    return used + used % 2 + 2 * counts.sessions <= SPACE_SIZE
