"""The user's own files: found by name before shipped ones, with a note."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rocelab.base.data import shipped
from rocelab.base.errors import InputError, SpecError
from rocelab.drills.drill_spec import load_drill
from rocelab.drills.plan import lab_of
from rocelab.jobs.job_spec import find_jobs
from rocelab.lab.lab import Lab
from rocelab.labfile.catalog import DRILLS, LABS, find, find_lab, own_files, shipped_names, tree_of
from rocelab.labfile.reference import named_by
from rocelab.remote.upload import make_upload, mirrored
from rocelab.sim.sweep.sweep_spec import read_sweep
from rocelab.testkit.choice import chosen_labs
from tests.unit.conftest import CommandLine

LAB = "name: {}\nfabric: {{racks: 3, spines: 2}}\n"
DRILL = """
name: {}
lab: {}
faults: [{{kind: carrier-down, link: "rtsw1:ctsw1", at: 1s}}]
"""
JOB = "pattern: allreduce\nranks: 2\nsize: 1MB\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a repository with a lab, a drill and a job, and a lab and a drill whose
    names are those of ones that ship."""
    for name in ("labs", "scripts", "traffic"):
        (tmp_path / name).mkdir()
    for name in ("mine", "tiny"):
        (tmp_path / f"labs/{name}.yaml").write_text(LAB.format(name))
    (tmp_path / "scripts/flap.yaml").write_text(DRILL.format("flap", "mine"))
    (tmp_path / "scripts/link-flap.yaml").write_text(DRILL.format("link-flap", "tiny"))
    (tmp_path / "traffic/ring.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_of_this_folder_is_found_by_its_name_and_before_one_that_ships(
    project: Path,
) -> None:
    assert find_lab("mine") == find_lab("mine", Path()) == Path("labs/mine.yaml")
    assert find_lab("tiny") == Path("labs/tiny.yaml")
    assert find_lab("bfd") == shipped("labs") / "bfd.yaml"
    assert find("flap", DRILLS) == Path("scripts/flap.yaml")
    assert find_jobs("ring") == Path("traffic/ring.yaml")
    assert Lab.planned("mine").fabric.name == "mine"


def test_a_path_stays_a_path(project: Path) -> None:
    (project / "tiny").write_text(LAB.format("other"))
    assert find_lab("./tiny") == Path("./tiny")
    assert find_lab("tiny.yaml") == Path("tiny.yaml")


def test_in_the_folder_of_what_ships_nothing_is_the_users_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(shipped("labs").parent)
    assert own_files(LABS) == {}
    assert find_lab("tiny") == shipped("labs") / "tiny.yaml"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "file") for name in ("$(id)", "-x", ".x", "a b", "a\x1b[1m")),
        *((name, name) for name in ("pipe", "folder", "link")),
    ],
)
def test_what_is_no_plain_name_of_a_file_is_no_name(project: Path, name: str, kind: str) -> None:
    path = project / f"labs/{name}.yaml"
    if kind == "file":
        path.write_text(LAB.format("x"))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(project / "gone")
    assert list(own_files(LABS)) == ["mine", "tiny"]
    with pytest.raises(InputError):
        find_lab(name)


def test_an_unknown_name_is_compared_with_the_users_own_too(project: Path) -> None:
    with pytest.raises(InputError) as caught:
        find_lab("mne")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean mine? ")
    assert "labs/NAME.yaml" in caught.value.hint


def test_a_file_that_is_beside_and_not_in_the_folder_of_labs_is_meant_by_its_path(
    project: Path,
) -> None:
    (project / "office.yaml").write_text(LAB.format("office"))
    with pytest.raises(InputError) as caught:
        find_lab("office")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean the path office.yaml? ")


@pytest.mark.parametrize(
    ("file", "tree"),
    [
        ("scripts/x.yaml", "."),
        ("x.yaml", "."),
        ("drills/x.yaml", "drills"),
        ("../scripts/x.yaml", ".."),
        ("/a/scripts/x.yaml", "/a"),
        ("/a/scripts/../x.yaml", "/a/scripts/.."),
    ],
)
def test_the_tree_of_a_file_is_above_its_folder_of_scripts(file: str, tree: str) -> None:
    assert tree_of(Path(file)) == Path(tree)


