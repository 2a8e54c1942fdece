"""The engine that simulates each link alone, beside the packet engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError, MachineError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.report.simulation.document import simulation_document
from rocelab.results.engines import Engine, PortModel
from rocelab.results.simulation import from_json
from rocelab.sim import size
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.figures import transfer_times
from rocelab.sim.links import run as links_run
from rocelab.sim.links import traffic
from rocelab.sim.links.run import Sums
from rocelab.sim.links.traffic import Part, stages, traffic_of
from rocelab.sim.links.turns import begins_in_turn
from rocelab.sim.options import Options
from rocelab.sim.packets import loop
from rocelab.sim.packets.run import PacketRun
from rocelab.sim.simulate import Simulation, simulate
from tests.helpers.long import mostly_long
from tests.unit.sim.packet_runs import Flow, arranged, ran


def lab(**keys: object) -> LabSpec:
    """A fat tree of 16 hosts of 100G."""
    shape = {"name": "small", "fabric": {"kind": "fat-tree", "k": 4}}
    links = {"rate": "100G", "server_rate": "100G", "delay": "1us"}
    return LabSpec.model_validate({**shape, "links": links, **keys})


def drawn(sizes: str, load: str, duration: str, **transport: object) -> SimulatedJob:
    keys = {"sizes": sizes, "load": load, "duration": duration}
    return SimulatedJob.model_validate({"name": "load", "poisson": keys, "transport": transport})


def listed(folder: Path, flows: list[str], **transport: object) -> SimulatedJob:
    file = folder / "flows.txt"
    file.write_text("\n".join((str(len(flows)), *flows, "")))
    keys = {"name": "list", "flows": {"file": str(file)}, "transport": transport}
    return SimulatedJob.model_validate(keys)


def both(
    job: SimulatedJob, spec: LabSpec | None = None, hop_latency_ns: float | None = None
) -> tuple[Simulation, list[PacketRun]]:
    """A simulation, and its runs by the packet engine and link by link."""
    made = [
        Simulation(spec or lab(), [job], Options(engine=engine, hop_latency_ns=hop_latency_ns))
        for engine in (Engine.PACKETS, Engine.LINKS)
    ]
    return made[0], [simulation.run_packets() for simulation in made]


def quantiles(made: Simulation, ran: PacketRun) -> list[float]:
    values: list[float] = np.quantile(transfer_times(made, ran).slowdown, [0.5, 0.99]).tolist()
    return values


@pytest.mark.parametrize("size", [64, 5000, 1_000_000])
@pytest.mark.parametrize("to", [1, 2, 9])
def test_a_flow_that_is_alone_takes_as_long_as_packet_by_packet(
    size: int, to: int, tmp_path: Path
) -> None:
    """In the same rack, pod and elsewhere; a chunk has the headers of a message."""
    _, (packets, links) = both(listed(tmp_path, [f"0 {to} 3 100 {size} 2"]))
    assert links.finish_s[0] == pytest.approx(packets.finish_s[0], rel=4e-4)
    assert links.sent_bits.sum() == pytest.approx(packets.sent_bits.sum(), rel=4e-4)


@pytest.mark.parametrize("buffer", ["5KB", "50KB"])
def test_a_buffer_smaller_than_a_chunk_drops_nothing_of_a_flow_that_is_alone(
    buffer: str, tmp_path: Path
) -> None:
    """A flow longer than its window is simulated with a chunk as a packet first."""
    job = listed(tmp_path, ["0 9 3 100 4000000 2"])
    _, (packets, links) = both(
        job, lab(queues={"buffer": buffer, "ecn": {"kmin": "1KB", "kmax": "2KB"}})
    )
    assert links.finish_s[0] == pytest.approx(packets.finish_s[0], rel=4e-4)
    assert links.drops.sum() == packets.drops.sum() == 0


@pytest.mark.parametrize("window", [1, 15, 16, 17, 31, 33])
def test_a_window_that_its_path_does_not_fill_holds_a_flow_back_as_packet_by_packet(
    window: int, tmp_path: Path
) -> None:
    """Whatever part of chunks it is: the path holds some 40 packets and the ACK's way back."""
    _, (packets, links) = both(listed(tmp_path, ["0 9 3 100 300000 2"], window=window))
    assert links.finish_s[0] == pytest.approx(packets.finish_s[0], rel=0.12)


