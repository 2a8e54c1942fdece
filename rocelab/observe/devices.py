"""Counts packets in the lab's devices during a run: links, NICs and queues.

`DeviceCounts` are the differences between the start of the watch and its reading, independent of
the endpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from rocelab.jobs.jobplan import JobPlan
from rocelab.lab.lab import RunningLab
from rocelab.lab.node import PortGoneError
from rocelab.labfile.queues import QueueEngine
from rocelab.linux import namespaces
from rocelab.linux.closing import Holding
from rocelab.linux.links import LinkCounters, read_counters
from rocelab.observe.pauses import PauseWatch
from rocelab.observe.processes import ProcessFigures, ProcessWatch
from rocelab.observe.queues import QueueWatch
from rocelab.observe.timeline import opened_namespaces
from rocelab.results.job import QueueFigures
from rocelab.results.lossless import Lossless
from rocelab.traffic.jobparts import nic_links
from rocelab.traffic.taps import LinkPackets, Taps
from rocelab.wire.filters import data_filter, queue_pair_filter, roce_filter


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Packets by (link name, sending node), and what the queues and processes of the lab did."""

    roce: LinkPackets
    """RoCEv2, as it came in."""

    jobs: LinkPackets
    """On NICs' links, packets of the jobs' queue pairs, as they came in."""

    data: LinkPackets
    """Of `jobs`, the data packets."""

    sent_packets: LinkPackets
    """All frames, as they left."""

    sent_bytes: LinkPackets
    """All frames, as they left."""

    queues: tuple[QueueFigures, ...]
    """Those that were active."""

    engine: QueueEngine
    """What counted the queues."""

    lossless: Lossless | None = None
    """None in a lab without such classes."""

    processes: ProcessFigures = field(default_factory=ProcessFigures)


class DeviceWatch(Holding):
    """Counts within its context."""

    def __init__(self, lab: RunningLab, plans: Sequence[JobPlan]) -> None:
        self._lab = lab
        self._plans = plans

    def _enter(self, stack: ExitStack) -> None:
        """Raises InputError if queues cannot be read, MachineError if ports cannot."""
        lab = self._lab
        self._queues = QueueWatch(lab.fabric)
        self._processes = ProcessWatch(lab)
        self._pauses = stack.enter_context(PauseWatch(lab.fabric))
        self._netns_of = stack.enter_context(opened_namespaces(lab, lab.fabric.nodes))
        taps, family = partial(Taps, lab.fabric, self._netns_of), lab.fabric.family
        self._roce = stack.enter_context(taps(lab.fabric.links, roce_filter(family)))
        numbers = [end.number for plan in self._plans for end in plan.ends]
        # Without numbers the jobs are of TCP, and there is nothing to count.
        links = nic_links(self._plans) if numbers else ()
        of_jobs = queue_pair_filter(min(numbers, default=0), max(numbers, default=0), family)
        self._jobs = stack.enter_context(taps(links, of_jobs))
        self._data = stack.enter_context(taps(links, data_filter(family)))
        self._before = _all_counters(self._netns_of)

    def read(self, started_ns: int) -> DeviceCounts:
        """The counts since `__enter__`; call it once. Pauses have their times since `started_ns` of
        CLOCK_REALTIME. Raises PortGoneError if a port was removed or renamed meanwhile."""
        after = _all_counters(self._netns_of)
        packets, size = {}, {}
        for link in self._lab.fabric.directed_links:
            try:
                now, then = (
                    counters[link.sender][link.port.interface] for counters in (after, self._before)
                )
            except KeyError:
                raise PortGoneError(link.port) from None
            packets[link] = now.tx_packets - then.tx_packets
            size[link] = now.tx_bytes - then.tx_bytes
        return DeviceCounts(
            roce=self._roce.read(),
            jobs=self._jobs.read(),
            data=self._data.read(),
            sent_packets=packets,
            sent_bytes=size,
            queues=self._queues.figures(),
            engine=self._queues.engine,
            lossless=self._pauses.figures(started_ns),
            processes=self._processes.figures(),
        )


def _all_counters(netns_of: Mapping[str, int]) -> dict[str, dict[str, LinkCounters]]:
    by_node: dict[str, dict[str, LinkCounters]] = {}

    def read(node: str) -> None:
        by_node[node] = read_counters()

    namespaces.inside_each(netns_of, read)
    return by_node
