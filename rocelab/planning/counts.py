"""Whether a lab's links have addresses, without planning a node."""

from __future__ import annotations

from rocelab.fabrics.addressing import SPACE_SIZE
from rocelab.labfile.model import LabSpec, Numbering


def is_numbered(spec: LabSpec) -> bool:
    """Whether links between switches have addresses: `auto` numbers them if they fit."""
    if spec.routing.numbering is not Numbering.AUTO:
        return spec.routing.numbering is Numbering.NUMBERED
    counts = spec.fabric.counts()
    return counts.addresses + counts.addresses % 2 + 2 * counts.sessions <= SPACE_SIZE
