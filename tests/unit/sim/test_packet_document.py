"""What a document, a page and a terminal say of packets and of flow completion times."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rocelab.base.documents import to_json
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.model import LabSpec
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.report.simulation.document import simulation_document
from rocelab.results.engines import Engine, PortModel
from rocelab.results.simulation import SimulationReport, from_json
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from tests.unit.conftest import CommandLine

SPEC = LabSpec.model_validate(
    {
        "name": "lossy",
        "fabric": {"kind": "clos", "racks": 2, "spines": 2, "servers_per_rack": 4},
        "queues": {"buffer": "400KB", "ecn": {"kmin": "50KB", "kmax": "200KB"}},
    }
)


def report(
    pattern: str,
    ranks: int,
    engine: Engine,
    size: str = "1MB",
    spec: LabSpec = SPEC,
    **transport: object,
) -> SimulationReport:
    keys = {"pattern": pattern, "ranks": ranks, "size": size, "transport": transport}
    return simulate(spec, [collective_job(JobSpec.model_validate(keys))], Options(engine=engine))


@pytest.fixture(scope="module")
def incast() -> SimulationReport:
    return report("incast", 8, Engine.PACKETS, dcqcn="hpcc-dcqcn")


def test_a_document_counts_what_packets_did(incast: SimulationReport) -> None:
    packets = incast.packets
    assert packets is not None
    assert packets.data_packets == 7 * 245 + packets.retransmitted
    assert min(packets.marks, packets.drops, packets.cnps, packets.naks, packets.acks) > 0
    assert packets.cnps == packets.marked <= packets.marks, "a CNP for each mark that arrived"
    highest = [queue.highest_bytes for queue in packets.queues]
    assert highest == sorted(highest, reverse=True) and 300_000 < highest[0] <= 400_000
    assert sum(queue.drops for queue in packets.queues) == packets.drops
    assert sum(queue.marks for queue in packets.queues) == packets.marks
    assert all(queue.port.startswith(("rtsw", "ctsw")) for queue in packets.queues)
    assert from_json(to_json(incast)) == incast


def test_no_link_is_in_use_for_longer_than_it_sends() -> None:
    """What was sent again in vain leaves when the last transfer is over."""
    slow = {"racks": 2, "spines": 1}, {"rate": "25G", "server_rate": "100G", "delay": "1ns"}
    spec = LabSpec.model_validate({"name": "slow", "fabric": slow[0], "links": slow[1]})
    hasty = {"window": 64, "ack_every": 600, "ack_timeout": "1us"}
    document = report("pairs", 2, Engine.PACKETS, "200KB", spec, **hasty)
    assert document.packets is not None
    assert document.packets.retransmitted > document.packets.data_packets / 2
    assert 0.9 < max(use.utilisation_max for use in document.uses) <= 1


def test_a_terminal_and_a_page_show_it(incast: SimulationReport) -> None:
    assert incast.packets is not None
    console = Console(file=io.StringIO(), width=200)
    print_document(simulation_document(incast), console)
    for text in (console.file.getvalue(), html(simulation_document(incast))):  # type: ignore[attr-defined]
        assert "Flow completion" in text and "Highest queues of switch ports" in text
        assert f"{incast.packets.drops:,}" in text and incast.packets.queues[0].port in text


@pytest.mark.parametrize(
    ("ports", "note"),
    [
        (PortModel.STORE_AND_FORWARD, "hosts take no time."),
        (PortModel.LAB, "hosts wake as in a lab."),
    ],
)
def test_what_is_left_out_of_hosts_is_said_as_the_ports_are(ports: PortModel, note: str) -> None:
    job = collective_job(JobSpec.model_validate({"pattern": "incast", "ranks": 2, "size": "4KB"}))
    options = Options(engine=Engine.PACKETS, ports=ports, hop_latency_ns=2)
    report = simulate(SPEC, [job], options)
    console = Console(file=io.StringIO(), width=200)
    print_document(simulation_document(report), console)
    assert note in console.file.getvalue()  # type: ignore[attr-defined]
    assert any("until its hosts wake" in text for text in report.method.leaves_out)


def test_a_user_varies_what_is_drawn_and_the_result_says_with_which_seed(
    tmp_path: Path,
    rocelab: CommandLine,
) -> None:
    lab = tmp_path / "lossy.yaml"
    lab.write_text(json.dumps(SPEC.model_dump(mode="json", exclude_unset=True)))
    job = ("--pattern", "incast", "--ranks", "6", "--size", "500KB", "--engine", "packets")

    def done(*seed: str) -> SimulationReport:
        return from_json(rocelab("simulate", lab, *job, *seed, "--json").out)

    first, same, other = (done(*seed) for seed in ((), ("--engine-seed=1",), ("--engine-seed=2",)))
    assert [document.method.seed for document in (first, same, other)] == [1, 1, 2]
    assert first.packets == same.packets != other.packets
    text = rocelab("simulate", lab, *job, "--engine-seed=2").out
    assert "ports store-and-forward, seed 2" in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--engine-seed: the fluid engine draws no random numbers"),
        (("--engine", "packets"), "--engine-seed: expected 0 to 4294967295, got -1"),
    ],
)
def test_a_seed_that_draws_nothing_is_refused(
    words: tuple[str, ...],
    said: str,
    rocelab: CommandLine,
) -> None:
    job = ("--pattern", "incast", "--ranks", "2", "--size", "4KB")
    outcome = rocelab("simulate", "zone-1-1", *job, *words, "--engine-seed=-1")
    assert outcome.code == 2 and said in outcome.err


def test_both_engines_have_flow_completion_times_and_one_has_packets(
    incast: SimulationReport,
) -> None:
    fluid = report("incast", 8, Engine.FLUID)
    assert fluid.packets is None
    for times in (fluid.flow_times, incast.flow_times):
        assert times is not None and times.transfers == 7
        for spread in (times.time_ns, times.slowdown):
            assert spread.p50 <= spread.p99 <= spread.maximum >= spread.mean
    assert fluid.flow_times is not None
    alone_us, two_links_us = (1_000_000 + 245 * 82) * 8 / 400e3, 2
    highest = (7 * alone_us + two_links_us) / (alone_us + two_links_us)
    assert fluid.flow_times.slowdown.maximum == pytest.approx(highest, rel=1e-4)


@pytest.mark.parametrize("engine", (Engine.FLUID, Engine.PACKETS))
def test_a_flow_alone_is_hardly_slowed_down(engine: Engine) -> None:
    times = report("pairs", 2, engine).flow_times
    assert times is not None
    # Packets are stored at each hop, and their ACK comes back.
    assert 1 - 1e-9 <= times.slowdown.mean < (1 + 1e-9 if engine is Engine.FLUID else 1.3)


@pytest.mark.parametrize("keys", [{"size": "1B"}, {"size": "2MB", "message": "256B", "mtu": 256}])
def test_no_transfer_is_faster_than_the_least_time_of_its_bytes(keys: dict[str, Any]) -> None:
    times = report("pairs", 2, Engine.PACKETS, **keys).flow_times
    assert times is not None and times.slowdown.mean >= 1
