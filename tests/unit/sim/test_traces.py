"""Chakra execution traces: read from any file, replayed as a workload, written and read back."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.arrays import NONE
from rocelab.base.errors import InputError, MachineError
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.workload import Sends, Step, Workload
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.results.engines import Engine
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation
from rocelab.sim.traces.chakra import (
    ChakraNode,
    CommType,
    Metadata,
    NodeKind,
    Trace,
    read_trace,
    read_traces,
)
from rocelab.sim.traces.export import write_trace
from rocelab.sim.traces.messages import message_classes
from rocelab.sim.traces.order import COMPUTE, Communication, condense, topological
from rocelab.sim.traces.replay import read_workload, trace_workload
from tests.helpers.pytorch_trace import COLLECTIVES, pytorch_trace
from tests.helpers.trace_files import write_trace_file

pytest.importorskip("google.protobuf", reason="the extra `chakra` is not installed")


def trace(*nodes: ChakraNode, source: str = "t.0.et") -> Trace:
    return Trace(source, Metadata("0.0.4"), nodes)


def compute(number: int, micros: int, *after: int, **attrs: int | bool) -> ChakraNode:
    return ChakraNode(number, f"compute {number}", NodeKind.COMPUTE, (), after, micros, attrs)


def collective(
    number: int, *after: int, kind: CommType = CommType.ALL_REDUCE, size: int = 800, **attrs: object
) -> ChakraNode:
    said = {"comm_type": int(kind), "comm_size": size, **attrs}
    return ChakraNode(number, f"{kind.name} {number}", NodeKind.COLLECTIVE, (), after, 77, said)  # type: ignore[arg-type]


def send(number: int, to: int, *after: int, size: int = 100, tag: int = 0) -> ChakraNode:
    said = {"comm_size": size, "comm_dst": to, "comm_tag": tag}
    return ChakraNode(number, f"send {number}", NodeKind.SEND, (), after, 5, said)


def receive(number: int, source: int, *after: int, size: int = 100, tag: int = 0) -> ChakraNode:
    said = {"comm_size": size, "comm_src": source, "comm_tag": tag}
    return ChakraNode(number, f"receive {number}", NodeKind.RECEIVE, (), after, 5, said)


def written(folder: Path, made: Trace) -> Path:
    file = folder / "t.0.et"
    write_trace_file(file, made)
    return file


def test_nodes_that_may_begin_are_taken_by_id_whatever_their_order_in_the_file(
    tmp_path: Path,
) -> None:
    nodes = (compute(1, 10), collective(2, 1), collective(3, 1))
    read = read_trace(written(tmp_path, trace(*reversed(nodes))))
    assert [node.id for node in read.nodes] == [1, 2, 3]


def pairs(sends: Sends | None) -> dict[tuple[int, int], int]:
    assert sends is not None
    rows = zip(sends.source, sends.destination, sends.size_bytes, strict=True)
    return {(int(a), int(b)): int(size) for a, b, size in rows}


def ends(workload: Workload, lasting: dict[str, float]) -> dict[str, tuple[float, float]]:
    """The start and end of each step's sends, if the sends of a name take `lasting` seconds."""
    over: list[float] = []
    times = {}
    for step in workload.steps:
        start = max((over[earlier] for earlier in step.after), default=0.0) + step.compute_s
        over.append(start + lasting.get(step.name, 0.0))
        times[step.name] = (start, over[-1])
    return times


# --- files -------------------------------------------------------------------------------------


