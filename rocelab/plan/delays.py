"""The time that links take: `links.delay`, one way, of a cable and of the switch at its end.

Labs, lossless classes and simulations take it from here. Without it labs add none, lossless classes
have room for a cable of a usual length, and a simulation has a default of its own. Pure.
"""

from __future__ import annotations

from rocelab.spec.model import LabSpec, LinksSpec

USUAL_CABLE_NS = 200
"""40 m of fibre, or of copper, at two thirds of the speed of light."""


def cable_ns(links: LinksSpec) -> int:
    """The modelled time for which what a link carries is on its cable, as pauses count it."""
    return USUAL_CABLE_NS if links.delay is None else links.delay


def lab_delay_ns(spec: LabSpec) -> int:
    """How long a lab holds each packet on each link, in the lab's clock; 0: not at all."""
    return round((spec.links.delay or 0) * spec.dilation)
