"""Jobs in arrays: placed, cut and numbered as in the lab, and the features of large ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocelab.agent.rc.connection import RcConnection
from rocelab.agent.rc.requester import Requester
from rocelab.base.arrays import Ints
from rocelab.base.errors import InputError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.kinds.hpn import HpnSpec
from rocelab.fabrics.kinds.rail import RailSpec
from rocelab.jobs import merged_sends as collectives
from rocelab.jobs.collectives import Pattern, kind_of, schedule
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.jobs.merged_sends import MOST_IN_TURN, sends_of, workload_of
from rocelab.jobs.messages import loads_of, messages_of
from rocelab.jobs.patterns.allreduce import AllReduce
from rocelab.jobs.patterns.base import IN_SWITCH, Algorithm
from rocelab.jobs.placement import Placement, cut, group_size, place
from rocelab.jobs.sport import QPN_LIMIT, SourcePort
from rocelab.jobs.transport import Strategy, TransportSpec
from rocelab.jobs.workload import Sends, Step, Workload
from rocelab.lab.adoption.graph import lab_of
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.network import Network
from rocelab.sim.compile import Compiled, PlacedJob, compile_jobs
from rocelab.sim.placement import Taken, place_ranks, ring_cut, ring_group
from rocelab.sim.queue_pairs import queue_pairs
from tests.helpers.adopted_sample import FRR, surveyed
from tests.helpers.rc_fakes import header, requester_settings

ALLREDUCES = AllReduce.algorithms
LABS = ("zone-small", "zones-small", "rail-small", "hpn-small", "hpn-single-plane", "fat-tree-4")
FABRICS = {name: build_fabric(load_spec(find_lab(name))) for name in LABS}
NETWORKS = {name: network_of(fabric.spec) for name, fabric in FABRICS.items()}
BIG = network_of(load_spec(find_lab("meta-32k")))


def names(network: Network, places: Ints) -> list[str]:
    server, number = network.nic_server[places].tolist(), network.nic_number[places].tolist()
    return [f"{network.node_names[node]}:{nic}" for node, nic in zip(server, number, strict=True)]


def zones(racks: int, servers: int, count: int) -> LabSpec:
    clos = ClosSpec(zones=count, racks=racks, servers_per_rack=servers, nics_per_server=1, atsws=1)
    return LabSpec(name="zone", fabric=clos)


few = st.integers(1, 3)
specs = st.one_of(
    st.builds(zones, few, few, few),
    st.builds(
        lambda units, servers, rails: LabSpec(
            name="rails",
            fabric=RailSpec(kind="rail", units=units, servers_per_unit=servers, rails=rails),
        ),
        few,
        few,
        few,
    ),
    st.builds(
        lambda segments, servers, ports: LabSpec(
            name="pod",
            fabric=HpnSpec(
                kind="hpn",
                segments=segments,
                servers_per_segment=servers,
                rails=2,
                ports_per_nic=ports,
                planes=1,
            ),
        ),
        few,
        few,
        st.integers(1, 2),
    ),
    st.sampled_from(LABS).map(lambda name: FABRICS[name].spec),
)


@given(specs, st.sampled_from(Placement), st.integers(0, 2**32 - 1), st.data())
def test_ranks_get_the_nics_that_they_get_in_the_lab(
    spec: LabSpec, how: Placement, seed: int, data: st.DataObject
) -> None:
    fabric, network = build_fabric(spec), network_of(spec)
    ranks = data.draw(st.integers(2, network.nics + 1)) if network.nics > 1 else 1
    try:
        expected = place(fabric, ranks, how, seed)
    except InputError as error:
        with pytest.raises(InputError) as caught:
            place_ranks(network, ranks, how, seed)
        assert (caught.value.message, caught.value.hint) == (error.message, error.hint)
        return
    places = place_ranks(network, ranks, how, seed)
    assert names(network, places) == list(map(str, expected))
    assert place_ranks(network, ranks, names(network, places)).tolist() == places.tolist()
    assert ring_cut(network, places) == cut(fabric, expected)
    assert group_or_none(ring_group, network, places) == group_or_none(group_size, fabric, expected)


def test_ranks_fill_the_leaf_with_room_for_all_in_a_lab_and_in_its_simulation() -> None:
    leaves = ["leaf1"] + ["leaf2"] * 3
    cables = [(f"host{number}", leaf) for number, leaf in enumerate(leaves, 1)]
    cables += [("leaf1", "spine1"), ("leaf2", "spine1")]
    spec = lab_of("uneven", surveyed(cables, dict.fromkeys(("leaf1", "leaf2", "spine1"), FRR)))
    fabric, network = build_fabric(spec), network_of(spec)
    for ranks, expected in ((1, [1]), (2, [2, 3]), (3, [2, 3, 4]), (4, [1, 2, 3, 4])):
        places = place_ranks(network, ranks, Placement.TOPOLOGY_AWARE)
        assert names(network, places) == [f"host{number}:1" for number in expected]
        assert names(network, places) == list(
            map(str, place(fabric, ranks, Placement.TOPOLOGY_AWARE))
        )


def group_or_none(size_of: Callable[..., int], *arguments: object) -> int | None:
    try:
        return size_of(*arguments)
    except InputError:
        return None


@pytest.mark.parametrize(
    ("ranks", "how"),
    [
        (2, ["srv1-1"]),
        (2, ["srv1-1", "srv1-1:1"]),
        (1, ["srv9-1"]),
        (1, ["rtsw1"]),
        (1, ["srv1-1:99"]),
        (1, ["srv1-1:x"]),
    ],
)
def test_a_list_that_the_lab_refuses_is_refused_in_the_same_words(
    ranks: int, how: list[str]
) -> None:
    with pytest.raises(InputError) as of_lab:
        place(FABRICS["zone-small"], ranks, how)
    with pytest.raises(InputError) as caught:
        place_ranks(NETWORKS["zone-small"], ranks, how)
    assert (caught.value.message, caught.value.hint) == (of_lab.value.message, of_lab.value.hint)


@given(specs, st.sampled_from(Placement), st.data())
def test_a_job_beside_others_never_gets_a_nic_of_theirs(
    spec: LabSpec, how: Placement, data: st.DataObject
) -> None:
    network = network_of(spec)
    taken = np.array(data.draw(st.lists(st.booleans(), min_size=network.nics)))[: network.nics]
    left = int(np.count_nonzero(~taken))
    ranks = data.draw(st.integers(1, max(1, left)))
    try:
        places = place_ranks(network, ranks, how, 1, taken)
    except InputError as error:
        assert not left or "one leaf" in error.message
        return
    assert len(set(places.tolist())) == ranks
    assert not taken[places].any()
    if how is Placement.TOPOLOGY_AWARE:
        assert_least_cut(network, places, taken)


def assert_least_cut(network: Network, places: Ints, taken: Taken) -> None:
    """No choice among the NICs that are left needs fewer zones or, within one, fewer leaves."""
    leaf = network.nic_home
    zone = network.zone[network.home_leaves[leaf, 0]]
    fewest_zones = fewest_groups(zone[~taken].tolist(), len(places))
    assert len(set(zone[places].tolist())) == fewest_zones
    if fewest_zones == 1:
        fewest = min(
            fewest_groups(leaf[~taken & (zone == number)].tolist(), len(places))
            for number in set(zone.tolist())
            if np.count_nonzero(~taken & (zone == number)) >= len(places)
        )
        assert len(set(leaf[places].tolist())) == fewest
        assert ring_cut(network, places).leaves == (fewest if fewest > 1 else 0)


def fewest_groups(group_of: Sequence[int], ranks: int) -> int:
    room = Counter(group_of)
    return next(
        count
        for count in range(1, len(room) + 1)
        if any(sum(room[leaf] for leaf in some) >= ranks for some in combinations(room, count))
    )


def test_a_job_goes_where_it_fits_best_and_leaves_whole_leaves_to_others() -> None:
    network = network_of(zones(racks=3, servers=4, count=2))
    taken = np.zeros(network.nics, bool)
    taken[[0, 1, 4, 5, 8, 12]] = True
    picked = names(network, place_ranks(network, 3, Placement.TOPOLOGY_AWARE, taken=taken))
    assert picked == ["z1-srv3-2:1", "z1-srv3-3:1", "z1-srv3-4:1"]
    whole = names(network, place_ranks(network, 4, Placement.TOPOLOGY_AWARE, taken=taken))
    assert whole == [f"z2-srv2-{server}:1" for server in range(1, 5)]
    larger = place_ranks(network, 9, Placement.TOPOLOGY_AWARE, taken=taken)
    assert {name[:2] for name in names(network, larger)} == {"z2"}


def test_nics_of_other_jobs_can_not_be_listed_or_suffice() -> None:
    network = NETWORKS["zone-small"]
    taken = np.ones(network.nics, bool)
    with pytest.raises(InputError, match="NIC srv1-1:1 belongs to another job"):
        place_ranks(network, 1, ["srv1-1"], taken=taken)
    taken[:2] = False
    with pytest.raises(InputError, match=r"3 ranks do not fit the 2 NICs of .* that other jobs"):
        place_ranks(network, 3, Placement.CONTIGUOUS, taken=taken)


@st.composite
def collective(draw: st.DrawFn) -> dict[str, object]:
    group = draw(st.integers(1, 5))
    ranks = group * draw(st.integers(-(-2 // group), max(2, 17 // group)))
    pattern = draw(st.sampled_from(Pattern))
    if pattern is Pattern.PAIRS:
        ranks += ranks % 2
    keys: dict[str, object] = {
        "pattern": pattern,
        "ranks": ranks,
        "size_bytes": draw(st.integers(1, 400) | st.integers(1, 30 * 2**20)),
        "channels": draw(st.integers(1, 4)),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }
    if pattern is Pattern.ALLREDUCE:
        keys["algorithm"] = draw(st.sampled_from(sorted({*Algorithm} - IN_SWITCH)))
    if keys.get("algorithm") is Algorithm.HIERARCHICAL or (
        kind_of(pattern).is_in_ring_order and draw(st.booleans())
    ):
        keys["group"] = group
    if kind_of(pattern).is_exchange:
        keys["in_flight"] = draw(st.integers(1, 20))
    if kind_of(pattern).is_rooted:
        keys["root"] = draw(st.integers(0, ranks - 1))
    return keys


@given(collective())
@example(
    {
        "pattern": Pattern.ALLREDUCE,
        "algorithm": Algorithm.HIERARCHICAL,
        "ranks": 6,
        "group": 2,
        "size_bytes": 1_000_003,
        "channels": 3,
    }
)
def test_merged_sends_are_the_sums_of_a_schedules(keys: dict[str, object]) -> None:
    whole = schedule(**keys)
    size: Counter[tuple[int, int]] = Counter()
    parts: Counter[tuple[int, int]] = Counter()
    chain = [0] * len(whole.sends)
    for send in whole.sends:
        size[send.source, send.destination] += send.size_bytes
        parts[send.source, send.destination] += 1
        chain[send.id] = 1 + max((chain[before] for before in send.after), default=0)
    merged = sends_of(**keys)
    pairs = list(zip(merged.source.tolist(), merged.destination.tolist(), strict=True))
    if merged.turn is not None:
        assert in_turn(merged) == {
            send.id: (send.source, send.destination, send.size_bytes, send.after)
            for send in whole.sends
        }
        return
    assert dict(zip(pairs, merged.size_bytes.tolist(), strict=True)) == size
    assert dict(zip(pairs, merged.each_parts.tolist(), strict=True)) == parts
    assert len(pairs) == len(set(pairs))
    if whole.sends:
        assert merged.rounds == max(chain)


def in_turn(sends: Sends) -> dict[int, tuple[int, int, int, tuple[int, ...]]]:
    """Source, destination, bytes and what it waits for, of each."""
    assert sends.turn is not None
    order: dict[int, tuple[int, int, int, tuple[int, ...]]] = {}
    last: dict[int, int] = {}
    columns = (sends.source, sends.destination, sends.size_bytes, sends.turn)
    for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        *ends, turn = row
        order[number] = (*ends, (last[turn],) if turn in last else ())
        last[turn] = number
    return order


def test_a_ring_of_32256_ranks_is_one_send_per_rank() -> None:
    ring = sends_of(Pattern.ALLREDUCE, 32256, 32256 * 10**6)
    assert len(ring.source) == 32256
    assert set(ring.size_bytes.tolist()) == {2 * 32255 * 10**6}
    assert ring.rounds == 2 * 32255


@pytest.mark.parametrize("ranks", [1025, 32256])
def test_more_sends_in_turn_than_can_be_simulated_are_refused(ranks: int) -> None:
    with pytest.raises(InputError, match=f"at most {MOST_IN_TURN:,}") as caught:
        sends_of(Pattern.ALLTOALL, ranks, 2**30, in_flight=64)
    assert "fewer ranks" in (caught.value.hint or "")


def job(**keys: object) -> JobSpec:
    return JobSpec.model_validate({"pattern": "allreduce", "ranks": 4, "size": "4MB", **keys})


def test_a_small_job_is_every_send_of_its_schedule_in_the_labs_order() -> None:
    spec = job(compute="3ms")
    work = workload_of(spec, None, 2)
    sends = schedule(Pattern.ALLREDUCE, 4, 4 * 10**6).sends
    assert work.ordered
    first = work.steps[: len(sends)]
    assert [step.after for step in first] == [send.after for send in sends]
    assert [(*map(int, ends(step)),) for step in first] == [
        (send.source, send.destination, send.size_bytes) for send in sends
    ]
    pauses = {at: step for at, step in enumerate(work.steps) if step.sends is None}
    assert len(pauses) == 4
    assert {step.compute_s for step in pauses.values()} == {0.003}
    second = len(sends) + len(pauses)
    for step, send in zip(work.steps[second:], sends, strict=True):
        (pause,) = [before for before in step.after if before in pauses]
        assert set(step.after) - {pause} == {second + before for before in send.after}
        ids = {s.id for s in sends if send.source in (s.source, s.destination)}
        assert set(pauses[pause].after) == ids
        assert step.iteration == pauses[pause].iteration == 1


def ends(step: Step) -> tuple[int, int, int]:
    assert step.sends is not None
    ((source,), (destination,), (size,)) = (
        step.sends.source,
        step.sends.destination,
        step.sends.size_bytes,
    )
    return source, destination, size


def test_a_large_job_is_one_step_of_merged_sends_per_iteration() -> None:
    work = workload_of(job(ranks=1000, compute="3ms"), None, 3)
    assert not work.ordered
    assert [(step.after, step.compute_s) for step in work.steps] == [
        ((), 0.0),
        ((0,), 0.003),
        ((1,), 0.003),
    ]
    merged = sends_of(Pattern.ALLREDUCE, 1000, 4 * 10**6)
    for step in work.steps:
        assert step.sends is not None
        assert step.sends.size_bytes.tolist() == merged.size_bytes.tolist()


def test_with_a_barrier_ranks_begin_an_iteration_when_all_have_ended_the_one_before() -> None:
    work = workload_of(job(pattern="alltoall", compute="3ms"), None, 3, barrier=True)
    assert work.ordered
    pauses = [at for at, step in enumerate(work.steps) if step.sends is None]
    assert pauses == [12, 25]
    assert [work.steps[at].after for at in pauses] == [tuple(range(12)), tuple(range(13, 25))]
    assert {work.steps[at].compute_s for at in pauses} == {0.003}
    assert all(12 in step.after for step in work.steps[13:25])


def test_streams_are_refused_because_nothing_of_them_ends() -> None:
    streams = JobSpec.model_validate({"pattern": "incast", "ranks": 4, "duration": "5ms"})
    with pytest.raises(InputError, match="never complete") as caught:
        workload_of(streams, None, 1)
    assert "size" in (caught.value.hint or "")


transports = st.builds(
    lambda qps, strategy, message, mtu, source_port, admission: TransportSpec.model_validate(
        {
            "qps": qps,
            "strategy": strategy,
            "message": message,
            "mtu": mtu,
            "source_port": source_port,
            "admission": admission,
        }
    ),
    st.integers(1, 7),
    st.sampled_from(Strategy),
    st.sampled_from(["1KB", "5000B", "64KiB", "1MiB"]),
    st.sampled_from([256, 1024, 4096]),
    st.sampled_from(SourcePort),
    st.sampled_from([False, {"channels": 2, "buffer": "512KiB"}]),
)


class Posted:
    """A queue pair's end that emits posted messages at once."""

    def __init__(self, mtu: int) -> None:
        self.messages: list[int] = []
        self._requester = Requester(header(), requester_settings(mtu=mtu, window=2**22))
        self.wire_bytes = 0

    def post(self, size: int, imm: int) -> None:
        self.messages.append(size)
        self._requester.post(size, imm)
        self.wire_bytes += self._requester.emit([], 2**30, 0)