VALUES = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
# Number, name and type of each field of Chakra's schema 0.0.4 (mlcommons/chakra, et_def.proto).
FIELDS = {
    "Metadata": {1: ("version", "string"), 2: ("attr", "repeated message")},
    "Node": {
        1: ("id", "uint64"),
        2: ("name", "string"),
        3: ("type", "int32"),  # an enum there: the same on the wire
        4: ("ctrl_deps", "repeated uint64"),
        5: ("data_deps", "repeated uint64"),
        6: ("start_time_micros", "uint64"),
        7: ("duration_micros", "uint64"),
        8: ("inputs", "message"),
        9: ("outputs", "message"),
        10: ("attr", "repeated message"),
    },
    "Attribute": {1: ("name", "string"), 2: ("doc_string", "string")}
    | {3 + 2 * place: (f"{value}_val", value) for place, value in enumerate(VALUES)}
    | {4 + 2 * place: (f"{value}_list", "message") for place, value in enumerate(VALUES)},
    "Tensors": {1: ("values", "string"), 2: ("shapes", "string"), 3: ("types", "string")},
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_has_chakras_number_and_type(name: str) -> None:
    classes = {"Metadata": message_classes().metadata, "Node": message_classes().node}
    classes["Attribute"] = classes["Node"]().attr.add().__class__
    classes["Tensors"] = classes["Node"]().inputs.__class__
    fields = classes[name].DESCRIPTOR.fields
    types = {getattr(fields[0], f"TYPE_{kind.upper()}"): kind for kind in (*VALUES, "message")}
    types_by_name = {
        field.number: (field.name, "repeated " * field.is_repeated + types[field.type])
        for field in fields
    }
    assert types_by_name == FIELDS[name]


def test_a_trace_reads_back_as_it_was_written(tmp_path: Path) -> None:
    made = Trace(
        str(tmp_path / "t.0.et"),
        Metadata("0.0.4", {"schema": "1.1.0", "pid": 7}),
        (
            ChakraNode(3, "init", NodeKind.METADATA, inputs="['[{}]']"),
            collective(5, 3, 2**63, pg_name="2", involved_dim=(True, False)),
            replace(compute(6, 1), ctrl_deps=(5, 99), attrs={"rocelab_x": 0.1, "runtime": -1}),
            compute(2**63, 2**40, 3, is_cpu_op=True, tid=4),
        ),
    )
    assert read_trace(written(tmp_path, made)) == made


def test_attributes_have_the_types_that_chakras_feeder_reads(tmp_path: Path) -> None:
    one = Sends(np.array([0], np.int32), np.array([1], np.int32), np.array([9]))
    file = write_trace(Workload(2, (Step("s", (), 1e-6, one),)), tmp_path)[0]
    text = file.read_bytes()[1 + file.read_bytes()[0] :]
    compute_node = message_classes().node.FromString(text[1 : 1 + text[0]])
    send_text = text[1 + text[0] :]
    sent = message_classes().node.FromString(send_text[2:])  # a length of two bytes
    fields = {attr.name: attr.WhichOneof("value") for attr in sent.attr}
    assert compute_node.duration_micros == 1
    assert fields["comm_size"] == "int64_val"
    assert fields["is_cpu_op"] == "bool_val"
    assert {fields[f"comm_{name}"] for name in ("src", "dst", "tag")} == {"int32_val"}


@given(st.data())
def test_a_file_that_is_cut_off_is_an_error_or_ends_with_a_whole_node(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    made = trace(compute(1, 5), collective(2, 1), compute(3, 5, 2))
    whole = written(folder, made).read_bytes()
    left = data.draw(st.integers(0, len(whole) - 1))
    file = folder / "cut.et"
    file.write_bytes(whole[:left])
    try:
        nodes = read_trace(file).nodes
    except InputError as error:
        assert str(file) in error.message
        assert error.hint
    else:
        assert nodes == made.nodes[: len(nodes)]
        assert len(nodes) < 3


@given(st.binary(max_size=80))
def test_garbage_is_never_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp()
    start = written(folder, trace(compute(1, 5), collective(2, 1))).read_bytes()
    for text in (garbage, start + garbage):
        (folder / "garbage.et").write_bytes(text)
        try:
            trace_workload([read_trace(folder / "garbage.et")], 4)
        except InputError as error:
            assert error.hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (b"", "is empty", "metadata"),
        (b"\x1f\x8b\x08\x00", "is an archive, not a trace", "tar xf"),
        (b'{\n  "schema": "1.1.1"}', "is JSON, not a trace", "chakra_converter"),
        (b"\x02\x08\x01", "does not begin with the metadata", "chakra_converter"),
        (b"\x00\xff\xff\xff\xff\x7f", "message 1 at byte 1 would be longer", "damaged"),
        (b"\x00\xff\xff\xff\xff\xff\xff", "message 1 at byte 1 would be longer", "damaged"),
        (b"\x00\x02\x12\x05", "message 1 at byte 1 is not what Chakra's schema", "damaged"),
        (b"\x00\x02\x18\x09", "node 1 at byte 1 is of an unknown type, 9", "damaged"),
        (b"\x00\x02\x08\x01\x02\x08\x01", "two nodes have the id 1", "damaged"),
        (b"\x00\x05\x08", "ends in message 1, 4 bytes short", "damaged"),
    ],
)
def test_what_is_no_trace_is_said_with_what_to_do(
    tmp_path: Path, text: bytes, message: str, hint: str
) -> None:
    file = tmp_path / "x.et"
    file.write_bytes(text)
    with pytest.raises(InputError) as error:
        read_trace(file)
    assert message in error.value.message
    assert hint in (error.value.hint or "")


