"""What faults of lossless classes share.

They exist where a lab has `queues.pfc`. What a port is to do is in the maps of its program
(`rocelab.dataplane.pfc`), where each fault is read back.
"""

from __future__ import annotations

from rocelab.base.errors import InputError, MachineError
from rocelab.dataplane.pfc import control
from rocelab.lab.lab import RunningLab
from rocelab.planning.fabric import Fabric, Link
from rocelab.planning.pauses import PausePlan, PausePort, plan_pauses
from rocelab.record import LabFiles


def lossless_plan(fabric: Fabric) -> PausePlan:
    """The lossless classes of a fabric. Raises InputError if it has none."""
    if fabric.is_adopted:
        raise InputError(
            f"lab {fabric.name} was adopted: its ports have no lossless classes",
            hint="loss, delay and carrier-down work on any link",
        )
    plan = plan_pauses(fabric)
    if plan is None:
        raise InputError(
            f"lab {fabric.name} has no lossless classes", hint="set queues.pfc in its file"
        )
    return plan


def pause_port(lab: RunningLab, node: str, link: Link) -> PausePort:
    plan = lossless_plan(lab.fabric)
    return plan.by_slot[plan.slots[node, link.port(node).interface]]


def check_pausing(lab: RunningLab) -> None:
    if not control.is_alive(LabFiles(lab.name)):
        raise MachineError(
            f"the process that sends the pauses of lab {lab.name} has ended",
            hint=f"see {control.log_file(LabFiles(lab.name))}; bring the lab down and up again",
        )
