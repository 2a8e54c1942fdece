"""The Grafana dashboard queries exactly the metrics that the exporter exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import resources

import pytest

from rocelab.agent.live import LiveCounters
from rocelab.dataplane.pfc.reading import ClassCounters
from rocelab.lab.lab import Lab, RunningLab
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.queues import QueuesSpec
from rocelab.linux.counters import DepthCounters, QueueCounters
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.health.monitor import Snapshot
from rocelab.observe.health.ports import PortReading
from rocelab.observe.health.prometheus import HealthCollector
from rocelab.observe.health.reading import PauseReading, Reading
from rocelab.observe.health.sample import Places, compare
from rocelab.planning.build import build_fabric
from rocelab.planning.pauses import PausePort, plan_pauses
from rocelab.planning.queues import plan_queues
from rocelab.results.health import Sli

DASHBOARD = json.loads(
    resources.files("rocelab.observe.health").joinpath("grafana.json").read_text()
)
LEFT_OUT = {
    "rocelab_link_sent_packets_total": "bytes say how busy a link is",
    "rocelab_queue_packets_total": "bytes say how busy a port is",
    "rocelab_queue_ce_packets_total": "what servers receive says where marks end up",
    "rocelab_queue_max_depth_bytes": "the maximum since jobs last began does not fall meanwhile",
    "rocelab_endpoint_sent_packets_total": "acknowledged bytes say what arrived",
    "rocelab_endpoint_duplicate_packets_total": "follow from retransmissions",
    "rocelab_endpoint_naks_sent_total": "the requesters' side is shown",
    "rocelab_endpoint_cnps_sent_total": "the requesters' side is shown",
    "rocelab_endpoint_probes_sent_total": "the loss of links is shown",
    "rocelab_endpoint_probes_received_total": "the loss of links is shown",
    "rocelab_health_sample_duration_seconds": "of the tool, not of the lab",
    "rocelab_pfc_process_up": "what cannot be read counts it",
    "rocelab_pfc_rx_pause_longest_seconds": "the maximum since the lab came up never falls",
    "rocelab_pfc_rx_pause_total": "the time paused says what they cost",
    "rocelab_pfc_rx_resume_total": "the time paused says what they cost",
    "rocelab_pfc_rx_pause_transition_total": "the time paused says what they cost",
    "rocelab_pfc_tx_pause_total": "the paused side is shown",
    "rocelab_pfc_tx_resume_total": "the paused side is shown",
    "rocelab_pfc_held_bytes": "the time paused says when it is much",
    "rocelab_pfc_held_max_bytes": "the maximum since the lab came up never falls",
    "rocelab_pfc_headroom_max_bytes": "the maximum since the lab came up never falls",
}
"""Exported and deliberately not on the dashboard, with the reason."""

_STRING = re.compile(r'"[^"]*"')
_METRIC = re.compile(r"\brocelab_\w+")
_SELECTOR = re.compile(r"\b(rocelab_\w+)\{([^}]*)\}")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def paused(lab: RunningLab) -> dict[tuple[PausePort, int], ClassCounters]:
    """The counters of a lossless class of every port."""
    queues = QueuesSpec(pfc=PfcSpec())
    plan = plan_pauses(build_fabric(lab.fabric.spec.model_copy(update={"queues": queues})))
    assert plan is not None
    counters = ClassCounters(**dict.fromkeys((field.name for field in fields(ClassCounters)), 0))
    return {(port, 3): counters for port in plan.ports}


def exported() -> dict[str, set[str]]:
    """The labels of every metric that a lab with all kinds of counters exports."""
    lab = Lab.planned("tiny").unstarted()
    places = Places(lab.fabric)
    depth = DepthCounters(max_bytes=9, sum_bytes=9, packets=(1,), marked=(0,))
    used = QueueCounters(
        packets=1, bytes=1, marked=1, depth_bytes=1, ce_out=1, dropped_packets=1, dropped_bytes=1,
        on_arrival=depth,
    )  # fmt: skip
    port = PortReading(
        carrier=True, carrier_losses=1, lost=0, tc_drops=0, rx_packets=1, tx_packets=1, rx_bytes=1,
        tx_bytes=1,
    )  # fmt: skip
    ends = [
        (directed_link.sender, directed_link.port.interface)
        for directed_link in lab.fabric.directed_links
    ]
    reading = Reading(
        time_ns=10**9,
        ports=dict.fromkeys(ends, port),
        queues={place: {3: used} for place in ends},
        lost={},
        endpoints={node.name: LiveCounters() for node in lab.fabric.servers},
        routes_incomplete={node.name: 0 for node in lab.fabric.switches},
        sessions={link.name: True for link in lab.fabric.links},
        pauses=PauseReading(1, True, paused(lab)),
    )
    sample = compare(places, [plan_queues(lab.fabric)], reading, reading)
    collector = HealthCollector()
    collector.snapshot = Snapshot(
        lab, HealthSpec(), places, reading, sample, dict.fromkeys(Sli, 0), 1, 0.1
    )
    return {
        sample.name: set(sample.labels)
        for family in collector.collect()
        for sample in family.samples
    }


EXPORTED = exported()


def queries() -> Iterator[tuple[str, str]]:
    """Every PromQL expression with the text that names its series."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for annotation in DASHBOARD["annotations"]["list"]:
        if "expr" in annotation:
            yield annotation["expr"], annotation["textFormat"]


