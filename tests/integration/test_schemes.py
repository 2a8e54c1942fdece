"""Schemes on real labs: the packets' paths under each, compared with its description."""

from __future__ import annotations

import json
import os
import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rocelab.base.errors import InputError
from rocelab.dataplane.steering import read_scheme
from rocelab.dataplane.steering.maps import NodeCounters
from rocelab.dataplane.steering.program import pins_folder
from rocelab.jobs.placement import find_nic
from rocelab.lab.inuse import in_use
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.teardown import take_down
from rocelab.labfile.schemes.base import Headers
from rocelab.labfile.schemes.e_ecmp import EEcmpScheme
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.flowlet import FlowletScheme
from rocelab.labfile.schemes.path_pinning import PathPinningScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.labfile.schemes.spray import SprayScheme
from rocelab.labfile.schemes.te import TeScheme
from rocelab.linux import bpf, namespaces, netlink, tc
from rocelab.record import LabFiles
from rocelab.routes.bulk import field_hashes
from rocelab.routes.entries import program
from rocelab.routes.path import walk
from rocelab.routes.steering import EntryKey, PinKey, SteeringModel, planned_pins, steering_hash
from rocelab.routing.frr.vty import vty_json
from rocelab.traffic.traceroute import probe_path
from tests.helpers.command import read, rocelab
from tests.helpers.long import mostly_long
from tests.helpers.measured import measured
from tests.helpers.running import running
from tests.helpers.scheme_wire import ACK, SchemeWire, scheme_wire
from tests.helpers.waiting import LIMIT_S, wait_until
from tests.integration.conftest import MakeLab

pytestmark = pytest.mark.few_at_once

SPINES = ("ctsw1", "ctsw2", "ctsw3", "ctsw4")
ZONE = "fabric: {racks: 2, spines: 4, servers_per_rack: 3}"
THREE_TIERS = "fabric: {zones: 2, racks: 2, spines: 2, atsws: 3, links_per_pair: 2}"
PLAIN = f"{ZONE}\ndilation: 10\nqueues: {{engine: bpf}}"
HPN = (
    "fabric: {kind: hpn, segments: 2, servers_per_segment: 1, rails: 1, ports_per_nic: 2, "
    "planes: 2, aggs: 3, cores: 2}"
)
FAT_TREE = "fabric: {kind: fat-tree, k: 4}"
E_ECMP, SPRAY = EEcmpScheme(kind="e-ecmp"), SprayScheme(kind="spray")
PINNING, TE = PathPinningScheme(kind="path-pinning"), TeScheme(kind="te")
MS = 10**6


def flowlet(gap: str) -> FlowletScheme:
    """A gap on the modelled network's clock."""
    return FlowletScheme.model_validate({"kind": "flowlet", "gap": gap})


def start_flowlets(lab: RunningLab, gap: str) -> None:
    """Without those of an earlier run: setting the same scheme again resets the counters alone."""
    lab.steering.set_scheme(EcmpScheme())
    lab.steering.set_scheme(flowlet(gap))


@pytest.fixture(scope="module")
def zone_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("zone") / "t-scheme-zone.yaml"
    file.write_text(f"name: t-scheme-zone\n{PLAIN}\n")
    with running(Lab.planned(file)) as made:
        yield made


@pytest.fixture
def zone(no_controller: None, zone_up: RunningLab) -> Iterator[RunningLab]:
    """A zone that tests share, at dilation 10: complete and without a scheme before each test."""
    yield zone_up
    zone_up.steering.set_scheme(EcmpScheme())
    assert zone_up.steering.counters() == {}
    assert not pins_folder(zone_up.runtime.files).exists()
    for node, width in (("rtsw1", 4), ("rtsw2", 4), *((spine, 1) for spine in SPINES)):
        for server in ("srv1-1", "srv2-1"):
            if node[-1] != server[3]:
                await_width(zone_up, node, zone_up.fabric.nics(server)[0].ip, width)


