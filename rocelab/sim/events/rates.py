"""Published failure rates of networks, and timelines drawn from them.

Failures are independent and at constant rates (Poisson); the same seed gives the same
`TimelineSpec`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import NONE
from rocelab.base.errors import InputError
from rocelab.labfile.base import SECOND
from rocelab.routes.arrays.network import Network
from rocelab.sim.events.event_spec import (
    DAY,
    MAX_EVENTS,
    MAX_SPAN,
    EventSpec,
    RatesSpec,
    RestartSpec,
    TimelineSpec,
)
from rocelab.sim.events.longrun import Break
from rocelab.sim.events.timeline import EventOutage

DAY_S = DAY / SECOND
MONTH_S = 30 * DAY_S
_RESTART = RestartSpec()
_LLAMA3_GPU_S = 54 * DAY_S * 16_384


@dataclass(frozen=True, slots=True)
class FailureRates:
    """Failures per second of each thing."""

    name: str
    source: str
    port: float = 0.0
    """a link of a NIC."""
    leaf: float = 0.0
    """a switch that NICs are on."""
    link_per_nic: float = 0.0
    """Any link, per NIC of the network."""
    nic: float = 0.0
    """a whole NIC."""
    job: float = 0.0
    """Breaks of a job for any reason; network_share of them are drawn as failures of the
    network."""
    job_per_gpu: float = 0.0
    """Breaks of a job for any reason; network_share of them are drawn as failures of the
    network."""
    causes: tuple[tuple[str, float], ...] = ()
    """The causes of the others and their counts."""
    network_share: float = 0.0
    restart: RestartSpec = _RESTART
    """How jobs recover."""

    def own_breaks_per_s(self, gpus: int) -> float:
        """How often a job breaks for reasons other than the network failures drawn."""
        return self.breaks_per_s(gpus) * (1 - self.network_share)

    def breaks_per_s(self, gpus: int) -> float:
        """How often a job of this many GPUs breaks, for any reason."""
        return self.job + self.job_per_gpu * gpus


HPN = FailureRates(
    "hpn",
    "HPN (SIGCOMM'24): 0.057 % of NIC-ToR links and 0.051 % of ToRs fail in a month (30 days "
    "here), and a large job breaks once or twice a month (1.5 times here); no flaps are drawn, "
    "since the size of the fleet that has 5,000 to 60,000 a day is not published",
    port=0.00057 / MONTH_S,
    leaf=0.00051 / MONTH_S,
    job=1.5 / MONTH_S,
    causes=(("any cause", 1.0),),
)
LLAMA3 = FailureRates(
    "llama3",
    "Llama 3 (arXiv 2407.21783, table 5): in 54 days on 16,384 GPUs 35 interruptions by switches "
    "and cables and 7 by NICs, of 419 unexpected ones; here the 35 are failures of links, since "
    "the share of switches is not published, and the other 377 break jobs",
    link_per_nic=35 / _LLAMA3_GPU_S,
    nic=7 / _LLAMA3_GPU_S,
    job_per_gpu=419 / _LLAMA3_GPU_S,
    # Table 5: GPU 148 + 72 (HBM3) + 19 (SRAM) + 17 (system processor) + 6 (thermal) + 6 (silent
    # corruption); software 54 + 7 (NCCL watchdog) + 2; the rest without 35 + 7 of the network.
    causes=(("GPU", 268), ("software", 63), ("host", 46)),
    network_share=42 / 419,
    # 5.7 TB of parameters and optimizer state at the published 2 TB/s; neither the interval nor
    # the time of a restart is published: these values give its more than 90 %.
    restart=RestartSpec.model_validate(
        {"checkpoint_every": "15m", "checkpoint_takes": "3s", "restart_takes": "5m"}
    ),
)
PRESETS = {rates.name: rates for rates in (HPN, LLAMA3)}


def timeline_of(network: Network, spec: RatesSpec, duration_s: float) -> TimelineSpec:
    """Failures of a network at a preset's rates, and how its jobs restart. Raises InputError as
    `draw_timeline` does."""
    rates = PRESETS[spec.preset]
    drawn = draw_timeline(network, rates, duration_s, spec.seed, spec.repair / SECOND)
    return drawn.model_copy(update={"restart": rates.restart})


def draw_breaks(rates: FailureRates, gpus: int, seed: int, job: int = 0) -> Iterator[Break]:
    """Breaks of a job by itself, an endless iterator; each job number draws its own."""
    per_s = rates.own_breaks_per_s(gpus)
    draw = np.random.default_rng((seed, 1, job))
    names = [name for name, _ in rates.causes]
    weights = np.array([weight for _, weight in rates.causes])
    now_s = 0.0
    while per_s > 0:
        now_s += float(draw.exponential(1 / per_s))
        yield Break(now_s, names[int(draw.choice(len(names), p=weights / weights.sum()))])


def draw_timeline(
    network: Network, rates: FailureRates, duration_s: float, seed: int, repair_s: float
) -> TimelineSpec:
    """Failures of a network within `duration_s` seconds. Repair times are exponential with mean
    `repair_s`, as none are published.

    Raises InputError for more failures than a timeline holds, or later ones than it allows.
    """
    if duration_s * SECOND > MAX_SPAN:
        raise InputError(f"a timeline goes on for {MAX_SPAN // DAY:,} days at most")
    draw = np.random.default_rng(seed)
    leaves = np.nonzero(network.tier == 1)[0]
    nics, ports = np.nonzero(network.nic_links != NONE)
    expected = duration_s * np.array(
        (
            rates.port * len(nics),
            rates.leaf * len(leaves),
            rates.link_per_nic * network.nics,
            rates.nic * network.nics,
        )
    )
    if expected.sum() > MAX_EVENTS / 2:
        raise InputError(
            f"about {expected.sum():,.0f} failures are expected, a timeline holds {MAX_EVENTS:,}",
            "simulate a shorter time",
        )
    counts = draw.poisson(expected).tolist()

    def targets() -> Iterator[str]:
        for index in _drawn(draw, len(nics), counts[0]):
            yield f"port {network.nic_name(nics[index])}:{ports[index] + 1}"
        for index in _drawn(draw, len(leaves), counts[1]):
            yield f"switch {network.node_names[leaves[index]]}"
        for link in _drawn(draw, network.links, counts[2]):
            yield f"link {network.link_name(link)}"
        for nic in _drawn(draw, network.nics, counts[3]):
            yield f"nic {network.nic_name(nic)}"

    at_s = draw.uniform(0, duration_s, sum(counts))
    lasts_s = draw.exponential(repair_s, sum(counts))
    events = [
        EventSpec.model_validate({"at": f"{at}us", "fail": target, "lasts": f"{lasts}us"})
        for target, at, lasts in zip(
            targets(), _microseconds(at_s), _microseconds(lasts_s), strict=True
        )
    ]
    return TimelineSpec(events=tuple(sorted(events, key=lambda event: event.at)), seed=seed)


def drawn_in_words(preset: str, outages: Sequence[EventOutage]) -> str:
    """The network failures drawn and the causes of job breaks, in words."""
    kinds = Counter(outage.what.split()[1] for outage in outages)
    network = ", ".join(f"{count:,} of a {kind}" for kind, count in sorted(kinds.items()))
    causes = ", ".join(name for name, _ in PRESETS[preset].causes)
    return f"failures of the network ({network or 'none'}) and breaks of each job ({causes})"


def _drawn(draw: np.random.Generator, of: int, count: int) -> list[int]:
    drawn: list[int] = draw.integers(0, of, count).tolist() if count else []
    return drawn


def _microseconds(seconds: np.typing.NDArray[np.float64]) -> list[int]:
    return [max(1, round(second * 1e6)) for second in seconds.tolist()]
