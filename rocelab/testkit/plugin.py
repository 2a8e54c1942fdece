"""The pytest plugin: fixtures `lab`, `traffic`, `fault` and `measure`, and the marker `lab`.

It brings labs up for a suite's tests, verifies them between tests, and collects evidence for a
failed test. pytest imports this module in every suite of an environment with rocelab, so heavy
modules are imported only where a test needs them.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocelab.testkit.bench import Bench
    from rocelab.testkit.kit import FaultMaker, MeasureMaker, TrafficMaker
    from rocelab.testkit.lab import RunningLab

EVIDENCE = "results/evidence"
EVIDENCE_PROPERTY = "rocelab_evidence"
NO_LAB = (
    "the fixture lab does not know which lab\n"
    '  hint: mark the test or its module with @pytest.mark.lab("zone-small"), the name of a '
    "lab or the path of a YAML file, or give --rocelab-lab"
)

_BENCHES = pytest.StashKey[list["Bench"]]()
_BENCH = pytest.StashKey["Bench"]()
_LEFT_BEHIND_TOLD = pytest.StashKey[bool]()


class LeftBehindWarning(pytest.PytestWarning):
    """A killed pytest has left a lab."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and ini keys of docs/pytest.md."""
    group = parser.getgroup("rocelab", "rocelab: labs of real routers")
    group.addoption(
        "--rocelab-lab",
        action="append",
        metavar="LAB",
        help="run tests that use a lab on this one instead: the name of a lab or a file; may "
        "be given several times",
    )
    group.addoption(
        "--rocelab-require",
        action="store_true",
        help="fail, and do not skip, where this machine cannot run labs",
    )
    group.addoption(
        "--rocelab-evidence",
        metavar="DIR",
        help=f"where evidence of failed tests goes (default: {EVIDENCE} below the root folder)",
    )
    group.addoption(
        "--rocelab-frr",
        metavar="PREFIX",
        help="the folder of the FRR that switches run (default: this machine's FRR)",
    )
    parser.addini(
        "rocelab_require", "fail where this machine cannot run labs", type="bool", default=False
    )
    parser.addini(
        "rocelab_scope",
        "how long a lab stays up: class, module, package, session",
        default="module",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker, and check the labs' scope."""
    config.addinivalue_line(
        "markers",
        "lab(*labs, scope=None): the labs (of rocelab) that a test runs on: names, in labs/ of the "
        "root folder or that ship, or paths of YAML files from the test's file; scope: how long "
        "they stay up",
    )
    config.stash[_BENCHES] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test on each of its labs."""
    marker = metafunc.definition.get_closest_marker("lab")
    if marker is None or "lab" not in metafunc.fixturenames:
        return
    from rocelab.base.errors import InputError
    from rocelab.testkit.choice import chosen_labs, title

    labs = metafunc.config.getoption("--rocelab-lab")
    root = metafunc.config.rootpath
    try:
        files, scope = chosen_labs(
            marker.args, marker.kwargs, metafunc.definition.path.parent, root
        )
        if labs:
            files, _ = chosen_labs(labs, {}, metafunc.config.invocation_params.dir, root)
    except InputError as error:
        place = metafunc.definition.nodeid
        raise pytest.Collector.CollectError(f"{place}: {error}") from None
    metafunc.parametrize(
        "lab",
        files,
        indirect=True,
        ids=[title(file) for file in files],
        scope=scope or _ini_scope(metafunc.config),
    )


def _ini_scope(config: pytest.Config) -> Any:  # noqa: ANN401 - pytest has a private name for it
    from rocelab.base.errors import InputError
    from rocelab.testkit.choice import checked_scope

    try:
        return checked_scope(config.getini("rocelab_scope"))
    except InputError as error:
        raise pytest.UsageError(f"rocelab_scope: {error}") from None


def _lab_scope(fixture_name: str, config: pytest.Config) -> str:
    # Checked when a lab is used: a wrong value does not matter to suites without labs.
    scope = config.getini("rocelab_scope")
    return scope if scope in ("class", "package", "session") else "module"


@pytest.fixture(scope=_lab_scope)  # type: ignore[arg-type]
def lab(request: pytest.FixtureRequest) -> Iterator[RunningLab]:
    """A running lab of rocelab (`rocelab.RunningLab`): the one that the test's marker `lab`
    names."""
    file = getattr(request, "param", None)
    with _errors_as_text():
        if file is None:
            file = _given_lab(request.config)
        _need_machine(request.config)
        from rocelab.base.interpreter import leave_current_folder_out
        from rocelab.testkit.bench import Bench

        leave_current_folder_out()
        _report_left_behind(request.config)
        bench = Bench(file, _evidence_base(request.config), _given_frr(request.config))
    benches = request.config.stash[_BENCHES]
    benches.append(bench)
    with _ended_as_by_ctrl_c():
        try:
            with _errors_as_text(request.config):
                bench.up()
            yield bench.lab
        finally:
            bench.down()
            benches.remove(bench)


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP, with which CI ends a job, end pytest as Ctrl-C does: fixtures end first.
    Other handlers stay in place."""
    taken = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.default_int_handler)
                taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _given_lab(config: pytest.Config) -> Path:
    """The lab of the command line, for tests without a marker."""
    from rocelab.testkit.choice import chosen_labs

    labs = config.getoption("--rocelab-lab")
    if not labs:
        pytest.fail(NO_LAB, pytrace=False)
    files, _ = chosen_labs(labs, {}, config.invocation_params.dir, config.rootpath)
    return files[0]