@contextmanager
def link_down(lab: RunningLab, name: str) -> Iterator[None]:
    """A link without carrier; afterwards waits until its session has ended and is established
    again: tables that are complete before a late bgpd notices would not stay so."""
    before = sessions_had(lab)
    lab.link(name).down()
    try:
        yield
    finally:
        lab.link(name).up()
        wait_until(lambda: sessions_had(lab) > before, "the session's return")


def sessions_had(lab: RunningLab) -> int:
    """How often rtsw1's sessions have been established; -1 while one is not."""
    frr = lab.node("rtsw1").daemon_files
    peers = vty_json(frr, "bgpd", "show bgp ipv4 unicast summary json", dict)["peers"].values()
    if any(peer["state"] != "Established" for peer in peers):
        return -1
    return sum(peer["connectionsEstablished"] for peer in peers)


@pytest.fixture
def no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """No controller starts: entries are the test's own."""
    for name in ("start_controller", "stop_controller"):
        monkeypatch.setattr(f"rocelab.dataplane.steering.scheme.{name}", lambda *_: None)


def spines_of(psns: dict[str, list[int]]) -> dict[int, str]:
    """The one spine on each packet's path."""
    places = [(psn, name) for name in SPINES for psn in psns[name]]
    assert len(places) == len({psn for psn, _ in places}), "a packet met two spines"
    return dict(places)


@pytest.mark.side_by_side
def test_the_qps_of_one_five_tuple_use_every_uplink_with_e_ecmp_and_one_without(
    zone: RunningLab,
) -> None:
    assert_e_ecmp_alone_uses_every_uplink(zone)


@pytest.mark.side_by_side
def test_the_qps_of_one_five_tuple_use_every_uplink_also_where_ports_have_no_queues(
    make_lab: MakeLab,
) -> None:
    lab = make_lab("t-scheme-qp", f'{ZONE}\nqueues: {{engine: "off"}}\nscheme: ecmp')
    lab.start()
    assert_e_ecmp_alone_uses_every_uplink(lab)


def assert_e_ecmp_alone_uses_every_uplink(lab: RunningLab) -> None:
    with scheme_wire(lab, "srv1-1", "srv2-1", SPINES) as line:
        frames = [line.frame(qp, qp=qp) for qp in range(64)]
        assert not (pins_folder(lab.runtime.files)).exists()
        line.send(frames)
        assert len(set(spines_of(line.seen(64)).values())) == 1

        lab.steering.set_scheme(E_ECMP)
        line.send(frames)
        assert len(set(spines_of(line.seen(64)).values())) == 4
        assert lab.steering.counters()["rtsw1"].steered == 64

        lab.steering.set_scheme(EcmpScheme())
        line.send(frames)
        assert len(set(spines_of(line.seen(64)).values())) == 1
        assert lab.steering.counters() == {}


@pytest.mark.side_by_side
def test_what_is_not_roce_keeps_the_kernels_path(zone: RunningLab) -> None:
    lab = zone
    with scheme_wire(lab, "srv1-1", "srv2-1", SPINES) as line:

        def other(sport: int) -> bytes:
            frame = bytearray(line.frame(sport, sport=sport))
            struct.pack_into("!H", frame, 36, 4790)
            return bytes(frame)

        def counts() -> dict[str, int]:
            read = lab.link("srv2-1:rtsw2").counters
            return {
                name: lab.link(f"rtsw1:{name}").counters()["rtsw1"].tx_packets for name in SPINES
            } | {"arrived": read()["srv2-1"].rx_packets}

        def sent_by() -> Counter[str]:
            before = counts()
            line.send([other(sport) for sport in range(40000, 41000)])
            wait_until(lambda: counts()["arrived"] >= before["arrived"] + 1000)
            after = counts()
            return Counter({name: after[name] - before[name] for name in after})

        plain = sent_by()
        lab.steering.set_scheme(SPRAY)
        sprayed = sent_by()
        assert lab.steering.counters()["rtsw1"].steered == 0
    # BGP's keepalives share the links: a few packets.
    assert all(abs(plain[name] - sprayed[name]) <= 5 for name in SPINES), (plain, sprayed)