def test_fields_of_a_later_schema_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "x.et"
    later = b"\xa2\x06\x02hi"  # field 100, two bytes
    file.write_bytes(b"\x00" + bytes([4 + len(later)]) + b"\x08\x07\x18\x04" + later)
    assert [(node.id, node.kind) for node in read_trace(file).nodes] == [(7, NodeKind.COMPUTE)]


def test_more_nodes_than_fit_in_memory_are_refused_while_reading(tmp_path: Path) -> None:
    file = written(tmp_path, trace(*(compute(number, 1) for number in range(5))))
    assert len(read_trace(file, max_nodes=5).nodes) == 5
    with pytest.raises(InputError, match="too large"):
        read_trace(file, max_nodes=4)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "has no file NAME.RANK.et"),
        (("a.0.et", "a.2.et"), "no file of rank 1"),
        (("a.0.et", "b.1.et"), "more than one trace: a, b"),
        (("a.et",), "does not say which rank"),
    ],
)
def test_a_folder_needs_one_file_per_rank(
    tmp_path: Path, files: tuple[str, ...], message: str
) -> None:
    for name in files:
        write_trace_file(tmp_path / name, trace())
    with pytest.raises(InputError, match=re.escape(message)):
        read_traces(tmp_path)


def test_ten_ranks_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for rank in range(11):
        write_trace_file(tmp_path / f"a.{rank}.et", trace(compute(rank, 1)))
    assert [trace.nodes[0].id for trace in read_traces(tmp_path)] == list(range(11))


def test_without_protobuf_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_classes.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(MachineError, match="protobuf") as error:
        read_trace(tmp_path / "x.et")
    assert "rocelab[chakra]" in (error.value.hint or "")


# --- replay ------------------------------------------------------------------------------------


def test_a_trace_of_pytorchs_shape_becomes_its_seven_collectives(tmp_path: Path) -> None:
    made = pytorch_trace()
    read = read_trace(written(tmp_path, made))
    assert read.nodes == made.nodes
    assert sum(node.kind is NodeKind.COLLECTIVE for node in read.nodes) == 21
    on_gpu = [node for node in read.nodes if not node.attrs["is_cpu_op"]]
    kernels_us = sum(node.duration_us for node in on_gpu if node.kind is NodeKind.COMPUTE)

    workload = trace_workload([read], 8)

    sent = [step for step in workload.steps if step.sends]
    assert [step.name.split("_")[1] for step in sent] == ["Broadcast"] * 2 + ["AllReduce"] * 5
    moved = [sum(pairs(step.sends).values()) for step in sent]
    sizes = [size for _, size in COLLECTIVES]
    assert moved == [7 * size for size in sizes[:2]] + [14 * size for size in sizes[2:]]
    assert len(workload.steps) < 20
    alone_s = max(over for _, over in ends(workload, {}).values())
    assert kernels_us <= alone_s * 1e6 < kernels_us * 1.05


