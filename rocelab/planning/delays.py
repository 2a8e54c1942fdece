"""The time that a lab holds packets on a link: its delay, one way, of the cable and of the switch
at its end, in the lab's clock. Pure."""

from __future__ import annotations

from rocelab.planning.fabric import Fabric, Link


def lab_delay_ns(link: Link, dilation: float) -> int:
    """How long a lab of this dilation holds each packet on a link, in the lab's clock; 0: not at
    all."""
    return round((link.delay_ns or 0) * dilation)


def lab_delays_ns(fabric: Fabric) -> tuple[int, ...]:
    """The distinct delays of a lab's links, in the lab's clock, shortest first; empty if it holds
    packets on none."""
    dilation = fabric.spec.dilation
    delays = {lab_delay_ns(link, dilation) for link in fabric.links}
    return tuple(sorted(delays)) if any(delays) else ()
