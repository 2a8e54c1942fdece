"""What ports of a fabric take from switch profiles, by role, link and rate, and what plan says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.pauses import plan_pauses
from rocelab.planning.pfc import carve
from rocelab.planning.profiles import coarser, ports_by_profile, profile_conflicts
from rocelab.planning.queues import plan_queues
from tests.helpers.command import rocelab

GOLDEN = Path(__file__).parent / "plan-of-profiles.txt"


def planned(queues: dict[str, Any], **keys: Any) -> Fabric:
    fabric = {"racks": 2, "spines": 2, "servers_per_rack": 2}
    return plan(LabSpec.model_validate({"name": "t", "fabric": fabric, "queues": queues, **keys}))


def test_plan_prints_the_carving_by_the_files_names_and_what_the_lab_does_instead() -> None:
    text = rocelab("plan", "profile").stdout
    assert text[text.index("Switch profile arista") :] == GOLDEN.read_text()


def test_ports_of_roles_and_links_have_their_own_settings() -> None:
    fabric = planned(
        {
            "buffer": "1MB",
            "pfc": {"memory": "1MB"},
            "roles": {"ctsw": {"buffer": "3MB", "ecn": {"kmin": "1KB", "kmax": "2KB"}}},
            "links": {"far": {"marked": [4], "pfc": {"xoff": "60KB", "xon_offset": "1KB"}}},
        },
        overrides={"links": {"rtsw1:ctsw1": {"queues": "far"}}},
    )
    queues, pauses = plan_queues(fabric), plan_pauses(fabric)
    assert pauses is not None
    of = {place: queues.kinds[port.kind] for place, port in queues.port_of.items()}
    assert of["rtsw2", "ctsw1"].buffer_bytes == (10**6,) * 8
    assert of["ctsw1", "rtsw2"].buffer_bytes == (3 * 10**6,) * 8
    spine, line = of["ctsw1", "rtsw2"].lines[3], of["rtsw1", "ctsw2"].lines[3]
    assert spine is not None and line is not None
    assert (spine.kmin, line.kmin) == (1000, 800_000)
    marked = [number for number in range(8) if of["rtsw1", "ctsw1"].lines[number] is not None]
    assert marked == [4]
    xoff = {
        (port.node, port.port.interface): port.pauses.xoff
        for port in pauses.ports
        if port.pauses is not None
    }
    assert xoff["rtsw1", "ctsw1"] == xoff["ctsw1", "rtsw1"] == 60_000
    assert xoff["rtsw1", "ctsw2"] == 0


def test_a_key_of_the_lab_s_file_wins_over_a_profile_at_every_port() -> None:
    profile = {"profile": "arista-7060x6-64pe"}
    usual = plan_queues(planned(profile)).kinds[0]
    changed = plan_queues(planned({**profile, "buffer": "5MB", "ecn": {"pmax": 0.5}})).kinds[0]
    assert usual.buffer_bytes[0] == 82_311_494
    assert changed.buffer_bytes == (5 * 10**6,) * 8
    line = changed.lines[3]
    assert line is not None and (line.kmin, line.pmax) == (800_000, 0.5)
    assert changed.weights == usual.weights == (10, 10, 10, 20, 10, 10, 70, 10)


def test_headroom_is_that_of_a_link_s_speed_and_cable() -> None:
    def headroom(**links: str) -> list[int]:
        pauses = plan_pauses(planned({"profile": "nvidia-sn5610n"}, links=links))
        assert pauses is not None
        ports = [port for port in pauses.ports if port.pauses is not None]
        return sorted({port.pauses.headroom or 0 for port in ports if port.pauses})

    assert headroom() == [104_448]
    assert headroom(rate="800G", server_rate="200G") == [60_416, 132_096]
    assert headroom(delay="1us") == [243_712]
    assert headroom(rate="1.6T") == [0, 104_448]


def test_a_switch_s_memory_is_its_pool_s_and_each_port_s_own_headroom() -> None:
    fabric = planned(
        {"profile": "arista-7060x6-64pe", "roles": {"ctsw": {"profile": "nvidia-sn5610n"}}}
    )
    pfc = fabric.spec.queues.pfc
    assert pfc is not None
    racks, spines = carve(fabric, pfc)
    assert (racks.shared, racks.headroom_pool) == (164_619_432 - 33_690_560, 33_690_560)
    assert racks.reserved == 4 * 2 * 8636
    # Headroom in `size` is the port's own, of two ports with two classes each.
    assert (spines.shared, spines.headroom_pool) == (142_644_224, 2 * 2 * 104_448)
    # With all of it free: half is XOFF (dynamic_th 0), and the offset is shared as XOFF is.
    assert (racks.xoff, racks.xon) == (racks.shared // 2, round((racks.shared - 3556) / 2))


def test_plan_says_where_the_lab_is_coarser() -> None:
    fabric = planned(
        {
            "profile": "arista-7060x6-64pe",
            "pfc": {"classes": [3], "dynamic_th": 1},
            "buffer": "1MB",
        },
        links={"rate": "200G", "server_rate": "200G"},
    )
    notes = coarser(fabric)
    for note in (
        "arista-7060x6-64pe: pfc_enable is 3 and 4, and every port pauses classes 3",
        "200 Gb/s ports of rtsw: the lookup has no speed of 200000: it takes the row of 400000",
        "the lab's file has queues.buffer and queues.pfc.dynamic_th, for every port",
    ):
        assert note in notes
    assert coarser(planned({})) == ()
    assert ports_by_profile(planned({})) == ()


@pytest.mark.parametrize(
    ("queues", "overrides", "message"),
    [
        ({"roles": {"spine": {"buffer": "1MB"}}}, {}, "there is no switch of the role 'spine'"),
        (
            {},
            {"links": {"rtsw1:ctsw1": {"queues": "far"}}},
            "links have the queues 'far', which are not in queues.links",
        ),
        (
            {"links": {"far": {"pfc": {"memory": "1MB"}}}},
            {},
            "expected no memory of a link, as all ports of a switch share its memory",
        ),
    ],
)
def test_settings_of_no_role_or_link_are_refused(
    queues: dict[str, Any], overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        planned(queues, overrides=overrides)


def test_the_lab_of_a_profile_is_planned_from_its_record_without_the_files() -> None:
    spec = load_spec(find_lab("profile"))
    assert plan(LabSpec.model_validate_json(spec.model_dump_json())) == plan(spec)


def test_what_two_profiles_say_of_all_ports_is_named_where_they_disagree(tmp_path: Path) -> None:
    def tables(classes: str, dscp: str, watchdog: str, scheduler: str) -> dict[str, Any]:
        return {
            "PORT_QOS_MAP": {"Ethernet0": {"dscp_to_tc_map": "M", "pfc_enable": classes}},
            "DSCP_TO_TC_MAP": {"M": {**{str(n): "1" for n in range(64)}, dscp: "3"}},
            "PFC_WD": {
                "Ethernet0": {
                    **{"action": "drop", "detection_time": watchdog, "restoration_time": "400"}
                }
            },
            "SCHEDULER": {"s": {"type": scheduler, "weight": "1"}},
            "QUEUE": {"Ethernet0|1": {"scheduler": "s"}},
        }

    for name, content in {
        "one": tables("3", "3", "200", "DWRR"),
        "two": tables("3,4", "5", "300", "STRICT"),
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    file = tmp_path / "lab.yaml"
    file.write_text(
        "name: two\nfabric: {kind: clos, racks: 2, spines: 2}\n"
        "queues: {profile: one.json, roles: {ctsw: {profile: two.json}}}\n"
    )
    spec = load_spec(file)
    conflicts = profile_conflicts(spec.queues)
    assert conflicts == tuple(
        f"two: its {what} not used: all ports have {those} of one"
        for what, those in (
            ("map of DSCPs is", "that"),
            ("strict queues are", "those"),
            ("pfc_enable is", "that"),
            ("PFC_WD is", "that"),
        )
    )
    assert set(conflicts) <= set(coarser(plan(spec)))
    assert profile_conflicts(load_spec(find_lab("half-migrated")).queues) == ()
