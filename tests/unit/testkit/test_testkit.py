"""The pytest plugin without a running lab: choice of labs, refusals, names, differences,
durations."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab import RunningLab
from rocelab import record as records
from rocelab.base.errors import InputError, SpecError
from rocelab.drills.drill_spec import MeasureSpec
from rocelab.faults.kinds.blackhole import BlackholeSpec
from rocelab.lab import doctor
from rocelab.lab.checks import Check
from rocelab.lab.doctor import explained
from rocelab.labfile.base import MAX_NAME_LENGTH, check_name
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.testkit.bench import evidence_folder
from rocelab.testkit.choice import chosen_labs
from rocelab.testkit.duration import Duration
from rocelab.testkit.fingerprint import differences
from rocelab.testkit.naming import left_behind, suite_name
from rocelab.testkit.written import as_block, as_fault, lasting

pytest_plugins = ["pytester"]

MARKED = """
import pytest

@pytest.mark.lab({arguments})
def test_it(lab):
    pass
"""
OWN_LAB = "name: mine\nfabric: {kind: clos, racks: 2, spines: 1}\n"
FABRIC = plan(
    LabSpec.model_validate(
        {"name": "kit", "fabric": {"kind": "clos", "racks": 2, "spines": 1, "servers_per_rack": 2}}
    )
)
LAB = RunningLab(FABRIC)


@pytest.fixture
def no_lab_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "why_not", lambda **_: "this machine cannot run labs: no FRR")


@pytest.mark.usefixtures("no_lab_runs_here")
def test_a_machine_that_can_not_run_labs_skips_with_the_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MARKED.format(arguments="'tiny'"))
    result = pytester.runpytest_inprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*this machine cannot run labs: no FRR*"])


@pytest.mark.usefixtures("no_lab_runs_here")
@pytest.mark.parametrize("way", ["option", "ini"])
def test_a_machine_that_has_to_run_labs_fails(pytester: pytest.Pytester, way: str) -> None:
    pytester.makepyfile(MARKED.format(arguments="'tiny'"))
    if way == "ini":
        pytester.makeini("[pytest]\nrocelab_require = true")
    options = ["--rocelab-require"] if way == "option" else []
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*this machine cannot run labs: no FRR*"])
    result.stdout.no_fnmatch_line("*plugin.py*")


WRONG = {
    "": "the marker lab names no lab",
    "3": "the marker lab expects names of labs, got 3",
    "'tinny'": "did you mean tiny?",
    "'mine.yaml'": "there is no file */mine.yaml",
    "'tiny', 'tiny'": "the marker lab names a lab twice",
    "'tiny', size=3": "the marker lab has no argument size",
    "'tiny', scope='function'": "a lab cannot have the scope 'function'",
}


def test_a_wrong_marker_is_a_message_at_collection(pytester: pytest.Pytester) -> None:
    modules = {f"test_{n}": MARKED.format(arguments=arguments) for n, arguments in enumerate(WRONG)}
    pytester.makepyfile(**modules)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(errors=len(WRONG))
    _, *sections = re.split(r"(?m)^_+ ERROR collecting ", result.stdout.str())
    for name, said, section in zip(modules, WRONG.values(), sections, strict=True):
        lines = pytest.LineMatcher(section.splitlines())
        lines.fnmatch_lines([f"{name}.py*", f"*{said}*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*choice.py*")


def test_a_lab_without_a_marker_says_how_to_name_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(lab): pass")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*does not know which lab*", "*hint: mark the test*"])


def collected(pytester: pytest.Pytester, *options: str) -> list[str]:
    result = pytester.runpytest_inprocess("--collect-only", "-q", *options)
    return [line for line in result.outlines if "::" in line]


@pytest.mark.parametrize("where", ["absolute", "relative", "own"])
def test_the_frr_of_the_command_line_is_that_of_the_labs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    """This machine needs no FRR if another one is chosen."""
    monkeypatch.setattr(records, "RUN_ROOT", tmp_path / "run")
    asked: list[bool] = []

    def why_not(*, own_frr: bool) -> None:
        asked.append(own_frr)

    monkeypatch.setattr(doctor, "why_not", why_not)
    monkeypatch.setattr("rocelab.testkit.bench.Bench.up", lambda bench: None)
    monkeypatch.setattr("rocelab.testkit.bench.Bench.end", lambda bench: None)
    folder = pytester.mkdir("frr-10")
    options = {"absolute": [str(folder)], "relative": ["frr-10"], "own": []}[where]
    wanted = None if where == "own" else folder
    pytester.makepyfile(
        "import pytest\nfrom pathlib import Path\n"
        "@pytest.mark.lab('tiny')\ndef test_it(lab):\n"
        f"    assert str(lab.runtime.provider.frr) == {str(wanted)!r}\n"
    )
    words = [word for option in options for word in ("--rocelab-frr", option)]
    pytester.runpytest_inprocess(*words).assert_outcomes(passed=1)
    assert asked == [where == "own"]


def test_a_test_runs_on_each_lab_of_its_marker(pytester: pytest.Pytester) -> None:
    pytester.mkdir("deep").joinpath("mine.yaml").write_text(OWN_LAB)
    suite = pytester.path / "deep" / "test_deep.py"
    suite.write_text(MARKED.format(arguments="'tiny', 'mine.yaml'"))
    names = ["deep/test_deep.py::test_it[tiny]", "deep/test_deep.py::test_it[mine]"]
    assert collected(pytester) == names
    assert collected(pytester, "--rocelab-lab", "two-leaves") == [
        "deep/test_deep.py::test_it[two-leaves]"
    ]


def test_the_nearest_marker_counts(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_near="import pytest\npytestmark = pytest.mark.lab('two-leaves')\n"
        + MARKED.format(arguments="'tiny'")
        + "\ndef test_other(lab): pass\n"
    )
    assert collected(pytester) == [
        "test_near.py::test_it[tiny]",
        "test_near.py::test_other[two-leaves]",
    ]


def test_tests_of_several_modules_share_a_lab_of_session_scope(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bench that only says when it is brought up and taken down."""
    steps: list[str] = []

    class Bench:
        evidence = None

        def __init__(self, file: Path, evidence: Path, frr: Path | None) -> None:
            self.lab, self.name = object(), file.stem

        def up(self) -> None:
            steps.append(f"up {self.name}")

        def begin(self, folder: Path) -> None:
            steps.append("begin")

        def end(self) -> None:
            steps.append("end")

        def discard_evidence(self) -> None:
            pass

        def down(self) -> None:
            steps.append(f"down {self.name}")

    monkeypatch.setattr("rocelab.testkit.bench.Bench", Bench)
    monkeypatch.setattr(doctor, "why_not", lambda **_: None)
    test = MARKED.format(arguments="'tiny'")
    pytester.makepyfile(test_one=test, test_two=test)
    pytester.runpytest_inprocess().assert_outcomes(passed=2)
    apart = ["up tiny", "begin", "end", "down tiny"]
    assert steps == apart + apart
    steps.clear()
    pytester.runpytest_inprocess("-o", "rocelab_scope=session").assert_outcomes(passed=2)
    assert steps == ["up tiny", "begin", "end", "begin", "end", "down tiny"]
    steps.clear()
    test = MARKED.format(arguments="'tiny', scope='session'")
    pytester.makepyfile(test_one=test, test_two=test)
    pytester.runpytest_inprocess().assert_outcomes(passed=2)
    assert steps == ["up tiny", "begin", "end", "begin", "end", "down tiny"]


