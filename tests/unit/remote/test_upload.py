"""The files that a command sends to another machine, and those that may come back."""

from __future__ import annotations

import inspect
import os
import typing
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.cli import remote as hook
from rocelab.cli.main import build, main
from rocelab.remote.upload import CONTINUED, INPUTS, OUTPUTS, is_within, make_upload, mirrored


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_a_relative_path_means_the_same_there(here: Path) -> None:
    (here / "lab.yaml").write_text("name: x\n")
    upload = make_upload(["up", "./lab.yaml"], {"lab": "./lab.yaml"}, here)
    assert upload.words == ("up", "./lab.yaml")
    assert upload.folder == str(here).lstrip("/")
    assert upload.sent == {f"{upload.folder}/lab.yaml": here / "./lab.yaml"}


@pytest.mark.parametrize("form", ["--out {}", "--out={}", "-o {}", "-o{}", "--out={}/"])
def test_an_absolute_path_is_made_relative_in_every_way_it_can_be_written(
    here: Path, form: str
) -> None:
    target = here.parent / "captures/x.pcapng"
    words = ["capture", "lab", "rtsw1:ctsw1", *form.format(target).split()]
    upload = make_upload(words, {"lab": "lab", "file": target}, here)
    assert str(target) not in " ".join(upload.words)
    written = next(word for word in upload.words if "x.pcapng" in word)
    relative = written.removeprefix("--out=").removeprefix("-o")
    assert os.path.normpath(here / relative) == str(target)
    assert mirrored(target) in upload.outputs


def test_a_capture_to_stdout_is_no_file_to_bring_back(here: Path) -> None:
    (here / "-").touch()
    words = ["capture", "lab", "rtsw1:ctsw1", "-o", "-"]
    upload = make_upload(words, {"lab": "lab", "file": Path("-")}, here)
    assert upload.words == tuple(words)
    assert upload.outputs == (mirrored(here / "results"),)
    assert not [place for place in upload.present if place.endswith("/-")]


def test_a_name_of_the_catalog_sends_nothing(here: Path) -> None:
    upload = make_upload(["up", "tiny"], {"lab": "tiny"}, here)
    assert upload.sent == {}
    assert upload.words == ("up", "tiny")


def test_of_a_folder_of_results_the_result_goes_along(here: Path) -> None:
    (here / "old").mkdir()
    for name in ("result.json", "report.html"):
        (here / "old" / name).write_text("{}")
    upload = make_upload(["drill", "diff", "old", "old"], {"old": "old", "new": "old"}, here)
    assert upload.sent == {f"{upload.folder}/old/result.json": here / "old/result.json"}


def test_a_drill_that_goes_on_takes_its_result_along_and_brings_the_folder_back(here: Path) -> None:
    (here / "night").mkdir()
    (here / "night/result.json").write_text("{}")
    words = ["drill", "run", "link-flap", "--resume", "night"]
    upload = make_upload(words, {"drill": "link-flap", "resume": "night"}, here)
    assert upload.sent == {f"{upload.folder}/night/result.json": here / "night/result.json"}
    assert f"{upload.folder}/night" in upload.outputs


def test_a_drill_takes_the_lab_that_it_names_along(here: Path) -> None:
    (here / "labs").mkdir()
    (here / "labs/mine.yaml").write_text("name: mine\n")
    (here / "drills").mkdir()
    drill = here / "drills/flap.yaml"
    drill.write_text("lab: ../labs/mine.yaml\njobs: [{file: job.yaml}, {file: none.yaml}]\n")
    (here / "drills/job.yaml").write_text("again: flap.yaml\n")
    upload = make_upload(["drill", "run", "drills/flap.yaml"], {"drill": "drills/flap.yaml"}, here)
    assert {path.name for path in upload.sent.values()} == {"flap.yaml", "mine.yaml", "job.yaml"}
    assert mirrored(here / "labs/mine.yaml") in upload.sent


def test_a_lab_takes_all_files_that_it_names_along(here: Path) -> None:
    texts = {
        "lab.yaml": "name: x\nfabric: {kind: graph, cables: cables.dot}\n"
        "routing: {config: 'conf/{node}.conf', templates: mine}\nqueues: {profile: pg.ini}\n",
        "cables.dot": "graph {}",
        "conf/leaf1.conf": "!",
        "mine/frr/bgpd.conf.j2": "",
        "pg.ini": "",
        "other.conf": "",
    }
    for name, text in texts.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    upload = make_upload(["up", "./lab.yaml"], {"lab": "./lab.yaml"}, here)
    sent = {os.path.normpath(path.relative_to(here)) for path in upload.sent.values()}
    assert sent == texts.keys() - {"other.conf"}


def test_a_file_that_names_another_absolutely_is_refused(here: Path) -> None:
    lab = here / "mine.yaml"
    lab.write_text("name: mine\n")
    drill = here / "flap.yaml"
    drill.write_text(f"lab: {lab}\n")
    with pytest.raises(InputError, match=r"another place") as refused:
        make_upload(["drill", "run", "flap.yaml"], {"drill": "flap.yaml"}, here)
    assert refused.value.hint == "write mine.yaml"