def test_compute_between_communications_is_one_number() -> None:
    chain = [
        compute(1, 10),
        compute(2, 20, 1),
        collective(3, 2),
        compute(4, 5, 3),
        compute(5, 6, 3),
    ]
    workload = trace_workload([trace(*chain, collective(6, 4, 5))], 2)
    first, second = workload.steps
    assert (first.after, first.compute_s) == ((), pytest.approx(30e-6))
    assert (second.after, second.compute_s) == ((0,), pytest.approx(6e-6))


def test_runtime_counts_instead_of_the_duration_where_a_node_has_it() -> None:
    workload = trace_workload([trace(compute(1, 10, runtime=25), collective(2, 1))], 2)
    assert workload.steps[0].compute_s == pytest.approx(25e-6)


@given(st.data())
def test_steps_start_every_communication_when_the_graph_does(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 14))
    before = [
        data.draw(st.lists(st.integers(0, vertex - 1), unique=True, max_size=4)) if vertex else []
        for vertex in range(size)
    ]
    talks = {vertex for vertex in range(size) if data.draw(st.booleans())}
    lasts = [data.draw(st.integers(0, 9)) for _ in range(size)]
    over: list[float] = []
    starts = {}
    for vertex in range(size):
        start = max((over[earlier] for earlier in before[vertex]), default=0)
        starts[f"v{vertex}"] = start
        over.append(start + lasts[vertex])

    made = {vertex: Communication(f"v{vertex}", lambda: None) for vertex in talks}
    steps = condense(lasts, before, topological(before), made)

    lasting = {f"v{vertex}": float(lasts[vertex]) for vertex in talks}
    times = ends(Workload(2, steps), lasting)
    assert {name: times[name][0] for name in lasting} == {name: starts[name] for name in lasting}
    end = max((time for _, time in times.values()), default=0.0)
    finals = [0.0]
    for step, (_, time) in zip(steps, _timed(steps, lasting), strict=True):
        finals.append(time if step else 0.0)
    assert max(end, *finals) == max(over)


def _timed(steps: tuple[Step, ...], lasting: dict[str, float]) -> list[tuple[float, float]]:
    times: list[tuple[float, float]] = []
    for step in steps:
        start = max((times[number][1] for number in step.after), default=0.0) + step.compute_s
        times.append((start, start + lasting.get(step.name, 0.0)))
    return times


def test_a_chain_of_communications_needs_a_step_each_and_waits_for_the_last_only() -> None:
    nodes = [collective(1)]
    for number in range(2, 60):
        nodes.append(compute(2 * number, 3, *(node.id for node in nodes)))
        nodes.append(collective(2 * number + 1, 2 * number))
    steps = trace_workload([trace(*nodes)], 2).steps
    assert len(steps) == 59
    assert [step.after for step in steps[1:]] == [(number,) for number in range(58)]


def test_kernels_of_a_stream_and_operators_of_a_thread_run_one_after_the_other() -> None:
    kernels = [compute(number, 10, stream=7) for number in (1, 2, 3)]
    operators = [compute(number, 12, is_cpu_op=True, tid=7) for number in (4, 5)]
    workload = trace_workload([trace(*kernels, *operators, collective(9, 3, 5))], 2)
    assert workload.steps[0].compute_s == pytest.approx(30e-6)


def test_control_dependencies_count_unless_they_go_in_a_circle_with_data_dependencies() -> None:
    late = replace(collective(2), ctrl_deps=(1,))
    assert trace_workload([trace(compute(1, 8), late)], 2).steps[0].compute_s == pytest.approx(8e-6)
    caller = replace(compute(1, 8, 3), ctrl_deps=(2,))
    called = replace(compute(3, 4), ctrl_deps=(1,))
    circle = trace_workload([trace(caller, called, collective(4, 1))], 2)
    assert circle.steps[0].compute_s == pytest.approx(12e-6)


@pytest.mark.parametrize(
    ("kind", "moved"),
    [
        (CommType.ALL_REDUCE, 2 * 3 * 800),
        (CommType.REDUCE_SCATTER, 3 * 800),
        (CommType.REDUCE_SCATTER_BLOCK, 3 * 800),
        (CommType.ALL_GATHER, 4 * 3 * 800),
        (CommType.ALL_TO_ALL, 4 * 3 * 200),
        (CommType.BROADCAST, 3 * 800),
        (CommType.REDUCE, 3 * 800),
        (CommType.GATHER, 3 * 800),
        (CommType.SCATTER, 3 * 200),
    ],
)
def test_comm_size_is_one_ranks_input(kind: CommType, moved: int) -> None:
    (step,) = trace_workload([trace(collective(1, kind=kind))], 4).steps
    assert sum(pairs(step.sends).values()) == moved