@pytest.mark.side_by_side
def test_the_models_hash_is_the_programs_to_the_bit(zone: RunningLab) -> None:
    lab = zone
    lab.steering.set_scheme(E_ECMP)
    chance = random.Random(4)
    count = 8000
    targets = [lab.fabric.nics(f"srv2-{number}")[0].ip for number in (1, 2, 3)]
    flows = [
        (
            str(IPv4Address(chance.randrange(1 << 24, 127 << 24))),
            chance.choice(targets),
            chance.randrange(1 << 16),
            chance.randrange(1 << 24),
        )
        for _ in range(count)
    ]
    tap = bpf.LoadedObject(bpf.compiled(Path(__file__).with_name("hash_tap.bpf.c")), {})
    try:
        with (
            attached(lab, tap.descriptor("tap"), "rtsw1", SPINES),
            scheme_wire(lab, "srv1-1", "srv2-1", ()) as line,
        ):
            line.send(
                line.frame(psn, source=source, destination=target, sport=sport, qp=qp)
                for psn, (source, target, sport, qp) in enumerate(flows)
            )
            wait_until(
                lambda: (
                    sum(
                        counted.steered
                        for name, counted in lab.steering.counters().items()
                        if name in SPINES
                    )
                    == count
                )
            )
        read = [
            struct.unpack(
                "=I", bpf.element(tap.descriptor("hashes"), struct.pack("=I", psn), 4) or b""
            )[0]
            for psn in range(count)
        ]
    finally:
        tap.close()
    sources, destinations = (
        np.array([int(IPv4Address(flow[part])) for flow in flows], np.uint64) for part in (0, 1)
    )
    ports, qps = (np.array([flow[part] for flow in flows], np.uint64) for part in (2, 3))
    seed = lab.fabric.node("rtsw1").hash_seed
    assert read == field_hashes(Headers(sources, destinations, ports, qps), seed).tolist()


@contextmanager
def attached(
    lab: RunningLab, program: int, node: str, interfaces: tuple[str, ...]
) -> Iterator[None]:
    """A program at the egress of some interfaces of a node, after all others."""
    index_of = {
        link.port(node).interface: link.port(node).index for link in lab.fabric.links_of[node]
    }
    options = netlink.attribute(6, struct.pack("=I", program)) + netlink.attribute(7, b"tap\0")
    request = tc.message(
        tc.RTM_NEWTFILTER,
        "bpf",
        parent=tc.CLSACT_EGRESS,
        info=tc.filter_info(9, 3),
        options=options + netlink.attribute(8, struct.pack("=I", 1)),
    )

    def attach() -> None:
        with netlink.open_socket() as channel:
            messages = [tc.on_interface(request, index_of[name]) for name in interfaces]
            netlink.send_batch(channel, messages)

    namespaces.inside(lab.node(node).netns, attach)
    try:
        yield
    finally:
        for name in interfaces:
            line = ("tc", "filter", "del", "dev", name, "egress", "pref", "9")
            assert lab.node(node).exec(list(line)).returncode == 0


@pytest.fixture(
    scope="module",
    params=mostly_long(
        [("zones", THREE_TIERS), ("hpn", HPN), ("tree", FAT_TREE)], [("zones", THREE_TIERS)]
    ),
    ids=["zones", "hpn", "fat-tree"],
)
def lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningLab]:
    """Labs of several tiers, one after the other; each test sets its own scheme."""
    kind, body = request.param
    name = f"t-scheme-{kind}"
    file = tmp_path_factory.mktemp("lab") / f"{name}.yaml"
    # Each comes up under a scheme of its file.
    scheme = {"zones": "path-pinning", "hpn": "spray", "tree": "e-ecmp"}[kind]
    file.write_text(f"name: {name}\n{body}\nscheme: {scheme}\n")
    try:
        made = Lab.planned(file).up()
        assert made.steering.read_scheme().kind == scheme
        yield made
    finally:
        take_down(name)


