"""The list of the costliest tests, of a suite that runs in a pytest of its own."""

from __future__ import annotations

import pytest

from tests.helpers import costs

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from tests.unit.test_costs import spend

@pytest.fixture(scope="module")
def lab():
    spend(3)
    yield
    spend(5)

def test_first(lab):
    spend(1)

def test_second(lab):
    spend(2)

def test_cheap():
    spend(0.1)

def test_last(lab):
    spend(0.7)
"""

spent_s = [0.0]


def spend(seconds: float) -> None:
    spent_s.append(spent_s[-1] + seconds)


def test_the_costliest_are_listed_each_with_the_fixtures_made_for_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "_cpu_s", lambda: spent_s[-1])
    pytester.makepyfile(test_suite=SUITE)
    ran = pytester.runpytest_inprocess("-p", "tests.helpers.costs", "-p", "no:hypothesispytest")
    ran.assert_outcomes(passed=4)
    lines = [line.split() for line in ran.outlines if "test_suite.py::" in line]
    assert lines == [
        ["5.7", "test_suite.py::test_last"],
        ["4.0", "test_suite.py::test_first"],
        ["2.0", "test_suite.py::test_second"],
    ]
