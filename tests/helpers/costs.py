"""The costliest tests of a run, by CPU time, at its end.

A test's CPU time is that of its process and of the processes that it has waited for, with the
fixtures that are made for it: the first test of a lab pays for the lab. Routers and agents that
live on count for whoever ends them. CPU time hardly depends on what else the machine does, and wall
time does: so nothing is compared with a limit here, and tests/README.md says what is too much.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

SHOWN = 10
LEAST_S = 0.5


def _cpu_s() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


class _Meter:
    """CPU seconds since the last reading, in the process that runs the tests."""

    def __init__(self) -> None:
        self._last_s = _cpu_s()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._last_s = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = _cpu_s()
        # xdist passes attributes on.
        vars(report)["cpu_s"] = now_s - self._last_s
        self._last_s = now_s
        return report


class _Bill:
    """Adds up what each test has cost, in the process that reports outcomes."""

    def __init__(self) -> None:
        self._cost_s: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._cost_s[report.nodeid] += vars(report).get("cpu_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        costly = [(test, s) for test, s in self._cost_s.most_common(SHOWN) if s >= LEAST_S]
        if costly:
            terminalreporter.section("costliest tests, in seconds of CPU time")
        for test, cost_s in costly:
            terminalreporter.line(f"{cost_s:6.1f}  {test}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Meter(), "cost-meter")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Bill(), "cost-bill")
