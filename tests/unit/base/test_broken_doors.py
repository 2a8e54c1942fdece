"""What a package registers and cannot be loaded, door by door: the command that names it says which
package it is of and why, and is not told of an unknown key."""

from __future__ import annotations

import json

import pytest

from tests.helpers.plugin import PluginEnvironment

BROKEN = {
    "module_gone": ("lab_broken.gone:THING", "ModuleNotFoundError: No module named 'lab_broken"),
    "attribute_gone": ("lab_broken:GONE", "AttributeError: module 'lab_broken' has no attribute"),
    "import_fails": ("lab_broken.failing:THING", "ImportError: libexotic is not there"),
    "wrong_type": ("lab_broken:THING", "TypeError: expected"),
}
CLOS = "name: x\nfabric: {kind: clos, racks: 2, spines: 2}\n"
CUT = 'kind: carrier-down, link: "rtsw1:ctsw1", at: 1s, lasts: 1s'
CONTROL = "pattern: pairs, ranks: 2, size: 1MB, transport: {congestion: NAME}"
FILES = {
    "fabric.yaml": "name: x\nfabric: {kind: NAME}\n",
    "scheme.yaml": CLOS + "scheme: NAME\n",
    "keys.yaml": CLOS + "scheme: {kind: NAME, ways: 2}\n",
    "stack.yaml": CLOS + "routing: {stack: NAME}\n",
    "fault.yaml": "name: d\nlab: tiny\nfaults: [{kind: NAME, at: 1s, lasts: 1s}]\n",
    "kpi.yaml": f'name: d\nlab: tiny\nfaults: [{{{CUT}}}]\nexpect: {{NAME: "> 0"}}\n',
    "pattern.yaml": "jobs: [{name: j, collective: {pattern: NAME, ranks: 2, size: 1MB}}]\n",
    "workload.yaml": "jobs: [{name: j, NAME: {}}]\n",
    "control.yaml": f"jobs: [{{name: j, collective: {{{CONTROL}}}}}]\n",
}
JOB = ("--pattern", "pairs", "--ranks", "2", "--size", "1MB")
COMMANDS: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "fabrics": ("kind of fabric", [("plan", "fabric.yaml")]),
    "schemes": (
        "scheme",
        [
            ("plan", "scheme.yaml"),
            ("plan", "keys.yaml"),
            ("predict", "tiny", *JOB, "--scheme", "NAME"),
            ("whatif", "tiny", "drain ctsw1", *JOB, "--scheme", "NAME"),
            ("compare", "tiny", "--schemes", "NAME"),
        ],
    ),
    "routing": ("routing stack", [("render", "stack.yaml", "--out", "rendered")]),
    "faults": (
        "kind of fault",
        [("drill", "show", "fault.yaml"), ("fault", "inject", "tiny", "NAME", "link=a:b")],
    ),
    "kpis": ("KPI", [("drill", "show", "kpi.yaml")]),
    "jobs.patterns": (
        "pattern",
        [
            ("simulate", "tiny", "--job", "pattern.yaml"),
            ("predict", "tiny", "--pattern", "NAME", *JOB[2:]),
        ],
    ),
    "jobs.workloads": ("workload", [("simulate", "tiny", "--job", "workload.yaml")]),
    "congestion": (
        "congestion control",
        [
            ("simulate", "tiny", "--job", "control.yaml"),
            ("simulate", "tiny", *JOB, "--congestion", "NAME"),
        ],
    ),
    "providers": ("runtime", [("up", "tiny", "--runtime", "NAME")]),
}
"""By door: its noun, and commands that name what is registered there."""
Refusal = tuple[str, list[str], int, str]
"""A door's noun, the words of a command, its exit code and its errors."""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    folder = tmp_path_factory.mktemp("environment")
    points = {f"{group}:{name}": BROKEN[name][0] for group in COMMANDS for name in BROKEN}
    twice = {f"{group}:twice": "lab_broken:THING" for group in COMMANDS}
    environment = PluginEnvironment.with_package(folder, "lab_broken", points | twice)
    environment.install("lab_halo", twice)
    return environment


@pytest.fixture(scope="module")
def refused(there: PluginEnvironment) -> dict[str, list[Refusal]]:
    """By name what each command says of it: all commands of the first name, and of each other one
    a command for each door."""
    asked: list[tuple[str, str, list[str]]] = []
    for name in (*BROKEN, "twice"):
        for file, text in FILES.items():
            (there.folder / f"{name}-{file}").write_text(text.replace("NAME", name))
        for noun, lines in COMMANDS.values():
            for line in lines if name == next(iter(BROKEN)) else lines[:1]:
                words = [f"{name}-{word}" if word in FILES else word for word in line]
                asked.append((name, noun, [word.replace("NAME", name) for word in words]))
    refusals: dict[str, list[Refusal]] = {}
    ended = there.in_turn(*(words for *_, words in asked))
    for (name, noun, words), done in zip(asked, ended, strict=True):
        refusals.setdefault(name, []).append((noun, words, done.returncode, done.stderr))
    return refusals


@pytest.mark.parametrize("name", BROKEN)
def test_a_command_that_names_it_says_what_is_broken(
    refused: dict[str, list[Refusal]], name: str
) -> None:
    for noun, words, code, errors in refused[name]:
        first, hint = errors.splitlines()
        named = f"{noun} {name} of lab-broken 1.2 cannot be used: {BROKEN[name][1]}"
        assert (code, named in first) == (2, True), (words, errors)
        assert "fix or uninstall that package" in hint


def test_a_command_says_of_a_name_that_two_packages_have_that_both_have_it(
    refused: dict[str, list[Refusal]],
) -> None:
    assert len(refused["twice"]) == len(COMMANDS)
    for noun, words, code, errors in refused["twice"]:
        first, hint = errors.splitlines()
        named = f"{noun} twice of lab-broken 1.2 cannot be used: lab-halo has that name too"
        assert (code, named in first) == (2, True), (words, errors)
        assert "uninstall" in hint


def test_doctor_names_all_of_them_and_labs_of_others_work(there: PluginEnvironment) -> None:
    checks = json.loads(there.rocelab("doctor", "--json").stdout)["checks"]
    (check,) = [check for check in checks if check["name"] == "lab-broken 1.2"]
    assert (check["ok"], check["found"]) == (False, "nothing that can be used")
    for group in COMMANDS:
        for name, (_, reason) in BROKEN.items():
            assert f"{name} of lab-broken 1.2 (rocelab.{group}): {reason}" in check["remedy"]
    done = there.rocelab("plan", "tiny")
    assert (done.returncode, done.stderr) == (0, "")
