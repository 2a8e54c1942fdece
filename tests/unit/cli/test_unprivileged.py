"""Which commands leave root's rights under sudo."""

from __future__ import annotations

import pytest

from rocelab.cli import unprivileged
from rocelab.errors import InputError


@pytest.mark.parametrize(
    ("words", "leaves"),
    [
        (["plan", "no-such-lab"], True),
        (["simulate", "no-such-lab"], True),
        (["drill", "show", "no-such-drill"], True),
        (["status", "no-such-lab"], False),
        (["drill", "run", "no-such-drill"], False),
    ],
)
def test_commands_that_need_no_root_leave_it(
    rocelab, monkeypatch: pytest.MonkeyPatch, words: list[str], leaves: bool
) -> None:
    def leave() -> None:
        raise InputError("root is left")

    monkeypatch.setattr(unprivileged, "become_sudo_user", leave)
    assert ("root is left" in rocelab(*words).err) is leaves
