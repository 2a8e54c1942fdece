"""The convergence table: its plan, the expected routing after a failure, statistics, the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bench.convergence.__main__ as convergence_table
from bench.convergence.__main__ import DOCS, FAILURES
from bench.convergence.aftermath import aftermath, deviations
from bench.convergence.document import (
    CELL,
    SCHEMA_VERSION,
    TABLE,
    CellResult,
    ConvergenceTable,
    Failure,
    Figures,
    LinkFailureTest,
    decisive,
    figures_of,
    percentile,
    summarise,
)
from bench.convergence.plan import (
    COMPARED,
    LAB_NAME,
    QUICK,
    Cell,
    Timers,
    all_cells,
    candidate_links,
    chosen_cells,
    fault_spec,
    lab_spec,
)
from bench.convergence.plot import plot
from bench.convergence.render import DOCUMENT, page, pages, releases_page
from bench.convergence.store import Store
from bench.convergence.traffic import EACH_WAY, OTHERS, choose_probes, crossing
from bench.convergence.validity import unsound
from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.jobs.placement import find_nic
from rocelab.linux.fibtable import Fib, NextHop, Route
from rocelab.planning.build import plan
from rocelab.results.convergence import (
    EventConvergence,
    FlowConvergence,
    FlowMeasurement,
    MeasurementMethod,
    aggregate,
)
from rocelab.results.environment import Environment
from rocelab.results.impact import Impact
from rocelab.results.probes import Event, EventRecord, FibChange, Flow, FlowRecord, ProbeRun, Rate
from rocelab.results.stages import DetectionCause, SwitchStages
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from rocelab.routing.frr.installation import FrrInstallation
from rocelab.sim.events.reaction import Breakage, ReactionPlace

MS = 10**6
SECOND = 10**9


def cell_of(name: str) -> Cell:
    return chosen_cells(name)[0]


def figures(full_ms: float | None, lost: int = 0, touched: int = 0) -> Figures:
    full_ns = None if full_ms is None else round(full_ms * MS)
    names = tuple(f"f{number}" for number in range(1, touched + 1))
    return Figures(
        restored=full_ns is not None or not touched,
        lost=lost,
        full_ns=full_ns,
        first_route_ns=full_ns,
        loss_derived_ns=None if full_ns is None else float(full_ns),
        loss_of_connectivity_ns=full_ns,
        flows=names,
        flow_convergence_ns=(full_ns,) * touched,
        flow_loss_derived_ns=(None,) * touched,
        flow_lost=(lost,) * touched,
    )


def measured(name: str, times_ms: list[float], **changes: Any) -> CellResult:
    cell = cell_of(name)
    switch = SwitchStages(
        "rtsw4", DetectionCause.PEER, 7 * MS, None, 57 * MS, 70 * MS, 71 * MS, None, "p", 1
    )
    traced = Failure(0, figures(72, 70, 4), figures(None), switch)
    result = CellResult(
        schema_version=SCHEMA_VERSION,
        name=name,
        environment=Environment("0.1", "Linux 6", "8.4.4", "3.11", "A CPU", 2, 2**34, "2026-01-01"),
        load_average=(0.25, 0.5, 1.0),
        lab=lab_spec(cell).model_dump(mode="json", exclude_none=True),
        method=MeasurementMethod(10 * MS, 500 * MS),
        subject="rtsw1:ctsw1",
        flows=24,
        crossing=8,
        rate_pps=1000,
        wanted=len(times_ms),
        failures=tuple(Failure(0, figures(ms, round(4 * ms), 4), figures(None)) for ms in times_ms),
        traced=(traced,),
        rejected=0,
        reasons=(),
        took_s=60.0,
        failed=None,
    )
    return replace(result, **changes)


def table(*cells: CellResult) -> ConvergenceTable:
    return ConvergenceTable(SCHEMA_VERSION, "make convergence-table", cells)


def test_every_cell_has_a_name_of_its_own_and_a_lab_that_can_be_planned() -> None:
    cells = all_cells()
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        fabric = plan(lab_spec(cell))
        assert fabric.name == LAB_NAME
        link = candidate_links(fabric, cell.site)[0]
        fault_spec(cell, fabric, link).resolve(fabric)


def test_the_fan_out_of_a_cell_is_the_number_of_uplinks_next_to_its_failure() -> None:
    for cell in all_cells():
        fabric = plan(lab_spec(cell))
        link = candidate_links(fabric, cell.site)[0]
        assert len(fabric.uplinks(link.a.node)) == cell.site.fan_out, cell.name


def test_a_silent_failure_has_the_timers_of_its_lab() -> None:
    for cell in all_cells():
        routing = lab_spec(cell).routing
        if cell.fault.breakage is not Breakage.SILENT:
            assert routing.bfd is None, cell.name
            assert cell.fault.theory_ns is None
        elif routing.bfd is not None:
            assert cell.fault.theory_ns == (
                routing.bfd.interval * (routing.bfd.multiplier - 1),
                routing.bfd.interval * routing.bfd.multiplier,
            )
        else:
            assert cell.fault.theory_ns == (routing.hold - routing.keepalive, routing.hold)


def test_silent_failures_are_planned_only_where_a_session_can_notice_them() -> None:
    for cell in all_cells():
        if cell.fault.breakage is Breakage.SILENT:
            fabric = plan(lab_spec(cell))
            assert candidate_links(fabric, cell.site)[0] in fabric.sessions


def test_a_timer_can_be_late_by_the_period_of_what_restarts_it() -> None:
    timers = Timers(bfd_interval_ns=50 * MS)
    assert timers.detection_ns == (100 * MS, 150 * MS)
    assert Timers(SECOND, 3 * SECOND).detection_ns == (2 * SECOND, 3 * SECOND)


def test_the_quick_cells_are_cells_of_the_plan() -> None:
    assert [cell.name for cell in chosen_cells("*", QUICK)] == [
        cell.name for cell in all_cells() if cell.name in QUICK
    ]
    assert len(chosen_cells("*", QUICK)) == len(QUICK)


def test_a_glob_that_fits_no_cell_is_refused_with_the_cells_there_are() -> None:
    with pytest.raises(InputError) as refused:
        chosen_cells("nothing-*")
    assert "carrier.clos-4" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["bfd-50.clos-4", "bfd-100.zones-4-trunk", "carrier.hpn-4-nic",
                                  "crash.clos-4-spine"])  # fmt: skip
def test_as_many_flows_cross_every_failure_in_each_direction(name: str) -> None:
    cell = cell_of(name)
    fabric = plan(lab_spec(cell))
    link = candidate_links(fabric, cell.site)[0]
    fib_of = planned_fibs(fabric, fabric.prefixes)
    fibs = {node.name: fib_of(node.name) for node in fabric.switches}
    probes = choose_probes(cell, fabric, fibs, link)
    assert (len(probes.flows), probes.crossing) == (2 * EACH_WAY + OTHERS, 2 * EACH_WAY)
    assert len({flow.id for flow in probes.flows}) == len(probes.flows)
    ways = []
    for flow, nodes in zip(probes.flows, probes.paths, strict=True):
        ends = find_nic(fabric, flow.source), find_nic(fabric, flow.destination)
        path = walk(fabric, fib_of, *ends, flow.sport, leaves_by=flow.leaves_by)
        assert path.nodes == nodes
        ways.append(crossing(cell, path, link))
    assert ways[probes.crossing :] == [""] * OTHERS
    crossed = sorted(ways[: probes.crossing])
    both = ["down"] * EACH_WAY + ["up"] * EACH_WAY
    assert crossed == (
        ["through"] * 2 * EACH_WAY if cell.site.place is ReactionPlace.SPINE else both
    )


def whole_tables(cell: Cell) -> dict[str, Fib]:
    fabric = plan(lab_spec(cell))
    fib_of = planned_fibs(fabric, fabric.prefixes)
    return {node.name: fib_of(node.name) for node in fabric.switches}


@pytest.mark.parametrize("cell", all_cells(), ids=lambda cell: cell.name)
def test_whole_tables_have_not_dealt_with_a_failure(cell: Cell) -> None:
    fabric = plan(lab_spec(cell))
    after = aftermath(cell, fabric, candidate_links(fabric, cell.site)[0])
    assert deviations(after, whole_tables(cell))


def test_after_a_lost_uplink_other_racks_leave_out_that_spine_for_this_rack_alone() -> None:
    cell = cell_of("carrier.clos-4")
    fabric = plan(lab_spec(cell))
    after = aftermath(cell, fabric, fabric.link_by_name["rtsw1:ctsw1"]).interfaces
    [first] = fabric.prefixes_holding(fabric.nics("srv1-1")[0].ip)
    [second] = fabric.prefixes_holding(fabric.nics("srv2-1")[0].ip)
    assert after["rtsw2", first.prefix] == {"ctsw2", "ctsw3", "ctsw4"}
    assert after["rtsw1", second.prefix] == {"ctsw2", "ctsw3", "ctsw4"}
    assert after["rtsw3", second.prefix] == {"ctsw1", "ctsw2", "ctsw3", "ctsw4"}
    assert after["ctsw1", first.prefix] == frozenset()


def test_after_a_lost_nic_port_only_the_other_tor_announces_the_nic() -> None:
    cell = cell_of("carrier.hpn-4-nic")
    fabric = plan(lab_spec(cell))
    link = candidate_links(fabric, cell.site)[0]
    after = aftermath(cell, fabric, link).interfaces
    prefix = f"{link.a.ip}/32"
    others = {port.b.node for port in fabric.nics(link.a.node)[0].links} - {link.b.node}
    assert (link.b.node, prefix) in after
    assert not any((other, prefix) in after for other in others)


def test_nothing_is_asked_of_a_switch_that_failed() -> None:
    cell = cell_of("power.clos-4-spine")
    fabric = plan(lab_spec(cell))
    link = candidate_links(fabric, cell.site)[0]
    assert link.b.node not in {node for node, _ in aftermath(cell, fabric, link).interfaces}


def test_a_next_hop_without_carrier_is_not_in_use() -> None:
    cell = cell_of("carrier.clos-4")
    fabric = plan(lab_spec(cell))
    after = aftermath(cell, fabric, fabric.link_by_name["rtsw1:ctsw1"])
    tables = {
        node: Fib(
            tuple(
                Route(prefix, tuple(NextHop(name, None) for name in sorted(names)))
                for (owner, prefix), names in after.interfaces.items()
                if owner == node and names
            )
        )
        for node in {node for node, _ in after.interfaces}
    }
    assert deviations(after, tables) == ()
    [route, *rest] = tables["rtsw1"].routes
    dead = NextHop("ctsw1", None, carrier=False)
    tables["rtsw1"] = Fib((replace(route, next_hops=(*route.next_hops, dead)), *rest))
    assert deviations(after, tables) == ()
    alive = replace(dead, carrier=True)
    tables["rtsw1"] = Fib((replace(route, next_hops=(*route.next_hops, alive)), *rest))
    [difference] = deviations(after, tables)
    assert difference.startswith(f"rtsw1 {route.prefix}: over ctsw1 ")


def test_a_longer_way_is_right_where_no_shortest_is_left_unless_it_is_over_what_failed() -> None:
    cell = cell_of("bfd-50.hpn-4-tor")
    fabric = plan(lab_spec(cell))
    link = candidate_links(fabric, cell.site)[0]
    after = aftermath(cell, fabric, link)
    agg = link.b.node
    lost = next(
        prefix for (node, prefix), ways in after.interfaces.items() if node == agg and not ways
    )

    def found(interface: str) -> list[str]:
        table = Fib((Route(lost, (NextHop(interface, None),)),))
        differences = deviations(after, {agg: table})
        return [line for line in differences if line.startswith(f"{agg} {lost}:")]

    assert found("core2") == []
    assert found(link.b.interface) == [f"{agg} {lost}: over {link.a.node} instead of nothing"]


def test_the_95th_percentile_of_20_is_the_19th() -> None:
    assert percentile(range(20, 0, -1), 0.95) == 19
    assert percentile([7], 0.95) == 7


@given(st.lists(st.integers(0, 10**10), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_a_value_that_the_share_does_not_exceed(
    values: list[int], share: float
) -> None:
    bound = percentile(values, share)
    assert bound in values
    assert sum(value <= bound for value in values) >= share * len(values) - 1e-6
    assert sum(value < bound for value in values) < share * len(values) + 1e-6


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="needs values"):
        percentile([], 0.5)


def test_a_failure_without_loss_converged_in_no_time_and_one_without_recovery_in_none() -> None:
    one = summarise([figures(None), figures(None, 900, 2), figures(30, 60, 2)])
    assert (one.n, one.unrestored) == (3, 1)
    assert (one.median_ns, one.max_ns) == (0, 30 * MS)
    assert (one.lost_median, one.lost_max, one.touched_max) == (60, 900, 2)


def test_the_decisive_switch_is_the_last_to_change_before_the_last_flow_recovered() -> None:
    def switch(node: str, kernel_ms: int | None) -> SwitchStages:
        kernel_ns = None if kernel_ms is None else kernel_ms * MS
        return SwitchStages(node, None, None, None, None, None, kernel_ns, None, None, 1)

    stages = [switch("a", 20), switch("b", 49), switch("late", 300), switch("none", None)]
    node = decisive(stages, figures(50, 10, 1), MS)
    assert node is not None
    assert node.node == "b"
    assert decisive(stages, figures(None), MS) is None


def test_a_cell_reads_back_as_it_was_written() -> None:
    cell = measured("carrier.clos-4", [125.0, 130.5])
    assert CELL.read(to_json(cell)) == cell


def test_the_page_has_a_row_per_cell_with_its_percentiles_and_losses() -> None:
    times = [float(ms) for ms in range(101, 121)]
    text = page(table(measured("carrier.clos-4", times)), ["flap.clos-4"])
    row = next(line for line in text.splitlines() if line.startswith("| 2-tier Clos"))
    assert row == (
        "| 2-tier Clos | RTSW-CTSW link | 4 | 20 | 110 ms | 119 ms | 120 ms | 440 | 480 "
        "| 4 | 4 | 8 |"
    )
    assert "- 2 CPUs (A CPU), 16 GiB" in text
    assert "- Linux 6, FRR 8.4.4, Python 3.11" in text
    assert (
        "| cable pulled | 1 | neighbour's update | 7 ms | 57 ms | 70 ms | 71 ms | 72 ms |" in text
    )
    assert "- not measured yet: flap.clos-4" in text


def test_the_page_says_when_a_timer_must_notice_beside_the_measurement() -> None:
    text = page(table(measured("bfd-50.clos-4", [160.0])), [])
    assert "a session detects the failure after 100 ms to 150 ms" in text
    assert "None: every failure counts" in text


def test_a_failed_cell_is_on_the_page_with_its_reason_and_what_it_had() -> None:
    failed = measured("crash.clos-4-spine", [80.0], wanted=20, failed="MachineError: no room\nx")
    empty = measured("power.clos-4-spine", [], wanted=20, failed="InputError: refused", traced=())
    lines = page(table(failed, empty), []).splitlines()
    assert "- crash.clos-4-spine failed: MachineError: no room x" in lines
    assert any("| 1 of 20 | 80 ms " in line for line in lines)
    assert any("| 0 | not measured |" in line for line in lines)


def test_rejected_failures_are_counted_on_the_page() -> None:
    cell = measured("carrier.clos-4", [125.0], rejected=5, reasons=("a sender stalled",))
    assert "- carrier.clos-4: 5 failures measured again: a sender stalled" in page(table(cell), [])


def test_an_empty_table_is_a_page_too() -> None:
    assert "Nothing is measured yet." in page(table(), ["carrier.clos-4"])


@pytest.mark.long
def test_the_plot_is_the_same_bytes_for_the_same_table_and_names_each_class() -> None:
    cells = measured("carrier.clos-4", [125.0, 130.0]), measured("bfd-50.clos-4", [150.0])
    drawn = plot(table(*cells))
    assert drawn == plot(table(*cells))
    assert "cable pulled" in drawn
    assert "silent failure, BFD 3 x 50 ms" in drawn
    assert "graceful drain" not in drawn


def test_a_rerun_goes_on_with_what_is_missing_failed_or_too_few(tmp_path: Path) -> None:
    store = Store(tmp_path / "cells")
    cells = chosen_cells("carrier.clos-*")
    assert store.unfinished(cells, 2) == cells
    store.write(measured("carrier.clos-2", [1.0, 2.0]))
    store.write(measured("carrier.clos-4", [1.0]))
    store.write(measured("carrier.clos-8", [1.0, 2.0], failed="ExpectationError: never whole"))
    names = [cell.name for cell in store.unfinished(cells, 2)]
    assert names == ["carrier.clos-4", "carrier.clos-8", "carrier.clos-16"]
    assert [result.name for result in store.read_all(cells)] == [
        "carrier.clos-2",
        "carrier.clos-4",
        "carrier.clos-8",
    ]


def test_a_cell_of_another_lab_is_measured_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    cell = cell_of("carrier.clos-2")
    other = lab_spec(cell_of("carrier.clos-4")).model_dump(mode="json", exclude_none=True)
    store.write(measured("carrier.clos-2", [1.0], lab=other))
    assert store.read(cell) is None


def test_a_cell_of_a_lab_from_before_a_key_was_added_still_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    cell = cell_of("carrier.clos-2")
    lab = lab_spec(cell).model_dump(mode="json", exclude_none=True)
    del lab["management"]
    store.write(measured("carrier.clos-2", [1.0], lab=lab))
    assert store.read(cell) is not None


def of_release(version: str, name: str, times_ms: list[float], **changes: Any) -> CellResult:
    cell = measured(name, times_ms, **changes)
    return replace(cell, environment=replace(cell.environment, frr_version=version))


def test_cells_of_another_release_are_kept_beside_those_of_the_plan(tmp_path: Path) -> None:
    store = Store(tmp_path)
    cell = cell_of("carrier.clos-4")
    store.write(measured("carrier.clos-4", [1.0]))
    for version in ("10.3", "8.4.4", "10.10"):
        store.of_release(version).write(of_release(version, "carrier.clos-4", [2.0, 3.0]))
    result, other = store.read(cell), store.of_release("10.3").read(cell)
    assert result is not None and other is not None
    assert (len(result.failures), result.environment.frr_version) == (1, "8.4.4")
    assert (len(other.failures), other.environment.frr_version) == (2, "10.3")
    assert store.releases() == ("8.4.4", "10.3", "10.10")


def test_a_store_is_filled_from_a_published_table_and_keeps_what_it_has(tmp_path: Path) -> None:
    published = replace(
        table(measured("carrier.clos-2", [1.0]), measured("carrier.clos-4", [1.0, 2.0])),
        releases=(of_release("10.3", "carrier.clos-4", [9.0]),),
    )
    store = Store(tmp_path)
    store.write(measured("carrier.clos-4", [3.0]))
    store.take(TABLE.read(to_json(published)))
    cells = chosen_cells("carrier.clos-[24]")
    assert store.read_all(cells) == (published.cells[0], measured("carrier.clos-4", [3.0]))
    assert store.of_release("10.3").read_all(cells) == published.releases


def test_the_published_table_is_of_the_plan_so_that_its_page_can_be_made_again(
    tmp_path: Path,
) -> None:
    published = TABLE.read((DOCS / DOCUMENT).read_text(encoding="utf-8"))
    store = Store(tmp_path)
    store.take(published)
    assert store.unfinished(all_cells(), FAILURES) == ()
    for name, text in pages(published, []).items():
        assert (DOCS / name).read_text(encoding="utf-8") == text


def test_releases_are_compared_by_a_cell_of_each_way_to_fail() -> None:
    cells = {cell.name: cell for cell in all_cells()}
    assert set(COMPARED) <= set(cells)
    assert {cells[name].fault.breakage for name in COMPARED} == set(Breakage)


def test_rows_of_two_releases_stand_side_by_side_and_each_names_its_own() -> None:
    releases = (
        of_release("8.4.4", "carrier.clos-4", [125.0]),
        of_release("10.3", "carrier.clos-4", [60.0], rejected=5, reasons=("a sender stalled",)),
    )
    both = replace(table(measured("carrier.clos-4", [130.0])), releases=releases)
    text, compared = page(both, []), releases_page(releases)
    assert "(frr-releases.md)" in text
    rows = [line for line in compared.splitlines() if line.startswith("| cable pulled")]
    place = "| cable pulled | 2-tier Clos | RTSW-CTSW link | 4 "
    assert [row.partition(" | 1 |")[0] for row in rows[:2]] == [
        f"{place}| 8.4.4",
        f"{place}| 10.3",
    ]
    assert "| 10.3 | 1 | 60 ms |" in rows[1]
    assert f"{place}| 10.3 | 1 | neighbour's update |" in rows[3]
    assert "FRR 8.4.4 and 10.3" in compared
    assert "- carrier.clos-4 (FRR 10.3): 5 failures measured again: a sender stalled" in text
    assert "different machines" not in text
    assert "different releases" not in text
    columns = [line.count("|") for line in compared.splitlines() if line.startswith("|")]
    assert columns == [15] * 4 + [13] * 4
    drawn = plot(replace(table(), releases=releases))
    assert "FRR 10.3" in drawn
    assert "FRR releases side by side" in drawn


def test_machines_that_differ_and_releases_mixed_in_the_plan_s_rows_are_said() -> None:
    one, two = measured("carrier.clos-4", [125.0]), of_release("10.3", "flap.clos-4", [60.0])
    assert "rows are of different releases of FRR" in page(table(one, two), [])
    other = replace(two, environment=replace(one.environment, kernel="Linux 7"))
    text = page(table(one, other), [])
    assert "**2 different machines**" in text
    assert "different releases" not in text


def test_a_release_is_compared_cell_by_cell_with_this_machine_s_and_not_with_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FrrInstallation("8.4.4", "/usr/lib/frr", 1, 1, False, "/run/frr", "")
    monkeypatch.setattr(
        convergence_table,
        "find_installation",
        lambda folder: made if folder is None else replace(made, version=folder.name),
    )
    cells = chosen_cells("*.clos-4", COMPARED)[:2]
    tasks = convergence_table._comparison(Store(tmp_path), cells, Path("/opt/10.3"))
    assert [(task.title, task.frr) for task in tasks[:2]] == [
        ("carrier.clos-4, FRR 8.4.4", None),
        ("carrier.clos-4, FRR 10.3", Path("/opt/10.3")),
    ]
    assert [task.cell for task in tasks] == [
        task_cell for cell in cells for task_cell in (cell, cell)
    ]
    assert len({task.store.folder for task in tasks}) == 2
    with pytest.raises(InputError, match=r"has FRR 8\.4\.4, as this machine has"):
        convergence_table._comparison(Store(tmp_path), cells, Path("/opt/8.4.4"))


def test_a_file_that_is_no_cell_is_named(tmp_path: Path) -> None:
    (tmp_path / "carrier.clos-2.json").write_text("{")
    with pytest.raises(InputError, match=r"carrier\.clos-2\.json"):
        Store(tmp_path).read(cell_of("carrier.clos-2"))


def event(change: Literal["begin", "end"], t_ms: int) -> EventRecord:
    none = EventConvergence(0, True, 0, 0, None, None, None, None, None)
    return EventRecord(Event(t_ms * MS, "blackhole", change, "rtsw1:ctsw1"), none)


def run_of(touched: set[str], fib: tuple[FibChange, ...] = ()) -> ProbeRun:
    """A failure at 0 and its repair at 2 s, under flows f1 and f2."""
    idle = FlowConvergence(False, True, 0, 0, None, None, None, None)
    hit = FlowConvergence(True, True, 9, 0, 9 * MS, 9e6, 9 * MS, 10 * MS)
    records = []
    for name in ("f1", "f2"):
        events = (hit if name in touched else idle, idle)
        measurement = FlowMeasurement(9, 9, 0, 0, 0, 0, 0, 1000.0, 1e6, (), events)
        flow = Flow(name, "srv1-1", "srv2-1", "198.18.0.1", "198.18.0.9", 50000, 4791)
        records.append(FlowRecord(flow, measurement, Rate(0, MS, (), ())))
    whole = aggregate([record.measurement for record in records], [])
    return ProbeRun((), whole, (event("begin", 0), event("end", 2000)), tuple(records), fib, ())


def test_a_run_whose_routes_changed_just_before_a_failure_does_not_count() -> None:
    def change(t_ms: int) -> FibChange:
        return FibChange(t_ms * MS, "rtsw2", "198.18.0.0/29", "replace", 4, 3)

    assert (
        unsound(run_of({"f1"}, (change(-500), change(40), change(1990))), ["f1"], silent=True) == ()
    )
    [reason] = unsound(run_of({"f1"}, (change(-30),)), ["f1"], silent=True)
    assert "routes of rtsw2 changed before a failure" in reason


def test_a_silent_failure_must_touch_the_flows_that_cross_it_and_no_others() -> None:
    assert unsound(run_of({"f1"}), ["f1"], silent=True) == ()
    [reason] = unsound(run_of({"f2"}), ["f1"], silent=True)
    assert "touched 0 of the 1 flows that should cross it, and 1 others" in reason
    assert unsound(run_of({"f2"}), ["f1"], silent=False) == ()


def test_figures_are_of_the_event_asked_for() -> None:
    failure, repair = figures_of(run_of({"f2"}), 0), figures_of(run_of({"f2"}), 1)
    assert (failure.flows, failure.flow_lost, failure.flow_convergence_ns) == (
        ("f2",),
        (9,),
        (9 * MS,),
    )
    assert repair.flows == ()


def test_the_page_says_what_a_failed_link_costs_a_job() -> None:
    cell = measured(all_cells()[0].name, [5.0] * 3)
    impacts = tuple(
        Impact(6, round(900 * MS * (1 + over)), 5, 900.0 * MS, 950.0 * MS, over, over <= 0.05)
        for over in (0.02, 0.3, 0.5)
    )
    job = LinkFailureTest(
        SCHEMA_VERSION, "ietf-link-failure", 10000.0, cell.environment, impacts, (8, 90, 104), 2
    )
    text = page(replace(table(cell), job=job), [])
    assert "| 3 | 900 ms | 30.0% | 50.0% | 50.0% | 1 of 3 | 90 | 104 |" in text
    assert "2 further jobs were not valid" in text
    assert "What a failed link costs a job" not in page(table(cell), [])