@pytest.mark.side_by_side
@pytest.mark.parametrize("scheme", [E_ECMP, PINNING, TE], ids=lambda scheme: scheme.kind)
def test_each_flow_takes_the_predicted_path(
    lab: RunningLab, no_controller: None, scheme: SchemeSpec
) -> None:
    lab.steering.set_scheme(scheme)
    chance = random.Random(lab.name)
    nics = [nic for server in lab.fabric.servers for nic in lab.fabric.nics(server.name)]
    pairs = [(one, other) for one in nics for other in nics if one.server != other.server]
    pairs = chance.sample(pairs, min(6, len(pairs)))
    ports = chance.sample(range(0xC000, 0x10000), 12)
    if scheme.kind == "te":
        switches = [node for node in lab.fabric.switches if lab.fabric.uplinks(node.name)]
        program(
            lab.steering,
            {
                EntryKey(node.name, one.ip, other.ip, port): chance.randrange(1 << 32)
                for one, other in pairs
                for port in ports[:8]
                for node in switches
            },
        )
    model, plain = lab.steering.model(), SteeringModel(lab.fabric, EcmpScheme())
    fib_of = lab.read_fibs()
    compared = moved = 0
    for one, other in pairs:
        leaves_by = chance.randrange(len(one.links))
        for qp in chance.sample(range(1 << 24), 4):
            seen = probe_path(
                lab.fabric,
                lambda node: lab.node(node).netns,
                one,
                other,
                ports,
                leaves_by=leaves_by,
                destination_qp=qp,
            )
            for port in ports:
                paths = [
                    walk(
                        lab.fabric,
                        fib_of,
                        one,
                        other,
                        port,
                        leaves_by=leaves_by,
                        destination_qp=qp,
                        steering=by,
                    )
                    for by in (model, plain)
                ]
                assert seen[port] == paths[0].nodes
                compared += 1
                moved += paths[0].nodes != paths[1].nodes
    assert compared == 48 * len(pairs)
    assert moved > compared / 10, "most paths are those without the scheme: nothing was tested"


def test_a_flowlet_stays_on_its_path_and_a_pause_draws_another(zone: RunningLab) -> None:
    """40 pauses change the spine at least once: all draw the same one only once in 10^24 runs."""
    gap_ms, margin_ms, flowlets, burst = 60, 10, 41, 5

    def run() -> FlowletRun:
        start_flowlets(zone, f"{gap_ms // 10}ms")
        sent: list[tuple[int, int]] = []
        with scheme_wire(zone, "srv1-1", "srv2-1", SPINES) as line:
            for psn in range(flowlets * burst):
                if psn:
                    pause_ms = gap_ms + 2 * margin_ms if psn % burst == 0 else 4
                    time.sleep(pause_ms / 1e3)
                before_ns = time.monotonic_ns()
                line.send([line.frame(psn)])
                sent.append((before_ns, time.monotonic_ns()))
            spine_of = spines_of(line.seen(len(sent)))
        counted = zone.steering.counters()["rtsw1"]
        assert len(spine_of) == len(sent) == counted.steered
        # A machine that stopped for a moment makes pauses of its own: those are told by the clock.
        spans = list(enumerate(pairwise(sent), 1))
        longest = (gap_ms - margin_ms) * MS
        short = [psn for psn, (one, other) in spans if other[1] - one[0] < longest]
        shortest = (gap_ms + margin_ms) * MS
        long = [psn for psn, (one, other) in spans if other[0] - one[1] > shortest]
        return FlowletRun(spine_of, short, long, counted)

    def too_few(one: FlowletRun) -> tuple[str, ...]:
        wanted = 0.9 * flowlets * (burst - 1)
        return () if len(one.short) > wanted else (f"only {len(one.short)} pauses were short",)

    one = measured(run, too_few)
    assert all(one.spine_of[psn] == one.spine_of[psn - 1] for psn in one.short)
    assert any(one.spine_of[psn] != one.spine_of[psn - 1] for psn in one.long)
    assert set(one.spine_of.values()) == set(SPINES)
    assert one.counted.flowlets == one.counted.changes + 1
    pauses = flowlets * burst - 1
    assert len(one.long) <= one.counted.changes <= pauses - len(one.short)


