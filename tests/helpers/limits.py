"""The time limit of waits in unit tests, which run at idle priority during tests with labs
(`tests/suite.sh`)."""

LIMIT_S = 3600.0
"""Longer than the tests with labs take: an idle-priority process may get a thousandth of a CPU."""
