"""Failures and maintenance in time: their files, their meaning, and their effect on jobs."""

import io
import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench.convergence.document import TABLE
from bench.reaction import MEASURED, reaction_table
from rocelab.base.arrays import NONE, Bools, Floats
from rocelab.base.documents import to_json
from rocelab.base.errors import InputError, SpecError
from rocelab.jobs.transport import TransportSpec
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec, read_model
from rocelab.labfile.model import LabSpec
from rocelab.report.renderers.terminal import print_document
from rocelab.report.simulation.whatif import outlook_document, what_if_document
from rocelab.results.whatif import WhatIf
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.sim.engine.program import Change, Program
from rocelab.sim.engine.run import run
from rocelab.sim.events.changes import changes_of
from rocelab.sim.events.event_spec import (
    SPAN,
    EventSpec,
    RatesSpec,
    RestartSpec,
    RetransmissionSpec,
    TimelineSpec,
)
from rocelab.sim.events.expectation import Slowdown, expected_cost
from rocelab.sim.events.longrun import Break, IterationTimes, run_through
from rocelab.sim.events.outlook import outlook
from rocelab.sim.events.rates import HPN, LLAMA3, MONTH_S, draw_breaks, draw_timeline, timeline_of
from rocelab.sim.events.reaction import Breakage, ReactionPlace, reaction_of, shipped_table
from rocelab.sim.events.retransmission import Retransmission
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.events.targets import parse_target
from rocelab.sim.events.timeline import EventOutage, outage_of, resolve
from rocelab.sim.events.whatif import what_if

NCCL = Retransmission.of(None)
PATIENT = Retransmission(4.096e-6 * 2**22, 7)
"""NCCL_IB_TIMEOUT=22, as Alibaba's Platform for AI sets on Lingjun machines (its documentation,
"RDMA: high-performance networks for distributed training")."""

FAST = Retransmission(0.1, 7)


def lab(**fabric: object) -> Network:
    return network_of(LabSpec.model_validate({"name": "it", "fabric": fabric}))


@pytest.fixture(scope="module")
def clos() -> Network:
    return lab(racks=4, spines=4, servers_per_rack=2)


@pytest.fixture(scope="module")
def hpn() -> Network:
    """256 GPUs with NICs of two ports, as in HPN's failure test: 32 servers of 8 rails."""
    return lab(kind="hpn", segments=1, servers_per_segment=32, rails=8, aggs=2)


@pytest.fixture(scope="module")
def single_tor() -> Network:
    return lab(
        kind="hpn", segments=1, servers_per_segment=32, rails=8, aggs=2, ports_per_nic=1, planes=1
    )


@cache
def numbers(network: Network) -> dict[str, int]:
    return {network.link_name(link): link for link in range(network.links)}


def links(network: Network, *names: str) -> list[int]:
    return [numbers(network)[name] for name in names]


def touched(network: Network, line: str) -> list[str]:
    outage = outage_of(network, parse_event(line))
    return [network.link_name(link) for link in outage.links.tolist()]


def refused(line: str, network: Network | None = None) -> str:
    with pytest.raises(InputError) as caught:
        event = parse_event(line)
        if network is not None:
            outage_of(network, event)
    return str(caught.value)


# What is written


def test_a_timeline_file_says_what_happens_when(tmp_path: Path) -> None:
    file = tmp_path / "timeline.yaml"
    file.write_text(
        "events:\n"
        "  - {at: 2s, fail: link rtsw1:ctsw2, lasts: 10s}\n"
        "  - {at: 1h, degrade: 2 links of rack 3, to: 50%, lasts: 1d}\n"
        "reaction: 150ms\n"
    )
    first, second = read_model(file, TimelineSpec).events
    assert (first.kind, first.target, first.at, first.lasts) == (
        "fail",
        "link rtsw1:ctsw2",
        2 * 10**9,
        10**10,
    )
    assert (second.kind, second.to, second.lasts) == ("degrade", 500_000, 86_400 * 10**9)


@pytest.mark.parametrize(
    ("event", "place", "wrong"),
    [
        ("{fail: the link to rack 3}", "events[0].fail", "expected what it happens to"),
        ("{fail: ctsw1, drain: ctsw2}", "events[0].drain", "got fail and drain"),
        ("{at: 2s}", "events[0]", "got none"),
        ("{degrade: ctsw1}", "events[0]", "degrade and to belong together"),
        ("{fail: ctsw1, lasts: 2 weeks}", "events[0].lasts", "expected a time"),
        ("{fail: ctsw1, reaction: soon}", "events[0].reaction", "expected median, p95 or a time"),
        ("{crash: link rtsw1:ctsw1}", "events[0].crash", "only a switch has a bgpd"),
    ],
)
def test_what_is_wrong_in_a_timeline_is_said_with_its_place(
    tmp_path: Path, event: str, place: str, wrong: str
) -> None:
    file = tmp_path / "timeline.yaml"
    file.write_text(f"events:\n  - {event}\n")
    with pytest.raises(SpecError) as caught:
        read_model(file, TimelineSpec)
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (2, place)
    assert wrong in problem.message


def test_a_line_says_the_same_as_a_file() -> None:
    assert parse_event("lose 2 links of rack 40 at 5s for 10s reaction p95") == EventSpec(
        at="5s", fail="2 links of rack 40", lasts="10s", reaction="p95"
    )
    assert parse_event("degrade z1-rtsw3:z1-ctsw2-2 for 1h to 25%") == EventSpec(
        degrade="link z1-rtsw3:z1-ctsw2-2", to="25%", lasts="1h"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "no event is given"),
        ("drian ctsw7", "did you mean drain?"),
        ("drain", "drain what?"),
        ("drain ctsw7 for", "nothing follows 'for'"),
        ("drain ctsw7 for 2 hours", "before 'hours'"),
        ("drain ctsw7 for 2hours", "expected a time such as"),
        ("drain ctsw7 for 2h tomorrow", "before 'tomorrow'"),
        ("drain ctsw7 for 2h for 3h", "for is given twice"),
        ("drain my switch", "expected what it happens to"),
    ],
)
def test_a_line_that_is_no_event_is_refused(line: str, said: str) -> None:
    assert said in refused(line)