@dataclass(frozen=True)
class FlowletRun:
    """The spine of each packet, the packets after a pause that was certainly shorter or longer than
    the gap, and the switch's counters."""

    spine_of: dict[int, str]
    short: list[int]
    long: list[int]
    counted: NodeCounters


@pytest.mark.side_by_side
def test_the_flowlets_of_two_qps_are_apart(zone: RunningLab) -> None:
    lab, gap_s = zone, 10

    def run() -> tuple[dict[int, str], float]:
        """The spine of each packet, and the seconds from the first one's sending to the last one's
        arrival."""
        start_flowlets(lab, f"{gap_s // 10}s")
        with scheme_wire(lab, "srv1-1", "srv2-1", SPINES) as line:
            began_s = time.monotonic()
            line.send([line.frame(psn, qp=psn % 64) for psn in range(640)])
            return spines_of(line.seen(640)), time.monotonic() - began_s

    def too_slow(made: tuple[dict[int, str], float]) -> tuple[str, ...]:
        late = f"not valid because the packets took {made[1]:.1f} s, longer than the gap"
        return (late,) if made[1] > gap_s else ()

    spine_of, _ = measured(run, too_slow)
    for qp in range(64):
        assert len({spine_of[psn] for psn in range(qp, 640, 64)}) == 1
    assert set(spine_of.values()) == set(SPINES)
    assert lab.steering.counters()["rtsw1"].flowlets == 64


@pytest.mark.side_by_side
def test_spray_spreads_the_data_of_one_flow_evenly_and_leaves_its_acks_together(
    zone: RunningLab,
) -> None:
    """Chi-square with 3 degrees of freedom: a correct program fails once in 100,000 runs."""
    lab = zone
    lab.steering.set_scheme(SPRAY)
    count = 8000
    with scheme_wire(lab, "srv1-1", "srv2-1", SPINES) as line:
        for start in range(0, count, 500):
            line.send([line.frame(psn) for psn in range(start, start + 500)])
        spine_of = spines_of(line.seen(count))
        shares = Counter(spine_of.values())
        assert sum(shares.values()) == count
        assert sum((shares[name] - count / 4) ** 2 for name in SPINES) / (count / 4) < 25.9

        line.send([line.frame(psn, opcode=ACK) for psn in range(500)])
        assert len(set(spines_of(line.seen(500)).values())) == 1
    assert lab.steering.counters()["rtsw1"].steered == count


def spine_to(line: SchemeWire, address: str, psn: int) -> str:
    """The spine on the path of a packet to an address."""
    line.send([line.frame(psn, destination=address)])
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for name, psns in line.seen(0).items():
            if name in SPINES and psn in psns:
                return name
        time.sleep(0.002)
    raise AssertionError(f"no spine saw a packet to {address}")


@pytest.mark.side_by_side
def test_a_pinned_packet_leaves_by_its_destinations_slot_and_by_another_when_that_is_gone(
    zone: RunningLab,
) -> None:
    lab = zone
    lab.steering.set_scheme(PINNING)
    uplinks = live_hops(lab, "rtsw1", lab.fabric.nics("srv2-1")[0].ip)
    assert sorted(uplinks) == sorted(SPINES)
    slots = [link.a.ip for link in lab.fabric.downlinks("rtsw2")]
    assert set(planned_pins(lab.fabric)) >= {PinKey("rtsw1", ip) for ip in slots}
    with scheme_wire(lab, "srv1-1", "srv2-1", SPINES) as line:
        for slot, ip in enumerate(slots):
            assert spine_to(line, ip, slot) == uplinks[slot % 4]
        with link_down(lab, f"rtsw1:{uplinks[0]}"):
            await_width(lab, "rtsw1", slots[0], 3)
            line.seen(0)
            line.send([line.frame(psn, qp=psn) for psn in range(100, 200)])
            counts = line.seen(100)
    assert sorted(counts["srv2-1"]) == list(range(100, 200))
    (spine,) = {spines_of(counts)[psn] for psn in range(100, 200)}
    assert spine != uplinks[0]


