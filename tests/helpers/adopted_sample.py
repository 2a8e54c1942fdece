"""Surveys of labs that others made, as `rocelab.lab.adoption.survey` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocelab.lab.adoption.graph import lab_of
from rocelab.lab.adoption.survey import Interface, NodeSurvey
from rocelab.labfile.model import LabSpec

Cables = Sequence[tuple[str, str]]
"""Pairs of nodes; parallel cables are listed repeatedly."""


def surveyed(
    cables: Cables,
    daemons: Mapping[str, tuple[str, ...]],
    *,
    groups: Mapping[str, str] | None = None,
    kinds: Mapping[str, str] | None = None,
    unnumbered: bool = False,
    neighbours: Mapping[str, tuple[str, ...]] | None = None,
    routes: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
) -> tuple[NodeSurvey, ...]:
    """A survey in which cable k joins `ethN` of its nodes, N counted per node from 1, with the
    addresses 10.0.k.1 and 10.0.k.2."""
    ports: dict[str, list[Interface]] = {}
    for number, (one, other) in enumerate(cables, 1):
        places = {node: len(ports.setdefault(node, [])) + 1 for node in (one, other)}
        for place, (node, far) in enumerate(((one, other), (other, one)), 1):
            address = () if unnumbered else (f"10.0.{number}.{place}/24",)
            ports[node].append(
                Interface(
                    name=f"eth{places[node]}",
                    index=10 + places[node],
                    mac=f"aa:c1:ab:00:{number:02x}:{place:02x}",
                    mtu=9500,
                    addresses=address,
                    peer=(far, 10 + places[far]),
                )
            )
    loopback = Interface("lo", 1, "00:00:00:00:00:00", 65536, (), None)
    return tuple(
        NodeSurvey(
            name=name,
            kind=(kinds or {}).get(name, "linux"),
            group=(groups or {}).get(name, ""),
            interfaces=(loopback, *of_node),
            loopback=None,
            routes=(routes or {}).get(name, {}),
            settings={},
            daemons={daemon: (f"/usr/lib/frr/{daemon}",) for daemon in daemons.get(name, ())},
            asn=None,
            neighbours=(neighbours or {}).get(name, ()),
        )
        for name, of_node in ports.items()
    )


FRR = ("zebra", "bgpd")
LEAF_SPINE: Cables = (
    *(("host1", "leaf1"), ("leaf1", "spine1"), ("leaf1", "spine2")),
    *(("host2", "leaf2"), ("leaf2", "spine1"), ("leaf2", "spine2")),
)


def leaf_spine(name: str = "theirs") -> LabSpec:
    """Two leaves under two spines, a host at each leaf, as it was adopted."""
    routers = dict.fromkeys(("leaf1", "leaf2", "spine1", "spine2"), FRR)
    routes: dict[str, dict[str, tuple[str, ...]]] = {
        "leaf1": {"10.9.0.0/24": ("eth2", "eth3")},
        "spine1": {"10.9.0.0/24": ("eth2",)},
    }
    return lab_of(
        name,
        surveyed(
            LEAF_SPINE,
            routers,
            neighbours={"leaf1": ("10.0.2.2", "10.0.3.2"), "spine1": ("10.0.5.1",)},
            routes=routes,
        ),
    )