def test_the_root_sends_in_a_scatter_and_receives_in_a_reduce() -> None:
    for kind in (CommType.SCATTER, CommType.REDUCE):
        (step,) = trace_workload([trace(collective(1, kind=kind, root=2))], 4).steps
        out = {source for source, _ in pairs(step.sends)}
        assert out == ({2} if kind is CommType.SCATTER else {0, 1, 3})


def test_a_barrier_sends_nothing_and_makes_all_wait_for_the_last() -> None:
    ranks = [
        trace(compute(1, 10 * (rank + 1)), collective(2, 1, kind=CommType.BARRIER))
        for rank in range(3)
    ]
    workload = trace_workload(ranks)
    assert all(step.sends is None for step in workload.steps)
    assert ends(workload, {})["BARRIER 2"][0] == pytest.approx(30e-6)


def test_a_receive_ends_when_its_send_does_and_the_sender_waits_for_no_one() -> None:
    sender = trace(compute(1, 10), send(2, 1, 1), collective(3, 2))
    receiver = trace(receive(1, 0), compute(2, 4, 1), collective(3, 2))
    times = ends(trace_workload([sender, receiver]), {"send 2": 0.5})
    assert times["send 2"] == (pytest.approx(10e-6), pytest.approx(0.50001))
    assert times["ALL_REDUCE 3"][0] == pytest.approx(0.500014)


def test_what_of_a_trace_is_passed_over_is_said() -> None:
    odd = trace(collective(1, 99), ChakraNode(2, "?", NodeKind.INVALID, data_deps=(98,)))
    assert trace_workload([odd], 2).warnings == (
        "t.0.et: dependencies on nodes outside the trace are ignored at 2 nodes (1 first)",
        "t.0.et: the type is INVALID, which counts as no time, at 1 node (2 first)",
    )
    assert trace_workload([trace(collective(1))], 2).warnings == ()


def test_a_process_group_is_its_ranks_only_and_its_collectives_run_in_order() -> None:
    groups = {"1": (0, 2), "2": (1, 3)}
    ranks = [
        trace(collective(1, pg_name=str(rank % 2 + 1)), collective(2, pg_name=str(rank % 2 + 1)))
        for rank in range(4)
    ]
    workload = trace_workload(ranks, groups=groups)
    members = [sorted(pairs(step.sends)) for step in workload.steps]
    for ring in ([(0, 2), (2, 0)], [(1, 3), (3, 1)]):
        first, second = (number for number, member in enumerate(members) if member == ring)
        assert workload.steps[first].after == ()
        assert workload.steps[second].after == (first,)


def test_process_groups_are_read_from_pytorchs_metadata_node() -> None:
    table = '[\'[{"pg_name": "3", "ranks": [2, 0], "backend": "nccl"}]\']'
    init = ChakraNode(1, "## process_group:init ##", NodeKind.METADATA, inputs=table)
    alone = [
        trace(init, collective(2, pg_name="3")),
        trace(init),
        trace(init, collective(2, pg_name="3")),
    ]
    (step,) = trace_workload(alone).steps
    assert sorted(pairs(step.sends)) == [(0, 2), (2, 0)]


def test_one_trace_for_all_ranks_repeats_its_group_over_them() -> None:
    one = trace(collective(1, pg_name="1", size=80))
    (step,) = trace_workload([one], 8, groups={"1": (0, 2)}).steps
    assert sorted(pairs(step.sends)) == sorted(
        (a + shift, b + shift) for shift in (0, 1, 4, 5) for a, b in ((0, 2), (2, 0))
    )
    with pytest.raises(InputError, match="do not repeat to 6"):
        trace_workload([one], 6, groups={"1": (0, 2)})


