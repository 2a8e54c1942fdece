"""The comparison as data: devices' counts and simulated figures of every job on every lab.

Frozen dataclasses that `rocelab.documents` writes and reads, and the figures of the table's rows.
Times are those of the modelled network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocelab.documents import Format
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.performance import Row
from rocelab.results.environment import Environment
from rocelab.units import parse_size_bytes

SCHEMA_VERSION = 1
LIMIT = 0.05
"""The largest relative difference of busbw for agreement."""

SOME_LOST = 0.002
"""The share of a NIC's time that it may be idle for lack of CPU: a run is valid up to 1 %, but
ranks that wait for each other add up their delays."""


@dataclass(frozen=True, slots=True)
class Loads:
    """Data packets by link and direction. links: their number; equal: those whose counters in the
    lab equal the simulator's; flows_equal: those where it has as many flows as `rocelab predict`
    from the tables of the lab's kernels. packets, simulated: sums over all. differing: the first
    unequal ones."""

    links: int
    equal: int
    flows_equal: int
    packets: int
    simulated: int
    differing: tuple[str, ...]

    @property
    def agree(self) -> bool:
        """Whether every link has the same packets and flows."""
        return self.equal == self.flows_equal == self.links


@dataclass(frozen=True, slots=True)
class Evidence:
    """Figures from the lab's report of a run: packets retransmitted, dropped and marked in queues,
    notifications (CNPs), timeouts, round trips, and the machine's idle time."""

    data_packets: int
    retransmitted: int
    dropped: int
    marked: int
    cnps: int
    timeouts: int
    rtt_p50_ns: float | None
    rtt_p99_ns: float | None
    lost_share: float
    late_p99_ns: float


@dataclass(frozen=True, slots=True)
class CellResult:
    """A job on a lab. lab_ns, simulated_ns: its measured iterations, each from the end of the one
    before; lab_ns is empty if no run was valid, and `problems` then says why. attempts: the number
    of runs. bottleneck, least_ns: see `Simulated`. packet_ns: from the simulation by packets, the
    mean iteration of each of several draws."""

    name: str
    title: str
    scheme: str
    job: dict[str, Any]
    attempts: int
    problems: tuple[str, ...]
    loads: Loads | None
    evidence: Evidence | None
    lab_ns: tuple[float, ...]
    simulated_ns: tuple[float, ...]
    bottleneck: float
    least_ns: float
    packet_ns: tuple[float, ...]

    @property
    def is_carried(self) -> bool:
        return bool(self.lab_ns)

    def busbw_gbs(self, times_ns: tuple[float, ...]) -> float:
        """Bus bandwidth over all of these iterations, GB/s: nccl-tests' factor over their mean.

        Ranks run ahead of each other into the next iteration, so single iterations are not
        separate.
        """
        return self._row(sum(times_ns) / len(times_ns))

    @property
    def lab_gbs(self) -> tuple[float, float, float]:
        """Bus bandwidth in the lab: of all iterations, the slowest and the fastest."""
        times = self.lab_ns
        return self.busbw_gbs(times), self._row(max(times)), self._row(min(times))

    @property
    def simulated_gbs(self) -> float:
        return self.busbw_gbs(self.simulated_ns)

    @property
    def ratio(self) -> float:
        """The simulator's busbw over the lab's."""
        return self.simulated_gbs / self.lab_gbs[0]

    @property
    def packets_gbs(self) -> tuple[float, float, float]:
        """Bus bandwidth packet by packet: of all draws, the slowest and the fastest."""
        times = self.packet_ns
        return self.busbw_gbs(times), self._row(max(times)), self._row(min(times))

    @property
    def cause(self) -> str:
        """The probable cause of a difference above LIMIT: the first of a few rules that fits the
        run's other figures. None of them is a proof."""
        evidence = self.evidence
        if evidence is None or self.agrees:
            return ""
        if evidence.retransmitted:
            return f"{evidence.retransmitted:,} packets sent again"
        mean, slowest, fastest = self.packets_gbs
        lab = self.lab_gbs[0]
        near = slowest * (1 - LIMIT) <= lab <= fastest * (1 + LIMIT)
        if self.is_contended and near and abs(mean - lab) < abs(self.simulated_gbs - lab):
            return "order of service in queues"
        if evidence.cnps:
            return f"DCQCN slowed queue pairs down, {evidence.cnps:,} CNPs"
        if self.ratio > 1 and evidence.lost_share >= SOME_LOST:
            return "NICs idle for lack of CPU, and every step waits for the slowest"
        return "not known"

    @property
    def is_contended(self) -> bool:
        """Whether flows meet on links between switches, according to the simulator: in total, or in
        some of the rounds."""
        mean_ns = sum(self.simulated_ns) / len(self.simulated_ns)
        return self.bottleneck > 1 or mean_ns > (1 + LIMIT) * self.least_ns

    @property
    def agrees(self) -> bool:
        """Whether bandwidths are within LIMIT."""
        return abs(self.ratio - 1) <= LIMIT

    def _row(self, time_ns: float) -> float:
        job = self.job
        size = parse_size_bytes(job["size"])
        return Row(Pattern(job["pattern"]), job["ranks"], size, time_ns).busbw_gbs


@dataclass(frozen=True, slots=True)
class LabResult:
    """The jobs of a lab. own_dilation: that of its file; failed: why the measurement ended early,
    None if it did not."""

    schema_version: int
    name: str
    lab: dict[str, Any]
    environment: Environment
    load_average: tuple[float, float, float]
    nics: int
    own_dilation: float
    dilation: float
    cells: tuple[CellResult, ...]
    took_s: float
    failed: str | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """All labs, in the catalog's order; not_run: the omitted ones, with the reasons."""

    schema_version: int
    command: str
    labs: tuple[LabResult, ...]
    not_run: dict[str, str]


LAB = Format(LabResult, SCHEMA_VERSION, "a compared lab", "remove it to run it again")
AGREEMENT = Format(
    Agreement,
    SCHEMA_VERSION,
    "a comparison of lab and simulator",
    "give the agreement.json that `python -m bench.agreement` wrote",
)
