"""The keys of a configuration of the user's own, and the files that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.base.errors import SpecError
from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec

FABRIC = "fabric: {kind: clos, racks: 2, spines: 1}\n"


def lab(folder: Path, routing: str) -> Path:
    """A lab's file in a folder, with that block."""
    path = folder / "mine.yaml"
    path.write_text(f"name: mine\n{FABRIC}routing: {routing}\n")
    return path


def write(folder: Path, **files: str) -> None:
    """Files `NAME.conf` of a folder."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.conf").write_text(text)


def problems(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return str(caught.value)


def test_the_spec_has_what_files_held_and_needs_them_no_more(tmp_path: Path) -> None:
    write(
        tmp_path / "c", rtsw1="! one\n", rtsw2="! two\n", ctsw1="! three\n", other="! not a node\n"
    )
    path = lab(tmp_path, 'config: "c/{node}.conf"'.join("{}"))

    spec = load_spec(path)
    assert spec.routing.config is not None
    assert spec.routing.config.texts == {
        "ctsw1": "! three\n",
        "rtsw1": "! one\n",
        "rtsw2": "! two\n",
    }

    for file in (tmp_path / "c").iterdir():
        file.unlink()
    assert recorded_spec(spec.model_dump(mode="json")) == spec


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path / "c", rtsw1="!\n", ctsw1="!\n")

    text = problems(lab(tmp_path, 'config: "c/{node}.conf"'.join("{}")))
    assert "c/rtsw2.conf" in text
    assert "cannot be read" in text


def test_a_block_has_files_of_some_switches_only(tmp_path: Path) -> None:
    write(tmp_path, leaf="! one\n")

    spec = load_spec(lab(tmp_path, "{config: {files: {rtsw1: leaf.conf}}}"))
    assert spec.routing.config is not None
    assert spec.routing.config.texts == {"rtsw1": "! one\n"}


def test_a_refused_line_is_shown_with_its_file(tmp_path: Path) -> None:
    write(tmp_path, leaf="!\nstart-shell bash\n")

    assert "leaf.conf:2: `start-shell bash` is refused" in problems(
        lab(tmp_path, "{config: {files: {rtsw1: leaf.conf}}}")
    )


@pytest.mark.parametrize("place", ["../secret.conf", "/etc/passwd", "link.conf"])
def test_a_lab_does_not_read_files_outside_of_its_folder(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    (tmp_path / "secret.conf").write_text("password of somebody\n")
    (folder / "link.conf").symlink_to(tmp_path / "secret.conf")

    text = problems(lab(folder, f"{{config: {{files: {{rtsw1: {place}}}}}}}"))
    assert "leads out of the folder of the lab" in text
    assert "somebody" not in text


def test_a_file_may_not_be_larger_than_a_megabyte(tmp_path: Path) -> None:
    write(tmp_path, leaf="!" * (2**20 + 1))

    assert "larger than" in problems(lab(tmp_path, "{config: {files: {rtsw1: leaf.conf}}}"))


@pytest.mark.parametrize(
    ("routing", "key"),
    [
        ("{policy: {rtsw9: {gtsm: true}}}", "policy"),
        ("{daemons: {leaf: [ospfd]}}", "daemons"),
        ("{config: {files: {rtsw: a.conf}}}", "config"),
        ("{templates: t, expect: {next_hops: {spine: 2}}}", "expect"),
    ],
)
def test_an_unknown_role_or_node_is_a_located_error(tmp_path: Path, routing: str, key: str) -> None:
    text = problems(lab(tmp_path, routing))

    assert f"mine.yaml:3: routing.{key}: there is no role or switch" in text


def test_a_path_without_the_node_says_how_to_write_it(tmp_path: Path) -> None:
    assert "expected a path with {node}" in problems(lab(tmp_path, "{config: leaf.conf}"))


def test_an_unknown_daemon_is_a_located_error(tmp_path: Path) -> None:
    text = problems(lab(tmp_path, "{daemons: {rtsw1: [ospdf]}}"))

    assert "FRR has no daemon ospdf" in text
    assert "ospfd" in text


def test_the_kit_s_own_policy_expects_nothing_else(tmp_path: Path) -> None:
    assert "routing.expect" in problems(lab(tmp_path, "{expect: {reach: true}}"))


def test_a_folder_of_templates_is_read_whole(tmp_path: Path) -> None:
    for name in ("bgpd.conf.j2", "roles/rtsw/bgpd.conf.j2", "nodes/rtsw1/ospfd.conf.j2"):
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"! {name}\n")
    (tmp_path / "t" / "notes.txt").write_text("left out")

    templates = load_spec(lab(tmp_path, "{templates: t}")).routing.templates
    assert templates is not None
    assert set(templates.texts) == {
        *("bgpd.conf.j2", "roles/rtsw/bgpd.conf.j2", "nodes/rtsw1/ospfd.conf.j2")
    }
    assert templates.name_for("bgpd", "rtsw1", "rtsw") == "roles/rtsw/bgpd.conf.j2"
    assert templates.name_for("bgpd", "ctsw1", "ctsw") == "bgpd.conf.j2"
    assert templates.daemons_for("rtsw1", "rtsw") == ("ospfd", "bgpd")
    assert templates.daemons_for("ctsw1", "ctsw") == ("bgpd",)


@pytest.mark.parametrize("name", ["gone", "empty"])
def test_a_folder_without_templates_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()

    assert "routing.templates" in problems(lab(tmp_path, f"{{templates: {name}}}"))


def test_a_node_s_values_come_before_its_role_s() -> None:
    spec = LabSpec.model_validate(
        {
            "name": "mine",
            "fabric": {"racks": 2, "spines": 1},
            "routing": {
                "policy": {
                    "rtsw": {"maximum_prefix": 100, "gtsm": True},
                    "rtsw1": {"maximum_prefix": 7},
                }
            },
        }
    )

    first, second = (spec.routing.policy_of(name, "rtsw") for name in ("rtsw1", "rtsw2"))
    assert (first.maximum_prefix, first.gtsm) == (7, True)
    assert (second.maximum_prefix, second.gtsm) == (100, True)
    assert not spec.routing.is_own


@pytest.mark.parametrize(
    "values",
    [
        {"local_as": 65100},
        {"graceful_shutdown": True},
        {"aggregates": ["198.18.0.0/16"]},
        {"route_maps": {"M": [{"action": "deny"}]}, "route_map_out": "M"},
    ],
)
def test_values_that_change_routes_make_the_routing_the_user_s_own(values: object) -> None:
    spec = LabSpec.model_validate(
        {
            "name": "mine",
            "fabric": {"racks": 2, "spines": 1},
            "routing": {"policy": {"rtsw1": values}},
        }
    )

    assert spec.routing.is_own


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"route_map_in": "NONE"}, "there is no route map NONE"),
        ({"prefix_lists": {"A": ["permit 10.0.0.0/8\nexit"]}}, "pattern"),
        ({"password": "two words"}, "pattern"),
        ({"communities": ["65000:1; exit"]}, "pattern"),
    ],
)
def test_values_are_words_of_one_line(values: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabSpec.model_validate(
            {
                "name": "mine",
                "fabric": {"racks": 2, "spines": 1},
                "routing": {"policy": {"rtsw1": values}},
            }
        )