def test_the_tree_of_a_file_in_this_folder_of_scripts_is_above_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "scripts")
    assert tree_of(Path("flap.yaml")) == Path("..")


def test_a_drill_names_the_labs_of_its_own_tree_wherever_it_is_run_from(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    path = project / "scripts/flap.yaml"
    assert lab_of(load_drill(path), path) == project / "labs/mine.yaml"


def test_a_drill_that_ships_names_labs_that_ship(project: Path) -> None:
    path = shipped("scripts") / "nic-port-single.yaml"
    assert lab_of(load_drill(path), path) == shipped("labs") / "tiny.yaml"


def test_a_drill_finds_a_lab_that_ships_where_its_own_tree_has_none(project: Path) -> None:
    path = project / "scripts/other.yaml"
    path.write_text(DRILL.format("other", "bfd"))
    assert lab_of(load_drill(path), path) == shipped("labs") / "bfd.yaml"


JOB_DRILL = """
name: ring
lab: mine
phases:
  - {{name: one, jobs: [{job}], expect: {{completed: true}}}}
"""


@pytest.mark.parametrize("job", ["ring", "../traffic/ring.yaml", "allreduce"])
def test_a_drill_names_the_jobs_of_its_own_tree(project: Path, job: str) -> None:
    path = project / "scripts/ring.yaml"
    path.write_text(JOB_DRILL.format(job=job))
    drill = load_drill(path)
    assert drill.phases[0].jobs[0].ranks == (8 if job == "allreduce" else 2)


def test_a_job_that_a_drill_names_wrongly_is_shown_where_it_is(
    rocelab: CommandLine, project: Path
) -> None:
    path = project / "scripts/ring.yaml"
    path.write_text(JOB_DRILL.format(job="rnig"))
    outcome = rocelab("drill", "show", "ring")
    assert outcome.code == 2
    assert "scripts/ring.yaml:5: phases[0].jobs[0]: there is no file of jobs 'rnig'" in outcome.err
    assert "did you mean ring?" in outcome.err
    path.write_text(JOB_DRILL.format(job="ring"))
    (project / "traffic/ring.yaml").write_text("pattern: allreduce\nranks: none\n")
    outcome = rocelab("drill", "show", "ring")
    assert outcome.code == 2
    assert "traffic/ring.yaml:2: ranks: expected" in outcome.err


def test_a_sweep_names_the_labs_and_jobs_of_its_own_tree(project: Path) -> None:
    path = project / "sweep.yaml"
    path.write_text("lab: mine\njob: ring\nover: {job.seed: [1, 2]}\n")
    parts = read_sweep(path).parts
    assert parts["lab"].source.file == str(project / "labs/mine.yaml")
    assert parts["job"].source.file == str(project / "traffic/ring.yaml")
    assert parts["lab"].is_quoted and parts["job"].is_quoted


def test_a_named_file_is_quoted_in_its_tree_and_not_where_a_link_leads_out_of_it(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("private") / "secret"
    secret.write_text("name: [password]\n")
    drill = project / "scripts/flap.yaml"
    lab = project / "labs/mine.yaml"
    for quoted in (True, False):
        lab.unlink()
        lab.write_text(secret.read_text()) if quoted else lab.symlink_to(secret)
        with pytest.raises(SpecError) as caught, named_by(drill, lab):
            Lab.planned(lab)
        assert ("a list" in str(caught.value)) is quoted


def test_the_command_line_says_which_file_of_ones_own_it_takes(
    rocelab: CommandLine, project: Path
) -> None:
    plan = rocelab("plan", "mine", "--json")
    assert plan.code == 0 and json.loads(plan.out)["lab"] == "mine"
    assert plan.err == "note: lab mine is labs/mine.yaml\n"
    other = rocelab("plan", "tiny", "--json")
    assert other.err == "note: lab tiny is labs/tiny.yaml, not the one that ships\n"
    assert rocelab("plan", "bfd", "--json").err == ""
    assert rocelab("plan", "labs/mine.yaml", "--json").err == ""


def test_of_a_drill_its_lab_is_said_as_well(rocelab: CommandLine, project: Path) -> None:
    show = rocelab("drill", "show", "flap", "--json")
    assert json.loads(show.out)["name"] == "flap"
    assert show.err.splitlines() == [
        "note: drill flap is scripts/flap.yaml",
        "note: lab mine is labs/mine.yaml",
    ]
    (project / "scripts/flap.yaml").write_text(JOB_DRILL.format(job="ring"))
    assert rocelab("drill", "show", "flap", "--json").err.splitlines()[2:] == [
        "note: file of jobs ring is traffic/ring.yaml"
    ]


def test_files_of_jobs_and_of_flows_are_named_as_well(rocelab: CommandLine, project: Path) -> None:
    simulated = rocelab("simulate", "mine", "--job", "ring", "--json")
    assert simulated.code == 0, simulated.err
    assert "note: file of jobs ring is traffic/ring.yaml" in simulated.err
    (project / "traffic/one.yaml").write_text(
        "flows: [{source: srv1-1, destination: srv2-1, sport: 50000}]\n"
    )
    predicted = rocelab("predict", "mine", "--flows", "one", "--json")
    assert predicted.code == 0, predicted.err
    assert "note: file of flows one is traffic/one.yaml" in predicted.err


def test_lists_have_ones_own_files_and_mark_them(rocelab: CommandLine, project: Path) -> None:
    (project / "labs/broken.yaml").write_text("name: 1\n")
    labs = rocelab("labs", "--json")
    rows = {row["name"]: row for row in json.loads(labs.out)}
    assert sorted(rows) == sorted({*shipped_names(LABS), "mine"})
    assert [name for name in rows if rows[name]["own"]] == ["mine", "tiny"]
    assert rows["tiny"]["switches"] == 5
    assert labs.err.startswith("note: not listed, not a valid lab: labs/broken.yaml:1: fabric: ")
    text = rocelab("labs").out
    assert "mine (own)" in text and "(own): in labs/ of this folder" in text
    drills = {row["name"]: row for row in json.loads(rocelab("drill", "list", "--json").out)}
    assert [name for name in drills if drills[name]["own"]] == ["flap", "link-flap"]
    assert "flap (own)" in rocelab("drill", "list").out


def test_another_machine_is_sent_the_files_that_are_taken_here(project: Path) -> None:
    upload = make_upload(["drill", "run", "flap"], {"drill": "flap"}, project)
    assert upload.words == ("drill", "run", "flap")
    assert upload.sent == {
        mirrored(project / name): project / name for name in ("scripts/flap.yaml", "labs/mine.yaml")
    }
    (project / "scripts/flap.yaml").write_text(JOB_DRILL.format(job="ring"))
    jobs = make_upload(["drill", "run", "flap"], {"drill": "flap"}, project)
    assert {path.name for path in jobs.sent.values()} == {"flap.yaml", "mine.yaml", "ring.yaml"}
    job = make_upload(["traffic", "tiny"], {"lab": "tiny", "job_file": "ring"}, project)
    assert set(job.sent.values()) == {project / "labs/tiny.yaml", project / "traffic/ring.yaml"}
    sweep = project / "sweep.yaml"
    sweep.write_text("lab: mine\njob: ring\nover: {job.seed: [1, 2]}\ndescription: tiny\n")
    swept = make_upload(["sweep", "sweep.yaml"], {"sweep_file": sweep}, project)
    names = {path.name for path in swept.sent.values()}
    assert names == {"sweep.yaml", "mine.yaml", "ring.yaml"}
    assert make_upload(["up", "bfd"], {"lab": "bfd"}, project).sent == {}


def test_tests_name_the_labs_of_the_root_folder(project: Path) -> None:
    folder = project / "tests"
    files, _ = chosen_labs(("mine", "bfd"), {}, folder, project)
    assert files == (project / "labs/mine.yaml", shipped("labs") / "bfd.yaml")
