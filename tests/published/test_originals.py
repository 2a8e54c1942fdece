"""Compares the unit tests' own descriptions with the originals."""

from __future__ import annotations

import csv
import json
import re
import tarfile
from ipaddress import ip_interface
from pathlib import Path

import pytest

from rocelab.importing.labs import graph_lab
from rocelab.importing.readers import read_topology
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.job import JobSpec
from rocelab.labfile.load import load_spec
from rocelab.labfile.source import written
from rocelab.planning.build import plan
from rocelab.results.engines import Engine
from rocelab.routes.planned import planned_fibs
from rocelab.routes.reach import unreached
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
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


def test_the_configuration_that_sonic_tests_with_is_a_lab_with_its_profile(
    published: Path, tmp_path: Path
) -> None:
    """It comes up whole as planned, and AllReduce in a class that its profile makes lossless loses
    nothing: the engine of packets has its buffers."""
    source = tmp_path / "card"
    source.mkdir()
    original = published / "sonic/vlab-t2-01_config_db.json"
    (source / original.name).write_bytes(original.read_bytes())
    database = json.loads(original.read_text())
    made = graph_lab("card", read_topology(source, {}), servers=1)
    file = tmp_path / "card.yaml"
    file.write_text(written(made.body) + f"queues: {{profile: card/{original.name}}}\n")

    fabric = plan(load_spec(file))

    names = {one["name"] for one in database["DEVICE_NEIGHBOR"].values()}
    assert {node.name.lower() for node in fabric.switches} >= {name.lower() for name in names}
    addresses = {
        str(ip_interface(key.split("|")[1]).ip)
        for table in ("INTERFACE", "PORTCHANNEL_INTERFACE")
        for key in database[table]
        if "|" in key
    }
    planned = {
        str(ip_interface(address).ip)
        for link in fabric.trunks
        for port in (link.a, link.b)
        for address in (port.address, port.other_address)
        if address is not None
    }
    assert addresses & planned
    assert list(unreached(fabric, planned_fibs(fabric, fabric.prefixes))) == []
    job = {"pattern": "allreduce", "ranks": 4, "size": "1MB", "transport": {"dscp": 3}}
    options = Options(engine=Engine.PACKETS)
    report = simulate(fabric.spec, [JobSpec.model_validate(job)], options)
    assert report.packets is not None and report.packets.lossless is not None
    assert (report.packets.drops, report.packets.retransmitted) == (0, 0)


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
