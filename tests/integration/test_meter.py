"""The error of the measurement itself: the length of a blackhole is reported exactly.

The kernel begins and ends the blackhole by its own clock, at instants set in advance; routing does
not react, since the hold timer is far longer than any of them. What remains is the error of the
measurement: an interval of packets, and the lateness of packets, which the drill records.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rocelab.drills.run import run_drill
from rocelab.results.drill import DrillResult
from tests.helpers.long import mostly_long
from tests.helpers.measured import measured, probe_runs, problems_of_drill

RATE_PPS = 2000
INTERVAL_NS = 10**9 // RATE_PPS
DRILLS_MS = ((4, (5, 12, 50)), (20, (200, 1000, 2500)))
"""The limit of lateness in ms, and the blackholes' lengths. Later packets could miss the shortest
ones, which therefore have a short drill: a busy machine is not punctual for the duration of the
others."""
GAP_MS = 700
SAMPLING_NS = 5 * 10**6

LAB = """name: it-meter
fabric: {kind: clos, racks: 2, spines: 1, servers_per_rack: 1}
routing: {keepalive: 10s, hold: 30s}
"""


@dataclass(frozen=True)
class Drilled:
    """A drill with a blackhole of each of these lengths, on the only path."""

    lengths_ms: tuple[int, ...]
    result: DrillResult


@pytest.fixture(scope="module", params=mostly_long(DRILLS_MS, DRILLS_MS[:1]), ids=("short", "long"))
def drilled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Drilled:
    most_late_ms, lengths_ms = request.param
    folder = tmp_path_factory.mktemp("meter")
    lab = folder / "it-meter.yaml"
    lab.write_text(LAB)
    faults, at_ms = [], 500
    for length_ms in lengths_ms:
        faults.append(
            f"  - {{kind: blackhole, at: {at_ms}ms, link: 'rtsw1:ctsw1', towards: ctsw1, "
            f"lasts: {length_ms}ms}}"
        )
        at_ms += length_ms + GAP_MS
    file = folder / "meter.yaml"
    file.write_text(
        f"name: meter\nlab: {lab}\n"
        f"traffic: {{flows: 2, rate_pps: {RATE_PPS}, warmup: 500ms, duration: {at_ms + 300}ms}}\n"
        "measure: {sampling_interval: 5ms, sustained: 300ms}\n"
        "faults:\n" + "\n".join(faults) + "\n"
    )

    def run() -> DrillResult:
        return run_drill(file, retries=0)

    def problems(drill: DrillResult) -> tuple[str, ...]:
        late_ns = late_ns_of(drill)
        late = f"not valid because packets left up to {late_ns / 1e6:.1f} ms late"
        return problems_of_drill(drill) + ((late,) if late_ns > most_late_ms * 10**6 else ())

    return Drilled(lengths_ms, measured(run, problems))


def late_ns_of(drill: DrillResult) -> int:
    """The greatest lateness of any flow's packets."""
    fidelity = probe_runs(drill)[0].fidelity
    assert fidelity is not None
    return fidelity.lag_max_ns


def test_a_blackhole_is_reported_as_long_as_it_was(drilled: Drilled) -> None:
    (repeat,) = probe_runs(drilled.result)
    (hit,) = [record for record in repeat.flows if record.flow.source == "srv1-1"]
    outages = [outage for outage in hit.measurement.outages if outage.event is not None]
    assert len(outages) == len(drilled.lengths_ms)
    error_ns = 1.5 * INTERVAL_NS + late_ns_of(drilled.result)
    for length_ms, outage in zip(drilled.lengths_ms, outages, strict=True):
        assert outage.end_ns is not None
        assert outage.end_ns - outage.start_ns == pytest.approx(length_ms * 10**6, abs=error_ns)
        assert outage.lost == pytest.approx(length_ms * RATE_PPS / 1000, abs=error_ns / INTERVAL_NS)


def test_the_methods_of_rfc_6412_agree_within_what_each_resolves(drilled: Drilled) -> None:
    """The rate-derived one uses arrivals, so a receiver that waits for a CPU lengthens it: it is
    never shorter than the fault, and exact but for what was late."""
    begun = [
        record for record in probe_runs(drilled.result)[0].events if record.event.change == "begin"
    ]
    assert len(begun) == len(drilled.lengths_ms)
    error_ns = 1.5 * INTERVAL_NS + late_ns_of(drilled.result)
    for length_ms, record in zip(drilled.lengths_ms, begun, strict=True):
        length_ns, convergence = length_ms * 10**6, record.convergence
        assert convergence.affected_flows == 1
        assert convergence.full_convergence_ns == pytest.approx(length_ns, abs=error_ns)
        assert convergence.loss_derived_ns == pytest.approx(length_ns, abs=error_ns)
        assert convergence.loss_of_connectivity_ns == pytest.approx(length_ns, abs=error_ns)
    rates = [record.convergence.rate_derived_ns or 0 for record in begun]
    errors = [
        rate - length_ms * 10**6 for rate, length_ms in zip(rates, drilled.lengths_ms, strict=True)
    ]
    assert min(errors) >= -SAMPLING_NS
    most_ns = 2 * SAMPLING_NS + late_ns_of(drilled.result)
    assert sum(error <= most_ns for error in errors) >= len(errors) - 1


def test_the_other_direction_loses_nothing(drilled: Drilled) -> None:
    (back,) = [r for r in probe_runs(drilled.result)[0].flows if r.flow.source == "srv2-1"]
    assert back.measurement.lost == 0
