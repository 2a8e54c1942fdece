"""Cables that take time: each link of a lab whose spec has `links.delay` holds packets so long.

`set_delays` makes them while a lab comes up, at the hooks of both directions of every link: netem
holds the packets where the kernel has it, else a process for each switch (`delayline`). Routing is
not delayed: it runs on the machine's clock. They end with the lab.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rocelab.base import quantities
from rocelab.base.errors import InputError, MachineError
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.base.workers import workers
from rocelab.dataplane.impairments import lineprocess, program
from rocelab.dataplane.impairments.delayline import HELD_LIMIT_BYTES, Lateness
from rocelab.dataplane.impairments.impairment import MAX_DELAY_NS, Hook, Hooks, ImpairmentKind
from rocelab.dataplane.impairments.maps import ImpairmentMaps, Rule
from rocelab.dataplane.impairments.program import CABLES
from rocelab.linux import namespaces, probes
from rocelab.planning.delays import lab_delay_ns, lab_delays_ns
from rocelab.planning.fabric import Fabric, Node
from rocelab.record import LabFiles


def check(fabric: Fabric) -> None:
    """Raise InputError if the lab cannot hold what is on its cables."""
    delay_ns = max(lab_delays_ns(fabric), default=0)
    if delay_ns > MAX_DELAY_NS:
        raise InputError(
            f"links.delay is {quantities.duration(delay_ns)} in the lab's clock, and packets are "
            f"held for {quantities.duration(MAX_DELAY_NS)} at most",
            "a shorter links.delay or a smaller dilation",
        )
    for switch, hooks in _hooks(fabric).items():
        held = sum(
            round(hook.link.link.rate_bps * (hook.link.link.delay_ns or 0) / 8e9) for hook in hooks
        )
        if held > HELD_LIMIT_BYTES // 2:
            raise InputError(
                f"the cables of {switch} hold {quantities.size(held)} when they are full, and a "
                f"switch of a lab holds {quantities.size(HELD_LIMIT_BYTES // 2)} at most",
                "a shorter links.delay, slower links or fewer of them",
            )


def set_delays(fabric: Fabric, files: LabFiles, progress: ProgressSink = no_progress) -> None:
    """Give every link of a lab that is coming up its delay. Raises MachineError if this machine
    cannot."""
    try:
        lacking = probes.missing(program.NEEDS)
        if lacking:
            raise OSError(lacking)
        program.make_pins(CABLES, files, Hooks(fabric).most)
        # netem holds all packets of a node equally long.
        in_kernel = len(lab_delays_ns(fabric)) == 1 and probes.missing(("netem",)) is None
        hooks = _hooks(fabric)
        with CABLES.maps(files) as maps, workers(2 * (os.cpu_count() or 1)) as pool:
            delayed = [
                pool.submit(
                    _delay_links, fabric, files, maps, node, place, hooks[node.name], in_kernel
                )
                for place, node in enumerate(fabric.switches)
            ]
            for done, outcome in enumerate(delayed, start=1):
                outcome.result()
                progress(Progress("delays", done, len(delayed)))
    except OSError as error:
        raise MachineError(
            f"links.delay does not work here: {error}",
            "run `rocelab doctor` for what eBPF programs need, or leave links.delay out",
        ) from None


def broken(fabric: Fabric, files: LabFiles) -> tuple[str, ...]:
    """The switches whose cables let nothing through, as what holds it has ended or is stopped."""
    if not CABLES.pins(files).exists():
        return ()
    return tuple(
        node.name for node in fabric.switches if not lineprocess.holds(CABLES, files, node.name)
    )


def lateness(fabric: Fabric, files: LabFiles) -> Lateness:
    """How late packets left all cables of a lab since it came up; none are counted by netem."""
    return lineprocess.lateness(CABLES, files, [node.name for node in fabric.switches])


def _hooks(fabric: Fabric) -> Mapping[str, Sequence[Hook]]:
    """The hooks at each switch."""
    hooks = Hooks(fabric)
    by_node: dict[str, list[Hook]] = {node.name: [] for node in fabric.switches}
    for link in fabric.directed_links:
        hook = hooks.find(link)
        by_node[hook.node].append(hook)
    return by_node


def _delay_links(
    fabric: Fabric,
    files: LabFiles,
    maps: ImpairmentMaps,
    node: Node,
    place: int,
    hooks: Sequence[Hook],
    in_kernel: bool,
) -> None:
    mtu = max(link.mtu for link in fabric.links_of[node.name])
    delay_ns = 0
    for hook in hooks:
        delay_ns = lab_delay_ns(hook.link.link, fabric.spec.dilation)
        maps.set_rule(
            hook.slot, Rule(hook.index, hook.at_egress, 1 << ImpairmentKind.DELAY, delay_ns)
        )
    if in_kernel:
        lineprocess.start_in_kernel(CABLES, files, node.name, maps, mtu, delay_ns)
    else:
        lineprocess.start(CABLES, files, node.name, place, maps, mtu)

    def attach() -> None:
        for hook in hooks:
            program.attach(
                CABLES, maps[CABLES.crossing], hook.slot, hook.index, at_egress=hook.at_egress
            )

    namespaces.inside(files.netns_of(node.name), attach)
