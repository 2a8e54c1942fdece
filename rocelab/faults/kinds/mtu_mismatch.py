"""Links whose one end takes smaller packets than the other sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.faults.base import LinkFaultSpec, LinksFault
from rocelab.faults.ports import read_ports
from rocelab.faults.selectors import NodeName, check_end
from rocelab.lab import wiring
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric, Link

MIN_IPV4_MTU, MIN_IPV6_MTU = 68, 1280
"""Below these the kernel removes IP from an interface (RFC 791, RFC 8200 section 5)."""


@dataclass(frozen=True, slots=True)
class MtuMismatch(LinksFault):
    """The ends at `side` take packets of `mtu` bytes at most.

    A larger packet from the far end is dropped on arrival without notice; BGP's small packets pass
    (drivers/net/veth.c, is_skb_forwardable of include/linux/netdevice.h).
    """

    side: str
    mtu: int
    kind: str = "mtu-mismatch"

    def prepare(self, lab: RunningLab) -> None:
        """Raises InputError if the MTU is not below the links', or would remove their addresses, or
        a port of an adopted lab has another one than its link: its own would not come back."""
        fabric = lab.fabric.network_of(self.links[0].b.node)
        is_ipv4 = fabric.spec.addresses.families == (Family.IPV4,)
        numbered = fabric.numbered and not fabric.is_adopted
        least = MIN_IPV4_MTU if numbered and is_ipv4 else MIN_IPV6_MTU
        if lab.fabric.is_adopted and (changed := self.remains(lab)):
            raise InputError(changed[0], hint="set both ends of its cable to the same MTU")
        for link in self.links:
            if not least <= self.mtu < link.mtu:
                raise InputError(
                    f"{link.name}, whose MTU is {link.mtu}, cannot be given {self.mtu} at one end",
                    hint=f"from {least} to {link.mtu - 1}",
                )

    def intact(self, lab: RunningLab) -> frozenset[str]:
        mtus = self._mtus(lab).items()
        return frozenset(f"{link.port(self.side)} has an MTU of {mtu}" for link, mtu in mtus)

    def inject(self, lab: RunningLab) -> Bracket:
        return self._set(lab, dict.fromkeys(self._mtus(lab), self.mtu))

    def restore(self, lab: RunningLab) -> Bracket:
        return self._set(lab, {link: link.mtu for link in self._mtus(lab)})

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(
            f"{link.port(self.side)} has an MTU of {mtu} instead of {link.mtu}"
            for link, mtu in self._mtus(lab).items()
            if mtu != link.mtu
        )

    def _mtus(self, lab: RunningLab) -> Mapping[Link, int]:
        """The MTU of each port that still exists, whatever its name is now."""
        mtus = {port.index: port.mtu for port in read_ports(lab.node(self.side)).values()}
        at = {link: link.port(self.side).index for link in self.links}
        return {link: mtus[index] for link, index in at.items() if index in mtus}

    def _set(self, lab: RunningLab, mtus: Mapping[Link, int]) -> Bracket:
        return lab.node(self.side).send(
            [wiring.set_mtu(link.port(self.side).index, mtu) for link, mtu in mtus.items()]
        )


class MtuMismatchSpec(LinkFaultSpec):
    """One end takes smaller packets only: large ones vanish, BGP's pass."""

    kind: Literal["mtu-mismatch"]
    side: Annotated[NodeName | None, Field(description="the end; else the upper one")] = None
    mtu: Annotated[int, Field(ge=576, le=9216, description="bytes of an IP packet")] = 1500

    @property
    def settings(self) -> Mapping[str, str]:
        return {"MTU": str(self.mtu)}

    def resolve(self, fabric: Fabric) -> MtuMismatch:
        links = self.find(fabric, self.side)
        side = self.side or links[0].b.node
        for link in links:
            check_end(link, side)
        return MtuMismatch(links, side, self.mtu)
