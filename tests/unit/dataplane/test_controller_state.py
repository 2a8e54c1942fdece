"""The controller's inputs and decisions that need no kernel: demands, resilient groups, the log."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.family import Family
from rocelab.dataplane.controller import rounds as rounds_module
from rocelab.dataplane.controller.rounds import Round, RoundLog, Utilisation, read_rounds
from rocelab.dataplane.steering.resilient import (
    GROUPS_FROM,
    MEMBERS_FROM,
    RTPROT_BGP,
    ResilientState,
    messages,
    removal,
    wanted_state,
)
from rocelab.jobs.flow import permutation
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.linux.fib import (
    NHA_GROUP,
    NHA_ID,
    NHMSG,
    RTM_DELNEXTHOP,
    RTM_DELROUTE,
    RTM_NEWNEXTHOP,
    RTM_NEWROUTE,
    GroupMember,
    KernelHop,
    KernelRoute,
    NexthopGroup,
)
from rocelab.linux.netlink import HEADER, attributes
from rocelab.planning.build import build_fabric
from rocelab.record import LabFiles
from rocelab.routes.demand import read_demands
from rocelab.traffic.demand import job_demands, probe_demands, published

FABRIC = build_fabric(load_spec(find_lab("zone-1-1")))
HPN = build_fabric(load_spec(find_lab("hpn-small")))
BUCKETS = 128


@pytest.fixture
def lab_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabFiles:
    monkeypatch.setattr("rocelab.record.RUN_ROOT", tmp_path)
    files = LabFiles("t-demand")
    files.root.mkdir()
    return files


def test_what_a_session_publishes_is_what_the_controller_reads(lab_files: LabFiles) -> None:
    flows = permutation(FABRIC, 16, rate_pps=100, payload_bytes=64, seed=1)
    demands = probe_demands(FABRIC, flows)
    folder = lab_files.root / "demand"
    with published(lab_files, demands):
        read, problems = read_demands(FABRIC, folder)
        assert not problems
        assert {demand.key: demand.rate_bps for demand in read} == {
            (demand.source_ip, demand.destination_ip, demand.source_port): demand.bits_per_second
            for demand in demands
        }
        leaves = {demand.ingresses for demand in read}
        assert leaves == {("rtsw1",), ("rtsw2",), ("rtsw3",), ("rtsw4",)}
    assert not list(folder.iterdir())


def test_two_sessions_are_read_together_and_nothing_is_written_where_no_lab_is_up(
    lab_files: LabFiles, tmp_path: Path
) -> None:
    flows = probe_demands(FABRIC, permutation(FABRIC, 2, 100, 64, seed=1))
    with published(lab_files, flows[:1]), published(lab_files, flows[1:]):
        assert len(read_demands(FABRIC, lab_files.root / "demand")[0]) == 2
    with published(LabFiles("t-none"), flows):
        assert not (tmp_path / "t-none").exists()


def test_a_port_of_a_nic_is_shared_evenly_by_the_queue_pairs_that_send_on_it() -> None:
    job = JobSpec.model_validate(
        {"pattern": "allreduce", "ranks": 4, "size": "1MB", "transport": {"qps": 4}}
    )
    plan = plan_job(HPN, job)
    demands = job_demands([plan])
    by_port: dict[tuple[str, int, int], float] = {}
    for demand in demands:
        place = (demand.server, demand.nic, demand.port)
        by_port[place] = by_port.get(place, 0) + demand.bits_per_second
    assert list(by_port.values()) == pytest.approx([200e9] * len(by_port))
    assert {(demand.server, demand.nic) for demand in demands} == {
        (place.server, place.nic) for place in plan.places
    }


def test_queue_pairs_of_one_source_port_are_one_flow(tmp_path: Path) -> None:
    flow = flow_fields()
    (tmp_path / "a.json").write_text(json.dumps([flow, {**flow, "destination_qp": 99}]))
    (demand,), problems = read_demands(FABRIC, tmp_path)
    assert demand.rate_bps == 2 * flow["bits_per_second"]
    assert not problems


def flow_fields() -> dict[str, object]:
    one, other = FABRIC.nics("srv1-1")[0], FABRIC.nics("srv2-1")[0]
    return {
        "source_ip": one.ip,
        "destination_ip": other.ip,
        "source_port": 50_000,
        "destination_qp": 7,
        "bits_per_second": 1e9,
        "server": "srv1-1",
        "nic": 1,
        "port": 0,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"server": "nobody"},
        {"nic": 0},
        {"nic": 3},
        {"port": 1},
        {"port": -1},
        {"source_ip": "198.18.0.99"},
        {"destination_ip": "10.0.0.1"},
        {"source_port": 0},
        {"bits_per_second": float("nan")},
        {"bits_per_second": -1},
        {"bits_per_second": "fast"},
    ],
)
def test_a_wrong_field_costs_its_own_flow_only(tmp_path: Path, wrong: dict[str, object]) -> None:
    flow = flow_fields()
    (tmp_path / "a.json").write_text(json.dumps([{**flow, **wrong}, flow]))
    demands, problems = read_demands(FABRIC, tmp_path)
    assert len(demands) == 1
    (problem,) = problems
    assert problem.startswith("a.json: flow 0: ")


@given(text=st.binary(max_size=200))
def test_no_file_ends_the_reading(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    folder = tmp_path_factory.mktemp("demand")
    (folder / "a.json").write_bytes(text)
    (folder / "b.json").write_text(json.dumps([flow_fields()]))
    demands, _ = read_demands(FABRIC, folder)
    assert len(demands) == 1


def test_what_a_killed_run_left_behind_is_not_read(tmp_path: Path) -> None:
    dead = next(pid for pid in range(4_000_000, 5_000_000) if not Path(f"/proc/{pid}").exists())
    for pid in (dead, os.getpid()):
        (tmp_path / f"{pid}-1.json").write_text(json.dumps([flow_fields()]))
    (demand,), _ = read_demands(FABRIC, tmp_path)
    assert demand.rate_bps == 1e9


# Resilient groups, carried out by a kernel of a few lines.


def row(prefix: int, *interfaces: int, protocol: int = RTPROT_BGP, group: int = 0) -> KernelRoute:
    hops = tuple(KernelHop(index, bytes([10, 0, 0, index]), 1) for index in interfaces)
    return KernelRoute(Family.IPV4, prefix, 24, 20, protocol, 1, group, hops)


def carried_out(before: ResilientState, sent: list[bytes]) -> ResilientState:
    """A kernel's state after these messages; asserts that they use only existing objects."""
    members, groups, routes = dict(before.members), dict(before.groups), dict(before.group_of)
    for message in sent:
        _, kind, _, _, _ = HEADER.unpack_from(message)
        start = HEADER.size + 12 if kind in (RTM_NEWROUTE, RTM_DELROUTE) else HEADER.size
        options = attributes(message, start + (0 if start > HEADER.size else NHMSG.size))
        if kind in (RTM_NEWROUTE, RTM_DELROUTE):
            family, length = message[HEADER.size], message[HEADER.size + 1]
            assert family == socket.AF_INET
            prefix = (Family.IPV4, int.from_bytes(options[1], "big"), length)
            if kind == RTM_DELROUTE:
                del routes[prefix]
                continue
            routes[prefix] = struct.unpack("=I", options[30])[0]
            assert routes[prefix] in groups
            continue
        number = struct.unpack("=I", options[NHA_ID])[0]
        if kind == RTM_DELNEXTHOP:
            assert number not in routes.values()
            assert not any(number == m for g in groups.values() for m, _ in g.members)
            (groups if number >= GROUPS_FROM else members).pop(number)
        elif NHA_GROUP in options:
            entries = tuple(
                (m, weight + 1)
                for m, weight, _, _ in struct.iter_unpack("=IBBH", options[NHA_GROUP])
            )
            assert all(m in members for m, _ in entries)
            groups[number] = NexthopGroup(entries, BUCKETS)
        else:
            assert kind == RTM_NEWNEXTHOP
            interface = struct.unpack("=I", options[5])[0]
            members[number] = GroupMember(interface, options[6])
    return ResilientState(members, groups, routes)