@given(
    transports,
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40_000), st.integers(1, 5)), min_size=1),
    st.data(),
)
def test_queue_pairs_carry_the_messages_and_bytes_that_the_labs_put_on_the_wire(
    transport: TransportSpec, sends: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    longer = [data.draw(st.integers(0, number - 1)) for _, _, number in sends]
    columns = np.array(sends, np.int64)
    size = columns[:, 1] * columns[:, 2] + longer
    loads = loads_of(columns[:, 0], size, columns[:, 2], transport)
    transfer = np.arange(len(sends) * transport.qps).reshape(-1, transport.qps)
    messages = messages_of(columns[:, 0], size, columns[:, 2], transport, transfer, transfer.size)
    split = transport.strategy is Strategy.SPLIT
    longest = min(transport.message, 2**19) if transport.admission else transport.message
    pairs = [[Posted(transport.mtu) for _ in range(transport.qps)] for _ in range(3)]
    connections = [RcConnection(pair, split=split, message_bytes=longest) for pair in pairs]
    for at, (connection, offset, number) in enumerate(sends):
        before = [(len(pair.messages), pair.wire_bytes) for pair in pairs[connection]]
        for part in range(number):
            connections[connection].send(offset + (part < longer[at]), part)
        for qp, (pair, (first, wire_bytes)) in enumerate(
            zip(pairs[connection], before, strict=True)
        ):
            posted = pair.messages[first:]
            runs = slice(*messages.first[transfer[at, qp] :][:2])
            assert np.repeat(messages.size_bytes[runs], messages.count[runs]).tolist() == posted
            assert loads.payload[at, qp] == sum(posted)
            assert loads.wire[at, qp] == pair.wire_bytes - wire_bytes


def test_a_send_has_no_more_parts_than_bytes() -> None:
    column = np.array([3], np.int64)
    loads = loads_of(np.zeros(1, np.int64), column, column + 2, TransportSpec(qps=4))
    assert loads.payload.tolist() == [[1, 1, 1, 0]]
    assert (loads.wire > 0).tolist() == [[True, True, True, False]]


jobs_of_the_lab = st.builds(
    lambda pattern, ranks, size, placement, transport, seed, channels, iterations: {
        "pattern": pattern,
        "ranks": 2 * ranks,
        "size": size,
        "placement": placement,
        "transport": transport,
        "seed": seed,
        "channels": channels,
        "iterations": iterations,
        "warmup_iterations": 0,
    },
    st.sampled_from(Pattern),
    st.integers(1, 4),
    st.sampled_from(["3MB", "70001B"]),
    st.sampled_from(Placement),
    transports,
    st.integers(0, 2**32 - 1),
    st.integers(1, 2),
    st.integers(1, 2),
)


def compiled(network: Network, specs: Sequence[JobSpec], *, for_packets: bool = False) -> Compiled:
    return compile_jobs(
        network,
        [
            PlacedJob(
                workload_of(spec, None, spec.iterations),
                place_ranks(network, spec.ranks, spec.placement, spec.seed),
                spec.transport,
                spec.seed,
            )
            for spec in specs
        ],
        for_packets=for_packets,
    )


def flow_rows(network: Network, made: Compiled) -> Counter[tuple[object, ...]]:
    """Source, destination, source port, destination QP, NIC port and payload of each flow."""
    flows = made.flows
    payload = np.zeros(len(flows), np.int64)
    np.add.at(payload, made.program.flow, made.payload_bytes)
    columns = (flows.sport, flows.dest_qp, flows.port, payload)
    return Counter(
        zip(
            names(network, flows.source),
            names(network, flows.destination),
            *(column.tolist() for column in columns),
            strict=True,
        )
    )


def rows_of_lab(fabric: Fabric, specs: Sequence[JobSpec]) -> Counter[tuple[object, ...]]:
    return Counter(
        (str(r.source), str(r.destination), r.sport, r.dest_qp, r.leaves_by, r.bytes)
        for r in rows_of_jobs(plan_jobs(fabric, specs))
    )


@given(st.sampled_from(LABS), st.lists(jobs_of_the_lab, min_size=1, max_size=3))
def test_flows_and_their_bytes_are_those_of_the_labs_queue_pairs(
    lab: str, keys: list[dict[str, object]]
) -> None:
    specs = [JobSpec.model_validate(key) for key in keys]
    made = compiled(NETWORKS[lab], specs)
    assert flow_rows(NETWORKS[lab], made) == rows_of_lab(FABRICS[lab], specs)


@given(st.sampled_from(LABS), st.lists(jobs_of_the_lab, min_size=1, max_size=3))
def test_clear_to_sends_take_the_labs_queue_pairs(lab: str, keys: list[dict[str, object]]) -> None:
    network, specs = NETWORKS[lab], [JobSpec.model_validate(key) for key in keys]
    made = compiled(network, specs, for_packets=True)
    clearing = made.clearing
    assert clearing is not None
    expected = [
        (number, str(plan.places[end.rank]), str(plan.places[end.peer]), end.sport, end.remote)
        for number, plan in enumerate(plan_jobs(FABRICS[lab], specs))
        for end in plan.ends
        if end.control
    ]
    rows = zip(
        clearing.job.tolist(),
        *(names(network, nics) for nics in (clearing.flows.source, clearing.flows.destination)),
        clearing.flows.sport.tolist(),
        clearing.flows.dest_qp.tolist(),
        strict=True,
    )
    assert list(rows) == expected
    assert clearing.answers.source.tolist() == clearing.flows.destination.tolist()
    job_of = np.repeat(np.arange(len(specs)), np.diff(made.first_flow))
    for flow, (job, clears) in enumerate(zip(job_of, clearing.of_flow.tolist(), strict=True)):
        assert (clears >= 0) == (specs[job].transport.admission is not None)
        if clears >= 0:
            assert clearing.flows.source[clears] == made.flows.destination[flow]
            assert clearing.flows.destination[clears] == made.flows.source[flow]
            assert clearing.job[clears] == job


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("algorithm", sorted(ALLREDUCES - IN_SWITCH))
def test_merged_or_not_the_same_bytes_go_over_the_same_queue_pairs(
    strategy: Strategy, algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(
        ranks=8,
        size="24MiB",
        algorithm=algorithm,
        iterations=3,
        group=2,
        transport={"qps": 3, "strategy": strategy, "message": "175KB"},
    )
    fabric, network = FABRICS["hpn-small"], NETWORKS["hpn-small"]
    ordered = compiled(network, [spec])
    monkeypatch.setattr(collectives, "MOST_ORDERED", 0)
    monkeypatch.setattr(collectives, "MOST_IN_TURN", 0)
    merged = compiled(network, [spec])
    phases = 3 if algorithm is Algorithm.HIERARCHICAL else 1
    assert len(merged.step) == 3 * phases < len(ordered.step)
    assert flow_rows(network, merged) == flow_rows(network, ordered)
    assert sum(merged.program.size_bits) == sum(ordered.program.size_bits)
    rows = rows_of_lab(fabric, [spec.model_copy(update={"warmup_iterations": 0})])
    assert flow_rows(network, merged) == rows


def two_sends(*sends: tuple[int, int, int]) -> Sends:
    columns = np.array(sends, np.int64)
    return Sends(columns[:, 0].astype(np.int32), columns[:, 1].astype(np.int32), columns[:, 2])


def test_tasks_of_several_jobs_follow_each_other_and_wait_for_their_own() -> None:
    network = NETWORKS["zone-small"]
    work = Workload(
        2,
        (
            Step("forward", compute_s=0.5),
            Step("sum", (0,), sends=two_sends((0, 1, 5000), (1, 0, 100), (0, 1, 3000))),
            Step("end", (0, 1), 0.25),
        ),
    )
    places = place_ranks(network, 4, Placement.CONTIGUOUS)
    transport = TransportSpec(qps=2, mtu=4096, message="4000B")
    made = compile_jobs(
        network,
        [PlacedJob(work, places[:2], transport), PlacedJob(work, places[2:], transport)],
        overhead_bytes=82,
    )
    program = made.program
    assert made.job.tolist() == [0, 0, 0, 1, 1, 1]
    assert made.step.tolist() == [0, 1, 2, 0, 1, 2]
    waits = np.split(program.after, program.after_start[1:-1])
    assert [wait.tolist() for wait in waits] == [[], [0], [0, 1], [], [3], [3, 4]]
    assert program.delay_s.tolist() == [0.5, 0.0, 0.25] * 2
    timed = made.chains.timed(program, np.array([2.0, 2, 3, 4, 4, 4]))
    assert timed.latency_s.tolist() == [0, 3, 0, 0, 4, 0]
    # 0 to 1: messages of 4000, 1000 and 3000 bytes over two queue pairs in turn; back: one of 100.
    assert program.first_transfer.tolist() == [0, 0, 3, 3, 3, 6, 6]
    assert made.payload_bytes.tolist() == [7000, 1000, 100] * 2
    wire = [7000 + 2 * (82 + 20), 1000 + 82 + 20, 100 + 82 + 20]
    assert program.size_bits.tolist() == [8.0 * size for size in wire] * 2
    assert made.first_flow.tolist() == [0, 3, 6]
    assert program.flow.tolist() == list(range(6))
    assert len(set(made.flows.dest_qp.tolist())) == 6


def test_a_path_mtu_that_links_do_not_carry_is_refused_as_in_the_lab() -> None:
    spec = LabSpec.model_validate({"name": "t", "fabric": {"racks": 2}, "links": {"mtu": 2048}})
    with pytest.raises(InputError, match="path MTU of 4096 needs packets of 4160 bytes"):
        compiled(network_of(spec), [job(ranks=2)])


def test_places_for_other_ranks_are_a_mistake_of_the_caller() -> None:
    placed = PlacedJob(workload_of(job(), None, 1), np.arange(3, dtype=np.int32), TransportSpec())
    with pytest.raises(ValueError, match="3 places for 4 ranks"):
        compile_jobs(NETWORKS["zone-small"], [placed])


def test_queue_pairs_run_out_of_numbers_at_24_bits() -> None:
    places = np.arange(2, dtype=np.int32)
    pairs, transport = np.array([1, 2]), TransportSpec(qps=4)
    network = NETWORKS["zone-small"]
    last = queue_pairs(network, places, pairs, transport, 1, QPN_LIMIT - 8)
    assert int(last.flows.dest_qp.max()) == QPN_LIMIT - 1
    with pytest.raises(InputError, match="24 bits"):
        queue_pairs(network, places, pairs, transport, 1, QPN_LIMIT - 7)


def test_a_random_ring_over_32256_gpus_compiles_to_a_transfer_per_queue_pair() -> None:
    transport = {"qps": 16, "strategy": Strategy.SPLIT}
    spec = job(ranks=32256, size="32256MB", placement="random", iterations=1, transport=transport)
    made = compiled(BIG, [spec])
    assert made.program.transfers == len(made.flows) == 516_096
    sent = np.bincount(made.flows.source, made.payload_bytes)
    assert set(sent.tolist()) == {2.0 * 32255 * 10**6}
    ends_of_nic = np.bincount(made.flows.destination, minlength=BIG.nics)
    assert set(ends_of_nic.tolist()) == {16}
