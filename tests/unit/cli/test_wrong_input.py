"""Any wrong file, name or machine gives a few lines, exit code 2 and no traceback. Commands and
their parameters are those that the application declares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab import record as records
from rocelab.base.documents import to_json
from rocelab.base.errors import COMMAND_LINE, Problem, SpecError
from rocelab.cli.app import show_error
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.record import LabFiles, Record, State, write_record
from rocelab.remote.upload import INPUTS
from tests.helpers.command_lines import Command, commands
from tests.helpers.report_sample import repeat, result
from tests.unit.conftest import CommandLine, Outcome

MOST_LINES = 12
"""A file's problems are shown all at once, each with its hint."""
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
CONTENTS = {
    "empty": b"",
    "binary": bytes(range(256)) * 40,
    "deep-json": b'{"a":' * 100_000,
    "deep-list": b"[" * 100_000,
    "deep-yaml": b"\n".join(b"  " * depth + b"a:" for depth in range(300)),
    "aliases": BOMB.encode(),
    "a-list": b"[1, 2, 3]",
    "a-number": b"1",
    "null": b"null",
    "another-document": b'{"schema_version": 2, "a": 1}',
    "not-a-number": b'{"schema_version": NaN, "name": Infinity}',
    "long-number": b'{"schema_version": ' + b"9" * 5000 + b"}",
    "latin-1": b"name: n\xe4me\n",
}
HOSTILE = ("empty", "binary", "deep-json")
"""The inputs for every command; the fewer readers get all inputs."""
NAMES = {
    "300 characters": "a" * 300,
    "a path of 300": f"/{'a' * 300}.yaml",
    "slashes": "../../x",
    "control characters": "a\x1b[31m\nb",
    "nothing": "",
    "a space": " ",
    "no UTF-8": "a\udcff",
}
READERS = {
    ("plan",): "lab",
    ("drill", "show"): "drill",
    ("simulate",): "job_file",
    ("predict",): "flows",
    ("sweep",): "sweep_file",
    ("reference",): "measured",
    ("requests",): "trace",
    ("longrun",): "timeline",
    ("import",): "topology",
    ("health",): "objectives",
    ("diagnose",): "result",
    ("drill", "diff"): "old new",
}
NAMING = ("node", "nodes", "ports", "src", "dst", "source", "destination", "kind")
HOSTS = (
    *("", " ", "-oProxyCommand=x", "a@b@c", "host:99999", "host:0", "host:x", "u@", "@h", "::1"),
    *(
        "fe80::1%eth0",
        "[::1]:0",
        "a" * 300,
        "..",
        "a..b",
        "a b",
        "a\nb",
        "\x1b[31m",
        "a/b",
        "\udcff",
    ),
)
LAB = load_spec(find_lab("zone-small"))
RUNNING = Record(LAB.name, "netns", State.RUNNING, 0.0, "0.1.0", LAB.model_dump(mode="json"), 0)
EVERY = [command for command in commands() if command.words[0] not in ("runs", "attach")]


def inputs(command: Command) -> list[str]:
    return [name for name in command.parameters if name in INPUTS]


def naming(command: Command) -> list[str]:
    return [name for name in NAMING if name in command.parameters]


def name_of(command: Command) -> str:
    return " ".join(command.words)


def wrong_files() -> Iterator[object]:
    """Commands with the contents that their files are tried with."""
    for command in EVERY:
        for content in CONTENTS:
            names = inputs(command)
            if content not in HOSTILE:
                names = [name for name in names if name in READERS.get(command.words, "").split()]
            if names:
                yield pytest.param(command, content, names, id=f"{name_of(command)}-{content}")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rights_of_root: None) -> None:
    """A machine of its own with one lab, whose user is root and is in an empty folder."""
    monkeypatch.setattr(records, "RUN_ROOT", tmp_path / "run")
    records.RUN_ROOT.mkdir()
    write_record(LabFiles(LAB.name), RUNNING)
    for folder in (LabFiles(LAB.name).netns, LabFiles(LAB.name).nodes):
        (folder / "rtsw1").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def check(outcome: Outcome, said: str) -> None:
    assert outcome.code == 2, said
    assert "Traceback" not in outcome.err, said
    assert 1 <= len(outcome.err.splitlines()) <= MOST_LINES, said
    assert outcome.err.replace("\n", "").isprintable(), said


def test_every_file_that_a_command_reads_has_a_reader_here() -> None:
    read = {name for command in EVERY for name in inputs(command)}
    assert read == set(" ".join(READERS.values()).split())


@pytest.mark.parametrize(("command", "content", "names"), list(wrong_files()))
def test_a_file_that_is_none_is_refused(
    rocelab: CommandLine, command: Command, content: str, names: list[str]
) -> None:
    Path(content).write_bytes(CONTENTS[content])
    for name in names:
        check(rocelab(*command.line(**{name: f"./{content}"})), f"{name}={content}")


