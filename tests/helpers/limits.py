"""How long unit tests wait: they run at idle priority beside tests with labs (`tests/suite.sh`)."""

LIMIT_S = 3600.0
"""Longer than the labs take: beside other work an idle process may have a thousandth of a CPU."""