def test_involved_dimensions_are_groups_of_ranks_that_differ_only_there() -> None:
    near = trace(collective(1, involved_dim=(True, False), size=80))
    far = trace(collective(1, involved_dim=(False, True), size=80))
    (step,) = trace_workload([near], 6, dimensions=(2, 3)).steps
    assert set(pairs(step.sends)) == {(a, a ^ 1) for a in range(6)}
    (step,) = trace_workload([far], 6, dimensions=(2, 3)).steps
    assert set(pairs(step.sends)) == {(a, (a + 2) % 6) for a in range(6)}
    with pytest.raises(InputError, match="dimensions, whose sizes no trace has"):
        trace_workload([near], 6)


@pytest.mark.parametrize(
    ("traces", "ranks", "message"),
    [
        ([], None, "no trace"),
        ([trace(collective(1))], None, "alone is one rank"),
        ([trace(), trace()], 3, "2 traces for 3 ranks"),
        ([trace(send(1, 1))], 2, "is ambiguous in a trace of all ranks"),
        (
            [trace(send(1, 1)), trace()],
            None,
            "sends 1 times to rank 1 with tag 0, which receives 0",
        ),
        ([trace(send(1, 0)), trace()], None, "between rank 0 and itself"),
        ([trace(send(1, 5)), trace()], None, "expected comm_dst from 0 to 1, found 5"),
        ([trace(collective(1, size=-1))], 2, "expected comm_size from 0"),
        ([trace(collective(1)), trace()], None, "hangs: rank 1 of its group never reach it"),
        (
            [trace(collective(1), collective(2)), trace(collective(1))],
            None,
            "node 2 (ALL_REDUCE 2) hangs: rank 1 of its group",
        ),
        (
            [trace(collective(1)), trace(collective(1, size=900))],
            None,
            "other ranks of its group do",
        ),
        ([trace(collective(1, pg_name="9"))], 2, "process group '9' is not known"),
        ([trace(ChakraNode(1, "ncclKernel", NodeKind.COLLECTIVE))], 2, "has no comm_type"),
        ([trace(compute(1, 1, 2), compute(2, 1, 1))], 2, "depends on itself"),
        (
            [trace(receive(1, 1), send(2, 1, 1)), trace(receive(1, 0), send(2, 0, 1))],
            None,
            "ranks wait for one another in a circle",
        ),
    ],
)
def test_traces_that_do_not_fit_together_say_where(
    traces: list[Trace], ranks: int | None, message: str
) -> None:
    with pytest.raises(InputError) as error:
        trace_workload(traces, ranks)
    assert message in error.value.message
    assert error.value.hint


# --- export ------------------------------------------------------------------------------------


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    ranks = draw(st.integers(2, 5))
    steps = []
    for number in range(draw(st.integers(0, 6))):
        after = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        pair = st.tuples(st.integers(0, ranks - 1), st.integers(1, ranks - 1))
        rows = draw(
            st.none() | st.lists(st.tuples(pair, st.integers(1, 2**45)), min_size=1, max_size=6)
        )
        sends = None
        if rows is not None:
            parts = draw(st.lists(st.integers(1, 99), min_size=len(rows), max_size=len(rows)))
            sends = Sends(
                np.array([source for (source, _), _ in rows], np.int32),
                np.array([(source + step) % ranks for (source, step), _ in rows], np.int32),
                np.array([size for _, size in rows], np.int64),
                draw(st.integers(1, 9) | st.just(np.array(parts, np.int64))),
                draw(st.sampled_from([None, np.array(parts, np.int64)])),
                draw(st.sampled_from([None, np.array(parts, np.int32) - 2])),
                draw(st.sampled_from([None, np.array(parts, np.int64)])),
                *draw(st.tuples(st.integers(0, 2**40), st.integers(0, 99))),
                draw(
                    st.sampled_from([None, np.array([source for (source, _), _ in rows], np.int32)])
                ),
            )
        seconds = draw(st.just(0.0) | st.floats(0, 100, allow_subnormal=False))
        name = draw(st.text(max_size=5))
        steps.append(Step(name, tuple(sorted(after)), seconds, sends, draw(st.integers(0, 3))))
    return Workload(ranks, tuple(steps), draw(st.booleans()))


