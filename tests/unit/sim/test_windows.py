"""What a window holds back, of transfers computed by hand and of the packet engine's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rocelab.jobs.job_spec import SimulatedJob
from rocelab.labfile.model import LabSpec
from rocelab.results.engines import Engine
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Change, Limits, Program
from rocelab.sim.engine.run import run
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from rocelab.sim.windows import Windowed, limits_of, round_trips_s

ROUND_S = 0.6
WINDOW_BITS = 5.0


def ends(
    *transfers: tuple[float, float], window_bits: float = WINDOW_BITS, line_bps: float = 10.0
) -> list[float]:
    """When transfers of a flow end, each begun so long after the one before: (seconds, bits)."""
    after_s, bits = zip(*transfers, strict=True)
    tasks = len(transfers)
    program = Program(
        after_start=np.array([0, *range(tasks)]),
        after=np.arange(tasks - 1, dtype=np.int32),
        delay_s=np.array(after_s),
        latency_s=np.zeros(tasks),
        first_transfer=np.arange(tasks + 1),
        flow=np.zeros(tasks, np.int32),
        size_bits=np.array(bits),
        limits=Limits(
            np.zeros(1, np.int32),
            np.array([ROUND_S]),
            np.array([window_bits]),
            np.array([line_bps]),
        ),
    )
    path = Paths(np.array([0, 1]), np.zeros(1, np.int32))
    outcome = run(program, path, np.full(1, 10.0), prove=True)
    return [round(end, 9) for end in outcome.finish_s.tolist()]


def test_each_full_window_waits_for_a_round_trip() -> None:
    """Windows of 5 bits take 0.5 s of 0.6 s: 9 of these in 50 bits, and the last."""
    assert ends((0.0, 50.0)) == [5.9]
    assert ends((0.0, 51.0)) == [6.1]
    assert ends((0.0, 5.0)) == [0.5]
    assert ends((0.0, 50.0), window_bits=np.inf, line_bps=4.0) == [12.5]


def test_transfers_of_a_queue_pair_share_a_window() -> None:
    assert ends((0.0, 5.0), (0.0, 5.0)) == [0.5, 1.1]
    assert ends((0.0, 5.0), (0.05, 5.0)) == [0.5, 1.1]
    assert ends((0.0, 5.0), (0.3, 5.0)) == [0.5, 1.3]
    assert ends((0.0, 5.0), (9.0, 50.0)) == [0.5, 15.4]


def test_many_short_transfers_are_held_back_too() -> None:
    """A window of them in a round trip, which their bits fill evenly after the first one."""
    last = ends(*[(0.001, 0.5)] * 100)[-1]
    assert last == pytest.approx(9 * ROUND_S + 0.5, rel=0.01)


def test_a_limit_outlives_a_change_of_paths() -> None:
    limits = Limits(
        np.zeros(1, np.int32), np.array([ROUND_S]), np.array([WINDOW_BITS]), np.array([10.0])
    )
    program = Program(
        np.zeros(2, np.int64),
        np.empty(0, np.int32),
        np.zeros(1),
        np.zeros(1),
        np.array([0, 1]),
        np.zeros(1, np.int32),
        np.array([50.0]),
        limits=limits,
    )
    one, other = (Paths(np.array([0, 1]), np.full(1, send, np.int32)) for send in (0, 1))
    nowhere = Paths(np.array([0, 0]), np.empty(0, np.int32))
    changes = [Change(1.0, paths=nowhere), Change(2.0, np.array([10.0, 9.0]), other)]
    outcome = run(program, one, np.full(2, 10.0), changes=changes, prove=True)
    assert outcome.finish_s.tolist() == pytest.approx([6.9])
    assert outcome.held is not None and outcome.held.tolist() == [0]
    assert outcome.sent_bits.tolist() == pytest.approx([50 / 5.9, 50 - 50 / 5.9])


def windowed(packets: int, window: int, **more: Any) -> Windowed:
    base = {
        "packets": np.array([packets]),
        "bits": np.array([8000.0 * packets]),
        "window": np.array([window]),
        "ack_every": np.ones(1, np.int64),
        "ack_bits": 688,
        "latency_s": np.array([3e-6]),
        "ring": np.full(1, -1),
        "rounds": np.zeros(1),
        "between_s": np.zeros(1),
    }
    return Windowed(**{**base, **more})


TWO_LINKS, RATES = Paths(np.array([0, 2]), np.array([0, 1], np.int32)), np.array([2e9, 1e9])


def test_a_round_trip_is_of_the_path() -> None:
    """A packet over links of 2 and 1 Gb/s and its ACK, each serialised twice, and both latencies;
    with ACKs for four packets three more over the slower link."""
    (alone_s,) = round_trips_s(windowed(100, 10), TWO_LINKS, RATES)
    assert alone_s == pytest.approx(8688 / 2e9 + 8688 / 1e9 + 6e-6)
    (of_four_s,) = round_trips_s(windowed(100, 10, ack_every=np.full(1, 4)), TWO_LINKS, RATES)
    assert of_four_s == pytest.approx(alone_s + 3 * 8000 / 1e9)


def test_only_flows_that_a_window_can_hold_back_have_limits() -> None:
    limits = limits_of(windowed(100, 2), TWO_LINKS, RATES)
    assert limits is not None and limits.window_bits.tolist() == [16000.0]
    assert limits.line_bps.tolist() == [1e9]
    assert limits_of(windowed(100, 3), TWO_LINKS, RATES) is None
    assert limits_of(windowed(2, 2), TWO_LINKS, RATES) is None


# --- beside packets -------------------------------------------------------------------------------


def time_us(delay_us: int, engine: Engine, **keys: Any) -> float:
    fabric = {"racks": 4, "spines": 4, "servers_per_rack": 2}
    links = {"delay": f"{delay_us}us"}
    spec = LabSpec.model_validate({"name": "lab", "fabric": fabric, "links": links})
    job = SimulatedJob.model_validate({"name": "job", "collective": keys})
    (time_ns,) = simulate(spec, [job], Options(engine=engine)).jobs[0].iterations_ns
    assert time_ns is not None
    return time_ns / 1e3


@pytest.mark.parametrize("delay_us", [1, 25, 250])
@pytest.mark.parametrize(
    "keys",
    [
        {"pattern": "incast", "ranks": 2, "size": "64MB", "placement": ["srv1-1", "srv4-1"]},
        {"pattern": "incast", "ranks": 2, "size": "2100KB", "placement": ["srv1-1", "srv4-1"]},
        {"pattern": "allreduce", "ranks": 8, "size": "8MiB"},
        {"pattern": "allreduce", "ranks": 8, "size": "16MiB"},
        {"pattern": "allreduce", "ranks": 8, "size": "33MiB"},
        {"pattern": "broadcast", "ranks": 8, "size": "64MB", "transport": {"window": 100}},
    ],
)
def test_a_fluid_and_packets_agree_at_any_delay(delay_us: int, keys: dict[str, Any]) -> None:
    """Packets also wait for the last ACK, which comes back over four links."""
    fluid, packets = (
        time_us(delay_us, engine, **keys) for engine in (Engine.FLUID, Engine.PACKETS)
    )
    assert fluid == pytest.approx(packets - 4 * delay_us, rel=0.035)
