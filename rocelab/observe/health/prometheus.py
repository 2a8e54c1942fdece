"""Exports a lab's health to Prometheus: as text, as a file for node_exporter, and over HTTP on
loopback.

The newest `Snapshot` of a monitor gives counters since the lab came up (for endpoints: since
monitoring began), gauges of the newest sample, and its missed objectives. Names and units follow
prometheus.io/docs/practices/naming.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rocelab.agent.live import LiveCounters
from rocelab.base.errors import InputError, MachineError
from rocelab.base.outputs import output_file
from rocelab.observe.health.endpoints import split_endpoint
from rocelab.observe.health.health_spec import LOSSLESS_SLIS
from rocelab.observe.health.monitor import Snapshot
from rocelab.planning.queues import lab_rate_bps
from rocelab.results.health import Sli

_ENDPOINT_COUNTERS = {
    "sent": ("sent_packets", "Data packets sent by queue pairs"),
    "retransmitted": ("retransmitted_packets", "Data packets retransmitted"),
    "acked_bytes": ("acknowledged_bytes", "Payload acknowledged to queue pairs"),
    "timeouts": ("ack_timeouts", "Local ACK timeouts"),
    "naks_received": ("naks_received", "NAKs that reached requesters"),
    "cnps_received": ("cnps_received", "CNPs that reached requesters"),
    "received": ("received_packets", "Data packets accepted by queue pairs"),
    "out_of_sequence": ("out_of_sequence_packets", "Packets received out of sequence"),
    "duplicates": ("duplicate_packets", "Data packets received again"),
    "ce_received": ("ce_received_packets", "Data packets received with CE"),
    "naks_sent": ("naks_sent", "NAKs sent by responders"),
    "cnps_sent": ("cnps_sent", "CNPs sent by responders"),
    "icrc_errors": ("icrc_error_packets", "Packets with a wrong ICRC"),
    "probes_sent": ("probes_sent", "Probes sent"),
    "probes_received": ("probes_received", "Probes received"),
}
"""Name and help by field of `LiveCounters`."""

_DIRECTION = ("link", "towards")


class HealthCollector(Collector):
    """The metrics of the newest snapshot; none before there is one."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def collect(self) -> Iterable[Metric]:
        """Every metric, with all its places."""
        if self.snapshot is None:
            return
        yield from _links(self.snapshot)
        yield from _queues(self.snapshot)
        yield from _lossless(self.snapshot)
        yield from _endpoints(self.snapshot)
        yield from _control_plane(self.snapshot)
        yield from _slis(self.snapshot)
        yield from _watching(self.snapshot)