def test_a_fixture_lab_of_somebody_else_is_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def lab():
            return "theirs"

        def test_it(lab):
            assert lab == "theirs"

        def test_a_fault_needs_ours(fault):
            pass
        """
    )
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*this lab is not from rocelab's own fixture lab*"])


def test_a_suite_without_labs_imports_nothing_of_them(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it(request):\n"
        "    assert request.config.pluginmanager.hasplugin('rocelab')\n"
        "    heavy = ('labs', 'traffic', 'pydantic', 'pyroute2', 'numpy')\n"
        "    assert not [name for name in heavy if name in sys.modules]\n"
    )
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout


def test_what_is_missing_of_a_machine_comes_with_its_remedies() -> None:
    def check(name: str, *, ok: bool, needed: bool = True) -> Check:
        return Check(name, ok, needed, "missing", "purpose", f"get {name}")

    assert explained([check("veth", ok=True), check("red", ok=False, needed=False)]) is None
    assert explained([check("veth", ok=False), check("FRR", ok=False)]) == (
        "this machine cannot run labs: veth (missing), FRR (missing); get veth; get FRR"
    )


@given(st.from_regex(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", fullmatch=True), st.integers(1, 4194304))
def test_every_lab_of_a_suite_has_a_good_name_of_its_own(name: str, pid: int) -> None:
    name = name[:MAX_NAME_LENGTH].rstrip("-")
    taken: set[str] = set()
    for _ in range(26):
        taken.add(suite_name(name, taken, pid))
    assert len(taken) == 26
    assert all(check_name(name) == name for name in taken)
    with pytest.raises(ValueError, match="26 labs"):
        suite_name(name, taken, pid)


def test_labs_of_processes_that_are_gone_are_told_from_others() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    name = suite_name("tiny", ())
    dead = suite_name("tiny", (), gone.pid)
    assert left_behind([name, dead, f"{dead}b", "tiny", "zone-p"]) == (dead, f"{dead}b")


def test_differences_are_told_in_words_with_causes_before_routes() -> None:
    before = {
        ("rtsw1", "route 0.0.0.0/0 of type 1 and metric 0"): "ctsw1, ctsw2",
        ("srv1", "processes"): "",
        ("srv1", "eth0's MTU"): "9000",
        ("srv2", "eth0's MAC"): "02:00",
    }
    now = {
        ("rtsw1", "route 0.0.0.0/0 of type 1 and metric 0"): "ctsw2, ctsw3",
        ("srv1", "processes"): "iperf3",
        ("srv1", "eth0's MTU"): "1500",
        ("srv1", "address of eth0"): "10.0.0.1/32",
    }
    assert differences(before, before) == ()
    assert differences(before, now) == (
        "srv1: address of eth0 was not there (it is 10.0.0.1/32)",
        "srv1: eth0's MTU is 1500, and was 9000",
        "srv1: processes is iperf3, and was none",
        "srv2: eth0's MAC is gone (it was 02:00)",
        "rtsw1: route 0.0.0.0/0 of type 1 and metric 0 changed: no longer ctsw1, now ctsw3",
    )


@given(st.integers(0, 10**12), st.integers(0, 10**6))
def test_a_duration_compares_with_text_as_with_its_nanoseconds(ns: int, limit_us: int) -> None:
    text = f"{limit_us}us"
    assert (Duration(ns) <= text) == (ns <= limit_us * 1000)
    assert (Duration(ns) < text) == (ns < limit_us * 1000)
    assert (Duration(ns) >= text) == (ns >= limit_us * 1000)
    assert (Duration(ns) == text) == (ns == limit_us * 1000)


def test_a_duration_shows_more_digits_than_a_limit_has() -> None:
    assert repr(Duration(300_400_000)) == "300.400 ms"
    with pytest.raises(InputError, match="expected a duration"):
        assert Duration(1) <= "300 parsecs"
    with pytest.raises(TypeError):
        assert Duration(1) <= 300  # type: ignore[operator]


def test_a_mistake_in_keywords_is_told_with_the_line_of_the_call() -> None:
    with pytest.raises(SpecError) as refused:
        as_fault("carrier-down", {"link": "rtsw1"})
    problem = refused.value.problems[0]
    assert problem.file == __file__
    assert problem.key == "fault.link"
    assert problem.line is not None
    assert "as_fault" in Path(__file__).read_text().splitlines()[problem.line - 1]


@pytest.mark.parametrize(
    ("kind", "keywords", "said"),
    [
        ("carrier-dwn", {}, "did you mean carrier-down?"),
        ("carrier-down", {"lnk": "a:b"}, "did you mean link?"),
        ("carrier-down", {"link": "a:b", "lasts": "1s"}, "leave lasts out"),
        ("flapping", {"link": "a:b"}, 'run.carry_out("flapping", ...)'),
        ("campaign", {}, 'run.carry_out("campaign", ...)'),
    ],
)
def test_a_fault_that_can_not_be_a_block_is_refused(
    kind: str, keywords: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError) as refused:
        lasting(kind, keywords)
    assert said in str(refused.value)


def test_tuples_are_taken_where_a_file_has_lists() -> None:
    spec = as_fault("blackhole", {"links": ("rtsw1:ctsw1", "rtsw2:ctsw1")})
    assert isinstance(spec, BlackholeSpec)
    assert spec.links is not None
    assert len(spec.links) == 2


def test_traffic_is_a_permutation_or_the_pairs_that_are_asked_for() -> None:
    traffic = LAB.traffic
    assert len(traffic(flows=8, rate_pps=500).flows) == 8
    pairs = [("srv1-1", "srv2-1"), ("srv1-1", "srv2-1"), ("srv2-2", "srv1-2")]
    asked = traffic(pairs, rate_pps=200, warmup="100ms")
    assert [(flow.source, flow.destination) for flow in asked.flows] == pairs
    assert {flow.rate_pps for flow in asked.flows} == {200}
    assert len({flow.id for flow in asked.flows}) == 3
    assert asked.warmup_ns == 100_000_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"duration": "3s"}, "run.hold"),
        ({"flows": 3, "pairs": [("srv1-1", "srv2-1")]}, "give it one of the two"),
        ({"pairs": [("srv1-1", "srv9-1")]}, "srv9-1 is not in the fabric"),
        ({"rate": 3}, "did you mean rate_pps?"),
    ],
)
def test_traffic_that_can_not_be_is_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as refused:
        LAB.traffic(**arguments)  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_a_sampling_interval_too_short_for_the_rate_is_refused() -> None:
    slow = LAB.traffic(flows=2, rate_pps=100)
    with pytest.raises(InputError, match="fewer than 5 packets"):
        LAB.measure(slow)
    LAB.measure(slow, sampling_interval="50ms")
    with pytest.raises(SpecError, match=r"measure\.sampling: unknown key"):
        LAB.measure(slow, sampling="50ms")


def test_keywords_that_are_not_given_are_those_of_a_drill() -> None:
    assert as_block("measure", MeasureSpec, {}) == MeasureSpec()


def test_a_name_is_sought_in_the_labs_of_the_root_folder(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]")
    (pytester.mkdir("labs") / "mine.yaml").write_text(OWN_LAB)
    (pytester.mkdir("deep") / "test_deep.py").write_text(MARKED.format(arguments="'mine'"))
    assert collected(pytester) == ["deep/test_deep.py::test_it[mine]"]
    assert collected(pytester, "--rocelab-lab=mine") == ["deep/test_deep.py::test_it[mine]"]


def test_labs_are_found_from_the_folder_of_the_test(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN_LAB)
    files, scope = chosen_labs(("mine.yaml", "tiny"), {"scope": "session"}, tmp_path, tmp_path)
    assert files[0] == tmp_path / "mine.yaml"
    assert files[1].name == "tiny.yaml"
    assert scope == "session"


def test_evidence_has_a_folder_named_after_the_test() -> None:
    folder = evidence_folder(Path("results"), "tests/test_x.py::TestY::test_z[zone-small]")
    assert folder == Path("results/tests-test_x.py-TestY-test_z-zone-small")