@given(
    st.sampled_from(["link a1:b-2", "3 links of rack 7", "1 link of srv1-2", "2 random links of a"])
    | st.builds("port srv{}-{}:{}:{}".format, *[st.integers(1, 99)] * 4)
    | st.builds("plane {}".format, st.integers(1, 9))
    | st.builds("nic srv1-{}:{}".format, *[st.integers(1, 9)] * 2)
)
def test_a_target_reads_back_as_it_is_written(text: str) -> None:
    assert str(parse_target(text)) == text


@given(st.integers(0, 10**15 - 1) | st.integers(0, 10**12).map(lambda seconds: seconds * 10**9))
def test_a_time_reads_back_as_it_is_written(value: int) -> None:
    assert SPAN.parse(SPAN.written(value)) == value


# What it means on a network


def test_targets_are_found_by_the_names_of_the_lab(clos: Network, hpn: Network) -> None:
    assert touched(clos, "fail ctsw2:rtsw3") == touched(clos, "fail rtsw3:ctsw2") == ["rtsw3:ctsw2"]
    assert touched(clos, "lose 2 links of rack 4") == ["rtsw4:ctsw1", "rtsw4:ctsw2"]
    assert touched(clos, "drain ctsw2") == [f"rtsw{rack}:ctsw2" for rack in (1, 2, 3, 4)]
    assert touched(hpn, "fail port srv1-2:3:1") == ["srv1-2:tor3a"]
    assert touched(hpn, "fail nic srv1-2:3") == ["srv1-2:tor3a", "srv1-2:tor3b"]


def test_a_link_has_the_names_of_its_ports_and_those_of_its_nodes() -> None:
    network = network_of(load_spec(find_lab("half-migrated")))

    assert touched(network, "fail border1:border2") == touched(network, "fail border2:swp9")
    assert touched(network, "fail old-spine1:eth1/1") == ["old-leaf1:swp1"]


def test_random_links_are_the_seeds_choice(clos: Network) -> None:
    def drawn(seed: int) -> set[int]:
        spec = TimelineSpec(events=[{"fail": "2 random links of rtsw1"}], seed=seed)
        return set(resolve(clos, spec)[0].links.tolist())

    seen = [frozenset(drawn(seed)) for seed in range(20)]
    assert len(set(seen)) > 3
    assert all(len(links) == 2 for links in seen)
    assert drawn(7) == drawn(7)


def test_a_plane_is_its_switches_and_the_tors_that_only_it_has(hpn: Network) -> None:
    gone = outage_of(hpn, parse_event("fail plane 2")).links
    left = np.setdiff1d(np.arange(hpn.links), gone)
    assert len(gone) == len(left) == hpn.links / 2
    assert {hpn.node_names[node][-1] for node in hpn.upper[left] if hpn.tier[node] == 1} == {"a"}


def test_what_a_network_has_not_is_refused_with_what_is_alike(clos: Network, hpn: Network) -> None:
    assert "there is ctsw1, ctsw2" in refused("drain ctsw5", clos)
    assert "did you mean ctsw2" in refused("fail rtsw1:ctws2", clos)
    assert "it has 4, from rtsw1 to rtsw4" in refused("lose 2 links of rack 40", clos)
    assert "it has 4" in refused("lose 9 links of rack 1", clos)
    assert "srv1-1 is a server" in refused("drain srv1-1", clos)
    assert "has no planes" in refused("fail plane 1", clos)
    assert "it has 2" in refused("fail plane 3", hpn)
    assert "it has 8" in refused("fail nic srv1-1:9", hpn)
    assert "it has 2" in refused("fail port srv1-1:1:3", hpn)
    zones = lab(zones=2, racks=3, spines=2, atsws=2)
    assert "name one of them: z1-rtsw3, z2-rtsw3" in refused("lose 1 link of rack 3", zones)


def test_every_event_that_names_nothing_is_told_at_once(clos: Network) -> None:
    spec = TimelineSpec(events=[{"fail": "ctsw9"}, {"fail": "ctsw1"}, {"drain": "x1:y1"}])
    with pytest.raises(SpecError) as caught:
        resolve(clos, spec)
    assert [problem.key for problem in caught.value.problems] == [
        "fail switch ctsw9",
        "drain link x1:y1",
    ]


# How long routing takes


def test_the_reaction_times_that_ship_are_those_that_the_lab_measured() -> None:
    measured = TABLE.read(MEASURED.read_text(encoding="utf-8"))
    assert shipped_table() == reaction_table(measured)


def test_a_fault_class_reacts_as_its_row_of_the_table(clos: Network, hpn: Network) -> None:
    rows = {row.name: row for row in shipped_table().rows}

    def check(network: Network, line: str, row: str) -> None:
        outage = outage_of(network, parse_event(line))
        assert outage.reaction_s == rows[row].median_ns / 1e9
        assert rows[row].title in outage.reaction

    check(clos, "fail rtsw1:ctsw1", "carrier.clos-4")
    check(clos, "fail rtsw1:ctsw1 for 100ms", "flap.clos-4")
    check(clos, "blackhole rtsw1:ctsw1", "hold-9.clos-4")
    check(clos, "fail ctsw1", "power.clos-4-spine")
    check(clos, "crash ctsw1", "crash.clos-4-spine")
    check(clos, "drain ctsw1", "drain.clos-4-spine")
    check(hpn, "fail port srv1-1:1:1", "carrier.hpn-4-nic")
    check(hpn, "fail tor1a:p1-agg1", "carrier.hpn-4-tor")
    zones = lab(zones=2, racks=2, spines=4, atsws=4)
    check(zones, "fail z1-ctsw1:atsw1", "carrier.zones-4-trunk")