class Exporter:
    """Writes or serves each snapshot; leaving its context stops the server."""

    def __init__(self, file: Path | None, address: str | None) -> None:
        """`address` such as 127.0.0.1:9464. Raises InputError unless it is a loopback address with
        a port, and if the file's folder is missing; MachineError if the address is in use."""
        self._collector = HealthCollector()
        self._registry = CollectorRegistry()
        self._registry.register(self._collector)
        self._file = None if file is None else output_file(file, overwrite=True)
        self._server: tuple[object, object] | None = None
        if address is not None:
            host, port = loopback_address(address)
            try:
                self._server = start_http_server(port, host, self._registry)
            except OSError as error:
                raise MachineError(
                    f"{address} cannot be listened on: {error.strerror}", hint="take another port"
                ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            server, thread = self._server
            server.shutdown()  # type: ignore[attr-defined]
            server.server_close()  # type: ignore[attr-defined]
            thread.join()  # type: ignore[attr-defined]

    def take(self, snapshot: Snapshot) -> None:
        """Export a snapshot. Raises InputError if the file cannot be written."""
        self._collector.snapshot = snapshot
        if self._file is not None:
            self._file.write(generate_latest(self._registry))


def loopback_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9464` or `[::1]:9464`.

    Raises InputError for anything else, in particular addresses of other hosts: the page has no
    password.
    """
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        raise InputError(
            f"expected an address and a port, got {text!r}", hint="for example 127.0.0.1:9464"
        ) from None
    if not address.is_loopback:
        raise InputError(
            f"{address} is not a loopback address: anybody could read what is served there",
            hint="serve on 127.0.0.1 and let Prometheus on this machine, or a tunnel, fetch it",
        )
    if not 0 < number < 1 << 16:
        raise InputError(f"there is no port {number}", hint="use one from 1 to 65535")
    return str(address), number


def _counter(name: str, about: str, labels: tuple[str, ...]) -> CounterMetricFamily:
    return CounterMetricFamily(f"rocelab_{name}", about, labels=labels)


def _gauge(name: str, about: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rocelab_{name}", about, labels=labels)


class _Labels:
    """The labels that begin those of each metric: the lab and, of a lab with several networks, the
    network."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._lab = snapshot.lab.name
        self._fabric = snapshot.lab.fabric
        self.is_one = not snapshot.places.networks

    def names(self, *others: str) -> tuple[str, ...]:
        return ("lab", *others) if self.is_one else ("lab", "network", *others)

    def values(self, network: str, *others: str) -> tuple[str, ...]:
        return (self._lab, *others) if self.is_one else (self._lab, network, *others)

    def of(self, switch: str, *others: str) -> tuple[str, ...]:
        """The values of what belongs to a switch."""
        return self.values(self._fabric.network_of(switch).network_name or "", *others)


def _links(snapshot: Snapshot) -> Iterator[Metric]:
    lab, reading = snapshot.lab, snapshot.reading
    of_lab = _Labels(snapshot)
    names, of_link = of_lab.names(*_DIRECTION), of_lab.names("link")
    lost = _counter("link_lost_packets", "Packets sent and not received at the far end", names)
    packets = _counter("link_sent_packets", "Packets sent onto the link", names)
    size = _counter("link_sent_bytes", "Bytes sent onto the link", names)
    for direction in lab.fabric.directed_links:
        labels = of_lab.of(direction.link.b.node, direction.name, direction.receiver)
        lost.add_metric(labels, reading.lost.get(direction, 0))
        port = reading.ports.get((direction.sender, direction.port.interface))
        if port is not None:
            packets.add_metric(labels, port.tx_packets)
            size.add_metric(labels, port.tx_bytes)
    up = _gauge("link_up", "Whether both ends have carrier", of_link)
    flaps = _counter("link_carrier_losses", "Losses of carrier", of_link)
    for link in lab.fabric.links:
        ends = [reading.ports.get((port.node, port.interface)) for port in (link.a, link.b)]
        seen = [port for port in ends if port is not None]
        if seen:
            labels = of_lab.of(link.b.node, link.name)
            up.add_metric(labels, all(port.carrier for port in seen))
            losses = max(port.carrier_losses for port in seen)
            flaps.add_metric(labels, losses)
    rate = _gauge("link_rate_bytes_per_second", "Each way, in the lab's time", of_link)
    for link in lab.fabric.links:
        bytes_per_s = lab_rate_bps(link, lab.fabric.spec.dilation) / 8
        rate.add_metric(of_lab.of(link.b.node, link.name), bytes_per_s)
    yield from (lost, packets, size, up, flaps, rate)


def _queues(snapshot: Snapshot) -> Iterator[Metric]:
    of_lab = _Labels(snapshot)
    labels = of_lab.names(*_DIRECTION, "class")
    packets = _counter("queue_packets", "Packets that entered the queue", labels)
    dropped = _counter("queue_dropped_packets", "Packets that did not fit the buffer", labels)
    marked = _counter("queue_marked_packets", "Packets marked with CE by this queue", labels)
    ce = _counter("queue_ce_packets", "Packets that left with CE, marked here or before", labels)
    depth = _gauge("queue_depth_bytes", "Bytes in the queue when it was read", labels)
    deepest_seen = _gauge(
        "queue_max_depth_bytes", "Deepest queue that a packet met since jobs last began", labels
    )
    for link in snapshot.lab.fabric.directed_links:
        queues = snapshot.reading.queues.get((link.sender, link.port.interface), {})
        for number, queue in queues.items():
            if not queue.packets and not queue.dropped_packets:
                continue
            values = of_lab.of(link.link.b.node, link.name, link.receiver, str(number))
            packets.add_metric(values, queue.packets)
            dropped.add_metric(values, queue.dropped_packets)
            marked.add_metric(values, queue.marked)
            depth.add_metric(values, queue.depth_bytes)
            if queue.ce_out is not None:
                ce.add_metric(values, queue.ce_out)
            if queue.on_arrival is not None:
                deepest_seen.add_metric(values, queue.on_arrival.max_bytes)
    buffer = _gauge("queue_buffer_bytes", "Buffer limit of a switch port", of_lab.names())
    for network in snapshot.lab.fabric.networks:
        name = network.network_name or ""
        buffer.add_metric(of_lab.values(name), network.spec.queues.buffer)
    yield from (packets, dropped, marked, ce, depth, deepest_seen, buffer)


_PFC_COUNTERS = {
    "pauses_received": ("rx_pause", "Pause frames received"),
    "resumes_received": ("rx_resume", "Pause frames with 0 quanta received"),
    "transitions": ("rx_pause_transition", "Times that the class was stopped"),
    "pauses_sent": ("tx_pause", "Pause frames sent, refreshes included"),
    "resumes_sent": ("tx_resume", "Pause frames with 0 quanta sent"),
    "dropped_packets": ("rx_discards", "Packets without room in headroom or receive buffer"),
    "late_packets": ("late_packets", "Packets admitted because this machine paused the peer late"),
    "watchdog_fired": ("pause_storm_events", "Times that the watchdog freed the queue"),
    "discarded_packets": ("watchdog_discards", "Packets that the watchdog dropped"),
}
"""Name and help by field of `ClassCounters`."""

_PFC_GAUGES = {
    "is_paused": ("paused", "Whether the class is paused"),
    "held": ("held_bytes", "Bytes that the switch or NIC holds for the port"),
    "held_max": ("held_max_bytes", "The most that it held"),
    "headroom_max": ("headroom_max_bytes", "The most of it that was in the headroom"),
}


def _lossless(snapshot: Snapshot) -> Iterator[Metric]:
    """Names as in `ethtool -S` of mlx5 NICs, with the class as a label."""
    pauses = snapshot.reading.pauses
    if pauses is None:
        return
    lab, of_lab = snapshot.lab.name, _Labels(snapshot)
    labels = of_lab.names("node", "interface", "class")
    alive = _gauge("pfc_process_up", "Whether the PFC process runs", ("lab",))
    alive.add_metric((lab,), pauses.is_alive)
    yield alive
    places = snapshot.places
    classes = {
        of_lab.of(
            places.directed_links[places.sent_by[str(port)]].link.b.node,
            *(port.node, port.port.interface, str(traffic_class)),
        ): counters
        for (port, traffic_class), counters in pauses.classes.items()
    }
    for make, fields in ((_counter, _PFC_COUNTERS), (_gauge, _PFC_GAUGES)):
        for field, (name, about) in fields.items():
            family = make(f"pfc_{name}", about, labels)
            for values, counters in classes.items():
                family.add_metric(values, getattr(counters, field))
            yield family
    seconds = _counter("pfc_rx_pause_duration_seconds", "Time paused, in the lab's clock", labels)
    longest = _gauge("pfc_rx_pause_longest_seconds", "The longest pause of all this time", labels)
    for values, counters in classes.items():
        seconds.add_metric(values, counters.paused_ns / 1e9)
        longest.add_metric(values, counters.longest_ns / 1e9)
    yield from (seconds, longest)


def _endpoints(snapshot: Snapshot) -> Iterator[Metric]:
    of_lab = _Labels(snapshot)
    for field, (name, about) in _ENDPOINT_COUNTERS.items():
        family = _counter(f"endpoint_{name}", about, of_lab.names("server"))
        for endpoint, counters in snapshot.reading.endpoints.items():
            server, networks = split_endpoint(endpoint)
            family.add_metric(of_lab.values(",".join(networks), server), _field(counters, field))
        yield family


def _field(counters: LiveCounters, name: str) -> int:
    value: int = getattr(counters, name)
    return value


def _control_plane(snapshot: Snapshot) -> Iterator[Metric]:
    of_lab, links = _Labels(snapshot), snapshot.lab.fabric.link_by_name
    routes = _gauge("routes_incomplete", "Routes missing or too narrow", of_lab.names("node"))
    for node, number in snapshot.reading.routes_incomplete.items():
        routes.add_metric(of_lab.of(node, node), number)
    sessions = _gauge("bgp_session_up", "Whether both ends say established", of_lab.names("link"))
    for link, is_up in snapshot.reading.sessions.items():
        sessions.add_metric(of_lab.of(links[link].b.node, link), is_up)
    yield from (routes, sessions)


def _slis(snapshot: Snapshot) -> Iterator[Metric]:
    of_lab, places = _Labels(snapshot), snapshot.places
    names = of_lab.names("sli")
    objectives = _gauge("sli_objective", "The largest allowed value", names)
    worst = _gauge("sli_worst", "The worst value of the newest sample", names)
    breached = _counter("sli_breached_samples", "Samples that missed it", names)
    measured = frozenset(Sli) if snapshot.reading.pauses else frozenset(Sli) - LOSSLESS_SLIS
    for sli in (sli for sli in Sli if sli in measured):
        for network in places.networks or ("",):
            labels = of_lab.values(network, sli.value)
            objective = snapshot.spec.objective(sli, (network,))
            if objective is not None:
                objectives.add_metric(labels, objective)
            values = [
                value
                for where, value in snapshot.sample.values[sli].items()
                if of_lab.is_one or network in places.networks_of(sli, where)
            ]
            worst.add_metric(labels, max(values, default=0))
            counts = snapshot.breached_samples if of_lab.is_one else snapshot.breached_in[network]
            breached.add_metric(labels, counts[sli])
    yield from (objectives, worst, breached)


def _watching(snapshot: Snapshot) -> Iterator[Metric]:
    lab = (snapshot.lab.name,)
    samples = _counter("health_samples", "Samples taken", ("lab",))
    samples.add_metric(lab, snapshot.samples)
    taken = _gauge("health_sample_timestamp_seconds", "When the newest was taken", ("lab",))
    taken.add_metric(lab, snapshot.reading.time_ns / 1e9)
    seconds = _gauge("health_sample_duration_seconds", "How long the reading took", ("lab",))
    seconds.add_metric(lab, snapshot.read_s)
    gaps = _gauge("health_unread", "Items that could not be read in the newest", ("lab",))
    gaps.add_metric(lab, len(snapshot.reading.gaps))
    yield from (samples, taken, seconds, gaps)
