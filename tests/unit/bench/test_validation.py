"""The page with published figures: it depends only on its data, and its cells can be found
again."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bench.campaign.document import PointResult
from bench.validation import fluid, hashing, history, scaling, volumes
from bench.validation.document import FORMAT, Validation
from bench.validation.plot import plots
from bench.validation.render import DATA, HOSTS_PAGE, PAGE, pages
from bench.validation.rows import Kind, Row, Source, tables
from bench.validation.study import CASES, COMMAND, SEEDS, validation_of
from bench.validation.tasks import Task
from bench.validation.zone import (
    E_ECMP,
    GPUS,
    NIC_BYTES,
    PINNED,
    Traffic,
    churned,
    failed_uplinks,
    placed,
    scattered,
    transport,
    whole_racks,
    zone,
)
from rocelab.sim.figures import simulation_environment
from tests.unit.bench.documents import document

DOCS = Path(__file__).parents[3] / "docs"
ROW = Row("a", "cell", "ratio", "here", "1.1 to 1.3", Source.META, 1.1, 1.3)
ROWS = [row for rows in tables().values() for row in rows]


@pytest.fixture(scope="module")
def validation() -> Validation:
    return FORMAT.read((DOCS / DATA).read_text(encoding="utf-8"))


def test_the_page_in_docs_has_all_seeds(validation: Validation) -> None:
    assert validation.command == COMMAND
    assert validation.seeds == SEEDS


@pytest.mark.long
def test_every_plot_of_the_page_is_drawn_from_the_data(validation: Validation) -> None:
    matches = set(
        re.findall(r"\]\((validation-[a-z-]+\.svg)\)", "".join(pages(validation).values()))
    )
    assert matches == set(plots(validation))
    assert all((DOCS / name).exists() for name in matches)


def test_a_changed_number_changes_the_page(validation: Validation) -> None:
    values = dict(validation.values)
    values["mmr/kernel/1000"] = (7.77, 7.77)
    assert "7.77 (7.77 to 7.77, n=2)" in pages(replace(validation, values=values))[PAGE]


def test_figures_known_from_write_ups_are_marked_so() -> None:
    assert all("second-hand" not in row.source for row in tables()["hpn"])
    zones = [row for name in ("mmr", "queue-pairs", "engineering") for row in tables()[name]]
    assert all("second-hand" in row.source for row in zones if row.source is not Source.NONE)
    assert all((row.published == "-") == (row.source is Source.NONE) for row in ROWS)


def test_predictions_choices_and_what_holds_by_construction_are_counted_apart(
    validation: Validation,
) -> None:
    kinds = Counter(row.kind(validation) for row in ROWS if row.low is not None)
    apart = {
        Kind(kind): int(n)
        for n, kind in re.findall(r"- (\d+) comparisons are (.+):", pages(validation)[PAGE])
    }
    assert apart == kinds
    assert min(kinds.values()) > 0
    assert {row.kind(validation) for row in tables()["volumes"]} == {Kind.BY_CONSTRUCTION}
    assert {row.kind(validation) for row in tables()["queue-pairs"][:3]} == {Kind.ONE_OF_SEVERAL}


def test_a_row_is_one_of_several_choices_only_where_they_do_not_compare_alike(
    validation: Validation,
) -> None:
    row = replace(ROW, cell="x/2/mean", choices="x/*/mean")
    cells = {"x/2/mean": (1.2,), "x/4/mean": (1.25,), "x/4/worst": (2.0,)}
    assert row.kind(replace(validation, values=cells)) is Kind.PREDICTED
    assert row.kind(replace(validation, values=cells | {"x/4/mean": (1.4,)})) is Kind.ONE_OF_SEVERAL


def test_the_choices_of_a_row_hold_its_own_cell_and_others(validation: Validation) -> None:
    for row in ROWS:
        if row.choices:
            cells = fnmatch.filter(validation.values, row.choices)
            assert row.cell in cells
            assert len(cells) > 1


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((1.0, 1.2, 1.4), "agrees"),
        ((1.5, 1.6, 1.7), "ours is higher"),
        ((0.5, 0.6, 0.7), "ours is lower"),
        ((1.2, 1.6, 1.7), "within our spread"),
        ((0.5, 0.6, 1.2), "within our spread"),
    ],
)
def test_the_comparing_word_follows_from_the_numbers(
    validation: Validation, values: tuple[float, ...], word: str
) -> None:
    row = ROW
    assert row.compared(replace(validation, values={"cell": values})) == word


def test_a_figure_without_a_published_one_is_not_compared(validation: Validation) -> None:
    row = replace(ROW, source=Source.NONE, low=None, high=None)
    assert row.compared(replace(validation, values={"cell": (1.0,)})) == "-"


def test_every_case_has_tasks_for_every_seed() -> None:
    assert all(len(case.tasks(3)) <= len(case.tasks(4)) for case in CASES)
    assert sum(len(case.tasks(4)) for case in CASES) > sum(len(case.tasks(3)) for case in CASES)


def test_a_validation_has_the_values_of_all_tasks_in_their_order() -> None:
    machine = asdict(simulation_environment())
    points = tuple(
        PointResult(str(seed), ({"values": {"a": [seed], str(seed): [7.0]}, "took_s": 3.0},))
        for seed in (2, 1)
    )
    made = validation_of(replace(document(points=points), environment=machine))
    assert made.values == {"a": (2, 1), "1": (7.0,), "2": (7.0,)}
    assert made.took_s == pytest.approx(6 / machine["cpu_count"])
    assert Task(volumes.moved).measured()["values"] == volumes.moved()


def test_cheap_cells_of_the_page_are_found_again(validation: Validation) -> None:
    again = {
        **hashing.expected(1000, 16),
        **volumes.moved(),
        **history.pinned(0),
        **fluid.permutation("e-ecmp", "1 MB", 0),
        **scaling.alltoall("1:1", 0),
    }
    for key, values in again.items():
        assert validation[key][: len(values)] == pytest.approx(values, rel=1e-9), key


def test_a_permutation_waits_in_queues_packet_by_packet() -> None:
    for scheme in fluid.SCHEMES:
        key = f"fluid/{scheme}/1 MB"
        (without,) = fluid.permutation(scheme, "1 MB", 0)[f"{key}/all"]
        (measured,) = fluid.packets(scheme, "1 MB", 0)[f"{key}/packets"]
        assert without + 0.02 < measured < 1


def test_the_page_has_the_permutations_that_were_measured_packet_by_packet(
    validation: Validation,
) -> None:
    values = {
        name: value for name, value in validation.values.items() if not name.endswith("/packets")
    }
    assert (
        "packet by packet, with queues" not in pages(replace(validation, values=values))[HOSTS_PAGE]
    )
    with_packets = {**values, "fluid/e-ecmp/1 MB/packets": (0.123, 0.123)}
    text = pages(replace(validation, values=with_packets))[HOSTS_PAGE]
    assert "| e-ecmp | packet by packet, with queues | - | +12.3% | - | - |" in text


def test_every_nic_of_a_job_sends_as_many_bytes() -> None:
    groups = churned(64, np.random.default_rng(1))
    for job in placed(groups, transport(4), 1):
        sends = job.workload.steps[0].sends
        assert sends is not None
        sent = np.bincount(sends.source, sends.size_bytes, job.workload.ranks)
        assert sent == pytest.approx(NIC_BYTES, rel=1e-4)


def test_several_rings_send_what_one_does() -> None:
    groups = churned(64, np.random.default_rng(1), alltoall=False)
    one, four = (
        sum(
            int(sends.size_bytes.sum())
            for job in placed(groups, transport(4), 1, rings=rings)
            if (sends := job.workload.steps[0].sends) is not None
        )
        for rings in (1, 4)
    )
    assert four == pytest.approx(one, rel=1e-6)


@pytest.mark.parametrize("place", [churned, scattered, whole_racks])
def test_no_server_is_in_two_jobs(place: object) -> None:
    assert callable(place)
    groups = place(64, np.random.default_rng(2))
    servers = [server for group in groups for server in group.servers]
    assert len(servers) == len(set(servers))
    assert all(2 <= len(group.servers) <= 32 for group in groups)
    assert all(group.gpus == GPUS * len(group.servers) for group in groups)


def test_no_job_is_faster_than_its_roofline() -> None:
    network = zone(16, 16)
    groups = scattered(32, np.random.default_rng(3))
    traffic = Traffic.of(network, placed(groups, transport(4), 3))
    ratios = traffic.over_roofline(traffic.led(E_ECMP))
    assert (ratios >= 1 - 1e-9).all()
    assert ratios.max() > 1.3


def test_pinned_jobs_on_racks_of_their_own_reach_their_roofline() -> None:
    network = zone(16, 16)
    groups = whole_racks(32, np.random.default_rng(3))
    traffic = Traffic.of(network, placed(groups, transport(1, fixed_port=True), 3))
    assert traffic.over_roofline(traffic.led(PINNED)) == pytest.approx(1.0)


def test_failed_uplinks_are_as_many_as_asked_for_in_each_rack() -> None:
    network = zone(8, 16)
    up = failed_uplinks(network, 3, 2, np.random.default_rng(1))
    lost = np.bincount(network.lower[~up], minlength=network.nodes)
    assert sorted(lost[lost > 0].tolist()) == [2, 2, 2]
    assert (network.tier[network.lower[~up]] == 1).all()
