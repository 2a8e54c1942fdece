"""Kinds of simulated jobs that are workloads: steps of computing and sending, such as training.

A workload is a class of `WorkloadSpec`, registered in the group `rocelab.jobs.workloads`: its keys
are those of the block of its name in a job (`rocelab.jobs.job_spec`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rocelab.base.doors import Door
from rocelab.jobs.workload import Workload
from rocelab.labfile.base import SpecModel


class WorkloadSpec(SpecModel):
    """What a job does, before it is placed on a network."""

    may_send_nothing: ClassVar[bool] = False
    """Whether it has a time also where no rank sends another a byte: it computes."""
    peers: ClassVar[int | None] = None
    """How many others a rank sends to, about; None: all."""

    if TYPE_CHECKING:

        @property
        def ranks(self) -> int:
            """How many ranks it has, as a key or a property."""

    def workload(self, iterations: int) -> Workload:
        """Its steps."""
        raise NotImplementedError


def _workload(name: str, value: object) -> type[WorkloadSpec]:
    if not (isinstance(value, type) and issubclass(value, WorkloadSpec)):
        raise TypeError(f"expected a class of {WorkloadSpec.__module__}.{WorkloadSpec.__name__}")
    if not name.isidentifier():
        raise ValueError("expected a name of letters, digits and underscores: it is a key")
    if "ranks" not in value.model_fields and not hasattr(value, "ranks"):
        raise TypeError(f"{value.__name__} lacks ranks")
    return value


WORKLOADS: Door[type[WorkloadSpec]] = Door("rocelab.jobs.workloads", "workload", _workload)
