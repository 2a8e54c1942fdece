"""Load-balancing schemes that installed packages add: predicted, simulated, and refused by name
where no lab has them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.helpers.plugin import PluginEnvironment

POINTS = {
    "schemes:chosen-fields": "lab_hashing:ChosenFieldsScheme",
    "schemes:modulo": "lab_hashing:ModuloScheme",
    "schemes:turns": "lab_hashing:TurnsScheme",
    "schemes:first-way": "lab_hashing:FirstWayScheme",
}
JOB = ("--pattern", "alltoall", "--ranks", "8", "--size", "4MB", "--qps", "4")
EACH_ALONE_AND_ALL_AT_ONCE = """
import json
from rocelab.labfile.schemes.scheme_spec import scheme_of
from rocelab.routes.arrays.paths import paths_of
from tests.helpers.hop_by_hop import links_of
from tests.unit.routes.test_paths import apart, case, links_on, matrix_of, plan, spec_of
name = "zones-small"
network, routes, _ = case(name)
rows = apart(name)[::5]
found = []
for kind, keys in [("chosen-fields", {}), ("chosen-fields", {"fields": "destination"}),
                   ("modulo", {"ways": 2})]:
    scheme = scheme_of(kind, **keys)
    fabric = plan(spec_of(name).model_copy(update={"scheme": scheme}))
    paths = paths_of(network, routes, matrix_of(network, rows).flows, scheme=scheme)
    links = links_on(fabric, paths)
    assert links == links_of(fabric, rows)
    found.append(hash(tuple(links)))
print(json.dumps(len(set(found))))
"""
LAB = """
name: turns
fabric: {kind: clos, racks: 2, spines: 4, servers_per_rack: 4}
scheme: {kind: modulo, ways: 4}
"""


Commands = dict[tuple[str, ...], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    folder = tmp_path_factory.mktemp("hashing")
    return PluginEnvironment.with_package(folder, "lab_hashing", POINTS)


@pytest.fixture
def there(tmp_path: Path) -> PluginEnvironment:
    return PluginEnvironment.with_package(tmp_path, "lab_hashing", POINTS)


def test_flows_led_at_once_take_the_links_that_each_takes_alone(
    unchanged: PluginEnvironment,
) -> None:
    done = unchanged.run(EACH_ALONE_AND_ALL_AT_ONCE)
    assert done.stdout == "3\n", done.stderr


@pytest.fixture(scope="module")
def commands(unchanged: PluginEnvironment) -> Commands:
    """What commands say of them, by their first words."""
    folder = unchanged.folder
    (folder / "turns.yaml").write_text(LAB)
    (folder / "few.yaml").write_text(LAB.replace("ways: 4", "ways: 0"))
    (folder / "unknown.yaml").write_text(LAB.replace("modulo", "modula"))
    (folder / "first.yaml").write_text(LAB.replace("{kind: modulo, ways: 4}", "first-way"))
    lines: dict[tuple[str, ...], tuple[str, ...]] = {
        ("predict", "turns.yaml"): (*JOB, "--json"),
        ("predict", "turns.yaml", "--scheme", "chosen-fields"): (*JOB, "--json"),
        ("predict", "turns.yaml", "--scheme", "ecmp"): (*JOB, "--json"),
        ("simulate", "turns.yaml"): (*JOB, "--json"),
        ("predict", "first.yaml"): JOB,
        ("simulate", "first.yaml"): JOB,
        ("plan", "few.yaml"): (),
        ("plan", "unknown.yaml"): (),
        ("schema",): (),
    }
    whole = (first + others for first, others in lines.items())
    return dict(zip(lines, unchanged.in_turn(*whole, NUMBA_DISABLE_JIT="1"), strict=True))


def test_a_lab_file_and_options_name_them(commands: Commands) -> None:
    options = ((), ("--scheme", "chosen-fields"), ("--scheme", "ecmp"))
    predicted = [commands["predict", "turns.yaml", *words] for words in options]
    assert [process.returncode for process in predicted] == [0, 0, 0], predicted[0].stderr
    loads = [json.dumps(json.loads(process.stdout)["links"]) for process in predicted]
    assert len(set(loads)) == 3
    simulated = commands["simulate", "turns.yaml"]
    assert not simulated.returncode, simulated.stderr


def test_their_keys_and_names_are_checked_as_ours(commands: Commands) -> None:
    wrong = commands["plan", "few.yaml"]
    assert "few.yaml:4: scheme.ways: expected a whole number from 1 to 256" in wrong.stderr
    assert "did you mean modulo?" in commands["plan", "unknown.yaml"].stderr


def test_a_scheme_without_a_program_is_refused_where_a_lab_would_have_it(
    unchanged: PluginEnvironment,
) -> None:
    program = """
from rocelab.base.errors import InputError
from rocelab.labfile.schemes.scheme_spec import scheme_of
for kind in ("chosen-fields", "turns", "first-way"):
    scheme_of(kind).check_lab()
try:
    scheme_of("modulo").check_lab()
except InputError as error:
    print(error.message)
"""
    done = unchanged.run(program)
    assert done.stdout == "scheme modulo has no program for a lab\n", done.stderr


def test_a_lab_s_schema_has_them(commands: Commands) -> None:
    schema = json.loads(commands[("schema",)].stdout)
    assert {"chosen-fields", "modulo"} <= set(schema["properties"]["scheme"]["anyOf"][0]["enum"])


def test_one_that_is_broken_is_named(there: PluginEnvironment) -> None:
    module = there.site / "lab_hashing/__init__.py"
    module.write_text(module.read_text().replace('Literal["modulo"]', 'Literal["module"]'))
    (there.folder / "turns.yaml").write_text(LAB)
    refused = there.rocelab("plan", "turns.yaml")
    assert "scheme modulo of lab-hashing 1.2 cannot be used" in refused.stderr
    assert 'expected its key kind to be Literal["modulo"]' in refused.stderr


def test_what_a_controller_of_a_package_does_is_neither_predicted_nor_simulated(
    commands: Commands,
) -> None:
    for command, reason in (
        ("predict", "a controller places flows while the lab runs: loads cannot be predicted"),
        ("simulate", "what the controller of scheme first-way decides is not simulated"),
    ):
        refused = commands[command, "first.yaml"]
        assert refused.returncode == 2
        assert reason in refused.stderr


def test_a_controller_whose_paths_are_called_predictable_is_refused(
    there: PluginEnvironment,
) -> None:
    module = there.site / "lab_hashing/__init__.py"
    module.write_text(module.read_text().replace("    unpredictable = drawn", "    _ = drawn"))
    (there.folder / "turns.yaml").write_text(LAB.replace("{kind: modulo, ways: 4}", "first-way"))
    refused = there.rocelab("plan", "turns.yaml")
    assert "has a controller, and lacks unpredictable" in refused.stderr
