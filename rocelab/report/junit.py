"""Writes a drill's outcome as JUnit XML, which CI servers show as tests.

The document, of a result or an error, has a suite per phase with a case per repeat and per
expectation. It reports a failure if and only if the drill failed: an invalid run beside valid ones
is skipped. A drill that ended early has a suite that says why.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as Xml

from rocelab.base.errors import RocelabError
from rocelab.base.statistics import Spread
from rocelab.base.wording import listed
from rocelab.results.drill import DrillResult, EndedEarly, PhaseRun
from rocelab.results.environment import Environment
from rocelab.results.expectations import Verdict
from rocelab.results.kpi import UNITS, KpiValue
from rocelab.results.kpis import KPIS

SOFTWARE = ("tool_version", "frr_version", "kernel", "runtime")
"""The parts of the environment that can influence a result: properties of every suite."""

# Characters that XML 1.0 section 2.2 does not allow in a document, escaped or not.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Run:
    """A repeat of a suite: problems, figures by name, the expectations it did not meet itself, and
    the resolution of its times, and how long it took."""

    problems: tuple[str, ...]
    figures: tuple[tuple[str, KpiValue], ...]
    unmet: tuple[Verdict, ...]
    resolution_ns: float
    seconds: float


def junit_of(result: DrillResult, seconds: float) -> Xml.Element:
    """The document of a drill that ran; `seconds` is the time it took, lab included."""
    suites = [
        _suite(
            ".".join(filter(None, (result.name, result.where(phase.name)))),
            result.environment,
            [
                _run(run, result.unmet_by(repeat, phase.name))
                for run, repeat in zip(result.runs_of(phase.name), result.repeats, strict=True)
            ],
            phase.verdicts,
            [
                figure
                for number, summary in enumerate(phase.figures, 1)
                for figure in _spread_of(summary.spread, f"job{number}." * (len(phase.figures) > 1))
            ],
        )
        for phase in result.phases
    ]
    if len(suites) == 1:
        suites[0].set("time", f"{seconds:.3f}")
    if result.ended_early is not None:
        suites.append(_suite_of_end(result, result.ended_early))
    return _document(suites, seconds)


def _suite_of_end(result: DrillResult, end: EndedEarly) -> Xml.Element:
    suite = Xml.Element(
        "testsuite", name=f"{result.name} ended early", hostname=_clean(socket.gethostname())
    )
    case = _case(suite, result.name, "all repeats ran")
    _outcome(case, "failure" if end.failed else "error", "ended-early", end.why, result.remarks[0])
    _count(suite)
    suite.set("time", "0.000")
    return suite


def junit_of_error(name: str, error: BaseException, seconds: float) -> Xml.Element:
    """The document of a drill called `name` that has no result because of `error`."""
    suite = Xml.Element("testsuite", name=_clean(name), hostname=_clean(socket.gethostname()))
    said = error.message if isinstance(error, RocelabError) else str(error)
    text = f"{said}\n{error.hint}" if isinstance(error, RocelabError) and error.hint else said
    case = _case(suite, name, "ran")
    _outcome(case, "error", type(error).__name__, said or type(error).__name__, text)
    _count(suite)
    suite.set("time", f"{seconds:.3f}")
    return _document([suite], seconds)


def junit_file(document: Xml.Element) -> bytes:
    """The content of a JUnit file."""
    Xml.indent(document)
    content: bytes = Xml.tostring(document, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _run(run: PhaseRun, unmet: tuple[Verdict, ...]) -> _Run:
    figures = run.figures()
    many = len(figures) > 1
    return _Run(
        run.problems,
        tuple(
            (f"job{number}.{kpi}" if many else kpi, value)
            for number, job in enumerate(figures, 1)
            for kpi, value in job.items()
        ),
        unmet,
        run.resolution_ns,
        run.seconds or 0.0,
    )


def _suite(
    name: str,
    environment: Environment,
    runs: Sequence[_Run],
    verdicts: Sequence[Verdict],
    properties: Iterable[tuple[str, str]],
) -> Xml.Element:
    suite = Xml.Element(
        "testsuite",
        name=name,
        # The schema's dateTime has no zone; this one is UTC.
        timestamp=environment.started.removesuffix("Z"),
        hostname=_clean(socket.gethostname()),
    )
    holder = Xml.SubElement(suite, "properties")
    machine = [(name, getattr(environment, name) or "unknown") for name in SOFTWARE]
    if environment.routing is not None:
        machine[1] = ("routing", environment.routing)
    for key, value in (*machine, *properties, *_figures_of(runs)):
        Xml.SubElement(holder, "property", name=key, value=_clean(value))
    measured = any(not run.problems for run in runs)
    resolution_ns = max((run.resolution_ns for run in runs if not run.problems), default=0.0)
    for number, run in enumerate(runs, 1):
        case = _case(suite, name, f"repeat {number} is a measurement", run.seconds)
        if run.problems:
            kind = "skipped" if measured else "error"
            _outcome(case, kind, "invalid", run.problems[0], "\n".join(run.problems))
    for verdict in verdicts:
        case = _case(suite, name, f"{verdict.kpi} {verdict.expectation}")
        if verdict.passed:
            continue
        title = KPIS[verdict.kpi].title
        where, of_repeats = _where_unmet(verdict, runs)
        observed = (
            _measured_misses(verdict, runs)
            if verdict.observed is None
            else [verdict.shown(resolution_ns)]
        )
        if observed:
            said = listed(observed, "and")
            message = f"{title}: expected {verdict.expectation}, observed {said}{where}"
            text = "\n".join((message, *of_repeats, KPIS[verdict.kpi].meaning))
            _outcome(case, "failure", "expectation", message, text)
        else:
            why = verdict.shown(resolution_ns) if measured else "no repeat was a measurement"
            message = f"{title}: expected {verdict.expectation}, {why}{where}"
            _outcome(case, "error", "not-measured", message, "\n".join((message, *of_repeats)))
    suite.set("time", f"{sum(run.seconds for run in runs):.3f}")
    _count(suite)
    return suite


def _measured_misses(verdict: Verdict, runs: Sequence[_Run]) -> list[str]:
    """The values of the repeats that measured the figure and did not meet its expectation."""
    return [
        unmet.shown(run.resolution_ns)
        for run in runs
        for unmet in run.unmet
        if (unmet.kpi, unmet.expectation) == (verdict.kpi, verdict.expectation)
        and unmet.observed is not None
    ]


def _where_unmet(verdict: Verdict, runs: Sequence[_Run]) -> tuple[str, list[str]]:
    """The repeats that did not meet an expectation: text for its message, and a line per repeat."""
    missed = {
        number: (unmet, run.resolution_ns)
        for number, run in enumerate(runs, 1)
        for unmet in run.unmet
        if (unmet.kpi, unmet.expectation) == (verdict.kpi, verdict.expectation)
    }
    if len(runs) < 2 or not missed:
        return "", []
    numbers = listed([str(number) for number in missed], "and")
    where = f"; not met in repeat{'s' * (len(missed) > 1)} {numbers} of {len(runs)}"
    lines = [f"repeat {n}: {unmet.shown(least_ns)}" for n, (unmet, least_ns) in missed.items()]
    return where, lines


def _spread_of(spreads: Mapping[str, Spread], prefix: str = "") -> list[tuple[str, str]]:
    """The spread of each KPI over valid repeats, in the KPI's unit."""
    properties = []
    for kpi, spread in spreads.items():
        unit = UNITS[KPIS[kpi].quantity]
        properties += [
            (f"{prefix}{kpi}.unit", unit),
            (f"{prefix}{kpi}.n", str(spread.n)),
            (f"{prefix}{kpi}.median", f"{spread.median:.12g}"),
            (f"{prefix}{kpi}.min", f"{spread.minimum:.12g}"),
            (f"{prefix}{kpi}.max", f"{spread.maximum:.12g}"),
        ]
        if spread.cov is not None:
            properties.append((f"{prefix}{kpi}.cov", f"{spread.cov:.4g}"))
    return properties


