"""What faults of lossless classes share.

They exist where a lab has `queues.pfc`. What a port is to do is in the maps of its program
(`rocelab.dataplane.pfc`), where each fault is read back.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.base.errors import InputError, MachineError
from rocelab.base.wording import listed
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


def network_of_links(fabric: Fabric, links: Sequence[Link]) -> Fabric:
    """The network of links. Raises InputError if they are in several."""
    networks = {
        network.network_name: network
        for network in (fabric.network_of(link.b.node) for link in links)
    }
    if len(networks) > 1:
        raise InputError(
            f"the links are in networks {listed(map(str, networks), 'and')}",
            hint="give each network a fault of its own",
        )
    return next(iter(networks.values()))


def pause_files(lab: RunningLab, links: Sequence[Link]) -> LabFiles:
    """The files of the network of links, which its lossless classes are in."""
    return LabFiles.of(network_of_links(lab.fabric, links))


def pause_port(lab: RunningLab, node: str, link: Link) -> PausePort:
    plan = lossless_plan(network_of_links(lab.fabric, [link]))
    return plan.by_slot[plan.slots[node, link.port(node).interface]]


def check_pausing(lab: RunningLab, links: Sequence[Link]) -> None:
    files = pause_files(lab, links)
    if not control.is_alive(files):
        raise MachineError(
            f"the process that sends the pauses of lab {lab.name} has ended",
            hint=f"see {control.log_file(files)}; bring the lab down and up again",
        )
