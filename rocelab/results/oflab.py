"""A document that has the spec of its lab: it plans the fabric once, for all who read it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric, RouteBasis, basis_of
from rocelab.results.environment import Environment


class LabDocument:
    """The base of documents whose key `lab` is a spec in full, as JSON values."""

    lab: dict[str, Any]
    environment: Environment

    @cached_property
    def lab_spec(self) -> LabSpec:
        """Raises ValueError if this version does not know such a lab."""
        return recorded_spec(self.lab, self.environment.plugins)

    @property
    def basis(self) -> RouteBasis:
        """How its lab's routes are known. Raises ValueError as `lab_spec`."""
        return basis_of(self.lab_spec)

    @cached_property
    def fabric(self) -> Fabric:
        """The lab's fabric. Raises ValueError as `lab_spec`, and if it does not fit."""
        return build_fabric(self.lab_spec)
