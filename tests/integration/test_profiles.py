"""A lab whose switches have a profile of their own files: what the kernel has of it, and that
classes pause, mark and drop by it and lossless ones lose nothing, as in the packet engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

import pytest

from rocelab.jobs.collectives import Pattern
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.model import LabSpec
from rocelab.results.engines import Engine
from rocelab.results.job import JobReport
from rocelab.runs.jobs import run_job
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from tests.helpers.lossless import Rig
from tests.helpers.measured import measured

pytestmark = pytest.mark.few_at_once

ROWS = """# speed cable size xon xoff threshold xon_offset
100000 5m  2000 0 60000  0 4000
100000 40m 2000 0 80000 -1 4000
"""
POOL = 1_000_000
DSCP_OF = {1: 10, 3: 3, 4: 4, 6: 44}
TABLES = {
    "BUFFER_POOL": {
        "ingress_lossless_pool": {"type": "ingress", "mode": "dynamic", "size": f"{POOL}"},
        "egress_lossy_pool": {"type": "egress", "mode": "dynamic", "size": "900000"},
    },
    "BUFFER_PROFILE": {
        "lossy": {"pool": "[BUFFER_POOL|egress_lossy_pool]", "size": "1500", "dynamic_th": "-1"},
    },
    "BUFFER_QUEUE": {"Ethernet0,Ethernet4|0-2": {"profile": "lossy"}},
    "DSCP_TO_TC_MAP": {"M": {"0-63": "1", "3": "3", "4": "4", "44": "6"}},
    "TC_TO_QUEUE_MAP": {"M": {f"{tc}": f"{tc}" for tc in range(8)}},
    "PORT_QOS_MAP": {
        "Ethernet0,Ethernet4": {
            **{"dscp_to_tc_map": "M", "tc_to_queue_map": "M", "pfc_enable": "3,4"}
        }
    },
    "SCHEDULER": {
        "little": {"type": "DWRR", "weight": "10"},
        "much": {"type": "DWRR", "weight": "30"},
        "first": {"type": "STRICT"},
    },
    "WRED_PROFILE": {
        "low": {
            **{"ecn": "ecn_all", "wred_green_enable": "true", "green_drop_probability": "10"},
            **{"green_min_threshold": "40000", "green_max_threshold": "90000"},
        }
    },
    "QUEUE": {
        "Ethernet0,Ethernet4|0-2": {"scheduler": "little"},
        "Ethernet0,Ethernet4|3": {"scheduler": "much", "wred_profile": "low"},
        "Ethernet0,Ethernet4|4": {"scheduler": "little"},
        "Ethernet0,Ethernet4|6": {"scheduler": "first"},
    },
}
LAB = """
name: t-profile
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2}
links: {rate: 100G, server_rate: 100G}
dilation: 2500
queues:
  profile: [pg_profile_lookup.ini, config_db.json]
  pfc: {nic: {buffer: 500KB}}
  roles:
    ctsw: {pfc: {dynamic_th: 1}}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("profile")
    (folder / "pg_profile_lookup.ini").write_text(ROWS)
    (folder / "config_db.json").write_text(json.dumps(TABLES))
    with Rig.of(LAB, folder) as rig:
        yield rig


def job(pattern: Pattern, traffic_class: int = 3, size: str = "4MB", **keys: object) -> JobSpec:
    transport = {"dscp": DSCP_OF[traffic_class], "ack_dscp": DSCP_OF[6], "cnp_dscp": DSCP_OF[6]}
    whole = {"pattern": pattern, "ranks": 4, "size": size, "transport": {**transport, **keys}}
    return JobSpec.model_validate({**whole, "iterations": 1, "warmup_iterations": 0})


def ran(rig: Rig, chosen: JobSpec) -> JobReport:
    return measured(lambda: run_job(rig.lab, chosen), lambda report: report.problems)


