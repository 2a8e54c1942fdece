"""A kind of fault and a KPI, and a KPI whose name is taken."""

from typing import Literal

from rocelab.faults.base import LinkFaultSpec, Target
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.planning.fabric import Fabric
from rocelab.results.kpi import Kpi, Quantity


class DuctCutSpec(LinkFaultSpec):
    """Somebody digs where a duct lies: its links lose their carrier."""

    drawn = Target.LINK
    kind: Literal["duct-cut"]
    depth: int = 2

    def resolve(self, fabric: Fabric) -> CarrierDown:
        return CarrierDown(self.find(fabric, None), kind=self.kind)


KPIS = (
    Kpi("flows_sent", Quantity.COUNT, "Flows", "flows sent", of_probes=lambda run: len(run.flows)),
)
AGAIN = Kpi("lost_packets", Quantity.COUNT, "Lost", "packets lost", of_probes=lambda run: 0)