def _given_frr(config: pytest.Config) -> Path | None:
    """The folder of the FRR of the command line; a relative path starts at the folder in which
    pytest was called."""
    prefix = config.getoption("--rocelab-frr")
    return config.invocation_params.dir / prefix if prefix else None


@pytest.fixture
def traffic(lab: RunningLab) -> TrafficMaker:
    """`traffic(flows=24, rate_pps=1000)`: flows through the lab, for `measure`."""
    return lab.traffic


@pytest.fixture
def fault(request: pytest.FixtureRequest, lab: RunningLab) -> FaultMaker:
    """`with fault("carrier-down", link="rtsw1:ctsw1"):` breaks the lab inside the block."""
    _need_bench(request, lab)
    return lab.fault


@pytest.fixture
def measure(request: pytest.FixtureRequest, lab: RunningLab) -> MeasureMaker:
    """`with measure(traffic()) as run:` measures convergence inside the block."""
    _need_bench(request, lab)
    return lab.measure


@pytest.fixture(autouse=True)
def _rocelab_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Verify that a test leaves its lab unchanged. Fixtures of wider scope are set up before this
    one; those of the test alone are torn down before it continues."""
    lab = (getattr(request.node, "funcargs", None) or {}).get("lab")
    bench = _bench_with(request.config, lab)
    if bench is None:
        yield
        return
    request.node.stash[_BENCH] = bench
    from rocelab.testkit.bench import evidence_folder

    with _errors_as_text(request.config):
        bench.begin(evidence_folder(_evidence_base(request.config), request.node.nodeid))
    yield
    with _errors_as_text():
        bench.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """End the traceback of the kit's errors at the test's own line; attach evidence."""
    bench = item.stash.get(_BENCH, None)
    if bench is not None and call.excinfo is not None:
        _cut_traceback(call.excinfo)
    report = yield
    if bench is None:
        return report
    if report.failed:
        if call.when == "call":
            bench.collect("the test failed")
        if bench.evidence is not None:
            entry = (EVIDENCE_PROPERTY, str(bench.evidence))
            if entry not in item.user_properties:
                item.user_properties.append(entry)
            report.user_properties = list(item.user_properties)
            report.sections.append(("rocelab evidence", str(bench.evidence)))
    elif call.when == "call":
        bench.discard_evidence()
    return report


def _cut_traceback(error: pytest.ExceptionInfo[BaseException]) -> None:
    from rocelab.base.errors import RocelabError
    from rocelab.testkit.measurement import NotMeasuredError

    if not isinstance(error.value, RocelabError | NotMeasuredError):
        return
    package = str(Path(__file__).parents[1])
    trace = error.value.__traceback__
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code.co_filename.startswith(package):
            trace.tb_next = None
        trace = trace.tb_next


def _bench_with(config: pytest.Config, lab: object) -> Bench | None:
    """The bench of a lab; None if the lab is not from this plugin's fixture."""
    return next((bench for bench in config.stash[_BENCHES] if bench.lab is lab), None)


def _need_bench(request: pytest.FixtureRequest, lab: RunningLab) -> None:
    if _bench_with(request.config, lab) is None:
        pytest.fail(
            "this lab is not from rocelab's own fixture lab\n"
            "  hint: remove the fixture lab that stands in its place, and mark the test",
            pytrace=False,
        )


def _evidence_base(config: pytest.Config) -> Path:
    folder = config.getoption("--rocelab-evidence")
    return config.invocation_params.dir / folder if folder else config.rootpath / EVIDENCE


def _need_machine(config: pytest.Config) -> None:
    from rocelab.lab.doctor import why_not

    reason = why_not(own_frr=_given_frr(config) is None)
    if reason is not None:
        _skip_or_fail(config, reason)


def _skip_or_fail(config: pytest.Config, reason: str) -> None:
    """Skip or fail, as configured for machines that cannot run a lab."""
    if config.getoption("--rocelab-require") or config.getini("rocelab_require"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _report_left_behind(config: pytest.Config) -> None:
    from rocelab.record import recorded_labs
    from rocelab.testkit.naming import left_behind

    if config.stash.get(_LEFT_BEHIND_TOLD, False):
        return
    config.stash[_LEFT_BEHIND_TOLD] = True
    for name in left_behind(recorded_labs()):
        warnings.warn(
            LeftBehindWarning(
                f"a killed pytest left the lab {name}: take it down with `rocelab down {name}`"
            ),
            stacklevel=2,
        )


@contextmanager
def _errors_as_text(config: pytest.Config | None = None) -> Iterator[None]:
    """Turn user errors into messages without a traceback; with `config`, a machine that cannot run
    a lab into a skip."""
    from rocelab.base.errors import MachineError, RocelabError

    try:
        yield
    except MachineError as error:
        if config is None:
            pytest.fail(str(error), pytrace=False)
        _skip_or_fail(config, str(error))
    except RocelabError as error:
        pytest.fail(str(error), pytrace=False)
