"""Processes are ended by descriptor, whenever they end meanwhile."""

from __future__ import annotations

import os
import subprocess

import pytest

from labs.runtime.processes import kill_and_wait


def test_all_are_gone_when_it_returns() -> None:
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    kill_and_wait(process.pid for process in processes)
    assert [process.wait(timeout=0) for process in processes] == [-9, -9, -9]


def test_one_that_ends_before_it_can_be_told_is_gone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sleep", "60"])
    descriptor = os.pidfd_open(process.pid)
    process.kill()
    process.wait()
    monkeypatch.setattr(os, "pidfd_open", lambda _: descriptor)
    kill_and_wait([process.pid])
    with pytest.raises(OSError):
        os.fstat(descriptor)
