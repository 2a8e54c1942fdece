"""Compares the unit tests' own descriptions with the originals."""

from __future__ import annotations

import csv
import re
import tarfile
from pathlib import Path

import pytest

from rocelab.jobs.collectives import Pattern
from rocelab.sim.traces.chakra import NodeKind, read_trace
from rocelab.sim.traces.messages import message_classes
from rocelab.sim.traces.nccl_tests import read_nccl_tests
from rocelab.sim.traces.replay import trace_workload
from tests.helpers.nccl_sample import nccl_output

DATA = Path(__file__).parents[1] / "data"


def test_every_field_of_a_trace_is_that_of_chakras_schema(published: Path) -> None:
    text = (published / "chakra/et_def.proto").read_text()
    result = {"GlobalMetadata": message_classes().metadata, "Node": message_classes().node}
    result["AttributeProto"] = result["Node"]().attr.add().__class__
    result["IOInfo"] = result["Node"]().inputs.__class__
    for name, made in result.items():
        body = text.split(f"message {name} {{")[1].split("\n}")[0]
        fields = re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", body)
        assert len(made.DESCRIPTOR.fields) == len(fields)
        for repeated, kind, field, number in fields:
            descriptor = made.DESCRIPTOR.fields_by_name[field]
            assert descriptor.number == int(number)
            assert descriptor.is_repeated == bool(repeated)
            if not kind[0].isupper():
                assert descriptor.type == getattr(descriptor, f"TYPE_{kind.upper()}")


def test_a_real_trace_of_3664_nodes_becomes_its_seven_collectives(
    published: Path, tmp_path: Path
) -> None:
    with tarfile.open(published / "chakra/feeder_tests_trace.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    read = read_trace(tmp_path / "tests/data/chakra.0.et")
    assert len(read.nodes) == 3664
    assert sum(node.kind is NodeKind.COLLECTIVE for node in read.nodes) == 21
    on_gpu = [node for node in read.nodes if not node.attrs["is_cpu_op"]]
    kernels_us = sum(node.duration_us for node in on_gpu if node.kind is NodeKind.COMPUTE)

    workload = trace_workload([read], 8)

    sent = [step for step in workload.steps if step.sends]
    assert [step.name.split("_")[1] for step in sent] == ["Broadcast"] * 2 + ["AllReduce"] * 5
    moved = [int(step.sends.size_bytes.sum()) for step in sent if step.sends]
    sizes = (212480, 424)
    reduced = (8196000, 31502336, 26255360, 26550272, 9724160)
    assert moved == [7 * size for size in sizes] + [14 * size for size in reduced]
    assert len(workload.steps) < 20
    over: list[float] = []
    for step in workload.steps:
        over.append(max((over[earlier] for earlier in step.after), default=0.0) + step.compute_s)
    assert kernels_us <= max(over) * 1e6 < kernels_us * 1.05


def test_the_sample_of_nccl_tests_has_the_columns_and_figures_of_a_real_run(
    published: Path,
) -> None:
    def columns(text: str) -> list[list[int]]:
        rows = [line for line in text.splitlines() if re.match(r" +[0-9]|# +(size|\(B\)) ", line)]
        return [[match.end() for match in re.finditer(r"\S+", row)] for row in rows]

    real = (published / "nccl-tests/all_reduce_8xH100.txt").read_text()
    assert columns(real) == columns(nccl_output())
    sample = read_nccl_tests(nccl_output(), pattern=Pattern.ALLREDUCE, ranks=8)
    test = read_nccl_tests(real, pattern=Pattern.ALLREDUCE, ranks=8)
    for row, made in zip(test.rows, sample.rows, strict=True):
        assert (row.size_bytes, row.count, row.out_of_place) == (
            made.size_bytes,
            made.count,
            made.out_of_place,
        )
        assert row.in_place and made.in_place
        assert row.in_place.time_us == made.in_place.time_us
        assert row.in_place.busbw_gbs == pytest.approx(made.in_place.busbw_gbs, abs=0.02)


def test_two_tables_of_random_hashing_agree(published: Path) -> None:
    def table(file: Path) -> dict[tuple[str, str], dict[str, str]]:
        return {(row["n"], row["k"]): row for row in csv.DictReader(file.open())}

    rows, theirs = table(DATA / "mmr.csv"), table(published / "mmr.csv")
    assert len(rows.keys() & theirs.keys()) == len(rows)
    for key, row in rows.items():
        for figure in ("E[MMR]", "E[JFI]", "E[CoV]"):
            assert float(row[figure]) == pytest.approx(
                float(theirs[key][figure]), rel=0.01, abs=0.002
            ), key