def asked_for(expression: str, legend: str) -> tuple[set[str], set[str]]:
    """Metrics and labels that a query names."""
    labels = set(_LEGEND.findall(legend))
    for _, matchers in _SELECTOR.findall(_STRING.sub("", expression)):
        labels |= set(_MATCHER.findall(matchers))
    for names in _GROUPING.findall(expression):
        labels |= {name.strip() for name in names.split(",") if name.strip()}
    return set(_METRIC.findall(expression)), labels


@pytest.mark.parametrize(("expression", "legend"), list(queries()))
def test_a_query_asks_for_metrics_and_labels_that_are_exported(
    expression: str, legend: str
) -> None:
    metrics, labels = asked_for(expression, legend)
    assert metrics
    assert metrics <= set(EXPORTED)
    assert labels <= set.union(*(EXPORTED[metric] for metric in metrics))
    for metric, matchers in _SELECTOR.findall(_STRING.sub("", expression)):
        assert set(_MATCHER.findall(matchers)) <= EXPORTED[metric]
    assert len(_SELECTOR.findall(expression)) == len(_METRIC.findall(expression))
    assert all(expression.count(a) == expression.count(b) for a, b in ("()", "{}", "[]"))


def test_what_a_query_may_not_ask_for_is_seen() -> None:
    metrics, labels = asked_for('sum by (node, switch) (rocelab_route{port="a=b"})', "{{where}}")
    assert metrics == {"rocelab_route"}
    assert labels == {"node", "switch", "port", "where"}


def test_every_exported_metric_is_shown_or_left_out_on_purpose() -> None:
    text = set.union(*(asked_for(*query)[0] for query in queries()))
    text |= set(_METRIC.findall(DASHBOARD["templating"]["list"][1]["query"]["query"]))
    assert text & set(LEFT_OUT) == set()
    assert text | set(LEFT_OUT) == set(EXPORTED)


def test_each_lab_can_be_chosen() -> None:
    _, lab = DASHBOARD["templating"]["list"]
    query = re.fullmatch(r"label_values\((\w+), (\w+)\)", lab["query"]["query"])
    assert query is not None
    metric, label = query.groups()
    assert label == lab["name"] == "lab"
    assert label in EXPORTED[metric]
    assert all('lab="$lab"' in expression for expression, _ in queries())


def test_the_dashboard_names_no_data_source_of_its_own() -> None:
    """An imported one takes the Prometheus that is chosen at its top."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    places = [*DASHBOARD["panels"], *(t for p in DASHBOARD["panels"] for t in p["targets"])]
    assert all(place["datasource"] == source for place in places)
    assert DASHBOARD["schemaVersion"] >= 36  # Grafana 9: sources are objects
    assert "id" not in DASHBOARD
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [cell for panel in panels for cell in _cells(panel["gridPos"])]
    assert len(cells) == len(set(cells)), "panels overlap"
    assert all(x < 24 for x, _ in cells)


def _cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y
