"""Links that carry a share of their rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.base.units import SharePpm
from rocelab.dataplane.queues import rates
from rocelab.dataplane.queues.engine import read_engine
from rocelab.faults.base import ALL_PPM, LinkFaultSpec, LinksFault, Towards
from rocelab.faults.selectors import directed
from rocelab.lab.lab import RunningLab
from rocelab.labfile.queues import QueueEngine
from rocelab.linux import namespaces, tc
from rocelab.linux.bracket import Bracket, spanning
from rocelab.planning.fabric import DirectedLink, Fabric, Link
from rocelab.planning.queues import lab_rate_bps
from rocelab.record import LabFiles


@dataclass(frozen=True, slots=True)
class RateDegrade(LinksFault):
    """Links carry a share of their rate, towards one node or in both directions.

    The sending switch's port gets slower. Towards a server this models a slow receiver without PFC:
    packets are queued, marked and dropped in the port before its NIC.
    """

    share_ppm: int
    towards: str | None = None
    kind: str = "rate-degrade"

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"{link.port} has its own rate"
            for link in self._slowed()
            if not self._is_slower(lab, link)
        )

    def inject(self, lab: RunningLab) -> Bracket:
        slowed = []
        for link in self._slowed():
            queued, buffer_bytes = _queues(lab, link.link)
            request = rates.change(
                self.rate_bps(lab.fabric, link.link),
                link.link.mtu,
                queued=queued,
                buffer_bytes=buffer_bytes,
            )
            message = tc.on_interface(request, link.port.index)
            slowed.append(lab.node(link.sender).send([message]))
        return spanning(slowed)

    def restore(self, lab: RunningLab) -> Bracket | None:
        mended = []
        for link in self._slowed():
            if not self._is_slower(lab, link):
                continue
            queued, buffer_bytes = _queues(lab, link.link)
            if queued:
                rate_bps = lab_rate_bps(link.link, lab.fabric.spec.dilation)
                request = rates.change(
                    rate_bps, link.link.mtu, queued=True, buffer_bytes=buffer_bytes
                )
            else:
                request = rates.bucket_removal()
            message = tc.on_interface(request, link.port.index)
            mended.append(lab.node(link.sender).send([message]))
        return spanning(mended) if mended else None

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(
            f"{link.port} still has a reduced rate"
            for link in self._slowed()
            if self._is_slower(lab, link)
        )

    def rate_bps(self, fabric: Fabric, link: Link) -> int:
        """The remaining rate of a link, in the lab's clock."""
        return max(8, lab_rate_bps(link, fabric.spec.dilation) * self.share_ppm // ALL_PPM)

    def _slowed(self) -> Iterator[DirectedLink]:
        return directed(self.links, self.towards)

    def _is_slower(self, lab: RunningLab, link: DirectedLink) -> bool:
        index = link.port.index
        shaper = namespaces.inside(lab.node(link.sender).netns, lambda: rates.read_rate(index))
        if shaper is None:
            return False
        rate_bps = lab_rate_bps(link.link, lab.fabric.spec.dilation)
        return shaper.kind == "tbf" or shaper.rate_bps != 8 * (rate_bps // 8)


def _queues(lab: RunningLab, link: Link) -> tuple[bool, int]:
    """Whether the ports of a link's network have queues, and the bytes that each holds."""
    network = lab.fabric.network_of(link.b.node)
    engine = read_engine(LabFiles.of(network))
    return engine is not QueueEngine.OFF, network.spec.queues.buffer


def check_rates(fabric: Fabric) -> None:
    """Raises InputError if the fabric's links have no rate."""
    if fabric.is_adopted:
        raise InputError(
            f"lab {fabric.name} was adopted: its links have no rate to reduce",
            hint="loss, delay and carrier-down work on any link",
        )


class RateDegradeSpec(LinkFaultSpec):
    """A link trains at a lower rate."""

    kind: Literal["rate-degrade"]
    towards: Towards = None
    rate: Annotated[SharePpm, Field(gt=0, lt=ALL_PPM, description="of the link's own")] = (
        ALL_PPM // 4
    )

    def resolve(self, fabric: Fabric) -> RateDegrade:
        check_rates(fabric)
        links = self.find(fabric, self.towards)
        for link in links:
            if not link.is_between_switches and self.towards != link.a.node:
                raise InputError(
                    f"{link.a.node} paces itself: no port of a switch sends from it to "
                    f"{link.b.node}",
                    hint=f"set towards: {link.a.node}",
                )
        return RateDegrade(links, self.rate, self.towards)
