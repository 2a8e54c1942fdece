"""A port of a server's NIC that loses its carrier."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.faults.base import NicFaultSpec
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.faults.selectors import find_nic_link
from rocelab.planning.fabric import Fabric


class NicPortDownSpec(NicFaultSpec):
    """A port of a server's NIC loses its carrier."""

    kind: Literal["nic-port-down"]
    port: Annotated[int, Field(ge=1, le=2, description="from 1; NICs have one or two")] = 1

    def resolve(self, fabric: Fabric) -> CarrierDown:
        link = find_nic_link(fabric, self.server, self.nic, self.port)
        return CarrierDown((link,), kind=self.kind)