def test_the_nearest_fan_out_stands_in_for_one_that_was_not_measured() -> None:
    wide = lab(racks=2, spines=18)
    assert "fan-out 16" in outage_of(wide, parse_event("fail rtsw1:ctsw1")).reaction


def test_p95_and_given_times_take_the_place_of_the_median(clos: Network) -> None:
    spec = TimelineSpec(
        events=[{"fail": "ctsw1"}, {"fail": "ctsw2", "reaction": "150ms"}], reaction="p95"
    )
    first, second = resolve(clos, spec)
    row = next(row for row in shipped_table().rows if row.name == "power.clos-4-spine")
    assert first.reaction_s == row.p95_ns / 1e9
    assert (second.reaction_s, second.reaction) == (0.15, "as given")


@given(st.integers(10, 2000), st.integers(2, 10))
def test_slower_bfd_timers_never_react_sooner(interval_ms: int, multiplier: int) -> None:
    def median_s(interval_ms: int) -> float:
        bfd = {"interval": f"{interval_ms}ms", "multiplier": multiplier}
        spec = LabSpec.model_validate(
            {"name": "it", "fabric": {"racks": 2}, "routing": {"bfd": bfd}}
        )
        return reaction_of(spec, Breakage.SILENT, ReactionPlace.RACK, 4).median_s

    notices_s = interval_ms * (multiplier - 1) / 1e3
    assert median_s(interval_ms) > notices_s
    assert median_s(interval_ms) < median_s(interval_ms * 4) + interval_ms * multiplier / 1e3


def test_nobody_notices_silence_at_a_nic(hpn: Network) -> None:
    outage = outage_of(hpn, parse_event("blackhole port srv1-1:1:1"))
    assert outage.reaction_s == outage.routed_s == math.inf
    assert "no protocol watches" in outage.reaction


# What queue pairs do


def test_a_queue_pair_gets_through_with_the_first_retry_on_a_whole_way() -> None:
    assert FAST.through_s(5.0, 5.25) == pytest.approx(5.3)
    assert FAST.through_s(5.0, 5.7) == pytest.approx(5.7)
    assert FAST.through_s(5.0, 5.71) == math.inf
    assert FAST.gives_up_s == pytest.approx(0.8)


def test_the_patience_of_queue_pairs_is_nccls_unless_someone_says_otherwise() -> None:
    assert (NCCL.ack_timeout_s, NCCL.retries) == (4.294967296, 7)
    job = TransportSpec.model_validate({"ack_timeout": "50ms"})
    assert Retransmission.of(None, job) == Retransmission(0.05, 7)
    assert Retransmission.of(None, TransportSpec()) == NCCL
    said = RetransmissionSpec.model_validate({"ack_timeout": "1s", "retries": 2})
    assert Retransmission.of(said, job) == Retransmission(1.0, 2)


# What flows do


def one_flow_per_rack(network: Network) -> Flows:
    """The first server of each rack sends to that of the next."""
    nics = np.array([0, 2, 4, 6], np.int32)
    assert network.nics == 8
    number = np.arange(4, dtype=np.int32)
    return Flows(nics, np.roll(nics, -1), np.zeros(4, np.int32), number, number)