def test_a_port_s_classes_have_the_scheduler_s_weights_and_order(made: Rig) -> None:
    text = made.lab.node("rtsw1").exec(["tc", "-d", "class", "show", "dev", "ctsw1"]).stdout
    classes = {
        line.split("class htb 1:1")[1].split()[0]: line
        for line in text.splitlines()
        if "class htb 1:1" in line and " parent 1:1 " in line
    }
    packet = 9014
    for number, quantum, priority in ((1, packet, 1), (3, 3 * packet, 1), (4, packet, 1)):
        assert f" quantum {quantum} " in classes[f"{number}"] + " "
        assert f" prio {priority} " in classes[f"{number}"] + " "
    assert " prio 0 " in classes["6"]


def test_the_kernel_holds_the_row_of_the_link_s_cable_and_the_role_s_own_threshold(
    made: Rig,
) -> None:
    thresholds: dict[str, set[tuple[int, ...]]] = {}
    for port in made.plan.ports:
        if not port.is_nic:
            words = ("dynamic_th", "reserved", "xon_offset")
            values = tuple(made.maps.ports.get(port.slot, word) for word in words)
            thresholds.setdefault(port.port.role.name, set()).add(values)
            assert made.maps.ports.get(port.slot, "headroom") == port.headroom > 80_000
    assert thresholds == {"rtsw": {(-1, 2000, 4000)}, "ctsw": {(1, 2000, 4000)}}


@pytest.mark.parametrize("pattern", [Pattern.INCAST, Pattern.ALLREDUCE])
def test_a_lossless_class_loses_nothing(made: Rig, pattern: Pattern) -> None:
    with made.resting():
        report = ran(made, job(pattern, dcqcn="off", ecn="not-ect"))
    lossless = report.lossless
    assert lossless is not None
    assert (lossless.dropped, report.roce.retransmitted) == (0, 0)
    if pattern is Pattern.INCAST:
        assert lossless.transitions > 0
        # XOFF is half of what is free of the pool: a third of it for one port, a fifth for each of
        # three. Headroom takes what arrives after it.
        held = max(port.held_max_bytes for port in lossless.ports if port.node == "rtsw1")
        assert 0.9 * POOL / 5 < held < POOL / 3 + 100_000


def test_a_queue_marks_by_its_profile_s_line_and_another_never(made: Rig) -> None:
    with made.resting():
        marking, silent = (ran(made, job(Pattern.INCAST, number, dcqcn="off")) for number in (3, 4))
    line = made.lab.fabric.spec.queues.ecn
    assert (line.kmin, line.kmax, line.pmax) == (40_000, 90_000, 0.1)
    assert sum(queue.marked for queue in marking.queues if queue.traffic_class == 3) > 0
    assert sum(queue.marked for queue in silent.queues) == 0


@pytest.mark.long
def test_a_lossy_queue_drops_beyond_its_share_of_the_egress_pool(made: Rig) -> None:
    limit = 1500 + 900_000 // 3
    with made.resting():
        report = ran(made, job(Pattern.INCAST, 1, dcqcn="off", ecn="not-ect"))
    full = [queue for queue in report.queues if queue.dropped_packets]
    assert {queue.traffic_class for queue in full} == {1}
    deepest = max(queue.depth_max_bytes or 0 for queue in full)
    assert limit - 2 * 9014 < deepest <= limit


def test_the_packet_engine_pauses_and_marks_by_the_same_profile(made: Rig) -> None:
    spec = LabSpec.model_validate_json(made.lab.fabric.spec.model_dump_json())
    for number, ecn in product((3, 4), ("ect0", "not-ect")):
        report = simulate(
            spec,
            [collective_job(job(Pattern.INCAST, number, dcqcn="off", ecn=ecn))],
            Options(engine=Engine.PACKETS),
        )
        counts = report.packets
        assert counts is not None and counts.lossless is not None
        assert (counts.drops, counts.lossless.dropped_packets) == (0, 0)
        assert counts.lossless.transitions > 0
        assert (counts.marks > 0) == (number == 3 and ecn == "ect0")
