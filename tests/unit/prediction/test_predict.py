"""Predicted loads: compared with single flows' paths, with figures computed by hand, and with the
documentation."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError, Problem, SpecError
from rocelab.cli.main import main
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_job
from rocelab.jobs.placement import NicRef
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.linux.fibtable import Fib, NextHop, Route
from rocelab.planning.build import build_fabric, plan
from rocelab.planning.fabric import DirectedLink, Direction, Fabric
from rocelab.prediction import prediction_spec as predict_spec
from rocelab.prediction.loads import by_link
from rocelab.prediction.matrix import FlowRow, rows_of_jobs
from rocelab.prediction.prediction_spec import read_asked, read_flows
from rocelab.prediction.predictor import (
    Setting,
    asked_fabric,
    paths_on,
    predict_document,
    predict_loads,
)
from rocelab.report.prediction import prediction_document
from rocelab.report.renderers.terminal import print_document
from rocelab.results.prediction import Prediction
from rocelab.routes.balance import Polarization, polarization
from rocelab.routes.models import Model
from rocelab.routes.path import NoPathError
from rocelab.routes.planned import planned_fibs
from rocelab.routes.steering import EntryKey, SteeringModel
from tests.helpers import labs
from tests.helpers.choices import polarizations
from tests.helpers.hop_by_hop import choices_of, links_of
from tests.helpers.narrow import broken
from tests.unit.conftest import CommandLine

KINDS = ("zone-1-1", "zones-1-28", "rail-small", "hpn-small", "hpn-single-plane", "fat-tree-4")


def fabric_of(name: str) -> Fabric:
    return plan(load_spec(find_lab(name)))


FABRICS = {name: fabric_of(name) for name in KINDS}


@st.composite
def flow_rows(draw: st.DrawFn) -> tuple[str, list[FlowRow]]:
    name = draw(st.sampled_from(KINDS))
    fabric = FABRICS[name]
    nics = [nic for server in fabric.servers for nic in fabric.nics(server.name)]
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        source = draw(st.sampled_from(nics))
        others = [nic for nic in nics if nic.server != source.server]
        destination = draw(st.sampled_from(others))
        rows.append(
            FlowRow(
                NicRef(source.server, source.number),
                NicRef(destination.server, destination.number),
                draw(st.integers(1, 65535)),
                draw(st.integers(0, 2**24 - 1)),
                bytes=draw(st.integers(0, 10**12)),
                packets=draw(st.integers(0, 10**6)),
                leaves_by=draw(st.integers(0, len(source.links) - 1)),
            )
        )
    return name, rows


@given(flow_rows(), st.sampled_from(["ecmp", "e-ecmp", "path-pinning"]))
def test_all_flows_at_once_land_where_each_alone_does(
    drawn: tuple[str, list[FlowRow]], kind: str
) -> None:
    name, rows = drawn
    fabric = asked_fabric(FABRICS[name], read_asked(kind).scheme)
    loads = predict_loads(fabric, rows, Setting())
    alone = links_of(fabric, rows)
    flows, size = Counter[DirectedLink](), Counter[DirectedLink]()
    for row, links in zip(rows, alone, strict=True):
        flows.update(links)
        size.update(dict.fromkeys(links, row.bytes or 0))
    assert by_link(fabric, loads.flows) == dict.fromkeys(fabric.directed_links, 0) | flows
    assert loads.bytes is not None
    assert by_link(fabric, loads.bytes) == dict.fromkeys(fabric.directed_links, 0) | size
    assert paths_on(fabric, rows, Setting()) == alone


@given(flow_rows())
def test_choices_of_all_flows_at_once_are_those_of_each_alone(
    drawn: tuple[str, list[FlowRow]],
) -> None:
    name, rows = drawn
    fabric = FABRICS[name]
    results = map(polarization, predict_loads(fabric, rows, Setting()).choices)
    choices = (
        choices_of(fabric, row, links)
        for row, links in zip(rows, links_of(fabric, rows), strict=True)
    )
    assert sorted(map(counted, results)) == sorted(map(counted, polarizations(choices)))


def counted(one: Polarization) -> tuple[object, ...]:
    """What does not depend on the order of flows."""
    offered = one.used_links, one.offered_links, round(one.unused_if_random or 0, 9)
    return one.first, one.second, one.flows, *offered


@given(flow_rows())
def test_tables_that_were_read_lead_flows_as_planned_ones_do(
    drawn: tuple[str, list[FlowRow]],
) -> None:
    name, rows = drawn
    fabric = FABRICS[name]
    planned = predict_document(fabric, rows, Setting())
    read = predict_document(fabric, rows, Setting(planned_fibs(fabric, fabric.prefixes)))
    assert replace(read, tables="planned") == planned


@given(flow_rows(), st.integers(0, 2**32), st.sampled_from([Model.KERNEL, Model.CRC32]))
def test_weights_of_tables_count(drawn: tuple[str, list[FlowRow]], seed: int, model: Model) -> None:
    name, rows = drawn
    fabric, fib_of = FABRICS[name], planned_fibs(FABRICS[name], FABRICS[name].prefixes)

    @cache
    def weighted(node: str) -> Fib:
        draw = random.Random(f"{seed} {node}")

        def route(planned: Route) -> Route:
            hops = (replace(hop, weight=draw.randint(1, 9)) for hop in planned.next_hops)
            return replace(planned, next_hops=tuple(hops))

        return Fib(tuple(map(route, fib_of(node).routes)))

    alone = links_of(fabric, rows, model, fib_of=weighted)
    assert paths_on(fabric, rows, Setting(weighted, model)) == alone


def test_entries_of_a_controller_lead_their_flows_and_no_others() -> None:
    fabric = asked_fabric(FABRICS["zone-1-1"], read_asked("te").scheme)
    planned = rows_of_jobs([plan_job(fabric, job(ranks=8, transport={"qps": 4}))])
    rows = [row for row in planned if row.source.server != row.destination.server]
    draw = random.Random(1)
    address = {
        NicRef(nic.server, nic.number): nic.ip
        for server in fabric.servers
        for nic in fabric.nics(server.name)
    }
    entries = {
        EntryKey(leaf, address[row.source], address[row.destination], row.sport): draw.getrandbits(
            32
        )
        for row in rows[::2]
        for leaf in ("rtsw1", "rtsw2")
    }
    setting = Setting(planned_fibs(fabric, fabric.prefixes), entries=entries)
    steering = SteeringModel(fabric, fabric.spec.scheme, entries)
    assert paths_on(fabric, rows, setting) == links_of(fabric, rows, steering=steering)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ((), "rtsw1: no route to 198.18"),
        ((NextHop("ctsw1", None, carrier=False),), "still uses rtsw1:ctsw1, whose link is down"),
        ((NextHop("eth0", None),), "rtsw1: eth0 leads out of the fabric"),
        ((NextHop("srv1-2", None),), "srv1-2: no route to 198.18"),
    ],
)
def test_a_table_that_does_not_lead_on_is_named(changed: tuple[NextHop, ...], says: str) -> None:
    fabric = FABRICS["zone-1-1"]
    fib_of = planned_fibs(fabric, fabric.prefixes)
    broken_fib = Fib((Route("198.18.0.0/15", changed),))
    row = FlowRow(NicRef("srv1-1", 1), NicRef("srv2-1", 1), 50_000, 17)
    with pytest.raises(NoPathError, match=says):
        predict_loads(
            fabric, [row], Setting(lambda node: broken_fib if node == "rtsw1" else fib_of(node))
        )


def test_flows_that_tables_send_in_circles_are_refused() -> None:
    fabric = FABRICS["zone-1-1"]
    there = {"rtsw1": "ctsw1", "ctsw1": "rtsw1"}
    row = FlowRow(NicRef("srv1-1", 1), NicRef("srv2-1", 1), 50_000, 17)
    with pytest.raises(NoPathError, match="loops"):
        predict_loads(
            fabric,
            [row],
            Setting(lambda node: Fib((Route("0.0.0.0/0", (NextHop(there[node], None),)),))),
        )


def job(**keys: object) -> JobSpec:
    return JobSpec.model_validate(
        {"pattern": "alltoall", "ranks": 4, "size": "4MB", "iterations": 2} | keys
    )


def test_every_byte_of_a_job_is_in_its_flows_and_messages_take_turns() -> None:
    fabric = FABRICS["zone-1-1"]
    spec = job(transport={"qps": 3, "message": "100KB"})
    rows = rows_of_jobs([plan_job(fabric, spec)])
    # 4 ranks send 1 MB to each of 3 others, 3 times with the warm-up: 30 messages of 100 kB each.
    assert len(rows) == 4 * 3 * 3
    assert {row.bytes for row in rows} == {10 * 100_000}
    assert {row.packets for row in rows} == {10 * 25}


def test_a_queue_pair_that_no_message_comes_to_is_no_flow() -> None:
    fabric = FABRICS["zone-1-1"]
    whole = rows_of_jobs([plan_job(fabric, job(iterations=1, transport={"qps": 16}))])
    # 1 MB is one message of at most 1 MiB; 2 iterations use 2 of 16 queue pairs.
    assert len(whole) == 4 * 3 * 2
    split = rows_of_jobs(
        [plan_job(fabric, job(iterations=1, transport={"qps": 16, "strategy": "split"}))]
    )
    assert len(split) == 4 * 3 * 16
    assert (
        sum(row.bytes or 0 for row in split) == sum(row.bytes or 0 for row in whole) == 24 * 10**6
    )


def test_streams_have_flows_and_no_known_load() -> None:
    fabric = FABRICS["zone-1-1"]
    spec = JobSpec.model_validate({"pattern": "incast", "ranks": 4, "duration": "1ms"})
    document = predict_document(fabric, rows_of_jobs([plan_job(fabric, spec)]), Setting())
    assert (document.flows, document.bytes, document.packets) == (3, None, None)
    assert all(tier.bytes is None for tier in document.tiers)


def test_equal_seeds_polarize_the_second_tier_and_distinct_seeds_do_not() -> None:
    fabric = FABRICS["fat-tree-4"]
    spec = job(ranks=16, size="16MB", transport={"qps": 8})
    rows = rows_of_jobs([plan_job(fabric, spec)])
    shared = predict_document(
        asked_fabric(fabric, None, read_asked(None, "shared").hashing), rows, Setting()
    )
    apart = predict_document(fabric, rows, Setting())

    def second(prediction: Prediction) -> tuple[float, float | None]:
        (one,) = [
            polarization
            for polarization in prediction.polarizations
            if (polarization.first, polarization.second) == ("edge up", "agg up")
        ]
        return one.unused_fraction, one.information

    assert second(shared) == (0.5, pytest.approx(1.0))
    unused, information = second(apart)
    assert unused == 0
    assert information is not None
    assert information < 0.05


def test_an_asics_modulo_is_another_choice_with_its_own_polarization() -> None:
    fabric = FABRICS["fat-tree-4"]
    rows = rows_of_jobs([plan_job(fabric, job(ranks=16, size="16MB", transport={"qps": 8}))])
    kernel = predict_document(fabric, rows, Setting())
    asic = predict_document(fabric, rows, Setting(model=Model.CRC32))
    assert asic.model == "crc32"
    assert [link.flows for link in asic.links] != [link.flows for link in kernel.links]
    assert sum(link.flows for link in asic.links) == sum(link.flows for link in kernel.links)


@pytest.mark.parametrize("kind", ["flowlet", "spray", "resilient", "te"])
def test_what_can_not_be_predicted_is_refused_with_what_to_do(kind: str) -> None:
    fabric = asked_fabric(FABRICS["zone-1-1"], read_asked(kind).scheme)
    rows = rows_of_jobs([plan_job(fabric, job())])
    with pytest.raises(InputError) as refused:
        predict_document(fabric, rows, Setting())
    assert refused.value.hint is not None
    assert "rocelab compare" in refused.value.hint


def test_the_document_adds_up_and_is_the_same_for_the_same_flows() -> None:
    fabric = FABRICS["zones-1-28"]
    rows = rows_of_jobs([plan_job(fabric, job(ranks=8, size="8MB", transport={"qps": 4}))])
    document = predict_document(fabric, rows, Setting())
    assert to_json(document) == to_json(predict_document(fabric, rows, Setting()))
    out = [
        link
        for link in document.links
        if link.tier == "server-rtsw" and link.direction is Direction.UP
    ]
    assert sum(link.flows for link in out) == document.flows == len(rows)
    assert sum(link.bytes or 0 for link in out) == document.bytes
    for tier in document.tiers:
        links = [
            link
            for link in document.links
            if (link.tier, link.direction) == (tier.tier, tier.direction)
        ]
        assert sum(link.flows for link in links) == tier.flows.all_links.total
        if tier.flows.all_links.total:
            assert tier.flows.random is not None
            assert tier.flows.random.flows == tier.flows.all_links.total
    assert document.worst[0].of_mean >= document.worst[-1].of_mean >= 1
    for width in (80, 60):
        assert (
            broken(lambda console: print_document(prediction_document(document), console), width)
            == set()
        )


def test_unnumbered_links_are_said_to_give_a_distribution_only() -> None:
    spec = load_spec(find_lab("zone-1-1"))
    data = spec.model_dump(mode="json", exclude_none=True) | {
        "routing": {"numbering": "unnumbered"}
    }
    fabric = build_fabric(LabSpec.model_validate(data))
    document = predict_document(fabric, rows_of_jobs([plan_job(fabric, job())]), Setting())
    assert "unnumbered" in document.notes[0]


CSV = """source,destination,sport,dest_qp,bytes
srv1-1,srv2-1,49152,17,1MB
srv1-1,srv3-2,49153,,
"""


def test_flows_are_read_from_csv_and_from_yaml_alike(tmp_path: Path) -> None:
    fabric = FABRICS["zone-1-1"]
    csv, yaml = tmp_path / "flows.csv", tmp_path / "flows.yaml"
    # As a spreadsheet saves it: with a byte order mark.
    csv.write_text(CSV, encoding="utf-8-sig")
    yaml.write_text(
        "flows:\n"
        "- {source: srv1-1, destination: srv2-1, sport: 49152, dest_qp: 17, bytes: 1MB}\n"
        "- {source: srv1-1, destination: srv3-2, sport: 49153}\n"
    )
    rows = read_flows(csv, fabric)
    assert rows == read_flows(yaml, fabric)
    assert rows[0] == FlowRow(NicRef("srv1-1", 1), NicRef("srv2-1", 1), 49152, 17, 10**6)
    assert rows[1].bytes is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("source,destination\n", "flows.csv:1: sport: missing column"),
        ("source,destination,sport,colour\n", "flows.csv:1: unknown column 'colour'"),
        ("source,destination,sport\nsrv1-1,srv2-1\n", "flows.csv:2: expected 3 columns"),
        ("source,destination,sport\nsrv1-1,srv2-1,99999\n", "flows.csv:2: flows[0].sport"),
        (
            "source,destination,sport\n\nsrv1-1,srv9-9,5\n",
            "flows.csv:3: destination: srv9-9 is not in the fabric",
        ),
        ("source,destination,sport\nsrv1-1,rtsw1,5\n", "rtsw1 is a switch"),
        ("source,destination,sport\nsrv1-1,srv1-1,5\n", "the same NIC"),
        (
            "source,destination,sport,destination_nic\nsrv1-1,srv2-1,5,3\n",
            "flows.csv:2: destination_nic: srv2-1 has no NIC 3",
        ),
        ("source,destination,sport,leaves_by\nsrv1-1,srv2-1,5,1\n", "the NIC has 1 port"),
        ("source,destination,sport\n", "flows"),
    ],
)
def test_what_is_wrong_in_a_file_of_flows_is_said_where_it_stands(
    tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "flows.csv"
    file.write_text(text)
    with pytest.raises(SpecError) as refused:
        read_flows(file, FABRICS["zone-1-1"])
    assert says in str(refused.value)


def rocelab(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_the_command_writes_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flows.csv"
    file.write_text(CSV)
    assert rocelab("predict", "zone-1-1", "--flows", str(file), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["lab"], document["tables"], document["flows"]) == ("zone-1-1", "planned", 2)
    assert len(document["links"]) == 2 * (16 + 16)


def test_the_command_takes_every_option_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--pattern", "alltoall", "--ranks", "16", "--size", "16MB", "--qps", "4"]
    more = ["--source-port", "flow-label", "--seed", "7"]
    assert rocelab("predict", "zone-1-1", *options, *more) == 0
    assert "960 flows, 1.44 GB of payload" in capsys.readouterr().out


def test_flows_of_a_file_and_of_a_job_are_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    assert rocelab("predict", "zone-1-1", "--flows", "flows.csv", "--qps", "4") == 2
    assert "--flows with --qps" in capsys.readouterr().err


def test_the_flows_that_ship_are_of_the_lab_that_they_name(rocelab: CommandLine) -> None:
    outcome = rocelab("predict", "zone-small", "--flows", "elephants", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["flows"] == 4


@pytest.mark.parametrize("text", ["010", "-007", "1" * 41, f"-1{'0' * 40}"])
def test_a_number_that_cannot_be_read_names_its_option(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_asked(text, text)
    assert [problem.key for problem in refused.value.problems] == ["hashing", "scheme"]


def test_a_table_of_too_many_flows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_spec, "FLOWS_TABLE", replace(predict_spec.FLOWS_TABLE, most_rows=3))
    table = tmp_path / "flows.csv"
    row = "srv1-1,srv2-1,1000\n"
    table.write_text("source,destination,sport\n" + 3 * row)
    assert len(read_flows(table, FABRICS["zone-1-1"])) == 3
    table.write_text("source,destination,sport\n" + 4 * row)
    with pytest.raises(SpecError, match=r"flows\.csv:5: more than 3 flows"):
        read_flows(table, FABRICS["zone-1-1"])


CELLS = {
    "source": ["srv1-1", " srv1-2", "srv2-1", "srv9-9", "", "null", "7"],
    "destination": ["srv3-1", "srv3-2", "srv1-1"],
    "destination_nic": ["1", "", "2", "0x1"],
    "sport": ["1", "49152", "99999", "", "1.5"],
    "dest_qp": ["", "0", "17", "-1"],
    "leaves_by": ["0", "", "1"],
    "bytes": ["", "1MB", "64 KiB", "12", "~"],
}


@given(st.data())
def test_all_cells_of_a_table_at_once_are_read_as_line_by_line(data: st.DataObject) -> None:
    """The first of each column's cells are right, so that many tables are."""
    most = data.draw(st.sampled_from([2, 9]))
    header = [*("source", "destination", "sport"), *data.draw(st.permutations(list(CELLS)[4:]))]
    lines = data.draw(
        st.lists(
            st.tuples(*(st.sampled_from(CELLS[name][:most]) for name in header)),
            min_size=1,
            max_size=4,
        )
    )
    fabric = FABRICS["zone-1-1"]
    with TemporaryDirectory() as folder:
        table = Path(folder) / "flows.csv"
        table.write_text("\n".join(map(",".join, [tuple(header), *lines])) + "\n")
        outcomes = [_read(table, fabric)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(predict_spec, "_read_columns", lambda *_: None)
            outcomes.append(_read(table, fabric))
    assert outcomes[0] == outcomes[1]


def _read(table: Path, fabric: Fabric) -> list[FlowRow] | tuple[Problem, ...]:
    try:
        return read_flows(table, fabric)
    except SpecError as refused:
        return tuple(refused.problems)


def test_a_right_table_is_not_read_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise AssertionError

    monkeypatch.setattr(predict_spec, "read_table", refuse)
    table = tmp_path / "flows.csv"
    table.write_text(CSV)
    assert len(read_flows(table, FABRICS["zone-1-1"])) == 2


@pytest.mark.parametrize("form", ["csv", "yaml"])
def test_a_flow_of_a_file_names_nics_as_every_command_does(form: str, tmp_path: Path) -> None:
    file = tmp_path / f"flows.{form}"
    file.write_text(
        "source,destination,sport\nsrv1-1:2,srv2-1:3,50000\n"
        if form == "csv"
        else "flows:\n  - {source: srv1-1:2, destination: srv2-1:3, sport: 50000}\n"
    )
    (row,) = read_flows(file, labs.planned("rail-small"))
    assert (row.source, row.destination) == (NicRef("srv1-1", 2), NicRef("srv2-1", 3))