@pytest.mark.parametrize("file", ["pipe.yaml", "pipe.csv", "device.yaml"])
@pytest.mark.parametrize(
    "words", [reader for reader in READERS if reader != ("longrun",)], ids=" ".join
)
def test_what_is_no_regular_file_is_refused_without_waiting(
    rocelab: CommandLine, words: tuple[str, ...], file: str
) -> None:
    """A pipe may never begin, a device never end."""
    os.mkfifo("pipe.yaml")
    os.mkfifo("pipe.csv")
    Path("device.yaml").symlink_to("/dev/zero")
    command = next(candidate for candidate in EVERY if candidate.words == words)
    outcome = rocelab(*command.line(**dict.fromkeys(READERS[words].split(), f"./{file}")))
    check(outcome, file)
    assert "it is not a regular file" in outcome.err or file == "pipe.csv"


@pytest.mark.parametrize("command", [command for command in EVERY if inputs(command)], ids=name_of)
def test_a_file_that_is_not_there_or_is_a_folder_is_refused(
    rocelab: CommandLine, command: Command
) -> None:
    Path("folder").mkdir()
    Path("file").touch()
    for name in inputs(command):
        for path in ("./folder", "./nosuch.yaml", "./file/below.yaml", *NAMES.values()):
            check(rocelab(*command.line(**{name: path})), f"{name}={path!r}")


@pytest.mark.parametrize("command", [command for command in EVERY if naming(command)], ids=name_of)
def test_a_name_that_can_be_none_is_refused(rocelab: CommandLine, command: Command) -> None:
    for name in naming(command):
        for text in NAMES.values():
            check(rocelab(*command.line(**{name: text})), f"{name}={text!r}")


@pytest.mark.parametrize("host", HOSTS)
def test_what_can_be_no_machine_is_refused(
    rocelab: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for words in (["list"], ["runs"], ["attach"]):
        check(rocelab("--host", host, *words), repr(host))


def test_a_drills_result_is_told_from_a_jobs(rocelab: CommandLine) -> None:
    Path("result.json").write_text(to_json(result(repeat(1))))
    outcome = rocelab("diagnose", "result.json")
    assert outcome.code == 2
    assert outcome.err.splitlines()[0] == (
        "rocelab diagnose: this is the result of a drill, not a job's document"
    )
    assert len(outcome.err.splitlines()) == 2
    assert "`rocelab diagnose --phase NAME`" in outcome.err
    named = rocelab("diagnose", "result.json", "--phase", "link-flap")
    assert named.code == 2
    assert named.err.splitlines()[1:] == ["  hint: its phases send probes"]


ALLREDUCE = ["--pattern", "allreduce", "--ranks", "4", "--size", "1MB"]
NOTHING = ["--pattern", "nothing", "--ranks", "4", "--size", "1MB"]


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("simulate", ["zone-1-1", *NOTHING], "--pattern: expected"),
        ("predict", ["zone-1-1", *NOTHING], "--pattern: expected"),
        ("whatif", ["zone-1-1", "drain ctsw1", *NOTHING], "--pattern: expected"),
        ("longrun", ["zone-1-1", "--rates", "llama3", *NOTHING], "--pattern: expected"),
        ("simulate", ["no-lab", *ALLREDUCE], "there is no lab 'no-lab'"),
        ("simulate", ["zone-1-1", "--scheme", "none", *ALLREDUCE], "scheme: expected ecmp"),
        (
            "simulate",
            ["tiny", *ALLREDUCE, "--event", "fail rtsw1:ctsw7 at 5us"],
            "fail link rtsw1:ctsw7: rtsw1 has no link to ctsw7",
        ),
        ("whatif", ["zone-1-1", "drain nobody", *ALLREDUCE], "zone-1-1 has no node nobody"),
        ("whatif", ["zone-1-1", "drain ctsw1 for 2x", *ALLREDUCE], "lasts: expected a time"),
        ("longrun", ["zone-1-1", "--rates", "none", *ALLREDUCE], "there are no rates none"),
        ("drill run", ["no-drill"], "there is no drill 'no-drill'"),
        ("fault inject", ["tiny", "blackhole", "link=x"], "link: expected NODE:INTERFACE"),
    ],
)
def test_an_error_begins_with_its_own_commands_name(
    rocelab: CommandLine, command: str, words: list[str], said: str
) -> None:
    outcome = rocelab(*command.split(), *words)
    assert outcome.code == 2
    assert outcome.err.startswith(f"rocelab {command}: {said}")


def test_an_event_that_names_nothing_is_told_with_its_timeline(rocelab: CommandLine) -> None:
    Path("failures.yaml").write_text("events: [{at: 1h, fail: ctsw9}]\n")
    outcome = rocelab("longrun", "tiny", "--timeline", "failures.yaml", *ALLREDUCE)
    assert outcome.code == 2
    assert outcome.err.startswith("failures.yaml: fail switch ctsw9: tiny has no node ctsw9")


def test_an_error_of_the_command_line_has_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(COMMAND_LINE, 2, "scheme.kind", "expected ecmp")
    show_error(SpecError([problem]), "rocelab scheme")
    assert capsys.readouterr().err == "rocelab scheme: scheme.kind: expected ecmp\n"


def test_an_error_of_a_file_begins_with_the_file_and_its_line(rocelab: CommandLine) -> None:
    Path("lab.yaml").write_text("name: t\nfabric: {kind: clos, racks: none}\n")
    outcome = rocelab("plan", "lab.yaml")
    assert outcome.code == 2
    assert outcome.err.startswith("lab.yaml:2: fabric.racks: expected")