class Fabric4:
    """Paths of those flows: flow i takes spine i + 1, or the next whose links are both up."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.asked: list[Bools] = []

    def __call__(self, flows: Flows, up: Bools) -> Paths:
        self.asked.append(up)
        rows = []
        for flow in range(len(flows)):
            source, target = int(flows.source[flow]), int(flows.destination[flow])
            here, there = source // 2 + 1, target // 2 + 1
            out, home = links(self.network, f"srv{here}-1:rtsw{here}", f"srv{there}-1:rtsw{there}")
            row: list[int] = []
            for turn in range(4):
                spine = (flow + turn) % 4 + 1
                ups = links(self.network, f"rtsw{here}:ctsw{spine}", f"rtsw{there}:ctsw{spine}")
                if up[[out, home, *ups]].all():
                    row = [2 * out, 2 * ups[0], 2 * ups[1] + 1, 2 * home + 1]
                    break
            rows.append(row)
        start = np.cumsum([0, *map(len, rows)]).astype(np.int64)
        return Paths(start, np.concatenate([np.array(row, np.int32) for row in rows]))


def changes(
    network: Network, lines: list[str], retransmission: Retransmission = FAST
) -> tuple[list[Change], Fabric4]:
    fabric, flows = Fabric4(network), one_flow_per_rack(network)
    whole = fabric(flows, np.ones(network.links, bool))
    outages = [outage_of(network, parse_event(line)) for line in lines]
    of_flow = np.zeros(len(flows), np.int32)
    changes = list(
        changes_of(
            network, outages, flows, whole, fabric, [retransmission], of_flow, np.zeros(len(flows))
        )
    )
    return changes, fabric


def lengths(change: Change) -> list[int]:
    assert change.paths is not None
    return np.diff(change.paths.start).tolist()


def test_a_failure_stalls_then_moves_then_is_sent_again_then_comes_back(clos: Network) -> None:
    steps, _ = changes(clos, ["fail rtsw1:ctsw1 at 1s for 9s reaction 150ms"])
    fault, moved, again, back = steps
    (link,) = links(clos, "rtsw1:ctsw1")
    assert [change.time_s for change in steps] == pytest.approx([1.0, 1.15, 1.2, 10.0])
    assert fault.capacity_bps is not None
    assert np.nonzero(fault.capacity_bps == 0)[0].tolist() == [2 * link, 2 * link + 1]
    assert fault.paths is None
    # Flow 0 lost packets and waits for its timer; the others are where they were.
    assert lengths(moved) == [0, 4, 4, 4]
    assert moved.capacity_bps is None
    assert lengths(again) == [4, 4, 4, 4]
    assert again.paths is not None
    assert not np.isin(again.paths.sends, [2 * link, 2 * link + 1]).any()
    assert back.capacity_bps is not None
    assert np.array_equal(back.capacity_bps, clos.capacity_bps)
    assert back.paths is not None
    assert back.paths.sends[1] == 2 * link


def test_a_drain_moves_flows_before_anything_is_lost(clos: Network) -> None:
    begin, end = changes(clos, ["drain ctsw1 at 1s for 2h"])[0]
    assert begin.capacity_bps is None, "what is on the links arrives"
    gone = outage_of(clos, parse_event("drain ctsw1")).links
    assert lengths(begin) == [4, 4, 4, 4]
    assert begin.paths is not None
    assert not np.isin(begin.paths.sends // 2, gone).any()
    assert end.time_s == 7201.0


def test_a_drain_that_takes_its_time_carries_until_routing_has_moved(clos: Network) -> None:
    steps, _ = changes(clos, ["drain ctsw1 at 1s for 2h reaction 3s"])
    assert [change.time_s for change in steps] == [4.0, 7201.0]
    assert lengths(steps[0]) == [4, 4, 4, 4]


def test_a_flap_shorter_than_routing_costs_a_retry_and_no_new_paths(clos: Network) -> None:
    steps, fabric = changes(clos, ["fail rtsw1:ctsw1 at 1s for 20ms"])
    assert [change.time_s for change in steps] == pytest.approx([1.0, 1.02, 1.1])
    assert lengths(steps[1]) == [0, 4, 4, 4]
    assert lengths(steps[2]) == [4, 4, 4, 4]
    assert len(fabric.asked) == 1


def test_a_degraded_link_keeps_its_flows(clos: Network) -> None:
    begin, end = changes(clos, ["degrade rtsw1:ctsw1 to 50% at 1s for 1s"])[0]
    (link,) = links(clos, "rtsw1:ctsw1")
    assert begin.paths is end.paths is None
    assert begin.capacity_bps is not None
    assert begin.capacity_bps[2 * link] == clos.capacity_bps[2 * link] / 2


def test_a_queue_pair_that_gave_up_never_sends_again(clos: Network) -> None:
    steps, _ = changes(clos, ["fail rtsw1:ctsw1 at 1s for 3s reaction 750ms"])
    assert [change.time_s for change in steps] == [1.0, 1.75, 4.0]
    assert [lengths(change)[0] for change in steps[1:]] == [0, 0]


def test_overlapping_events_are_both_there_and_a_link_returns_with_the_last(clos: Network) -> None:
    steps, _ = changes(
        clos,
        [
            "fail rtsw1:ctsw1 at 1s for 9s reaction 150ms",
            "fail ctsw1 at 5s for 20s reaction 500ms",
            "fail rtsw2:ctsw2 at 6s for 1s reaction 100ms",
        ],
    )
    (link,) = links(clos, "rtsw1:ctsw1")
    dead = np.zeros(clos.sends, bool)
    for change in steps:
        if change.capacity_bps is not None:
            dead = change.capacity_bps == 0
        assert dead[2 * link] == (1.0 <= change.time_s < 25.0)
        if change.paths is not None and change.time_s < 25.0:
            assert 2 * link not in change.paths.sends
    assert [change.time_s for change in steps] == sorted(change.time_s for change in steps)
    assert lengths(steps[-1]) == [4, 4, 4, 4]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fail", "drain", "blackhole"]),
            st.sampled_from(
                ["ctsw1", "ctsw2", "ctsw3", "rtsw1:ctsw1", "rtsw2:ctsw2", "rtsw4:ctsw4"]
            ),
            st.integers(0, 20),
            st.integers(1, 20),
            st.integers(0, 5),
        ),
        max_size=5,
    )
)
def test_whatever_happened_all_is_as_before_once_it_is_over(
    clos: Network, events: list[tuple[str, str, int, int, int]]
) -> None:
    network = clos
    lines = [
        f"{verb} {what} at {at}s for {lasts}s reaction {reaction}s"
        for verb, what, at, lasts, reaction in events
    ]
    steps, fabric = changes(network, lines, Retransmission(0.3, 1000))
    times = [change.time_s for change in steps]
    assert times == sorted(set(times))
    capacity_bps = network.capacity_bps
    paths = fabric(one_flow_per_rack(network), np.ones(network.links, bool))
    for change in steps:
        capacity_bps = capacity_bps if change.capacity_bps is None else change.capacity_bps
        last = paths if change.paths is None else change.paths
        if change is steps[-1]:
            assert np.array_equal(capacity_bps, network.capacity_bps)
            assert np.array_equal(last.sends, paths.sends)


def test_each_jobs_queue_pairs_wait_as_its_own_transport_says(clos: Network) -> None:
    """Two flows over one link that is away for 20 ms; one retries every 100 ms, one every 4 s."""
    fabric = Fabric4(clos)
    (flow,) = np.flatnonzero(one_flow_per_rack(clos).source == 0)
    one = one_flow_per_rack(clos)
    both = Flows(*(getattr(one, column.name)[[flow, flow]] for column in fields(Flows)))
    whole = fabric(both, np.ones(clos.links, bool))
    link = clos.link_name(int(whole.sends[0]) // 2)
    outages = [outage_of(clos, parse_event(f"fail {link} at 1s for 20ms"))]
    slow = Retransmission(4.0, 7)
    changes = changes_of(
        clos,
        outages,
        both,
        whole,
        fabric,
        [FAST, slow],
        np.array([0, 1], np.int32),
        np.zeros(len(both)),
    )
    through = [change.time_s for change in changes][2:]
    assert through == pytest.approx([1 + FAST.ack_timeout_s, 5.0])


def test_nothing_is_worked_out_before_it_is_asked_for(clos: Network) -> None:
    fabric, flows = Fabric4(clos), one_flow_per_rack(clos)
    whole = fabric(flows, np.ones(clos.links, bool))
    outages = [outage_of(clos, parse_event(f"drain ctsw{n} at {n}h for 10m")) for n in (1, 2, 3)]
    coming = changes_of(
        clos,
        outages,
        flows,
        whole,
        fabric,
        [FAST],
        np.zeros(len(flows), np.int32),
        np.zeros(len(flows)),
    )
    assert next(coming).time_s == 3600.0
    assert len(fabric.asked) == 2


@pytest.mark.parametrize(
    ("line", "finishes_s"),
    [
        ("fail rtsw1:ctsw1 at 1s for 9s reaction 150ms", [5.2, 5, 5, 5]),
        ("fail rtsw1:ctsw1 at 1s for 20ms", [5.1, 5, 5, 5]),
        ("degrade rtsw1:ctsw1 to 50% at 1s for 2s", [6, 5, 5, 5]),
        ("drain ctsw1 at 1s for 2h", [5, 5, 5, 5]),
        ("fail rtsw1:ctsw1 at 1s for 3s reaction 750ms", [math.inf, 5, 5, 5]),
        ("fail ctsw1 at 6s for 1s", [5, 5, 5, 5]),
    ],
)
def test_the_engine_takes_a_timeline(clos: Network, line: str, finishes_s: list[float]) -> None:
    """Four flows of five seconds each that share no send."""
    fabric, flows = Fabric4(clos), one_flow_per_rack(clos)
    whole = fabric(flows, np.ones(clos.links, bool))
    program = Program(
        after_start=np.zeros(2, np.int64),
        after=np.zeros(0, np.int32),
        delay_s=np.zeros(1),
        latency_s=np.zeros(1),
        first_transfer=np.array([0, 4]),
        flow=np.arange(4, dtype=np.int32),
        size_bits=np.full(4, 5.0 * clos.rate_bps.min()),
    )
    outages = [outage_of(clos, parse_event(line))]
    coming = changes_of(
        clos,
        outages,
        flows,
        whole,
        fabric,
        [FAST],
        np.zeros(len(flows), np.int32),
        np.zeros(len(flows)),
    )
    outcome = run(program, whole, clos.capacity_bps, changes=coming)
    assert outcome.finish_s.tolist() == pytest.approx(finishes_s)


def test_flows_leave_by_the_nics_other_port_once_routing_has_moved(hpn: Network) -> None:
    one = np.ones(1, np.int32)
    flows = Flows(0 * one, 8 * one, 0 * one, 50_000 * one, one)
    whole = paths_of(hpn, Routes(hpn), flows)
    outage = outage_of(hpn, parse_event("fail port srv1-1:1:1 at 1s for 9s"))

    def paths_for(flows: Flows, up: Bools) -> Paths:
        return paths_of(hpn, Routes(hpn, up), flows)

    of_flow = np.zeros(len(flows), np.int32)
    changes = list(
        changes_of(hpn, [outage], flows, whole, paths_for, [FAST], of_flow, np.zeros(len(flows)))
    )
    assert [change.time_s for change in changes] == pytest.approx(
        [1, 1 + outage.reaction_s, 1.2, 10]
    )

    def names(paths: Paths | None) -> list[str]:
        assert paths is not None
        return [hpn.send_name(send) for send in paths.sends.tolist()]

    assert names(whole) == ["srv1-1:tor1a", "tor1a:srv1-2"]
    assert names(changes[1].paths) == []
    assert names(changes[2].paths) == ["srv1-1:tor1b", "tor1b:srv1-2"]
    assert names(changes[3].paths) == names(whole)


# What jobs pay


def host_bound(network: Network) -> IterationTimes:
    """Iterations of a job that is bound by its slowest server's ports."""

    def times(up: Bools, capacity_bps: Floats) -> Mapping[str, float]:
        ports = network.nic_links
        there = ports != NONE
        carries = there & (capacity_bps[2 * ports] > 0)
        # Until routing has moved, what a port lost is missed; then the server's others take it.
        used = there & up[ports]
        if (used & ~carries).any() or not used.any(axis=1).all():
            return {"llama-7b": math.inf}
        server = np.unique(network.nic_server, return_inverse=True)[1]
        ports_per_server = np.bincount(server, used.sum(axis=1))
        return {"llama-7b": 1.0 * ports_per_server.max() / ports_per_server.min()}

    return times