EMPTY = ResilientState({}, {}, {})


def place(prefix: int) -> tuple[Family, int, int]:
    """The key of the prefix that `row` makes."""
    return Family.IPV4, prefix, 24


def after(before: ResilientState, *rows: KernelRoute) -> ResilientState:
    wanted = wanted_state(rows, before, BUCKETS)
    done = carried_out(before, messages(before, wanted))
    assert done == wanted
    return done


def test_prefixes_of_equal_next_hops_share_a_group_and_single_paths_have_none() -> None:
    state = after(
        EMPTY, row(1, 5, 6), row(2, 5, 6), row(3, 6, 7), row(4, 5), row(9, 5, 6, protocol=2)
    )
    assert len(state.groups) == 2
    assert state.group_of[place(1)] == state.group_of[place(2)] != state.group_of[place(3)]
    assert place(4) not in state.group_of
    assert place(9) not in state.group_of


def test_a_group_whose_next_hops_change_for_all_its_prefixes_keeps_its_id() -> None:
    state = after(EMPTY, row(1, 5, 6, 7), row(2, 5, 6, 7))
    smaller = after(state, row(1, 5, 7), row(2, 5, 7))
    assert smaller.group_of == state.group_of
    assert after(smaller, row(1, 5, 6, 7), row(2, 5, 6, 7)) == state


