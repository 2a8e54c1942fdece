"""Load-balancing schemes that installed packages add: predicted, simulated, and refused by name
where no lab has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.plugin import commanded, installed, ran

POINTS = {
    "schemes:chosen-fields": "lab_hashing:ChosenFieldsScheme",
    "schemes:modulo": "lab_hashing:ModuloScheme",
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return installed(tmp_path, "lab_hashing", POINTS)


def test_flows_led_at_once_take_the_links_that_each_takes_alone(folder: Path) -> None:
    done = ran(folder, EACH_ALONE_AND_ALL_AT_ONCE)
    assert done.stdout == "3\n", done.stderr


def test_a_lab_file_and_options_name_them(folder: Path) -> None:
    (folder / "turns.yaml").write_text(LAB)
    asked = ("predict", "turns.yaml", *JOB, "--json")
    predicted = [
        commanded(folder, *asked, *options)
        for options in ((), ("--scheme", "chosen-fields"), ("--scheme", "ecmp"))
    ]
    assert [process.returncode for process in predicted] == [0, 0, 0], predicted[0].stderr
    loads = [json.dumps(json.loads(process.stdout)["links"]) for process in predicted]
    assert len(set(loads)) == 3
    simulated = commanded(folder, "simulate", "turns.yaml", *JOB, "--json", NUMBA_DISABLE_JIT="1")
    assert not simulated.returncode, simulated.stderr


def test_their_keys_and_names_are_checked_as_ours(folder: Path) -> None:
    (folder / "turns.yaml").write_text(LAB.replace("ways: 4", "ways: 0"))
    wrong = commanded(folder, "plan", "turns.yaml")
    assert "turns.yaml:4: scheme.ways: expected a whole number from 1 to 256" in wrong.stderr
    (folder / "turns.yaml").write_text(LAB.replace("modulo", "modula"))
    unknown = commanded(folder, "plan", "turns.yaml")
    assert "did you mean modulo?" in unknown.stderr


def test_a_scheme_without_a_program_is_refused_where_a_lab_would_have_it(folder: Path) -> None:
    program = """
from rocelab.base.errors import InputError
from rocelab.labfile.schemes.scheme_spec import scheme_of
scheme_of("chosen-fields").check_lab()
try:
    scheme_of("modulo").check_lab()
except InputError as error:
    print(error.message)
"""
    done = ran(folder, program)
    assert done.stdout == "scheme modulo has no program for a lab\n", done.stderr


def test_a_lab_s_schema_has_them(folder: Path) -> None:
    schema = json.loads(commanded(folder, "schema").stdout)
    assert {"chosen-fields", "modulo"} <= set(schema["properties"]["scheme"]["anyOf"][0]["enum"])


def test_one_that_is_broken_is_named(folder: Path) -> None:
    module = folder / "lab_hashing/__init__.py"
    module.write_text(module.read_text().replace('Literal["modulo"]', 'Literal["module"]'))
    (folder / "turns.yaml").write_text(LAB)
    refused = commanded(folder, "plan", "turns.yaml")
    assert "scheme modulo of lab_hashing 1.2 cannot be used" in refused.stderr
    assert 'expected its key kind to be Literal["modulo"]' in refused.stderr