def cost(network: Network, line: str, retransmission: Retransmission = PATIENT) -> WhatIf:
    return what_if(
        network,
        outage_of(network, parse_event(line)),
        host_bound(network),
        {"llama-7b": 256},
        {"llama-7b": retransmission},
        RestartSpec(),
    )


def test_hpns_single_tor_job_survives_a_minute_and_not_two(single_tor: Network) -> None:
    """HPN (SIGCOMM'24): training stops with the NIC's link, continues if the link is back within 1
    minute, and does not after more than 2."""
    short = cost(single_tor, "fail nic srv1-2:3 for 1m").jobs[0]
    long = cost(single_tor, "fail nic srv1-2:3 for 130s").jobs[0]
    assert (short.restarted, short.during_s) == (False, None)
    assert 60 <= short.stall_s < 60 + PATIENT.ack_timeout_s
    assert short.extra_s == short.stall_s
    assert (long.restarted, long.stall_s) == (True, PATIENT.gives_up_s)
    assert long.extra_s == pytest.approx(PATIENT.gives_up_s + 600 + 1.5 * 3600)
    assert long.gpu_hours == pytest.approx(long.extra_s * 256 / 3600)


def test_hpns_dual_tor_job_loses_a_sixteenth(hpn: Network) -> None:
    """The same failure with two ports a NIC: 6.25 % of training speed, one of a server's 16."""
    (job,) = cost(hpn, "fail port srv1-2:3:1 for 2h").jobs
    assert job.during_s is not None
    assert not job.restarted
    assert 1 - job.before_s / job.during_s == pytest.approx(0.0625)
    assert job.stall_s == PATIENT.ack_timeout_s
    assert job.slowed_s == pytest.approx((7200 - job.stall_s) * 0.0625)


