"""What the requests of a job feel, as documents of simulations and of labs' jobs have it.

Times to the first token, between tokens and to the end, how many requests meet their objectives,
and what of it is the network's. `rocelab.jobs.serving.outcome` makes it of the times when flows are
over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Carried(StrEnum):
    """The network that a figure is of."""

    CARRIED = "as it was"
    ALONE = "each flow alone"
    NONE = "takes no time"


@dataclass(frozen=True, slots=True)
class Latency:
    """A time of requests, None where some that the figure covers are never answered."""

    name: str
    title: str
    mean_ns: float | None
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    highest_ns: float | None


@dataclass(frozen=True, slots=True)
class ServedBy:
    """What requests feel with one network."""

    network: Carried
    answered: int
    """Requests whose last token came."""
    goodput: float
    """The share of all requests that meet every objective."""
    goodput_per_s: float | None
    """As many of the requests that arrive in a second; None if all arrive at once."""
    latencies: tuple[Latency, ...]
    """`ttft`, its parts `queue`, `prefill`, `transfer` and `first`, `itl` and `e2e`."""
    ttft_ns: tuple[float | None, ...] = ()
    """What 0, 1, 2, ... 100% of requests do not exceed, None for never."""
    itl_ns: tuple[float | None, ...] = ()
    """The same, of requests with several tokens."""

    def latency(self, name: str) -> Latency:
        """The figure of that name. Raises KeyError."""
        for latency in self.latencies:
            if latency.name == name:
                return latency
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Served:
    """The requests of a job."""

    requests: int
    rejected: int
    """That no decoding replica has room for; they meet no objective and have no times."""
    rate: float | None
    """Arrivals a second."""
    prompt_tokens: int
    reused_tokens: int
    answer_tokens: int
    cache_bytes: int
    """That travelled."""
    cache_bytes_per_s: float | None
    """For each second in which requests arrive; None if all arrive at once."""
    cache_peak_bytes_per_s: float | None
    """In the second in which most caches began to travel; None if all do in less than one."""
    prefill_load: float | None
    """What replicas have to prefill for each second in which requests arrive, in seconds; above 1
    queues grow."""
    ttft_objective_ns: float | None
    itl_objective_ns: float | None
    together: bool
    """The same replicas prefill and decode: nothing travels."""
    by_network: tuple[ServedBy, ...]
    """As the network was, with each flow alone on its NICs, and with one that takes no time."""
    warnings: tuple[str, ...]

    def by(self, network: Carried) -> ServedBy:
        """The figures with one of the networks."""
        return next(one for one in self.by_network if one.network is network)
