"""Which commands leave root's rights under sudo."""

from __future__ import annotations

import pytest

from rocelab.base.errors import InputError
from rocelab.cli import unprivileged
from tests.unit.conftest import CommandLine


@pytest.mark.parametrize(
    ("words", "leaves"),
    [
        (["plan", "no-such-lab"], True),
        (["simulate", "no-such-lab"], True),
        (["drill", "show", "no-such-drill"], True),
        (["predict", "tiny", "--pattern", "allreduce", "--ranks", "2", "--size", "1MB"], True),
        (["path", "tiny", "--src", "srv1-1", "--dst", "srv2-1", "--sport", "1"], True),
        (["predict", "no-such-lab"], False),
        (["status", "no-such-lab"], False),
        (["drill", "run", "no-such-drill"], False),
    ],
)
def test_commands_that_need_no_root_leave_it(
    rocelab: CommandLine, monkeypatch: pytest.MonkeyPatch, words: list[str], leaves: bool
) -> None:
    def leave() -> None:
        raise InputError("root is left")

    monkeypatch.setattr(unprivileged, "become_sudo_user", leave)
    assert ("root is left" in rocelab(*words).err) is leaves


@pytest.mark.parametrize("is_up", [True, False])
def test_a_command_that_reads_a_lab_keeps_root_only_if_it_is_up(
    monkeypatch: pytest.MonkeyPatch, is_up: bool
) -> None:
    done: list[str] = []
    for name in ("need_root", "become_sudo_user", "use_private_caches"):
        monkeypatch.setattr(unprivileged, name, lambda *_, name=name: done.append(name))
    unprivileged.take_rights_of("predict", ["tiny"])
    assert done == []
    unprivileged.take_rights_for("reading", is_up=is_up)
    assert done == ["need_root" if is_up else "become_sudo_user", "use_private_caches"]