def assert_alike(read: Workload, workload: Workload) -> None:
    assert (read.ranks, read.ordered) == (workload.ranks, workload.ordered)
    assert len(read.steps) == len(workload.steps)
    for step, theirs in zip(read.steps, workload.steps, strict=True):
        assert (step.name, step.after, step.compute_s, step.iteration) == (
            (theirs.name, theirs.after, theirs.compute_s, theirs.iteration)
        )
        assert (step.sends is None) == (theirs.sends is None)
        if step.sends is None or theirs.sends is None:
            continue
        assert np.all(step.sends.rounds == theirs.sends.rounds)
        assert step.sends.fill_bytes == theirs.sends.fill_bytes
        assert step.sends.tokens == theirs.sends.tokens
        for column in ("source", "destination", "size_bytes", "parts", "chain", "turn"):
            one, other = getattr(step.sends, column), getattr(theirs.sends, column)
            if column == "turn" and other is not None and (other == NONE).all():
                other = None
            assert (one is None) == (other is None)
            assert one is None or (one.dtype == other.dtype and one.tolist() == other.tolist())


@given(workloads())
def test_a_workload_reads_back_as_it_was_exported(
    tmp_path_factory: pytest.TempPathFactory, workload: Workload
) -> None:
    folder = tmp_path_factory.mktemp("export") / "made"
    assert len(write_trace(workload, folder)) == workload.ranks
    assert_alike(read_workload(folder), workload)


DENSE = {"layers": 8, "hidden": 256, "heads": 8, "ffn": 1024, "vocab": 1000, "sequence": 512}
MIXTURE = {**DENSE, "kv_heads": 4, "experts": 4, "top_k": 2}
LAYOUT = {"tensor": 2, "pipeline": 2, "expert": 2, "gpu_flops": "400T"}


@pytest.mark.parametrize(
    "block",
    [
        {"training": {**LAYOUT, "model": DENSE, "expert": 1, "data": 2, "micro_batches": 2}},
        {"training": {**LAYOUT, "model": MIXTURE, "data": 4, "sharding": "fsdp"}},
        {
            "inference": {
                **{**LAYOUT, "model": MIXTURE, "prefill": 2, "decode": 2, "batch": 2},
                **{"prompt": 100, "output": 10},
            }
        },
        {
            "ranking": {
                **{"ranks": 6, "tables": 8, "dimension": 8, "local_batch": 4},
                "dense_parameters": 1000,
            }
        },
    ],
    ids=["dense", "mixture-of-experts", "inference", "ranking"],
)
def test_a_job_of_every_kind_reads_back_as_it_was_exported(
    tmp_path: Path, block: dict[str, object]
) -> None:
    job = SimulatedJob.model_validate({"name": "job", **block})
    (workload,) = Simulation(load_spec(find_lab("hpn-pod")), [job], Options()).workloads
    write_trace(workload, tmp_path)
    assert_alike(read_workload(tmp_path), workload)


def pipeline() -> Workload:
    """Rank 0 sends to rank 1, which computes and sends to rank 2."""
    hops = [
        Sends(np.array([rank], np.int32), np.array([rank + 1], np.int32), np.array([64]))
        for rank in (0, 1)
    ]
    steps = (
        Step("to 1", (), 1e-5, hops[0]),
        Step(COMPUTE, (0,), 2e-5),
        Step("to 2", (1,), 0, hops[1]),
    )
    return Workload(3, steps)


def test_an_export_says_what_each_rank_does_to_programs_that_know_only_chakra(
    tmp_path: Path,
) -> None:
    files = write_trace(pipeline(), tmp_path)
    plain = []
    for file in files:
        read = read_trace(file)
        nodes = [
            replace(
                node,
                attrs={
                    name: attribute
                    for name, attribute in node.attrs.items()
                    if name[:8] != "rocelab_"
                },
            )
            for node in read.nodes
        ]
        plain.append(Trace(read.source, Metadata("0.0.4"), tuple(nodes)))
    assert [[node.kind for node in trace.nodes] for trace in plain] == [
        [NodeKind.COMPUTE, NodeKind.SEND],
        [NodeKind.RECEIVE, NodeKind.COMPUTE, NodeKind.SEND],
        [NodeKind.RECEIVE],
    ]
    times = ends(trace_workload(plain), {"to 1": 1.0, "to 2": 1.0})
    assert times["to 2"][1] == pytest.approx(2.00003)


