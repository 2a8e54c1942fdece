"""Faults of cables, as their specs make them."""

from __future__ import annotations

from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.faults.base import ALL_PPM
from rocelab.faults.impairments import CableFault
from rocelab.planning.fabric import Link


def blackhole(links: tuple[Link, ...], towards: str | None = None) -> CableFault:
    return CableFault(links, "blackhole", Impairment(ImpairmentKind.BLACKHOLE), towards)


def grey_loss(links: tuple[Link, ...], loss_ppm: int) -> CableFault:
    return CableFault(links, "grey-loss", Impairment(ImpairmentKind.LOSS, loss_ppm / ALL_PPM))


def delay(links: tuple[Link, ...], delay_ns: int) -> CableFault:
    return CableFault(links, "delay", Impairment(ImpairmentKind.DELAY, delay_ns=delay_ns))
