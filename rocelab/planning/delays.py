"""The time that a lab holds packets on links: `links.delay`, one way, of a cable and of the switch
at its end, in the lab's clock. Pure."""

from __future__ import annotations

from rocelab.labfile.model import LabSpec


def lab_delay_ns(spec: LabSpec) -> int:
    """How long a lab holds each packet on each link, in the lab's clock; 0: not at all."""
    return round((spec.links.delay or 0) * spec.dilation)
