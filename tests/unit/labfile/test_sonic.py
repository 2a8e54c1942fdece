"""A switch's buffers and QoS in SONiC's files, in the notations that vendors use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocelab.base.errors import SpecError
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.labfile.portsettings import PortSettings
from rocelab.labfile.profile import ProfileSpec
from rocelab.labfile.profiles import catalog_profile, profile_names
from rocelab.labfile.sonic import read_profile
from rocelab.labfile.switchports import (
    NO_OFFSET,
    PlaceOfPort,
    class_of_dscp,
    kind_of,
    limits,
    lines,
    memory,
    pauses,
    weights,
)

G = 10**9


def profile_in(folder: Path, files: dict[str, object]) -> ProfileSpec:
    """Of these files: text, or tables of JSON."""
    paths = []
    for name, content in files.items():
        paths.append(folder / name)
        paths[-1].write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return read_profile("test", paths)


def problems_in(folder: Path, files: dict[str, object]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        profile_in(folder, files)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        # Without an offset: a resume comes at xon; the size holds the headroom.
        (
            "#  PG lossless profiles.\n# speed cable  size   xon  xoff  threshold\n"
            " 100000   40m 58000  19000  39000  0\n",
            (100_000, 40, 58_000, 19_000, 39_000, 0, None),
        ),
        # Deep buffers, a negative power and a cable between sites.
        (
            "400000  120000m 0 2560 79000000 -5 1454025",
            (400_000, 120_000, 0, 2560, 79 * 10**6, -5, 1_454_025),
        ),
        (
            "400000\t5m\t8000\t0\t400000\t0\t3500  # tabs, and a comment",
            (400_000, 5, 8000, 0, 400_000, 0, 3500),
        ),
        (
            "## speed xoff cable size threshold xon\n25000 31000 300m 1500 1 18000",
            (25_000, 300, 1500, 18_000, 31_000, 1, None),
        ),
        ("400G 1.5km 8KB 0 1MB 8 4KB", (400_000, 1500, 8000, 0, 10**6, 8, 4000)),
    ],
)
def test_a_row_of_a_lookup_is_read(tmp_path: Path, text: str, row: tuple[int, ...]) -> None:
    (read,) = profile_in(tmp_path, {"pg_profile_lookup.ini": text}).lookup
    assert tuple(read.model_dump().values()) == row


def test_the_last_of_two_rows_of_a_speed_and_cable_counts(tmp_path: Path) -> None:
    text = "100000 5m 0 0 1000 0\n100000 5m 0 0 2000 0\n10000 5m 0 0 3000 0\n"
    assert [row.xoff for row in profile_in(tmp_path, {"a.ini": text}).lookup] == [3000, 2000]


OLD = {
    "BUFFER_POOL": {
        "ingress_lossless_pool": {"size": "12766208", "type": "ingress", "mode": "dynamic"}
    },
    "BUFFER_PROFILE": {
        "q": {"pool": "[BUFFER_POOL|ingress_lossless_pool]", "size": "1518", "dynamic_th": "3"}
    },
    "BUFFER_QUEUE": {"Ethernet0,Ethernet4|0-2": {"profile": "[BUFFER_PROFILE|q]"}},
    "SCHEDULER": {"s": {"type": "DWRR", "weight": "7"}, "t": {"type": "STRICT"}},
    "QUEUE": {
        "Ethernet0|0": {"scheduler": "[SCHEDULER|s]"},
        "Ethernet4|0": {"scheduler": "s"},
        "host-1|Asic0|Ethernet0|1": {"scheduler": "t"},
        "host-1|Asic0|Ethernet4|1": {"scheduler": "t"},
    },
    "ACL_TABLE": {"DATA": {"type": "L3"}},
}


def test_references_ports_and_queues_are_read_in_old_and_new_notation(tmp_path: Path) -> None:
    profile = profile_in(tmp_path, {"config_db.json": OLD})
    (kind,) = profile.kinds
    assert kind.ports == ("Ethernet0", "Ethernet4")
    assert [(row.queue, row.buffer, row.scheduler) for row in kind.queues] == [
        (0, "q", "s"),
        (1, "q", "t"),
        (2, "q", ""),
    ]
    assert limits(profile, kind)[0] == 1518 + round(12_766_208 * 8 / 9)
    assert weights(profile, kind) == (7, 0, 1, 1, 1, 1, 1, 1)


def test_lists_of_swssconfig_are_tables_too(tmp_path: Path) -> None:
    rows = [
        {"BUFFER_POOL_TABLE:p": {"size": "3000", "type": "ingress", "mode": "static"}, "OP": "SET"},
        {
            "BUFFER_PROFILE_TABLE:b": {"pool": "[BUFFER_POOL_TABLE:p]", "static_th": "200"},
            "OP": "SET",
        },
        {"BUFFER_PG_TABLE:Ethernet0:3-4": {"profile": "[BUFFER_PROFILE_TABLE:b]"}, "OP": "SET"},
    ]
    profile = profile_in(tmp_path, {"buffers.json": rows})
    assert profile.pools["p"].size == 3000
    assert [(row.group, row.buffer) for row in profile.kinds[0].groups] == [(3, "b"), (4, "b")]


QOS: dict[str, object] = {
    "DSCP_TO_TC_MAP": {"A": {"0-63": "1", "3": "3", "46": "5", "11": "8"}},
    "TC_TO_QUEUE_MAP": {"A": {"1": "1", "3": "4", "5": "9", "8": "2"}},
    "TC_TO_PRIORITY_GROUP_MAP": {"A": {"3": "7"}},
    "PORT_QOS_MAP": {
        "global": {"dscp_to_tc_map": "A"},
        "Ethernet0": {
            **{"dscp_to_tc_map": "A", "tc_to_queue_map": "A", "tc_to_pg_map": "A"},
            "pfc_enable": "4",
        },
    },
    "WRED_PROFILE": {
        "marks": {
            **{"ecn": "ecn_all", "wred_green_enable": "true", "green_drop_probability": "5"},
            **{"green_min_threshold": "1000", "green_max_threshold": "3000"},
        },
        "drops": {"ecn": "ecn_none", "green_min_threshold": "1", "green_max_threshold": "2"},
        "step": {"ecn": "ecn_green", "green_min_threshold": "500", "green_max_threshold": "500"},
    },
    "QUEUE": {
        "Ethernet0|4": {"wred_profile": "marks"},
        "Ethernet0|1": {"wred_profile": "drops"},
        "Ethernet0|2": {"wred_profile": "step"},
        "Ethernet0|9": {"wred_profile": "step"},
    },
    "PFC_WD": {
        "GLOBAL": {"POLL_INTERVAL": "200"},
        "Ethernet0": {"detection_time": "400", "restoration_time": "2000"},
    },
}


def test_maps_lead_from_dscps_to_queues_and_groups(tmp_path: Path) -> None:
    more = {
        "BUFFER_PROFILE": {"pg": {"size": "900", "xoff": "700", "xon": "100", "static_th": "5000"}}
    }
    more["BUFFER_PG"] = {"Ethernet0|7": {"profile": "pg"}}
    profile = profile_in(tmp_path, {"qos.json": QOS, "buffers.json": more})
    kind = kind_of(profile)
    classes = class_of_dscp(profile, kind)
    assert classes is not None
    # TC 5 has a queue that the kit does not have: its own number is the class.
    assert (classes[0], classes[3], classes[46], classes[11]) == (1, 4, 5, 2)
    line = pauses(profile, kind, (4,), 400_000, 40)
    assert line is not None
    assert (line.name, line.reserved, line.headroom, line.xoff) == ("pg", 200, 700, 5000)
    assert line.is_dedicated and line.dynamic_th is None and line.xon_offset == NO_OFFSET


def test_queues_that_mark_have_a_line_and_those_that_drop_have_none(tmp_path: Path) -> None:
    profile = profile_in(tmp_path, {"qos.json": QOS})
    marking = lines(profile, kind_of(profile))
    assert {number: (line.kmin, line.kmax) for number, line in marking.items()} == {
        2: (500, 501),
        4: (1000, 3000),
    }


def test_a_lab_has_the_classes_and_the_watchdog_of_its_profile(tmp_path: Path) -> None:
    (tmp_path / "qos.json").write_text(json.dumps(QOS))
    lab = "name: t\nfabric: {racks: 2}\nqueues: {profile: qos.json, dscp: {af31: 4}}\n"
    (tmp_path / "lab.yaml").write_text(lab)
    queues = load_spec(tmp_path / "lab.yaml").queues
    assert queues.pfc is not None and queues.pfc.watchdog is not None
    assert (queues.pfc.classes, queues.marked, queues.dscp[26], queues.dscp[3]) == (
        (4,),
        (2, 4),
        4,
        4,
    )
    assert (queues.ecn.kmin, queues.pfc.watchdog.detection) == (1000, 400 * 10**6)
    (tmp_path / "qos.json").unlink()
    assert PortSettings(queues).strict_classes == ()


def test_a_spec_with_a_profile_is_whole_in_a_record(tmp_path: Path) -> None:
    (tmp_path / "qos.json").write_text(json.dumps(QOS))
    roles = "roles: {ctsw: {profile: [qos.json], buffer: 3MB, pfc: {dynamic_th: 1}}}"
    text = f"name: t\nfabric: {{racks: 2}}\nqueues: {{profile: nvidia-sn5610n, {roles}}}\n"
    (tmp_path / "lab.yaml").write_text(text)
    spec = load_spec(tmp_path / "lab.yaml")
    assert LabSpec.model_validate_json(spec.model_dump_json()) == spec
    assert LabSpec.model_validate(spec.model_dump(mode="json")) == spec


def test_a_pool_s_size_includes_its_headroom_where_the_egress_pool_holds_no_more(
    tmp_path: Path,
) -> None:
    def shared(ingress: int, xoff: int, egress: int | None) -> int:
        pools = {"ingress_lossless_pool": {"type": "ingress", "size": ingress, "xoff": xoff}}
        if egress:
            pools["egress_lossless_pool"] = {"type": "egress", "size": egress}
        lossless = memory(profile_in(tmp_path, {"b.json": {"BUFFER_POOL": pools}}))
        assert lossless is not None
        return lossless.shared

    assert shared(1000, 200, 1000) == 800
    assert shared(1000, 200, 1500) == 1000
    assert shared(1000, 200, None) == 800
    assert shared(1000, 0, None) == 1000


def test_the_lookup_s_next_longer_cable_and_next_higher_speed_are_taken(tmp_path: Path) -> None:
    text = "100000 5m 0 0 1000 0\n100000 300m 0 0 2000 0\n400000 40m 0 0 4000 0\n"
    profile = profile_in(tmp_path, {"a.ini": text})

    def headroom(mbps: int, metres: int) -> int | None:
        line = pauses(profile, kind_of(profile), (3,), mbps, metres)
        return None if line is None else line.headroom

    assert [headroom(100_000, metres) for metres in (1, 5, 6, 300, 900)] == [
        1000,
        1000,
        2000,
        2000,
        2000,
    ]
    assert (headroom(25_000, 5), headroom(200_000, 5), headroom(800_000, 5)) == (1000, 4000, None)


def test_a_port_takes_the_settings_of_its_name_then_of_its_speed(tmp_path: Path) -> None:
    tables = {
        "PORT": {
            "Ethernet0": {"speed": "100000"},
            "Ethernet4": {"speed": "400000"},
            "Ethernet8": {"speed": "400000"},
        },
        "CABLE_LENGTH": {"A": {"Ethernet0": "5m", "Ethernet4": "300m", "Ethernet8": "300m"}},
        "PORT_QOS_MAP": {"Ethernet0,Ethernet4,Ethernet8": {"pfc_enable": "3"}},
    }
    profile = profile_in(tmp_path, {"c.json": tables})
    named = kind_of(profile, PlaceOfPort("leaf", 400 * G, name="Ethernet0"))
    of_speed = kind_of(profile, PlaceOfPort("leaf", 400 * G, name="swp1"))
    assert (named.cable_m, of_speed.cable_m) == (5, 300)
    assert PlaceOfPort("leaf", 400 * G).metres(of_speed, 200) == 300
    assert PlaceOfPort("leaf", 400 * G, cable_ns=1000).metres(of_speed, 200) == 200


TEMPLATE = "{%- set default_cable = '5m' %}\n{\n}\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "qos.json.j2",
            TEMPLATE,
            "qos.json.j2:1: a Jinja2 template, whose numbers depend on the switch",
        ),
        ("b.json", '{\n "BUFFER_POOL": {\n },\n}', "b.json:4: not JSON"),
        ("a.ini", "100000 5m 1 2 3\n", "a.ini:1: expected speed cable size xon xoff threshold"),
        ("a.ini", "# no rows\n", "a.ini: expected rows of a lookup"),
        (
            "a.ini",
            "100000 5m 1 2 3 0\n100000 far 1 2 3 0\n",
            "a.ini:2: expected a cable's length such as 40m, got 'far'",
        ),
        ("a.ini", "../ACS-SN6600/pg_profile_lookup.ini", "a.ini:1: a symbolic link's target"),
        ("c.json", {"ACL_TABLE": {}}, "c.json: no table of buffers or QoS"),
        (
            "c.json",
            {"BUFFER_PROFILE": {"b": {"size": "0", "pool": "nowhere"}}},
            "c.json:5: BUFFER_PROFILE|b.pool: BUFFER_POOL has no 'nowhere'",
        ),
        (
            "c.json",
            {"WRED_PROFILE": {"w": {"green_min_threshold": "much"}}},
            "c.json:4: WRED_PROFILE|w.green_min_threshold: expected a size in bytes, got 'much'",
        ),
        (
            "c.json",
            {"QUEUE": {"Ethernet0|x": {"scheduler": ""}}},
            "c.json:3: QUEUE|Ethernet0|x: expected numbers such as 3-4, got 'x'",
        ),
        (
            "c.json",
            {"SCHEDULER": {"s": {"type": "FIFO"}}},
            "c.json:4: SCHEDULER|s.type: expected DWRR, WRR or STRICT, got 'FIFO'",
        ),
        (
            "c.json",
            {"BUFFER_PROFILE": {"b": {"dynamic_th": "40"}}},
            "c.json:4: BUFFER_PROFILE|b.dynamic_th: Input should be less than or equal to 16",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_file_and_line(
    tmp_path: Path, name: str, content: object, message: str
) -> None:
    assert problems_in(tmp_path, {name: content})[0].startswith(message)


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    rows = "100000 5m 1 2 3 x\n100000 5m\n100000 5m 1 2 3 0\n"
    assert len(problems_in(tmp_path, {"a.ini": rows})) == 2


def test_a_folder_of_templates_says_how_to_render_them(tmp_path: Path) -> None:
    (tmp_path / "buffers.json.j2").write_text(TEMPLATE)
    with pytest.raises(SpecError, match=r"sonic-cfggen -d -t buffers\.json\.j2 > buffers\.json"):
        read_profile("test", [tmp_path])


def test_a_name_that_is_nowhere_is_located_in_the_lab_s_file(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(
        "name: t\nfabric: {racks: 2}\nqueues:\n  profile: nvidia-sn5610\n"
    )
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "lab.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (4, "queues.profile")
    assert problem.hint is not None and "did you mean nvidia-sn5610n?" in problem.hint


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_of_the_catalog_has_all_that_a_port_needs(name: str) -> None:
    profile = catalog_profile(name)
    kind = kind_of(profile)
    assert class_of_dscp(profile, kind) is not None and memory(profile) is not None
    assert (
        kind.pfc == (3, 4)
        and set(lines(profile, kind)) == {3, 4}
        and set(limits(profile, kind)) >= {0, 6}
    )
    line = pauses(profile, kind, kind.pfc, 400_000, 40)
    assert line is not None and line.headroom > 95_000