def test_a_drain_costs_what_the_smaller_fabric_costs_and_no_stall(clos: Network) -> None:
    def times(up: Bools, capacity_bps: Floats) -> Mapping[str, float]:
        spines = clos.tier[clos.upper] == 2
        return {"a": 2.0 * spines.sum() / (up & spines).sum(), "b": 1.0}

    cost = what_if(
        clos,
        outage_of(clos, parse_event("drain ctsw1 for 2h")),
        times,
        {"a": 16, "b": 8},
        {"a": NCCL, "b": NCCL},
        RestartSpec(),
    )
    first, second = cost.jobs
    assert (first.before_s, first.during_s) == (2.0, pytest.approx(8 / 3))
    assert (first.stall_s, first.slowed_s) == (0.0, pytest.approx(1800))
    assert first.gpu_hours == cost.gpu_hours == pytest.approx(8)
    assert second.extra_s == 0
    assert json.loads(to_json(cost))["jobs"][0]["during_s"] == pytest.approx(8 / 3)
    console = Console(file=io.StringIO(), width=160)
    print_document(what_if_document(cost), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "drain switch ctsw1 (4 links) for 2 h" in text
    assert "2.67 s (+33.3%)" in text


def test_a_drain_that_makes_a_job_faster_is_said_to_be_luck(clos: Network) -> None:
    def times(up: Bools, capacity_bps: Floats) -> Mapping[str, float]:
        return {"lucky": 2.0 if up.all() else 1.5, "other": 1.0}

    event = outage_of(clos, parse_event("drain ctsw1 for 2h"))
    jobs = {"lucky": 16, "other": 8}
    cost = what_if(clos, event, times, jobs, dict.fromkeys(jobs, NCCL), RestartSpec())
    first, second = cost.jobs
    assert (first.lucky, second.lucky) == (True, False)
    assert (first.slowed_s, first.extra_s, cost.gpu_hours) == (0, 0, 0)
    document = json.loads(to_json(cost))["jobs"][0]
    assert (document["lucky"], document["during_s"]) == (True, 1.5)
    console = Console(file=io.StringIO(), width=160)
    print_document(what_if_document(cost), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "lucky: shorter iterations during a failure are chance, due to one hash seed" in text
    assert "other:" not in text


def test_a_long_run_counts_no_iteration_as_shorter_than_without_failures(clos: Network) -> None:
    def times(up: Bools, capacity_bps: Floats) -> Mapping[str, float]:
        return {"lucky": 2.0 if up.all() else 1.5, "other": 1.0 if up.all() else 1.0 - 1e-12}

    outages = [outage_of(clos, parse_event("drain ctsw1 at 1h for 2h"))]
    iterations = {"lucky": 10_000, "other": 33_333}
    policy = RestartSpec()
    patience = dict.fromkeys(iterations, NCCL)
    histories = run_through(clos, outages, times, iterations, patience, policy)
    no_breaks = dict.fromkeys(iterations, 0.0)
    gpus = dict.fromkeys(iterations, 8)
    forecast = outlook("t", "", "", policy, outages, histories, gpus, iterations, no_breaks)
    first, second = forecast.jobs
    assert (first.lucky, first.slowed_s) == (True, 0)
    assert first.jct_s == pytest.approx(first.healthy_s)
    assert (second.lucky, second.slowed_s) == (False, 0)
    console = Console(file=io.StringIO(), width=200)
    print_document(outlook_document(forecast), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "lucky: shorter iterations during a failure are chance, due to one hash seed" in text
    assert "other:" not in text


def test_an_outage_for_good_is_costed_by_the_hour(hpn: Network) -> None:
    price = cost(hpn, "fail port srv1-2:3:1")
    assert (price.lasts_s, price.over_s) == (None, 3600.0)
    assert price.jobs[0].extra_s == pytest.approx(
        price.jobs[0].stall_s + (3600 - price.jobs[0].stall_s) / 16
    )
    assert "null" in to_json(price)


def test_a_job_that_never_ends_anyway_is_an_error(clos: Network) -> None:
    with pytest.raises(InputError, match="never ends, even with no event"):
        what_if(
            clos,
            outage_of(clos, parse_event("drain ctsw1")),
            lambda up, capacity_bps: {"a": math.inf},
            {"a": 1},
            {"a": NCCL},
            RestartSpec(),
        )


# In the long run


def through(
    network: Network, lines: list[str], iterations: int, restart: RestartSpec | None = None
) -> tuple[float, float, float, int, float]:
    outages = [outage_of(network, parse_event(line)) for line in lines]
    (history,) = run_through(
        network,
        outages,
        host_bound(network),
        {"llama-7b": iterations},
        {"llama-7b": PATIENT},
        restart or RestartSpec(checkpoint_takes="0s"),
    )
    return (
        history.jct_s,
        history.healthy_s,
        history.stalled_s,
        history.restarts,
        history.lost_work_s,
    )


def test_a_job_through_a_timeline_stalls_slows_and_restarts(
    hpn: Network, single_tor: Network
) -> None:
    jct_s, healthy_s, stalled_s, restarts, _ = through(
        hpn, ["fail port srv1-2:3:1 at 100s for 1000s"], 5000
    )
    assert (healthy_s, restarts) == (5000, 0)
    assert stalled_s == pytest.approx(PATIENT.ack_timeout_s)
    assert jct_s == pytest.approx(5000 + stalled_s + (1000 - stalled_s) / 16)
    jct_s, _, stalled_s, restarts, lost_s = through(
        single_tor,
        ["fail nic srv1-2:3 at 4000s for 1h", "fail nic srv1-2:3 at 9000s for 30s"],
        20_000,
    )
    assert restarts == 1
    assert lost_s == 4000
    assert stalled_s == pytest.approx(PATIENT.gives_up_s + 2 * PATIENT.ack_timeout_s)
    assert jct_s == pytest.approx(20_000 + lost_s + stalled_s + 600)


@given(st.floats(0.001, 100), st.integers(1, 5000), st.sampled_from(["fail", "blackhole", "drain"]))
def test_a_single_outage_costs_the_same_in_a_timeline_and_in_a_what_if(
    hpn: Network, reaction_s: float, lasts_s: int, verb: str
) -> None:
    line = f"{verb} port srv1-2:3:1 at 100s for {lasts_s}s reaction {round(reaction_s * 1e9)}ns"
    jct_s, healthy_s, _, restarts, _ = through(hpn, [line], 20_000)
    (job,) = cost(hpn, line).jobs
    assert restarts == job.restarted == 0
    assert jct_s - healthy_s == pytest.approx(job.extra_s, abs=1e-5)


def test_checkpoints_bound_what_a_restart_loses(single_tor: Network) -> None:
    restart = RestartSpec(checkpoint_every="10m", checkpoint_takes="60s", restart_takes="2m")
    jct_s, healthy_s, stalled_s, restarts, lost_s = through(
        single_tor, ["fail nic srv1-2:3 at 1400s for 1h"], 3600, restart
    )
    assert healthy_s == 3600 + 5 * 60
    # Two checkpoints, at 600 and 1260 s; since then 80 s.
    assert (restarts, lost_s) == (1, pytest.approx(80))
    assert jct_s == pytest.approx(healthy_s + 80 + stalled_s + 120)


def test_the_time_in_a_checkpoint_that_breaks_off_is_lost_work(clos: Network) -> None:
    """A checkpoint from 3,600 to 4,800 s, and again from 8,850 to 10,050 s: the first breaks off
    after 1,000 s."""
    policy = RestartSpec(checkpoint_every="1h", checkpoint_takes="20m", restart_takes="650s")
    breaks = {"a": iter((Break(4600.0, "GPU"),))}
    arguments = (clos, (), lambda up, bps: {"a": 1.0}, {"a": 7200}, {"a": NCCL}, policy, breaks)
    histories = run_through(*arguments)
    forecast = outlook("t", "", "", policy, (), histories, {"a": 8}, {"a": 7200}, {"a": 0.0})
    (job,) = forecast.jobs
    assert job.lost_work_s == pytest.approx(3600 + 1000)
    assert (job.restarting_s, job.stalled_s, job.slowed_s) == (650, 0, 0)
    assert job.jct_s == pytest.approx(7200 + 1200 + 4600 + 650)


@given(
    st.lists(st.floats(1, 30_000), max_size=8),
    st.integers(60, 7200),
    st.integers(0, 3600),
    st.integers(0, 1200),
)
def test_a_job_that_only_breaks_by_itself_loses_nothing_to_longer_iterations(
    clos: Network, gaps_s: list[float], every: int, takes: int, restart: int
) -> None:
    policy = RestartSpec(
        checkpoint_every=f"{every}s", checkpoint_takes=f"{takes}s", restart_takes=f"{restart}s"
    )
    breaks = {"a": (Break(float(at_s), "GPU") for at_s in np.cumsum(gaps_s))}
    (history,) = run_through(
        clos, (), lambda up, bps: {"a": 1.0}, {"a": 20_000}, {"a": NCCL}, policy, breaks
    )
    parts = (history.healthy_s, history.restarting_s, history.lost_work_s)
    assert history.jct_s == pytest.approx(sum(parts))


def test_drawn_failures_come_as_often_as_published() -> None:
    pod = network_of(load_spec(find_lab("hpn-pod")))
    months = 12
    drawn = [draw_timeline(pod, HPN, MONTH_S, seed, 3600).events for seed in range(1, months + 1)]
    ports = sum(event.target.startswith("port ") for month in drawn for event in month)
    tors = sum(event.target.startswith("switch ") for month in drawn for event in month)
    expected = months * 2 * 15_360 * 0.00057
    assert ports == pytest.approx(expected, abs=4 * math.sqrt(expected))
    assert tors == pytest.approx(months * 240 * 0.00051, abs=5)
    assert drawn[0] == draw_timeline(pod, HPN, MONTH_S, 1, 3600).events
    assert len(resolve(pod, TimelineSpec(events=drawn[0]))) == len(drawn[0])


def test_a_preset_in_a_file_draws_its_failures(clos: Network) -> None:
    spec = RatesSpec.model_validate({"preset": "llama3", "repair": "2h", "seed": 5})
    drawn = timeline_of(clos, spec, 3000 * 86_400.0)
    again = draw_timeline(clos, LLAMA3, 3000 * 86_400.0, 5, 7200.0)
    assert drawn == again.model_copy(update={"restart": LLAMA3.restart})


def test_llama3s_rates_give_its_42_network_failures_in_54_days() -> None:
    gpus, days = 16_384, 54 * 86_400.0
    per_s = (LLAMA3.link_per_nic + LLAMA3.nic) * gpus
    assert per_s * days == pytest.approx(42)
    assert LLAMA3.breaks_per_s(gpus) * days == pytest.approx(419)
    assert 1 / (LLAMA3.link_per_nic * gpus * 86_400) == pytest.approx(1.54, abs=0.005)


def test_more_failures_than_a_timeline_holds_are_refused(clos: Network) -> None:
    with pytest.raises(InputError, match="a timeline holds"):
        draw_timeline(clos, replace(HPN, port=1.0), MONTH_S, 1, 3600)
    with pytest.raises(InputError, match="3,660 days at most"):
        draw_timeline(clos, HPN, 1e12, 1, 3600)


def test_the_long_run_agrees_with_many_jobs_that_break_at_random() -> None:
    restart = RestartSpec(checkpoint_every="1h", checkpoint_takes="100s", restart_takes="10m")
    mean_s = 5 * 3600.0
    draw = np.random.default_rng(3)
    wall_s = 0.0
    rounds = 20_000
    for _ in range(rounds):
        while (alive_s := draw.exponential(mean_s)) < 3700.0:
            wall_s += alive_s
            while (alive_s := draw.exponential(mean_s)) < 600.0:
                wall_s += alive_s
            wall_s += 600.0
        wall_s += 3700.0
    expected = expected_cost(1 / mean_s, restart)
    assert rounds * 3600 / wall_s == pytest.approx(expected.effective, rel=0.01)


@given(
    st.floats(0, 1e-4),
    st.integers(60, 20_000),
    st.integers(0, 600),
    st.floats(0, 1e-6),
    st.floats(1, 4),
)
def test_shares_of_time_add_up_to_all_of_it(
    breaks: float, every: int, takes: int, per_s: float, factor: float
) -> None:
    restart = RestartSpec(checkpoint_every=f"{every}s", checkpoint_takes=f"{takes}s")
    cost = expected_cost(breaks, restart, [Slowdown("x", per_s, 3600, 5, factor)])
    parts = (cost.effective, cost.checkpoints, cost.restarts, cost.slowed)
    assert sum(parts) == pytest.approx(1)
    assert min(parts) >= -1e-12


def test_an_interval_other_than_youngs_is_no_better() -> None:
    def effective(every_s: float) -> float:
        return expected_cost(
            1 / 86_400, RestartSpec(checkpoint_every=f"{round(every_s)}s")
        ).effective

    best_s = expected_cost(1 / 86_400, RestartSpec()).best_interval_s
    assert best_s == pytest.approx(math.sqrt(2 * 100 * 86_400))
    assert effective(best_s) > max(effective(best_s / 2), effective(best_s * 2))


def test_hpns_failures_cost_about_what_it_says_they_do() -> None:
    """20,000 $ an hour and 30,000 $ a failure are 1.5 h: half of a checkpoint interval of 3 h."""
    price = cost(
        lab(kind="hpn", segments=1, servers_per_segment=2, rails=1, ports_per_nic=1, planes=1),
        "fail nic srv1-1:1 for 1h",
    )
    assert 1.5 < price.jobs[0].extra_s / 3600 < 1.75


def test_an_outage_knows_when_it_is_routed_around() -> None:
    outage = EventOutage("x", parse_event("fail a").kind, np.zeros(0, np.int32), 1.0, 2.0, 1.5, "")
    assert outage.routed_s == math.inf


def test_llama3s_54_days_break_about_419_times_and_get_on_for_over_nine_tenths() -> None:
    """Llama 3 (arXiv 2407.21783, 3.3.4 and table 5): 419 interruptions, more than 90 %."""
    network = network_of(load_spec(find_lab("llama3-24k")))
    gpus, work_s = 16_384, 54 * 86_400.0
    values = np.unique(network.nic_links[:gpus])

    def times(up: Bools, capacity_bps: Floats) -> Mapping[str, float]:
        """A cable between switches costs nothing; one at a NIC breaks the job."""
        return {"llama-3": 10.0 if (capacity_bps[2 * values] > 0).all() else math.inf}

    spec = RatesSpec.model_validate({"preset": "llama3"})
    timeline = timeline_of(network, spec, work_s)
    outages = resolve(network, timeline)
    (history,) = run_through(
        network,
        outages,
        times,
        {"llama-3": round(0.92 * work_s / 10)},
        {"llama-3": NCCL},
        timeline.restart,
        {"llama-3": draw_breaks(LLAMA3, gpus, spec.seed)},
    )
    assert history.jct_s == pytest.approx(work_s, rel=0.03)
    assert history.restarts == pytest.approx(419, abs=4 * math.sqrt(419))
    assert history.work_s / history.jct_s > 0.9
    expected = expected_cost(LLAMA3.own_breaks_per_s(gpus), timeline.restart).effective
    assert history.work_s / history.jct_s == pytest.approx(expected, abs=0.02)
    assert history.breaks["GPU"] > history.breaks["software"] > history.breaks["host"] > 0


@pytest.mark.long
def test_a_job_that_breaks_at_random_gets_on_as_the_closed_form_says(clos: Network) -> None:
    restart = RestartSpec.model_validate(
        {"checkpoint_every": "3h", "checkpoint_takes": "100s", "restart_takes": "10m"}
    )
    (history,) = run_through(
        clos,
        (),
        lambda up, capacity_bps: {"a": 10.0},
        {"a": 20_000_000},
        {"a": NCCL},
        restart,
        {"a": draw_breaks(LLAMA3, 16_384, 1)},
    )
    expected = expected_cost(LLAMA3.own_breaks_per_s(16_384), restart).effective
    assert expected < 0.65
    assert history.work_s / history.jct_s == pytest.approx(expected, rel=0.03)


def test_a_node_of_another_network_is_refused_with_the_network_of_the_jobs() -> None:
    spec = load_spec(find_lab("two-networks"))
    network = network_of(spec.network("frontend"))
    with pytest.raises(InputError, match="network frontend of two-networks has no node rtsw1"):
        outage_of(network, parse_event("fail link rtsw1:ctsw1 for 10s"))