@pytest.mark.parametrize("hop_latency_ns", [0, 50, 1000, 10_000])
@pytest.mark.parametrize("size", mostly_long([300_000, 1_000_000], [300_000]))
@pytest.mark.parametrize(
    ("window", "rel"), [(1, 0.02), (4, 0.02), (16, 2e-3), (24, 0.12), (31, 0.12), (40, 0.12)]
)
def test_a_round_trip_takes_as_long_as_packet_by_packet(
    window: int, rel: float, size: int, hop_latency_ns: float, tmp_path: Path
) -> None:
    """With what all links of a path serialise, which is all of it without latency; and no chunk
    that does not fit into the window waits for another round."""
    job = listed(tmp_path, [f"0 9 3 100 {size} 2"], window=window)
    _, (packets, links) = both(job, hop_latency_ns=hop_latency_ns)
    assert links.finish_s[0] == pytest.approx(packets.finish_s[0], rel=rel)


@pytest.mark.parametrize("hop_latency_ns", [0, 100, 1000])
@pytest.mark.parametrize("window", [1, 16, 64])
@pytest.mark.parametrize("size", mostly_long([4097, 8193, 65_537, 200_001], [4097, 200_001]))
def test_a_short_last_packet_costs_a_packets_time_for_each_link_at_most(
    size: int, window: int, hop_latency_ns: float, tmp_path: Path
) -> None:
    """A chunk's packets count as equally long where its window waits for it."""
    job = listed(tmp_path, [f"0 9 3 100 {size} 2"], window=window)
    made, (packets, links) = both(job, hop_latency_ns=hop_latency_ns)
    packet_s = 8 * 4200 / made.network.capacity_bps.min()
    assert abs(links.finish_s[0] - packets.finish_s[0]) < len(made.whole_paths.sends) * packet_s


@pytest.mark.parametrize("rate", ["40G", "400G"])
@pytest.mark.parametrize("window", [1, 16, 48])
@pytest.mark.parametrize("hop_latency_ns", mostly_long([0, 200, 5000], [0, 5000]))
def test_a_round_trip_over_links_of_several_rates_takes_as_long_as_packet_by_packet(
    rate: str, window: int, hop_latency_ns: float, tmp_path: Path
) -> None:
    """Of a window that is acknowledged as a whole, the slowest link holds back all packets."""
    spec = lab(links={"rate": rate, "server_rate": "100G", "delay": "1us"})
    job = listed(tmp_path, ["0 9 3 100 1000000 2"], window=window)
    _, (packets, links) = both(job, spec, hop_latency_ns)
    assert links.finish_s[0] == pytest.approx(packets.finish_s[0], rel=0.02)


