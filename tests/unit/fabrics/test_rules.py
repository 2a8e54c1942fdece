"""What the kinds that ship keep to, and what is refused of a kind that does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import pytest

from rocelab.base.errors import InputError
from rocelab.fabrics import door
from rocelab.fabrics.base import FabricKind
from rocelab.fabrics.homes import counted
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.kinds.hpn import HpnSpec
from rocelab.fabrics.layout import Attachment, Cable, Layout, Site
from rocelab.fabrics.roles import Role
from rocelab.fabrics.rules import broken_rule
from rocelab.labfile.catalog import LABS, find_lab, shipped_names
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.routes import Routes

ZONES = ClosSpec(zones=2, racks=2, spines=2, servers_per_rack=2, nics_per_server=2, atsws=2)
SMALL = tuple(
    name
    for name in shipped_names(LABS)
    if (fabric := load_spec(find_lab(name)).fabric).is_regular and fabric.counts().switches < 50
)


@pytest.mark.parametrize("name", SMALL)
def test_a_shipped_lab_keeps_the_rules_and_its_kind_counts_it_right(name: str) -> None:
    fabric = load_spec(find_lab(name)).fabric
    layout = fabric.layout()
    assert broken_rule(layout, fabric.roles) is None
    assert fabric.counts() == counted(layout)
    assert fabric.leaf_ports == FabricKind.leaf_ports.fget(fabric)  # type: ignore[attr-defined]


def with_site(index: int, **changes: Any) -> Callable[[Layout], Layout]:
    def changed(layout: Layout) -> Layout:
        sites = list(layout.sites)
        sites[index] = replace(sites[index], **changes)
        return replace(layout, sites=tuple(sites))

    return changed


def with_cable(lower: str, upper: str, parallel: int = 1) -> Callable[[Layout], Layout]:
    cable = Cable(lower, upper, parallel)
    return lambda layout: replace(layout, cables=(*layout.cables, cable))


def with_nic(server: str, *switches: str) -> Callable[[Layout], Layout]:
    nic = Attachment(server, switches)
    return lambda layout: replace(layout, attachments=(*layout.attachments, nic))


def without_nics(layout: Layout) -> Layout:
    return replace(layout, attachments=layout.attachments[2:])


def with_long_name(layout: Layout) -> Layout:
    name = "aggregation-atsw1"
    sites = [replace(site, name=name) if site.name == "atsw1" else site for site in layout.sites]
    wires = [
        replace(cable, upper=name) if cable.upper == "atsw1" else cable for cable in layout.cables
    ]
    return replace(layout, sites=tuple(sites), cables=tuple(wires))


CASES: dict[str, tuple[Callable[[Layout], Layout], str]] = {
    "a name twice": (with_site(0, name="atsw2"), "2 nodes have the name atsw2"),
    "no name": (with_site(0, name="A b"), "a node has the name 'A b'"),
    "a role of others": (with_site(0, role=Role.CORE), "atsw1 has the role core, which the kind"),
    "no ASN": (with_site(0, asn=None), "atsw1 has no ASN"),
    "an ASN of a neighbour": (with_site(0, asn=4_200_000_001), "z1-ctsw1 and its neighbour atsw1"),
    "a cable down": (with_cable("atsw1", "z1-ctsw1"), "a cable leads from atsw1 to z1-ctsw1"),
    "a cable to nowhere": (with_cable("z1-ctsw1", "x1"), "a cable leads from z1-ctsw1 to x1"),
    "one switch unlike": (with_cable("z1-ctsw1", "atsw1", 2), "atsw1 and atsw2 are of one role"),
    "a long name": (with_long_name, "interface name aggregation-atsw1 is longer than 15"),
    "a NIC of a switch": (with_nic("atsw1", "z1-rtsw1"), "a NIC is in atsw1, which is no server"),
    "a NIC on a spine": (with_nic("z2-srv2-2", "z1-ctsw1"), "a NIC of z2-srv2-2 is on z1-ctsw1"),
    "three ports beside others": (
        with_nic("z2-srv2-2", "z1-rtsw1", "z1-rtsw2", "z2-rtsw1"),
        "z1-rtsw1 has NICs that are on other switches too",
    ),
    "two ports on one switch": (
        with_nic("z2-srv2-2", "z1-rtsw1", "z1-rtsw1"),
        "a NIC of z2-srv2-2 is on z1-rtsw1, z1-rtsw1, not",
    ),
    "a cable twice": (with_cable("z1-ctsw1", "atsw1"), "the cables from z1-ctsw1 to atsw1 are not"),
    "homes that overlap": (
        with_nic("z2-srv2-2", "z1-rtsw1", "z1-rtsw2"),
        "z1-rtsw1 has NICs that are on other switches too",
    ),
    "NICs apart": (with_nic("z1-srv1-1", "z1-rtsw1"), "the NICs of a server do not follow"),
    "a server in no zone": (
        with_site(-1, zone=None),
        "some nodes of the role server have a zone",
    ),
    "a server in another zone": (
        with_site(-1, zone=1),
        "z2-srv2-2 is not in the zone of z2-rtsw2, which its NIC is on",
    ),
    "one spine in no zone": (
        with_site(2, zone=None),
        "some nodes of the role ctsw have a zone, and others have none",
    ),
    "a server alone": (without_nics, "z1-srv1-1 has no NIC"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_layout_that_breaks_a_rule_is_told_which(case: str) -> None:
    change, rule = CASES[case]
    reason = broken_rule(change(ZONES.layout()), ZONES.roles)
    assert reason is not None
    assert reason.startswith(rule)


class Lopsided(ClosSpec):
    """A Clos of which only one rack lacks a spine."""

    def layout(self) -> Layout:
        layout = super().layout()
        return replace(layout, cables=layout.cables[:-1])


class Skipping(ClosSpec):
    """A Clos whose racks are wired to its ATSWs."""

    def layout(self) -> Layout:
        layout = super().layout()
        wires = [replace(cable, lower="rtsw1") for cable in layout.cables if cable.upper == "atsw1"]
        return replace(layout, cables=(*layout.cables, *wires[:1]))


class Woven(ClosSpec):
    """A Clos whose cables are in the order of its spines."""

    def layout(self) -> Layout:
        layout = super().layout()
        return replace(layout, cables=tuple(sorted(layout.cables, key=lambda cable: cable.upper)))


class Apart(ClosSpec):
    """A Clos whose spines have an ASN each."""

    def layout(self) -> Layout:
        layout = super().layout()
        sites = [
            replace(site, asn=number + 1) if site.role is Role.CTSW else site
            for number, site in enumerate(layout.sites)
        ]
        return replace(layout, sites=tuple(sites))


class Crossed(HpnSpec):
    """HPN whose NICs have their second port on the ToR before the first."""

    def layout(self) -> Layout:
        layout = super().layout()
        nics = [replace(nic, switches=nic.switches[::-1]) for nic in layout.attachments]
        return replace(layout, attachments=tuple(nics))


@pytest.mark.parametrize(
    ("fabric", "irregular"),
    [
        (Lopsided(racks=2, spines=2), "not every rtsw has equally many uplinks"),
        (Skipping(spines=2, atsws=1), "rtsw1 has uplinks that do not follow each other"),
        (Woven(racks=2, spines=2), "rtsw1 has uplinks that do not follow each other"),
        (Apart(spines=2, atsws=1), "switches above rtsw1 differ in ASN"),
        (Crossed(kind="hpn"), "s1-tor1b and the other switch of its NICs"),
    ],
)
def test_paths_are_not_computed_where_tiers_are_irregular(
    fabric: FabricKind, irregular: str
) -> None:
    network = network_of(LabSpec(name="t", fabric=ClosSpec()).model_copy(update={"fabric": fabric}))
    with pytest.raises(InputError, match=f"of kind {fabric.kind} cannot be computed: {irregular}"):
        Routes(network)


class Complete(ClosSpec):
    kind: Literal["ring"] = "ring"  # type: ignore[assignment]


class Unfinished(FabricKind):
    roles: ClassVar = (Role.LEAF,)
    kind: Literal["ring"]


class Twice(Complete):
    roles: ClassVar = (Role.LEAF, Role.TOR)


class Moved(Complete):
    roles: ClassVar = (Role("core", 1, "Core", "cores"),)


class Shouting(Complete):
    roles: ClassVar = (Role("Leaf-1", 1, "Leaf", "leaves"),)


def test_a_kind_needs_a_name_roles_and_a_layout() -> None:
    assert door._kind("ring", Complete) is Complete
    for value, reason in (
        (Site, r"expected a class of rocelab\.fabrics\.base\.FabricKind"),
        (Unfinished, "Unfinished lacks layout"),
        (ClosSpec, r'expected its key kind to be Literal\["ring"\]'),
        (Twice, "Twice.roles needs a role for tier 1 and those above, up to 3"),
        (Moved, "core is a role of tier 3, not 1"),
        (Shouting, "the name of a role is 2 to 10 lower-case letters, not 'Leaf-1'"),
    ):
        with pytest.raises((TypeError, ValueError), match=reason):
            door._kind("ring", value)