def test_an_export_into_a_folder_with_traces_is_refused(tmp_path: Path) -> None:
    write_trace(pipeline(), tmp_path)
    with pytest.raises(InputError, match="has traces already"):
        write_trace(pipeline(), tmp_path)


def test_an_export_that_was_changed_is_refused(tmp_path: Path) -> None:
    files = write_trace(pipeline(), tmp_path)
    read = [read_trace(file) for file in files]
    read[1] = replace(read[1], nodes=read[1].nodes[:-1])
    with pytest.raises(InputError, match="steps are missing"):
        trace_workload(read)
    with pytest.raises(InputError, match="job of 3 ranks"):
        trace_workload(read[:1], 8)


# --- what a trace lacks ------------------------------------------------------------------------


def test_compute_without_a_duration_is_counted_and_refused_if_none_has_one() -> None:
    some = trace(compute(1, 10), compute(2, 0), compute(3, 0, runtime=7), collective(4, 1, 2, 3))
    (warning,) = trace_workload([some], 4).warnings
    assert warning.startswith("1 of 3 compute nodes have no duration and count as 0 s")
    assert "t.0.et: node 2" in warning
    none = trace(compute(1, 0, num_ops=10**12), collective(2, 1))
    with pytest.raises(InputError, match="none of 4 compute nodes has a duration"):
        trace_workload([none] * 4)
    assert trace_workload([trace(collective(1))], 4).warnings == ()


SILENT = {
    "0 bytes": (compute(1, 5), collective(2, 1, size=0)),
    "a barrier": (compute(1, 5), collective(2, 1, kind=CommType.BARRIER)),
    "compute": (compute(1, 5),),
    "groups of one rank": (compute(1, 5), collective(2, 1, pg_name="1")),
    "nothing": (),
}


@pytest.mark.parametrize("engine", list(Engine))
@pytest.mark.parametrize("nodes", SILENT.values(), ids=SILENT)
def test_a_trace_that_sends_nothing_is_refused_by_every_engine(
    nodes: tuple[ChakraNode, ...], engine: Engine, tmp_path: Path
) -> None:
    groups = {"1": [0], "2": [1]}
    for rank in range(2):
        named = tuple(
            replace(node, attrs={**node.attrs, "pg_name": str(rank + 1)})
            if "pg_name" in node.attrs
            else node
            for node in nodes
        )
        write_trace_file(tmp_path / f"w.{rank}.et", trace(*named))
    silent = {"name": "silent", "trace": {"file": str(tmp_path), "groups": groups}}
    collective = {"pattern": "allreduce", "ranks": 2, "size": "1MB"}
    other = {"name": "other", "collective": collective}
    spec = load_spec(find_lab("zone-1-1"))
    for jobs in ([silent], [silent, other]):
        with pytest.raises(InputError) as error:
            Simulation(
                spec, [SimulatedJob.model_validate(job) for job in jobs], Options(engine=engine)
            )
        assert "job silent" in error.value.message or "links" in error.value.message


def test_a_trace_of_which_a_part_sends_nothing_is_simulated(tmp_path: Path) -> None:
    nodes = (
        compute(1, 5),
        collective(2, 1, size=0),
        collective(3, 2, size=1),
        collective(4, 3, kind=CommType.BARRIER),
    )
    for rank in range(2):
        write_trace_file(tmp_path / f"w.{rank}.et", trace(*nodes))
    job = SimulatedJob.model_validate({"name": "part", "trace": {"file": str(tmp_path)}})
    report = Simulation(load_spec(find_lab("zone-1-1")), [job]).report()
    assert report.jobs[0].headline("iteration_time").modelled.median > 5000