@pytest.mark.parametrize("window", [1, 15, 16, 17, 40, 47, 512])
def test_chunks_fill_a_window(window: int, tmp_path: Path) -> None:
    job = listed(tmp_path, ["0 9 3 100 9000000 2"], window=window)
    made = Simulation(lab(), [job], Options(engine=Engine.LINKS))
    program, _, _, sending, _ = made.packet_inputs()
    traffic = traffic_of(program, made.whole_paths, sending)
    chunks = int(traffic.window[0])
    packets = -(-traffic.payload_bytes // 4096)
    filled = np.convolve(packets[:-1], np.ones(chunks), "valid")
    assert traffic.payload_bytes.sum() == 9_000_000 and traffic.payload_bytes.min() > 0
    assert set(filled) == {window} and packets.max() <= 31
    assert packets.max() - packets[:-1].min() <= 1


@pytest.mark.parametrize(("window", "closest"), [(1, 1), (16, 16), (24, 8), (40, 8), (48, 16)])
def test_acks_come_after_a_window_and_after_sixteen_packets(
    window: int, closest: int, tmp_path: Path
) -> None:
    job = listed(tmp_path, ["0 9 3 100 9000000 2"], window=window, ack_every=16)
    made = Simulation(lab(), [job], Options(engine=Engine.LINKS))
    program, _, _, sending, _ = made.packet_inputs()
    traffic = traffic_of(program, made.whole_paths, sending)
    assert traffic.acked_bits[0] == pytest.approx(closest * traffic.packet_bits[0], rel=0.01)


def test_a_long_flow_from_near_has_its_own_round_trip_beside_short_ones_from_far(
    tmp_path: Path,
) -> None:
    """They do not meet, but the links of all NICs are simulated with one latency."""
    flows = ["0 1 3 100 1000000 2"]
    flows += [f"{source} {source + 8} 3 100 64 2" for source in range(2, 8)]
    _, (packets, links) = both(listed(tmp_path, flows, window=16))
    assert links.finish_s[0] == pytest.approx(packets.finish_s[0], rel=0.05)


@pytest.mark.parametrize(("rate", "rel"), [("400G", 0.04), ("40G", 1e-3)])
@pytest.mark.parametrize("size", [4097, 65536, 1_000_000])
def test_a_flow_over_links_of_several_rates_takes_as_long_as_packet_by_packet(
    rate: str, rel: float, size: int, tmp_path: Path
) -> None:
    """A fast link behind a slow one has gaps between a chunk's packets, in which the last link,
    slow too, sends."""
    spec = lab(links={"rate": rate, "server_rate": "100G", "delay": "1us"})
    _, (packets, links) = both(listed(tmp_path, [f"0 9 3 100 {size} 2"]), spec)
    assert links.finish_s[0] == pytest.approx(packets.finish_s[0], rel=rel)


def test_flows_from_near_and_far_meet_when_they_come(tmp_path: Path) -> None:
    """One from another pod comes later by the latency of four more links, and finds the last link
    idle again."""
    flows = ["1 0 3 100 40000 2", "9 0 3 100 40000 2"]
    _, (packets, links) = both(listed(tmp_path, flows))
    assert links.finish_s == pytest.approx(packets.finish_s, rel=4e-4)


@pytest.mark.parametrize("size", [300_000, 1_000_000])
def test_flows_that_took_turns_on_a_link_come_from_it_in_turns(size: int, tmp_path: Path) -> None:
    """They share five links; the first divides itself among them, the others are as fast."""
    flows = [f"{source} 0 3 100 {size} 2" for source in (4, 5)]
    made, (packets, links) = both(listed(tmp_path, flows))
    paths = made.whole_paths
    assert set(paths.sends[1 : paths.start[1]]) == set(paths.sends[paths.start[1] + 1 :])
    assert links.finish_s == pytest.approx(packets.finish_s, rel=0.025)
    assert links.finish_s.max() == pytest.approx(packets.finish_s.max(), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_chunks_that_share_a_link_from_their_beginnings_on_end_when_they_left(seed: int) -> None:
    """Forwards again, chunk by chunk: each that is under way gets as much as the others."""
    draw = np.random.default_rng(seed)
    count = 12
    left_s, takes_s = draw.uniform(5, 10, count), draw.choice([0.1, 1.0], count)
    port = draw.integers(0, 3, count)
    order = np.lexsort((-left_s, port))
    begins_s = begins_in_turn(left_s, takes_s, port.astype(np.int32), order)
    for here in range(3):
        values = np.flatnonzero(port == here).tolist()
        waiting = sorted((begins_s[flow], flow) for flow in values)
        now = 0.0
        rest: dict[int, float] = {}
        while waiting or rest:
            ends = now + min(rest.values()) * len(rest) if rest else np.inf
            due = waiting[0][0] if waiting else np.inf
            for flow in rest:
                rest[flow] -= (min(ends, due) - now) / len(rest)
            now = min(ends, due)
            if due <= ends:
                _, begun = waiting.pop(0)
                rest[begun] = takes_s[begun]
            else:
                (ended,) = [flow for flow in rest if rest[flow] < 1e-9]
                assert now == pytest.approx(left_s[ended])
                del rest[ended]


def test_flows_that_meet_at_their_last_link_share_it_as_packet_by_packet(tmp_path: Path) -> None:
    flows = [f"{source} 0 3 100 2000000 2" for source in (4, 8, 12)]
    _, (packets, links) = both(listed(tmp_path, flows))
    assert links.finish_s == pytest.approx(packets.finish_s, rel=0.03)
    assert links.highest_bytes.max() == pytest.approx(packets.highest_bytes.max(), rel=0.03)


@pytest.mark.parametrize(
    ("job", "p99"),
    [
        (drawn("alistorage", "50%", "500us"), 0.1),
        (drawn("alistorage", "50%", "500us", dcqcn="hpcc-dcqcn"), 0.15),
        (drawn("websearch", "50%", "2ms"), 0.1),
    ],
)
def test_slowdowns_are_those_of_the_packet_engine(job: SimulatedJob, p99: float) -> None:
    """Delays of links that do not know each other, added up, are half as high again
    (bench/links_engine.md)."""
    made, (packets, links) = both(job)
    expected, slowdowns = quantiles(made, packets), quantiles(made, links)
    assert slowdowns[0] == pytest.approx(expected[0], rel=0.1)
    assert slowdowns[1] == pytest.approx(expected[1], rel=p99)


@pytest.mark.parametrize(("transport", "rel"), [({}, 0), ({"dcqcn": "hpcc-dcqcn"}, 0.03)])
def test_transmissions_are_counted_once_a_link_as_packet_by_packet(
    transport: dict[str, object], rel: float
) -> None:
    """Not those of the link before, nor of the first of two times where flows are longer than
    their window. A CNP goes back over the link that marked alone."""
    _, (packets, links) = both(drawn("websearch", "50%", "500us", **transport))
    assert (links.packets, links.acks) == (packets.packets, packets.acks)
    assert links.packet_hops == pytest.approx(packets.packet_hops, rel=rel)
    assert (links.cnps.sum() > 0) == bool(transport)


def test_a_cnp_is_transmitted_on_one_link(tmp_path: Path) -> None:
    """All else on each of the six links of a path."""
    flows = [f"{source} 0 3 100 2000000 2" for source in (4, 8, 12)]
    made = Simulation(
        lab(queues={"ecn": {"kmin": "10KB", "kmax": "40KB"}}),
        [listed(tmp_path, flows, dcqcn="sigcomm15")],
        Options(engine=Engine.LINKS),
    )
    links = made.run_packets()
    cnps = int(links.cnps.sum())
    assert cnps > 0 == links.drops.sum()
    assert links.packet_hops == 6 * (links.packets + links.acks) + cnps


def test_counts_of_parts_add_up() -> None:
    run = ran([Flow([0, 2], 4096)])
    sums = Sums.none(flows=1, sends=4)
    for link, count in ((0, 3), (2, 1)):
        part = Part(*(np.array([value]) for value in (0, link, link - 1, link)))
        marking = np.full_like(run.marking, count)
        sums.add(part, replace(run, failed=count, idle_s=count / 1000, marking=marking))
    assert (sums.failed, sums.idle_s) == (4, 0.003)
    assert (sums.marking == 4).all()


def test_flows_longer_than_their_window_are_held_back_by_links_behind(tmp_path: Path) -> None:
    """Eight hosts send to one. Short flows to others find the links that they share with them
    empty or not as packet by packet: without that, one would wait for half a millisecond."""
    flows = [f"{source} 0 3 100 4000000 2" for source in range(4, 12)]
    flows += [f"{source} {source + 4} 3 100 1000 2.0005" for source in range(4, 12)]
    _, (packets, links) = both(listed(tmp_path, flows))
    assert links.finish_s[8:] == pytest.approx(packets.finish_s[8:], rel=0.02)


def test_the_outcome_is_that_of_any_number_of_threads_and_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Simulation(lab(), [drawn("alistorage", "30%", "200us")], Options(engine=Engine.LINKS))
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    whole = made.run_packets()
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    monkeypatch.setattr(traffic, "PART_PACKETS", 1)
    parted = made.run_packets()
    assert parted.finish_s == pytest.approx(whole.finish_s, rel=1e-6)
    assert parted.highest_bytes.tolist() == whole.highest_bytes.tolist()
    if hasattr(loop.advance, "signatures"):
        assert len(loop.advance.signatures) == 1, "the loop is compiled once for all engines"


def test_links_come_in_stages_after_all_links_before_them() -> None:
    made = Simulation(lab(), [drawn("alistorage", "30%", "200us")], Options(engine=Engine.LINKS))
    program, _, _, sending, _ = made.packet_inputs()
    paths, capacity_bps = made.whole_paths, made.network.capacity_bps
    batches = list(stages(traffic_of(program, paths, sending), len(capacity_bps)))
    stage_of = {
        link: number
        for number, parts in enumerate(batches)
        for part in parts
        for link in part.link.tolist()
    }
    assert len(batches) == 6
    for flow in range(len(paths)):
        local = [stage_of[link] for link in paths.sends[slice(*paths.start[flow : flow + 2])]]
        assert local == sorted(set(local)) and local[0] == 0
    assert sum(len(part.flow) for parts in batches for part in parts) == len(paths.sends)


def test_paths_in_a_ring_are_refused() -> None:
    flows = [Flow([0, 2], 4096), Flow([2, 4], 4096), Flow([4, 0], 4096)]
    with pytest.raises(InputError, match="follow each other in a ring"):
        links_run.run_links(*arranged(flows))


@pytest.mark.parametrize("selective_repeat", [False, True])
@pytest.mark.parametrize(
    ("job", "p99"),
    [(("alistorage", "500us"), 0.15), (("websearch", "2ms"), 0.5)],
    ids=["short flows", "long flows"],
)
def test_losses_are_repaired_nearly_as_packet_by_packet(
    job: tuple[str, str], p99: float, selective_repeat: bool
) -> None:
    """At a buffer of 15 packets, which loses a tenth of all and more (docs/links.md)."""
    sizes, duration = job
    made, (packets, links) = both(
        drawn(sizes, "50%", duration, selective_repeat=selective_repeat),
        lab(queues={"buffer": "60KB", "ecn": {"kmin": "10KB", "kmax": "40KB"}}),
    )
    assert packets.drops.sum() > 0.1 * links.packets
    assert links.retransmitted.sum() == pytest.approx(packets.retransmitted.sum(), rel=0.25)
    assert quantiles(made, links)[1] == pytest.approx(quantiles(made, packets)[1], rel=p99)
    # Go-back-N sends all again that came after what was lost.
    assert (links.retransmitted.sum() < 1.05 * links.drops.sum()) == selective_repeat


def test_a_flow_whose_queue_pair_gives_up_never_ends_and_delays_no_other(tmp_path: Path) -> None:
    """One packet at a time fits into a queue."""
    flows = [f"{source} 0 3 100 400000 2" for source in (4, 8)] + ["5 1 3 100 1000 2"]
    job = listed(tmp_path, flows, retries=0)
    made, (packets, links) = both(job, lab(queues={"buffer": "5KB"}))
    assert links.failed == packets.failed > 0
    for result in (packets, links):
        assert np.isinf(result.finish_s[:2]).any() and np.isfinite(result.finish_s[2])
    assert made.report(links).jobs[0].end_ns is None


def test_what_a_link_never_lets_through_is_on_none_behind_it(tmp_path: Path) -> None:
    """Two flows of one rack, at a buffer for one packet."""
    flows = [f"{source} 0 3 100 1000000 2" for source in (4, 5)]
    made, (_, links) = both(
        listed(tmp_path, flows, retries=0),
        lab(queues={"buffer": "5KB", "ecn": {"kmin": "1KB", "kmax": "2KB"}}),
    )
    paths = made.whole_paths
    _, up, *behind = paths.sends[: paths.start[1]].tolist()
    assert links.failed > 0 and links.drops[up] > 0
    assert links.sent_bits[behind].max() < 0.75 * 2 * 8e6
    assert links.drops[behind].sum() == 0


def test_the_document_says_what_is_left_out_and_reads_back() -> None:
    report = simulate(lab(), [drawn("alistorage", "30%", "300us")], Options(engine=Engine.LINKS))
    assert from_json(to_json(report)) == report
    assert report.packets is not None and report.packets.queues
    assert report.flow_times is not None and report.jobs[0].slowdown is not None
    assert any("each is simulated alone" in text for text in report.method.leaves_out)
    console = Console(width=120, record=True)
    print_document(simulation_document(report), console)
    assert "each link alone" in console.export_text()
    assert "each link alone" in html(simulation_document(report))


@pytest.mark.parametrize(
    ("spec", "options", "word"),
    [
        (load_spec(find_lab("lossless")), {}, "use --engine packets, or a lab without"),
        (lab(scheme="spray"), {}, "use --engine packets or fluid, or --scheme ecmp"),
        (lab(), {"ports": PortModel.LAB}, "ports that store and forward"),
        (
            lab(),
            {"timeline": TimelineSpec(events=(parse_event("fail link agg1:core1 at 5us"),))},
            "use --engine packets or fluid",
        ),
    ],
)
def test_what_joins_links_is_refused(spec: LabSpec, options: dict[str, Any], word: str) -> None:
    job = drawn("alistorage", "30%", "200us")
    with pytest.raises(InputError, match="the engine links does not simulate") as refused:
        Simulation(spec, [job], Options(engine=Engine.LINKS, **options))
    assert word in (refused.value.hint or "")


def test_admission_is_refused() -> None:
    job = drawn("alistorage", "30%", "200us", admission=True)
    with pytest.raises(InputError, match="does not simulate admission"):
        Simulation(lab(), [job], Options(engine=Engine.LINKS))


def test_a_collective_is_refused() -> None:
    job = collective_job(
        JobSpec.model_validate({"pattern": "allreduce", "ranks": 4, "size": "1MB"})
    )
    with pytest.raises(InputError, match="sends that wait for others"):
        Simulation(lab(), [job], Options(engine=Engine.LINKS))


def test_a_run_that_takes_too_long_or_too_much_memory_is_refused_with_an_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links_run, "MOST_S", 1e-3)
    made = Simulation(lab(), [drawn("alistorage", "30%", "200us")], Options(engine=Engine.LINKS))
    with pytest.raises(InputError, match=r"link by link this takes .* packet-hops, about"):
        made.run_packets()
    monkeypatch.undo()
    monkeypatch.setattr(size, "available_bytes", lambda: 1000)
    with pytest.raises(MachineError, match=r"chunks of flows need about .* are free"):
        made.run_packets()


@pytest.mark.parametrize(("threads", "about_s"), [(1, 500), (3, 167)])
def test_an_estimate_is_of_all_processors_and_of_each_link_with_the_one_before(
    threads: int, about_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", str(threads))
    monkeypatch.setattr(links_run, "HOPS_PER_SECOND", 1)
    monkeypatch.setattr(links_run, "MOST_S", 1)
    said = rf"takes 500 packet-hops, about {about_s} s on {threads} processors"
    program, wirings, _, sending, _ = arranged([Flow([0, 2, 4], 100 * 4096)])
    with pytest.raises(InputError, match=said):
        links_run.check_hops(program, wirings, sending)


def test_what_is_far_too_large_is_refused_before_it_takes_memory() -> None:
    """A petabyte is 2.4e11 packets, each over three links twice but for the first."""
    program, wirings, _, sending, _ = arranged([Flow([0, 2, 4], 10**15)])
    hops = -(-(10**15) // 4096) * 5
    with pytest.raises(InputError, match=f"takes {hops:,} packet-hops"):
        links_run.check_hops(program, wirings, sending)


SPINE = {"kind": "clos", "racks": 2, "spines": 1, "servers_per_rack": 2}


def test_each_link_adds_its_own_delay(tmp_path: Path) -> None:
    """A packet crosses four links, and its ACK crosses them back."""
    job = listed(tmp_path, ["0 2 3 100 1000 0"])

    def finish_ns(ran: PacketRun) -> int:
        return round(float(ran.finish_s[0]) * 1e9)

    _, alike = both(job, lab(fabric=SPINE))
    far = {"links": {"rtsw1:ctsw1": {"delay": "11us"}, "rtsw2:ctsw1": {"delay": "4us"}}}
    made, longer = both(job, lab(fabric=SPINE, overrides=far))
    for before, after in zip(alike, longer, strict=True):
        assert finish_ns(after) - finish_ns(before) == 2 * (10_000 + 3_000)
    assert made.report(longer[0]).method.latencies_ns == (1_000, 11_000)
    assert made.report(longer[0]).warnings == ()


def test_more_delays_than_the_engine_has_tables_for_are_rounded_and_said(tmp_path: Path) -> None:
    fabric = {"kind": "clos", "racks": 40, "spines": 1}
    links = {f"rtsw{rack}:ctsw1": {"delay": f"{1000 + 7 * rack}ns"} for rack in range(1, 41)}
    made, (packets, _) = both(
        listed(tmp_path, ["0 39 3 100 1000 0"]), lab(fabric=fabric, overrides={"links": links})
    )
    off_ns = np.abs(made.engine_latency_ns - made.latency_ns)
    assert 0 < off_ns.max() <= 280 / 31 / 2
    assert len(np.unique(made.engine_latency_ns)) <= 32
    (text,) = made.report(packets).warnings
    assert text.startswith("links have 41 different delays, which this engine rounds by up to 4")


def test_a_role_s_buffer_and_marks_are_those_of_its_ports(tmp_path: Path) -> None:
    job = listed(tmp_path, ["0 2 3 100 400000 0", "1 2 3 100 400000 0"])
    usual = {"buffer": "50MB", "ecn": {"kmin": "20MB", "kmax": "30MB"}}
    small = {"buffer": "100KB", "ecn": {"kmin": "20KB", "kmax": "60KB"}}

    def at_ports(role: str) -> list[tuple[set[str], set[str]]]:
        made, counts = both(job, lab(fabric=SPINE, queues={**usual, "roles": {role: small}}))
        return [
            (
                {made.network.send_name(int(send)) for send in np.flatnonzero(ran.drops)},
                {made.network.send_name(int(send)) for send in np.flatnonzero(ran.marks)},
            )
            for ran in counts
        ]

    assert at_ports("rtsw") == [({"rtsw1:ctsw1"}, {"rtsw1:ctsw1"})] * 2
    assert at_ports("ctsw") == [(set(), set())] * 2
