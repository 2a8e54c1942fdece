"""Settings of all tests: the outcome `not measured`, property tests without time limits, and a
seldom search for reference cycles: with the interpreter's thresholds that took a quarter of the CPU
time of tests with large fabrics.

A property test runs 10 examples by default, because the whole suite runs for every change;
`--hypothesis-profile=thorough`, which `make soak` uses, runs 300. The duration of an example is
not checked: it depends on the machine's load.

A shell starts background jobs with SIGINT ignored, which commands that tests start and interrupt
would inherit: this restores it. SIGTERM and SIGHUP end the suite like Ctrl-C: fixtures clean up
first.
"""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.helpers.costs", "tests.helpers.drawing", "tests.helpers.measured"]

for profile, examples in (("suite", 10), ("thorough", 300)):
    settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # to collect tests makes no garbage, and searches took a third of its time
    # Under sudo: a command in this process would give up root's rights for all tests after it.
    for name in ("SUDO_UID", "SUDO_GID"):
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported is never freed
    gc.set_threshold(50_000, 20, 100)
    gc.enable()
