"""The values of the metrics that the page colours links by, per direction of a link.

Each comes from two readings of the kernel's counters; `rocelab.observe.health.sample` has computed
most of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocelab.observe.health.monitor import Snapshot
from rocelab.observe.health.reading import Reading
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.planning.queues import ETHERNET_OVERHEAD_BYTES, lab_rate_bps
from rocelab.results.health import Sli

NS_PER_S = 10**9
DIGITS = 4
"""Digits of a value after the decimal point: a smaller change does not count."""

_SLIS = {
    "marks": Sli.CE_RATIO,
    "drops": Sli.QUEUE_DROPS,
    "pauses": Sli.PAUSE_SHARE,
    "errors": Sli.LINK_LOSS,
}
_PER_SECOND = ("drops", "errors")


def values_of(
    fabric: Fabric, before: Reading | None, snapshot: Snapshot
) -> Mapping[str, dict[int, float]]:
    """Values that are not 0, by metric and direction (`Fabric.directed_links`).

    load: share of the link's rate in the lab, with what Ethernet adds to a frame. marks: share of
    packets that left with CE, of 100 or more. drops, errors: packets per second, dropped by the
    sender's queue and lost on the way. pauses: share of time.
    """
    places = snapshot.places.directed_links
    sample = snapshot.sample
    number = {name: direction for direction, name in enumerate(places)}
    rows: dict[str, dict[int, float]] = {}
    for metric, sli in _SLIS.items():
        unit = NS_PER_S / sample.span_ns if metric in _PER_SECOND else 1
        values = {number[name]: value * unit for name, value in sample.values[sli].items()}
        rows[metric] = _rounded(values)
    loads = (_load(fabric, link, before, snapshot.reading) for link in places.values())
    rows["load"] = _rounded(dict(enumerate(loads)))
    return rows


def lost_per_s(values: Mapping[str, Mapping[int, float]]) -> float:
    """Packets per second that all queues dropped and all links lost."""
    return round(sum(sum(values.get(metric, {}).values()) for metric in _PER_SECOND), 1)


def traffic_of(before: Reading | None, now: Reading) -> Mapping[str, float]:
    """Packets per second that the agents of servers sent and received, data of queue pairs and
    probes, each agent between the times at which it wrote its counters."""
    rates = {"sent": 0.0, "received": 0.0}
    for server, last in now.endpoints.items():
        first = None if before is None else before.endpoints.get(server)
        if first is None or last.pid != first.pid or last.time_ns <= first.time_ns:
            continue
        unit = NS_PER_S / (last.time_ns - first.time_ns)
        sent = last.sent + last.probes_sent - first.sent - first.probes_sent
        received = last.received + last.probes_received - first.received - first.probes_received
        rates["sent"] += sent * unit
        rates["received"] += received * unit
    return {way: round(rate, 1) for way, rate in rates.items()}


def _rounded(values: Mapping[int, float]) -> dict[int, float]:
    rounded = {direction: round(value, DIGITS) for direction, value in values.items() if value}
    return {direction: value for direction, value in rounded.items() if value}


def _load(fabric: Fabric, link: DirectedLink, before: Reading | None, now: Reading) -> float:
    port = link.sender, link.port.interface
    if before is None or port not in before.ports or port not in now.ports:
        return 0.0
    then, read = before.ports[port], now.ports[port]
    frames = read.tx_packets - then.tx_packets
    size = read.tx_bytes - then.tx_bytes + frames * ETHERNET_OVERHEAD_BYTES
    seconds = now.since_ns(before) / NS_PER_S
    return 8 * size / seconds / lab_rate_bps(link.link, fabric.spec.dilation)