def test_a_file_that_is_not_here_is_not_looked_for_there(here: Path) -> None:
    with pytest.raises(InputError, match=r"no file .*none\.yaml"):
        make_upload(["up", "none.yaml"], {"lab": "none.yaml"}, here)


def test_what_stands_at_an_outputs_place_is_made_known_there_without_its_content(
    here: Path,
) -> None:
    (here / "out").mkdir()
    (here / "out/result.json").write_text("{}")
    (here / "out/plots").mkdir()
    upload = make_upload(["x", "--out", "out"], {"folder": Path("out")}, here)
    place = mirrored(here / "out")
    assert {f"{place}/", f"{place}/result.json", f"{place}/plots/"} <= set(upload.present)
    assert upload.sent == {}


def test_results_come_back_from_where_they_were_asked_for_and_from_nowhere_else() -> None:
    outputs = ("home/me/work/results", "tmp/x.pcapng")
    assert is_within("home/me/work/results/drill/result.json", outputs)
    assert is_within("tmp/x.pcapng", outputs)
    for place in (
        "home/me/.ssh/authorized_keys",
        "home/me/work/results/../../.bashrc",
        "home/me/work/results2/x",
        "home/me/work",
        "/home/me/work/results/x",
        "tmp/x.pcapng.sh",
        "tmp/x.pcapng/\x1b]0;x",
        "",
    ):
        assert not is_within(place, outputs), place
    assert not is_within("etc/cron.d/x", (mirrored(Path("/")),))


@given(st.lists(st.sampled_from(["a", "b", "c", ".", "..", ""]), max_size=8).map("/".join))
def test_no_place_leads_out_of_the_outputs(place: str) -> None:
    place = f"a/b/{place}"
    if is_within(place, ("a/b",)):
        assert (os.path.normpath(f"/{place}") + "/").startswith("/a/b/")


def parameters() -> dict[str, set[str]]:
    """The parameters of every command that are paths, by command."""
    options: dict[str, set[str]] = {}

    def look(app: typer.Typer, before: str) -> None:
        for command in app.registered_commands:
            callback = command.callback
            assert callback is not None
            hints = typing.get_type_hints(callback)
            name = f"{before}{command.name or callback.__name__}"
            options[name] = {
                parameter.name
                for parameter in inspect.signature(callback).parameters.values()
                if "Path" in str(hints.get(parameter.name, parameter.annotation))
            }
        for group in app.registered_groups:
            assert group.typer_instance is not None
            look(group.typer_instance, f"{group.name} ")

    look(build(), "")
    return options


def test_every_path_that_a_command_takes_is_known_as_read_or_written() -> None:
    options = parameters()
    assert "file" in options["capture"]
    of_the_other_machine = {"frr"}
    known = INPUTS | OUTPUTS | CONTINUED | of_the_other_machine
    unknown = {name: paths - known for name, paths in options.items()}
    assert not {name: paths for name, paths in unknown.items() if paths}


def test_a_command_is_read_here_before_it_goes_anywhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone: list[tuple[list[str], dict[str, object]]] = []

    def elsewhere(host: str, words: list[str], values: dict[str, object], *, talks: bool) -> int:
        gone.append((words, values))
        return 7

    monkeypatch.setattr("rocelab.cli.host.run_elsewhere", elsewhere)
    for words, code in (
        (["drill", "run", "link-flap", "--repeat", "2", "--out", "r"], 7),
        (["exec", "lab", "rtsw1", "--", "ip", "--json", "route"], 7),
        (["drill", "run", "link-flap", "--repeat", "none"], 2),
        (["nosuch"], 2),
        (["drill", "run", "--help"], 0),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["--host", "me@vm", *words])
        assert ended.value.code == code, words
    assert [words for words, _ in gone] == [
        ["drill", "run", "link-flap", "--repeat", "2", "--out", "r"],
        ["exec", "lab", "rtsw1", "--", "ip", "--json", "route"],
    ]
    assert (gone[0][1]["drill"], str(gone[0][1]["folder"])) == ("link-flap", "r")
    assert "Usage: rocelab drill run" in capsys.readouterr().out


def test_the_flows_that_simulate_writes_come_back(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, object] = {}

    def elsewhere(host: str, words: list[str], read: dict[str, object], *, talks: bool) -> int:
        values.update(read)
        return 0

    monkeypatch.setattr("rocelab.cli.host.run_elsewhere", elsewhere)
    words = ["simulate", "tiny", "--pattern", "allreduce", "--flows", "out.csv"]
    with pytest.raises(SystemExit):
        main(["--host", "me@vm", *words])
    upload = make_upload(words, values, here)
    assert mirrored(here / "out.csv") in upload.outputs
    assert upload.sent == {}


def test_runs_and_attach_need_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    for command in sorted(hook.HERE):
        with pytest.raises(SystemExit) as ended:
            main([command])
        assert ended.value.code == 2
        assert f"rocelab --host user@vm {command}" in capsys.readouterr().err
