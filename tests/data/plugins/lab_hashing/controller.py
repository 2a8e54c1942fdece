"""The controller of `first-way`."""

from __future__ import annotations

from rocelab.dataplane.controller.lab import ControlledLab, Report
from rocelab.routes.steering import EntryKey


class FirstWay:
    def __init__(self, lab: ControlledLab) -> None:
        self._lab = lab

    def __call__(self, report: Report) -> None:
        _, demands = self._lab.collect(report)
        self._lab.program(
            {EntryKey(leaf, *demand.key): 0 for demand in demands for leaf in demand.ingresses},
            report,
        )
