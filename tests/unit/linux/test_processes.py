"""Processes are ended by descriptor: as many as there are, whenever they end meanwhile, and none
that took an id of one of them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocelab.linux import processes
from rocelab.linux.processes import kill_and_wait


def test_all_are_gone_when_it_returns() -> None:
    made = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    kill_and_wait(process.pid for process in made)
    assert [process.wait(timeout=0) for process in made] == [-9, -9, -9]


def test_one_that_ends_before_it_can_be_told_is_gone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sleep", "60"])
    descriptor = os.pidfd_open(process.pid)
    process.kill()
    process.wait()
    monkeypatch.setattr(os, "pidfd_open", lambda _: descriptor)
    kill_and_wait([process.pid])
    with pytest.raises(OSError):
        os.fstat(descriptor)


@contextmanager
def sleepers(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    made = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    try:
        yield made
    finally:
        for process in made:
            process.kill()
            process.wait()


@contextmanager
def room_for_descriptors(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1 + count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_processes_end_than_there_are_descriptors() -> None:
    with sleepers(30) as made:
        with room_for_descriptors(8):
            kill_and_wait([process.pid for process in made])
        assert all(process.poll() is not None for process in made)


def test_they_end_in_parts_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_AT_ONCE", 3)
    with sleepers(7) as made:
        kill_and_wait([process.pid for process in made])
        assert all(process.poll() is not None for process in made)


def test_a_process_that_is_no_longer_meant_lives() -> None:
    with sleepers(2) as (one, other):
        kill_and_wait([one.pid, other.pid], lambda pid: pid == one.pid)
        assert one.poll() is not None
        assert other.poll() is None


def test_a_process_that_is_no_longer_meant_is_not_stopped() -> None:
    with sleepers(2) as (one, other):
        processes.stop([one.pid, other.pid], lambda pid: pid == one.pid)
        assert processes.is_stopped(one.pid)
        assert processes.is_running(other.pid)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\x1cSigPnd:\tz", b"\x85NSpid:\t1", b"a) Z 1"])
def test_a_process_may_have_any_name(name: bytes) -> None:
    renamed = f"open('/proc/self/comm', 'wb').write({name!r}); print(flush=True); input()"
    command = [sys.executable, "-c", renamed]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert processes.name_of(process.pid) == name.decode(errors="replace").strip()
        assert processes.is_alive(process.pid)
        assert processes.status_of(process.pid)["NSpid"].split()[0] == str(process.pid)
        processes.stop([process.pid])
        assert processes.is_stopped(process.pid)
        process.kill()