def _figures_of(runs: Iterable[_Run]) -> Iterator[tuple[str, str]]:
    """The figures of each repeat, valid or not; `repeat2.lost_packets` for the second."""
    for number, run in enumerate(runs, 1):
        for name, value in run.figures:
            if isinstance(value, bool):
                yield f"repeat{number}.{name}", str(value).lower()
            elif isinstance(value, str):
                yield f"repeat{number}.{name}", value
            elif value is not None:
                yield f"repeat{number}.{name}", f"{value:.12g}"


def _case(suite: Xml.Element, classname: str, name: str, seconds: float = 0.0) -> Xml.Element:
    """Add a case. Expectations are looked up after the repeats and take no time; the suite has the
    time of the whole run."""
    return Xml.SubElement(
        suite,
        "testcase",
        classname=_clean(f"rocelab.{classname}"),
        name=_clean(name),
        time=f"{seconds:.3f}",
    )


def _outcome(case: Xml.Element, tag: str, kind: str, message: str, text: str) -> None:
    element = Xml.SubElement(case, tag, type=kind, message=_clean(message))
    element.text = _clean(text)


def _count(suite: Xml.Element) -> None:
    suite.set("tests", str(len(suite.findall("testcase"))))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))


def _document(suites: Sequence[Xml.Element], seconds: float) -> Xml.Element:
    root = Xml.Element("testsuites", name="rocelab")
    for counted in ("tests", "failures", "errors"):
        root.set(counted, str(sum(int(suite.get(counted, "0")) for suite in suites)))
    root.set("time", f"{seconds:.3f}")
    root.extend(suites)
    return root


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
