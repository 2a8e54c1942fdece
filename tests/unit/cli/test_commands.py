"""The command line without a lab: its output, the handling of errors, and exit codes."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from rocelab.base.errors import ExpectationError, InputError, MachineError, RocelabError
from rocelab.base.family import Family
from rocelab.cli import app as cli_app
from rocelab.cli.arguments import running_or_planned
from rocelab.cli.main import build, command_line
from rocelab.lab.lab import Lab
from rocelab.linux.fib import KernelHop, KernelRoute, live_widths
from rocelab.render.files import MARKER, write_rendered
from tests.helpers.long import mostly_long
from tests.unit.conftest import CommandLine

BAD_SPEC = "name: t-cli-bad\nfabric: {kind: clos, racks: 0, spines: 2, leaves: 3}\n"

COMMANDS = (
    *("labs", "plan", "render", "graph", "schema", "doctor", "up", "down", "list", "status"),
    *("adopt", "release", "import"),
    *(
        "exec",
        "run",
        "ping",
        "reach",
        "shell",
        "live",
        "events",
        "inventory",
        "vtysh",
        "path",
        "scheme",
        "te",
        "capture",
        "traffic",
        "predict",
    ),
    *("simulate", "whatif", "longrun", "sweep", "reference", "requests"),
    *("compare", "diagnose", "health", "evidence", "cli", "runs", "attach"),
)
GROUPS = {
    "drill": ("list", "show", "run", "diff", "gate"),
    "fault": ("inject", "list", "restore", "kinds"),
    "image": ("build",),
}


def test_the_version_is_that_of_the_distribution(rocelab: CommandLine) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    outcome = rocelab("--version")
    assert (outcome.code, outcome.out) == (0, f"rocelab {project['version']}\n")


@pytest.mark.parametrize(
    "words",
    [(command,) for command in COMMANDS] + [(g, group) for g in GROUPS for group in GROUPS[g]],
)
def test_every_command_explains_itself(rocelab: CommandLine, words: tuple[str, ...]) -> None:
    outcome = rocelab(*words, "--help")
    assert outcome.code == 0
    assert "Usage: rocelab" in outcome.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["plan"],
        ["plan", "no-such-lab"],
        ["plan", "/no/such/file.yaml"],
        ["plan", "tiny", "--nosuch"],
        ["render", "tiny"],
        ["graph", "tiny", "--format", "png"],
        ["graph", "tiny", "-o", "/no/such/folder/x.svg"],
        ["path", "tiny", "--src", "srv1-1", "--dst", "srv1-1", "--sport", "1"],
        ["path", "tiny", "--src", "srv1-1", "--dst", "nosuch", "--sport", "1"],
        ["path", "tiny", "--src", "srv1-1", "--dst", "srv2-1", "--sport", "65536"],
        ["path", "tiny", "--src", "srv1-1", "--dst", "srv2-1", "--sport", "1", "--src-nic", "2"],
        ["down"],
        ["down", "tiny", "--all"],
        ["drill", "run", "no-such-drill"],
    ],
)
def test_wrong_input_ends_with_2_and_a_message_and_no_traceback(
    rocelab: CommandLine, arguments: list[str]
) -> None:
    outcome = rocelab(*arguments)
    assert outcome.code == 2
    assert outcome.err
    assert "Traceback" not in outcome.err


def test_every_problem_of_a_file_is_shown_with_its_line_and_hint(
    rocelab: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD_SPEC)

    outcome = rocelab("plan", file)

    assert outcome.code == 2
    assert f"{file}:2: fabric.racks" in outcome.err
    assert f"{file}:2: fabric.leaves: unknown key" in outcome.err
    assert "  hint: " in outcome.err


def test_debug_shows_the_traceback_of_an_error(rocelab: CommandLine) -> None:
    outcome = rocelab("--debug", "plan", "no-such-lab")
    assert outcome.code == 2
    assert "Traceback" in outcome.err


@pytest.mark.parametrize(
    ("error", "code"),
    [(ExpectationError("e", "h"), 1), (InputError("e", "h"), 2), (MachineError("e", "h"), 3)],
)
def test_an_error_ends_with_its_own_exit_code(
    rocelab: CommandLine, monkeypatch: pytest.MonkeyPatch, error: RocelabError, code: int
) -> None:
    raise_in_plan(monkeypatch, error)
    outcome = rocelab("plan", "tiny")
    assert (outcome.code, outcome.err) == (code, "rocelab plan: e\n  hint: h\n")


def test_an_unexpected_error_says_that_it_is_a_defect(
    rocelab: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_in_plan(monkeypatch, ZeroDivisionError("x"))
    outcome = rocelab("plan", "tiny")
    assert outcome.code == cli_app.DEFECT_EXIT_CODE
    assert "ZeroDivisionError" in outcome.err
    assert "defect" in outcome.err


def test_an_interrupt_ends_with_130(rocelab: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_plan(monkeypatch, KeyboardInterrupt())
    assert rocelab("plan", "tiny").code == 130


def test_the_dilation_that_advice_names_is_an_option(rocelab: CommandLine) -> None:
    """`rocelab.jobs.load` and `rocelab.traffic.jobresult` advise it."""
    for command in (("up",), ("drill", "run")):
        assert rocelab(*command, "tiny", "--dilation", "0.5").code == 2
        assert "--dilation" in rocelab(*command, "--help").out
    refused = rocelab("drill", "run", "link-flap", "--dilation", "2000", "--out", "/nonexistent")
    assert refused.code == 2
    assert "traffic.rate_pps" in refused.err
    assert Lab.planned("tiny", dilation=2000).fabric.spec.dilation == 2000


def raise_in_plan(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr("rocelab.planning.build.plan", fail)


@pytest.mark.parametrize(
    "line",
    mostly_long(
        ["plan zone-252x18 --json", "plan tiny", "drill list", "schema"],
        ["plan zone-252x18 --json", "plan tiny"],
    ),
)
def test_a_command_whose_reader_has_gone_ends_quietly_as_by_sigpipe(line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    outcome = subprocess.run(
        [sys.executable, "-c", "from rocelab.cli.main import main; main()", *line.split()],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (outcome.returncode, outcome.stderr) == (cli_app.PIPE_EXIT_CODE, b"")


def test_the_beginning_of_an_output_is_what_head_shows() -> None:
    program = shlex.join([sys.executable, "-c", "from rocelab.cli.main import main; main()"])
    pipe = f"{program} plan zone-252x18 --json | head -c 1"
    outcome = subprocess.run(["sh", "-c", pipe], capture_output=True, text=True, check=False)
    assert (outcome.stdout, outcome.stderr) == ("{", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_command_whose_output_is_closed_ends_as_otherwise(closed: str) -> None:
    program = shlex.join([sys.executable, "-c", "from rocelab.cli.main import main; main()"])
    line = f"{program} labs {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_error_whose_reader_has_gone_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    outcome = subprocess.run(
        [sys.executable, "-c", "from rocelab.cli.main import main; main()", "plan", "nosuch"],
        stdout=subprocess.PIPE,
        stderr=writer,
        check=False,
    )
    os.close(writer)
    assert (outcome.returncode, outcome.stdout) == (cli_app.PIPE_EXIT_CODE, b"")


def test_a_plan_for_people_counts_nodes_links_sessions_and_widths(rocelab: CommandLine) -> None:
    outcome = rocelab("plan", "zones-small")
    rows = [line.split() for line in outcome.out.splitlines()]
    assert outcome.code == 0
    assert ["atsw", "2", "1", "2"] in rows
    assert ["rtsw", "8", "8", "8"] in rows
    assert ["rtsw", "to", "ctsw", "16", "400", "Gb/s", "9000", "16"] in rows
    assert ["rtsw", "rtsw,", "another", "AI", "zone", "2"] in rows
    assert ["rtsw", "8", "400", "Gb/s", "800", "Gb/s", "1:2"] in rows
    assert ["loopbacks", "atsw", "2", "198.18.0.32", "198.18.0.33"] in rows
    last = "4", "198.18.0.18", "198.18.0.30"
    assert ["loopbacks", "rtsw,", "AI", "zone", "2", *last] in rows


def test_a_plan_for_people_tells_planes_from_segments_and_counts_nics_of_two_ports(
    rocelab: CommandLine,
) -> None:
    outcome = rocelab("plan", "hpn-small")
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["tor", "8", "8", "12", "8"] in rows
    assert ["tor", "pair", "tor,", "another", "segment", "2"] in rows
    assert ["agg", "agg,", "another", "plane", "2"] in rows
    assert ["agg", "4", "1.6", "Tb/s", "800", "Gb/s", "2:1"] in rows


def test_a_plan_for_programs_is_the_same_every_time(rocelab: CommandLine) -> None:
    first, second = rocelab("plan", "zone-small", "--json"), rocelab("plan", "zone-small", "--json")
    assert first.out == second.out
    assert json.loads(first.out)["lab"] == "zone-small"


def test_the_schema_is_json_of_a_lab(rocelab: CommandLine) -> None:
    schema = json.loads(rocelab("schema").out)
    assert {"name", "fabric", "routing", "hashing"} <= set(schema["properties"])


def test_a_graph_goes_to_stdout_or_to_a_file(rocelab: CommandLine, tmp_path: Path) -> None:
    drawn = rocelab("graph", "tiny").out
    assert rocelab("graph", "tiny", "-o", tmp_path / "tiny.svg").code == 0
    assert (tmp_path / "tiny.svg").read_text() == drawn
    assert drawn.lstrip().startswith("<svg")
    assert "ctsw1" in rocelab("graph", "tiny", "--format", "mermaid").out


def test_the_path_of_a_lab_that_is_not_up_says_that_it_is_planned(
    rocelab: CommandLine, tmp_path: Path
) -> None:
    outcome = rocelab(
        *("path", a_lab(tmp_path), "--src", "srv1-1", "--dst", "srv3-1"),
        *("--sport", "50000", "--json"),
    )
    document = json.loads(outcome.out)
    assert document["tables"] == "planned"
    assert document["hops"][0] == "srv1-1"
    assert document["hops"][1] == "rtsw1"
    assert document["hops"][-2:] == ["rtsw3", "srv3-1"]
    assert len(document["links"]) == len(document["hops"]) - 1 == len(document["detail"])
    assert document["detail"][1]["width"] == 2


def test_a_lab_that_is_not_up_can_not_be_probed(rocelab: CommandLine, tmp_path: Path) -> None:
    outcome = rocelab(
        *("path", a_lab(tmp_path), "--src", "srv1-1", "--dst", "srv3-1"),
        *("--sport", "50000", "--probe"),
    )
    assert outcome.code == 2
    assert "rocelab up" in outcome.err


def a_lab(folder: Path) -> Path:
    file = folder / "lab.yaml"
    file.write_text("name: t-cli-unit\nfabric: {kind: clos, racks: 4, spines: 2}\n")
    return file


def test_render_writes_a_folder_per_switch_and_replaces_only_its_own(tmp_path: Path) -> None:
    large = running_or_planned("zone-small")
    small = running_or_planned(str(a_lab(tmp_path)))
    folder = tmp_path / "out"

    assert write_rendered(large.fabric, folder) == 8
    (folder / "ctsw4" / "notes.txt").write_text("mine")
    assert write_rendered(small.fabric, folder, overwrite=True) == 6

    assert sorted(entry.name for entry in folder.iterdir()) == [
        *(MARKER, "ctsw1", "ctsw2", "ctsw4", "rtsw1", "rtsw2", "rtsw3", "rtsw4"),
    ]
    assert [entry.name for entry in (folder / "ctsw4").iterdir()] == ["notes.txt"]
    assert "router bgp 4200000002" in (folder / "rtsw1" / "bgpd.conf").read_text()
    assert (folder / "rtsw1" / "zebra.conf").exists()


@pytest.mark.parametrize("target", ["frr", "containerlab", "clabernetes"])
def test_render_keeps_an_earlier_one_unless_told_otherwise(
    rocelab: CommandLine, tmp_path: Path, target: str
) -> None:
    folder = tmp_path / "out"
    line = ("render", "tiny", "--target", target, "-o", folder)
    assert rocelab(*line).code == 0
    changed = next(path for path in sorted(folder.rglob("*")) if path.suffix in (".conf", ".yaml"))
    changed.write_text("mine")
    again = rocelab(*line)
    assert again.code == 2
    assert f"{folder} has rendered files already" in again.err
    assert "--force" in again.err
    assert changed.read_text() == "mine"
    assert rocelab(*line, "--force").code == 0
    assert changed.read_text() != "mine"


def test_graph_keeps_a_file_that_is_there_unless_told_otherwise(
    rocelab: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "tiny.svg"
    file.write_text("mine")
    outcome = rocelab("graph", "tiny", "-o", file)
    assert outcome.code == 2
    assert f"{file} is there already" in outcome.err
    assert "--force" in outcome.err
    assert file.read_text() == "mine"
    assert rocelab("graph", "tiny", "-o", file, "--force").code == 0
    assert file.read_text().startswith("<svg")
    assert rocelab("graph", "tiny", "-o", tmp_path / "none" / "tiny.svg").code == 2


def test_render_refuses_a_folder_with_files_of_others(rocelab: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    outcome = rocelab("render", "tiny", "-o", tmp_path)
    assert outcome.code == 2
    assert "not empty" in outcome.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]


def test_render_refuses_a_file_in_place_of_a_folder(rocelab: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert rocelab("render", "tiny", "-o", file).code == 2
    assert rocelab("render", "tiny", "-o", file / "below").code == 2


def test_a_next_hop_without_carrier_is_not_counted() -> None:
    live, down = KernelHop(3, b"", 1), KernelHop(4, b"", 1, carrier=False)

    def route(last: int, length: int, metric: int, *hops: KernelHop) -> KernelRoute:
        return KernelRoute(Family.IPV4, 0xC6120000 + last, length, metric, 186, 1, 0, hops)

    routes = [
        route(4, 32, 20, live, down),
        route(8, 30, 20, live),
        route(12, 30, 20, down),
        KernelRoute(Family.IPV4, 0, 0, 10, 186, 1, 0, (live,)),
        KernelRoute(Family.IPV4, 0, 0, 20, 186, 1, 0, (live, live)),
    ]
    assert live_widths(routes) == {
        "198.18.0.4/32": 1,
        "198.18.0.8/30": 1,
        "198.18.0.12/30": 0,
        "0.0.0.0/0": 1,
    }


def test_a_user_without_rights_is_told_to_use_sudo(
    rocelab: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program = str(Path(sys.executable).with_name("rocelab"))
    lines = (["status"], ["exec", "t", "rtsw1", "ls"], ["shell", "t", "rtsw1"], ["up", "tiny"])
    for arguments in lines:
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        outcome = rocelab(*arguments)
        assert outcome.code == 3
        assert f"run it with sudo: {shlex.join(['sudo', program, *arguments])}\n" in outcome.err


def test_a_script_of_a_user_without_rights_is_to_be_run_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["my script.py", "x"])
    with pytest.raises(MachineError) as refused:
        Lab.planned("tiny").up()
    line = f"sudo {shlex.quote(sys.executable)} 'my script.py' x"
    assert refused.value.hint == f"run it with sudo: {line}"


def test_the_application_has_every_command_once() -> None:
    application = build()
    assert names_in(application) == sorted(COMMANDS)
    groups = {group.name: group.typer_instance for group in application.registered_groups}
    assert {name: names_in(group) for name, group in groups.items()} == {
        name: sorted(commands) for name, commands in GROUPS.items()
    }


def names_in(application: typer.Typer) -> list[str]:
    """A command without a name of its own is called as its function is."""
    commands = application.registered_commands
    return sorted(
        str(command.name or getattr(command.callback, "__name__", "")) for command in commands
    )


def test_an_error_is_shown_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    cli_app.show_error(RocelabError("[red]not markup[/red]"), "rocelab up")
    assert capsys.readouterr().err == "rocelab up: [red]not markup[/red]\n"


@pytest.mark.parametrize(
    ("typed", "module"),
    [("schema", {"planning", "carving", "options", "schemas"}), ("--help", set())],
)
def test_a_command_does_not_wait_for_those_that_were_not_asked_for(
    typed: str, module: set[str]
) -> None:
    program = (
        "import sys\n"
        "from rocelab.cli.main import main\n"
        f"try:\n    main([{typed!r}])\n"
        "finally:\n    sys.stderr.write(' '.join(sys.modules))\n"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.rsplit(".", 1)[1] for name in outcome.stderr.split() if "rocelab.cli." in name}
    shared = {"main", "app", "remote", "unprivileged", "arguments"}
    assert loaded == shared | module
    assert ("pydantic" in outcome.stderr) == bool(module)


def test_help_says_of_each_command_what_the_command_itself_says() -> None:
    for name, (panel, text) in command_line().summaries.items():
        command = command_line().commands[name]
        said = inspect.cleandoc(command.help or "").partition("\n\n")[0]
        assert (text, panel) == (" ".join(said.split()), command.rich_help_panel)


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        (["--host", "te", "list"], "rocelab list"),
        (["--debug", "--host", "drill", "drill", "run", "x"], "rocelab drill run"),
        (["--host=te", "list"], "rocelab list"),
        (["te", "--host", "list"], "rocelab te"),
        (["--host"], "rocelab"),
    ],
)
def test_a_machine_that_is_called_as_a_command_heads_no_error(
    typed: list[str], command: str
) -> None:
    assert cli_app._typed_command(command_line(), typed) == command
