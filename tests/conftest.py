"""What holds for every test: the outcome `not measured`, and property tests without a clock.

A property test looks at 50 examples where it does not say, half of Hypothesis' hundred, since the
whole suite runs for every change; `--hypothesis-profile=default` looks at all of them. How long an
example takes is not looked at: that says how busy the machine is.

A shell starts background jobs with SIGINT ignored, and so would be every command that tests start
and interrupt: here it is not. SIGTERM and SIGHUP end the suite as Ctrl-C does: what fixtures have
made is removed first.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.measured"]

settings.register_profile(
    "suite", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
