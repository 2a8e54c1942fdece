"""Every kind of wrong input has one recorded message: spec_errors/NAME.yaml gives NAME.txt.

With RECORD=1 in the environment the messages are recorded again; read them before you commit them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocelab.base.errors import SpecError
from rocelab.labfile.load import load_spec

FOLDER = Path(__file__).parent / "spec_errors"
INPUTS = sorted(path.stem for path in FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("name", INPUTS)
def test_a_wrong_input_gives_its_recorded_message(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    with pytest.raises(SpecError) as caught:
        load_spec(Path(f"{name}.yaml"))

    message = f"{caught.value}\n"
    recorded = FOLDER / f"{name}.txt"
    if os.environ.get("RECORD"):
        recorded.write_text(message, encoding="utf-8")
    assert message == recorded.read_text(encoding="utf-8")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", INPUTS)
def test_a_recorded_message_is_fit_for_a_terminal(name: str) -> None:
    message = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")

    assert all(line.isprintable() for line in message.splitlines())
    assert max(len(line) for line in message.splitlines()) < 250
    assert message.startswith(f"{name}.yaml:")


def test_every_recorded_message_has_its_input() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == INPUTS