def await_width(lab: RunningLab, node: str, address: str, width: int) -> None:
    what = f"{width} live next hops of {node} for {address}"
    wait_until(lambda: len(live_hops(lab, node, address)) == width, what)


def live_hops(lab: RunningLab, node: str, address: str) -> list[str]:
    """The interfaces that a node's kernel spreads packets to an address over, in its order."""
    route = lab.read_fibs()(node).lookup(address)
    return [] if route is None else [hop.interface for hop in route.next_hops if hop.carrier]


@pytest.mark.side_by_side
def test_a_flow_goes_where_its_entry_says_and_elsewhere_when_that_uplink_dies(
    zone: RunningLab,
) -> None:
    lab = zone
    lab.steering.set_scheme(TE)
    source, target = (find_nic(lab.fabric, name).ip for name in ("srv1-1", "srv2-1"))
    # An uplink that an earlier test took down may not carry routes again yet.
    await_width(lab, "rtsw1", target, len(SPINES))
    uplinks = live_hops(lab, "rtsw1", target)
    assert sorted(uplinks) == sorted(SPINES)

    def entry(index: int) -> dict[EntryKey, int]:
        return {EntryKey("rtsw1", source, target, 49152): steering_hash(index, [1] * 4)}

    with scheme_wire(lab, "srv1-1", "srv2-1", SPINES) as line:
        spine = spine_to(line, target, 0)
        for index in range(4):
            program(lab.steering, entry(index))
            assert lab.steering.read_entries() == entry(index)
            assert spine_to(line, target, 1 + index) == uplinks[index]
        program(lab.steering, {EntryKey("rtsw1", source, target, 49153): 0})
        assert spine_to(line, target, 5) == spine
        counted = lab.steering.counters()["rtsw1"]
        assert (counted.hits, counted.misses) == (4, 2)

        program(lab.steering, entry(2))
        with link_down(lab, f"rtsw1:{uplinks[2]}"):
            await_width(lab, "rtsw1", target, 3)
            line.seen(0)
            line.send([line.frame(psn) for psn in range(100, 200)])
            counts = line.seen(100)
    assert sorted(counts["srv2-1"]) == list(range(100, 200))
    assert uplinks[2] not in spines_of(counts).values()


@pytest.mark.side_by_side
def test_entries_are_refused_under_another_scheme(zone: RunningLab) -> None:
    zone.steering.set_scheme(E_ECMP)
    with pytest.raises(InputError, match="has no entries: its scheme is e-ecmp"):
        program(zone.steering, {})


def test_switching_schemes_under_a_thousand_packets_a_second_loses_none(zone: RunningLab) -> None:
    schemes: list[SchemeSpec] = [
        E_ECMP,
        SPRAY,
        flowlet("200us"),
        PINNING,
        TE,
        EcmpScheme(),
        PINNING,
        EcmpScheme(),
        SPRAY,
        E_ECMP,
        TE,
    ]

    def run() -> float:
        """Packets a second."""
        stop = threading.Event()
        sent: list[int] = []
        with scheme_wire(zone, "srv1-1", "srv2-1", SPINES) as line:

            def send() -> None:
                due = time.monotonic()
                while not stop.is_set():
                    line.send([line.frame(len(sent), qp=len(sent) % 64)])
                    sent.append(len(sent))
                    due += 0.001
                    time.sleep(max(0, due - time.monotonic()))

            sender = threading.Thread(target=send)
            sender.start()
            began = time.monotonic()
            try:
                for scheme in schemes:
                    zone.steering.set_scheme(scheme)
                    assert read_scheme(zone.runtime.files) == scheme
                    time.sleep(0.25)
            finally:
                stop.set()
                sender.join()
            seconds = time.monotonic() - began
            counts = line.seen(len(sent))
        assert sorted(counts["srv2-1"]) == sent
        return len(sent) / seconds

    measured(run, lambda rate: () if rate > 900 else (f"{rate:.0f} packets/s were sent",))