def test_while_routes_change_a_group_grows_when_all_its_prefixes_have_the_next_hop() -> None:
    state = after(EMPTY, row(1, 5, 7), row(2, 5, 7), row(3, 5, 7))
    all_of_them = [row(prefix, 5, 6, 7) for prefix in (1, 2, 3)]
    one = [all_of_them[0], row(2, 5, 7), row(3, 5, 7)]
    waiting = wanted_state(one, state, BUCKETS, settled=False)
    assert (waiting.groups, waiting.group_of) == (state.groups, state.group_of)
    grown = wanted_state(all_of_them, state, BUCKETS, settled=False)
    assert grown.group_of == state.group_of
    (group,) = grown.groups.values()
    assert [number - MEMBERS_FROM for number, _ in group.members] == [5, 6, 7]
    # Where BGP stays so, the prefix gets the next hops that it has.
    apart = after(state, *one)
    assert apart.group_of[place(1)] != apart.group_of[place(2)] == apart.group_of[place(3)]
    # A next hop that is lost is not waited for.
    lost = wanted_state([row(1, 5, 6), *one[1:]], state, BUCKETS, settled=False)
    assert lost.group_of[place(1)] != lost.group_of[place(2)]


def test_a_prefix_that_loses_a_next_hop_alone_gets_a_group_that_began_like_the_old_one() -> None:
    state = after(EMPTY, row(1, 5, 6, 7), row(2, 5, 6, 7), row(3, 5, 6, 7))
    rows = (row(1, 5, 7), row(2, 5, 6, 7), row(3, 5, 6, 7))
    wanted = wanted_state(rows, state, BUCKETS)
    sent = messages(state, wanted)
    made = [
        attributes(message, HEADER.size + NHMSG.size)[NHA_GROUP]
        for message in sent
        if HEADER.unpack_from(message)[1] == RTM_NEWNEXTHOP
    ]
    assert [len(entries) // 8 for entries in made] == [3, 2]
    assert carried_out(state, sent) == wanted
    assert wanted.group_of[place(2)] == state.group_of[place(2)]


def test_what_the_kernel_took_out_by_itself_is_not_written_again() -> None:
    state = after(EMPTY, row(1, 5, 6, 7))
    (number,) = state.groups
    gone = MEMBERS_FROM + 6
    kernel = ResilientState(
        {number: member for number, member in state.members.items() if number != gone},
        {
            number: NexthopGroup(
                tuple(m for m in state.groups[number].members if m[0] != gone), BUCKETS
            )
        },
        state.group_of,
    )
    assert messages(kernel, wanted_state([row(1, 5, 7)], kernel, BUCKETS)) == []


def test_a_change_of_buckets_makes_new_groups_and_all_can_be_removed() -> None:
    state = after(EMPTY, row(1, 5, 6))
    other = wanted_state([row(1, 5, 6)], state, 64)
    assert set(other.groups) != set(state.groups)
    assert carried_out(state, removal(state)) == EMPTY


tables = st.lists(
    st.dictionaries(
        st.integers(1, 6), st.lists(st.integers(5, 9), min_size=1, max_size=5, unique=True)
    ),
    min_size=1,
    max_size=6,
)


@given(tables)
def test_any_sequence_of_tables_is_followed_and_the_last_one_holds(
    steps: list[dict[int, list[int]]],
) -> None:
    state = EMPTY
    for step in steps:
        state = after(state, *(row(prefix, *hops) for prefix, hops in step.items()))
    for prefix, hops in steps[-1].items():
        if len(hops) < 2:
            assert place(prefix) not in state.group_of
        else:
            members = state.groups[state.group_of[place(prefix)]].members
            assert [state.members[number].interface for number, _ in members] == hops
    assert after(state, *(row(prefix, *hops) for prefix, hops in steps[-1].items())) == state


def a_round(number: int) -> Round:
    return Round(
        started_unix_s=float(number),
        finished_unix_s=number + 0.5,
        reasons=("link", "route"),
        collect_ms=1.0,
        engine_ms=2.0,
        program_ms=3.0,
        changed=number,
        removed=0,
        total=9,
        max_utilisation=0.5,
        tiers={"rtsw-ctsw up": Utilisation(16, 0.5, 0.25)},
        problems=("a.json: not JSON",),
    )


def test_the_log_gives_back_what_was_written_and_leaves_out_a_line_half_written(
    tmp_path: Path,
) -> None:
    log = RoundLog(tmp_path / "rounds")
    for number in range(4):
        log.write(a_round(number))
    with (tmp_path / "rounds").open("a") as file:
        file.write('{"started')
    assert read_rounds(tmp_path / "rounds") == [a_round(number) for number in range(4)]
    assert read_rounds(tmp_path / "rounds", 2) == [a_round(3)]
    assert read_rounds(tmp_path / "none") == []


def test_the_log_keeps_its_newer_half_when_it_grows_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "LOG_BYTES", 3000)
    log = RoundLog(tmp_path / "rounds")
    for number in range(100):
        log.write(a_round(number))
    kept = read_rounds(tmp_path / "rounds")
    assert (tmp_path / "rounds").stat().st_size <= 3500
    assert kept[-1] == a_round(99)
    assert [record.changed for record in kept] == list(range(kept[0].changed, 100))
