"""A NIC whose host receives packets slowly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.base.units import SHARE, SharePpm
from rocelab.dataplane.pfc import control
from rocelab.dataplane.pfc.maps import PauseMaps
from rocelab.dataplane.pfc.program import pins_folder
from rocelab.faults.base import ALL_PPM, LinksFault, NicFaultSpec
from rocelab.faults.kinds.rate_degrade import RateDegrade, check_rates
from rocelab.faults.pauses import check_pausing, network_of_links, pause_files, pause_port
from rocelab.faults.selectors import find_nic_link
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket, spanning
from rocelab.planning.fabric import Fabric
from rocelab.planning.pauses import PausePort, plan_pauses


@dataclass(frozen=True, slots=True)
class SlowDrain(LinksFault):
    """The host of the NIC at the lower end of `links` takes packets at a share of their rate.

    The rest waits in the NIC's receive buffer (`queues.pfc.nic`), which pauses the switch above
    its XOFF.
    """

    share_ppm: int
    kind: str = "slow-receiver"

    def prepare(self, lab: RunningLab) -> None:
        """Raises InputError if the NIC drains as slowly by the lab's file, MachineError if no
        process of the lab sends pauses."""
        check_pausing(lab, self.links)
        for port in self._ports(lab):
            drain = _own_drain(port)
            if drain and self.bytes_per_s(port) >= drain:
                raise InputError(
                    f"{port} receives packets no faster than {SHARE.written(self.share_ppm)} of "
                    f"its "
                    "rate already",
                    hint="a lower rate, or a faster queues.pfc.nic.drain in the lab's file",
                )

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"the host of {port} receives packets at full speed"
            for port, drain in self._drains(lab)
            if drain == _own_drain(port)
        )

    def inject(self, lab: RunningLab) -> Bracket:
        return self._set(lab, self.bytes_per_s) or Bracket.now()

    def restore(self, lab: RunningLab) -> Bracket | None:
        return self._set(lab, _own_drain)

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(
            f"the host of {port} receives packets slowly"
            for port, drain in self._drains(lab)
            if drain != _own_drain(port)
        )

    def bytes_per_s(self, port: PausePort) -> int:
        """How fast the host takes packets of a port, in the lab's clock."""
        return max(1, port.rate_bps * self.share_ppm // ALL_PPM // 8)

    def _set(self, lab: RunningLab, drain: Callable[[PausePort], int]) -> Bracket | None:
        files = pause_files(lab, self.links)
        done = [
            Bracket.of(partial(control.drain, files, port.slot, drain(port)))
            for port, before in self._drains(lab)
            if drain(port) != before
        ]
        return spanning(done) if done else None

    def _ports(self, lab: RunningLab) -> list[PausePort]:
        return [pause_port(lab, link.a.node, link) for link in self.links]

    def _drains(self, lab: RunningLab) -> list[tuple[PausePort, int]]:
        ports = self._ports(lab)
        with PauseMaps(pins_folder(pause_files(lab, self.links))) as maps:
            return [(port, maps.ports.get(port.slot, "drain")) for port in ports]


def _own_drain(port: PausePort) -> int:
    """How fast the host of a NIC takes packets by the lab's file, bytes/s of the lab's clock; 0: as
    they come."""
    assert port.buffer is not None
    return port.buffer.drain_bps // 8


class SlowReceiverSpec(NicFaultSpec):
    """A NIC receives packets slowly, as when its host's memory does. With `queues.pfc` its receive
    buffer fills and pauses the switch; without, this is the rate of the switch's port."""

    spares_packets = True
    kind: Literal["slow-receiver"]
    rate: Annotated[SharePpm, Field(gt=0, lt=ALL_PPM, description="of the NIC's own")] = (
        ALL_PPM // 4
    )

    def resolve(self, fabric: Fabric) -> RateDegrade | SlowDrain:
        check_rates(fabric)
        find_nic_link(fabric, self.server, self.nic, 1)
        links = fabric.nics(self.server)[self.nic - 1].links
        if plan_pauses(network_of_links(fabric, links)) is not None:
            return SlowDrain(links, self.rate)
        return RateDegrade(links, self.rate, self.server, kind=self.kind)