@pytest.mark.side_by_side
def test_down_leaves_no_program_and_no_map(make_lab: MakeLab) -> None:
    lab = make_lab("t-scheme-end", f"{ZONE}\nscheme: e-ecmp")
    lab.start()
    assert not alive("prog", 2**32 - 1)
    maps = [
        kernel_id(bpf.pinned(pins_folder(lab.runtime.files) / name), "map_id")
        for name in ("nodes", "counters", "pins", "entries")
    ]
    process = lab.node("rtsw1").exec(["tc", "-j", "filter", "show", "dev", "srv1-1", "ingress"])
    (program,) = {
        row["options"]["prog"]["id"] for row in json.loads(process.stdout) if "options" in row
    }
    assert alive("prog", program) and all(alive("map", number) for number in maps)
    lab.down()
    wait_until(lambda: not alive("prog", program))
    wait_until(lambda: not [number for number in maps if alive("map", number)])
    assert not LabFiles(lab.name).root.exists()


def kernel_id(descriptor: int, key: str) -> int:
    """The kernel's id of a map; closes the descriptor."""
    with os.fdopen(descriptor):
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def alive(what: str, number: int) -> bool:
    """Whether the kernel has a program (`prog`) or map of that id."""
    descriptor = getattr(bpf._libbpf(), f"bpf_{what}_get_fd_by_id")(number)
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True


@pytest.mark.side_by_side
def test_a_scheme_is_set_whatever_a_killed_command_left(zone: RunningLab) -> None:
    lab = zone
    lab.steering.set_scheme(E_ECMP)
    (lab.runtime.files.root / "scheme").unlink()
    lab.steering.set_scheme(SPRAY)
    with scheme_wire(lab, "srv1-1", "srv2-1", SPINES) as line:
        line.send([line.frame(psn) for psn in range(200)])
        assert set(spines_of(line.seen(200)).values()) == set(SPINES)


@pytest.mark.side_by_side
def test_a_lab_that_hashes_addresses_alone_is_not_steered(make_lab: MakeLab) -> None:
    lab = make_lab("t-scheme-l3", "fabric: {racks: 1, spines: 1}\nhashing: {policy: l3}")
    lab.start()
    with pytest.raises(InputError, match=r"needs hashing\.policy: l4, the lab has l3"):
        lab.steering.set_scheme(E_ECMP)
    assert read_scheme(lab.runtime.files) == EcmpScheme()


@pytest.mark.side_by_side
def test_the_command_line_switches_schemes_and_predicts_by_the_one_that_runs(
    zone: RunningLab,
) -> None:
    lab = zone
    flow = ("path", lab.name, "--src", "srv1-1", "--dst", "srv2-1", "--sport", "50000")
    assert read("scheme", lab.name)["scheme"] == {"kind": "ecmp"}
    assert rocelab("scheme", lab.name, "e-ecmp").returncode == 0

    without = rocelab(*flow)
    assert (without.returncode, "--qp" in without.stderr) == (2, True)
    met = set()
    for qp in range(6):
        seen = read(*flow, "--qp", str(qp), "--probe")
        assert (seen["scheme"], seen["probe"]["agrees"]) == ("e-ecmp", True)
        met.add(seen["hops"][2])
    assert len(met) > 1
    counters = {row["node"]: row for row in read("scheme", lab.name)["counters"]}
    assert counters["rtsw1"]["steered"] >= 6

    with in_use(lab.runtime.files, "a drill"):
        refused = rocelab("scheme", lab.name, "spray")
    assert (refused.returncode, "in use by a drill" in refused.stderr) == (2, True)
    switched = rocelab("scheme", lab.name, "flowlet", "--set", "gap=512us")
    assert (switched.returncode, "flowlet, gap 512us" in switched.stdout) == (0, True)
    assert rocelab(*flow, "--qp", "1").returncode == 2
    wrong = rocelab("scheme", lab.name, "flowlet", "--set", "gap=fast")
    assert (wrong.returncode, "expected a duration" in wrong.stderr) == (2, True)
    assert read("scheme", lab.name)["scheme"] == {"kind": "flowlet", "gap": "512us"}
