"""Plans of the labs that ship, each made once in a process: a fabric is frozen, and a large one
takes a second."""

from __future__ import annotations

from functools import cache

from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric


@cache
def planned(name: str) -> Fabric:
    """The fabric of a lab of the catalog."""
    return plan(load_spec(find_lab(name)))
