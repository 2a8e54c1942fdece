"""What installed packages add is completed where commands name it, and in records of labs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.plugin import FAULTS, PluginEnvironment
from tests.unit.fabrics.test_plugin import POINTS as FABRICS
from tests.unit.jobs.test_plugin_patterns import POINTS as PATTERNS
from tests.unit.routes.test_plugin_schemes import POINTS as SCHEMES
from tests.unit.sim.test_packet_control import POINTS as CONTROLS

PACKAGES = {
    "lab_faults": FAULTS,
    "lab_fabrics": FABRICS,
    "lab_halo": PATTERNS,
    "lab_hashing": SCHEMES,
    "lab_pacing": CONTROLS,
}
COMPLETED = [
    ("fault inject", "KIND", "duct", ["duct-cut"]),
    ("simulate", "--scheme", "chosen", ["chosen-fields"]),
    ("predict", "--scheme", "chosen", ["chosen-fields"]),
    ("scheme", "SCHEME", "turn", ["turns"]),
    ("simulate", "--pattern", "hal", ["halo"]),
    ("traffic", "--pattern", "hal", ["halo"]),
    ("simulate", "--congestion", "pac", ["paced"]),
]
PROGRAM = """
import json, sys
from rocelab.cli.main import command_line

def completed(words, name, text):
    command = command_line()
    for word in words.split():
        command = command.commands[word]
    (parameter,) = [
        parameter for parameter in command.params
        if name in parameter.opts or (parameter.metavar or "").strip("[].") == name
    ]
    context = command.make_context("rocelab", [], resilient_parsing=True)
    return [item.value for item in parameter.shell_complete(context, text)]

print(json.dumps([completed(*case) for case in json.loads(sys.argv[1])]))
"""
RECORDED = """
import json
from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.model import LabSpec

body = {
    "name": "pods",
    "fabric": {"kind": "super-spine", "pods": 2, "leaves": 2, "servers": 2, "per_plane": 2},
    "scheme": {"kind": "chosen-fields", "fields": "qp"},
}
document = json.loads(json.dumps(LabSpec.model_validate(body).model_dump(mode="json")))
spec = recorded_spec(document)
print(json.dumps([spec.fabric.kind, spec.scheme.kind, spec.model_dump(mode="json") == document]))
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    environment = PluginEnvironment(tmp_path_factory.mktemp("environment"))
    for package, points in PACKAGES.items():
        environment.install(package, points)
    return environment


def test_what_packages_add_is_completed(there: PluginEnvironment, tmp_path: Path) -> None:
    cases = [case[:3] for case in COMPLETED]
    done = there.run(PROGRAM, json.dumps(cases), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [case[3] for case in COMPLETED]


def test_a_lab_of_packages_is_read_again_from_its_record(there: PluginEnvironment) -> None:
    done = there.run(RECORDED)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["super-spine", "chosen-fields", True]
