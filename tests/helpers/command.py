"""Runs the command line for tests: in this process if possible, because a command's start takes a
second of CPU time, and in a separate process if signals, input or exec matter."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from rocelab.cli.main import main
from tests.helpers.waiting import RUN_LIMIT_S

PROGRAM = (sys.executable, "-c", "from rocelab.cli.main import main; main()")
Outcome = subprocess.CompletedProcess[str]


def rocelab(*arguments: str | Path) -> Outcome:
    """The outcome of a command line in this process."""
    line = [str(argument) for argument in arguments]
    with (
        redirect_stdout(_Output()) as out,
        redirect_stderr(_Output()) as errors,
        pytest.raises(SystemExit) as ended,
    ):
        main(line)
    assert isinstance(ended.value.code, int)
    texts = [bytes(output.buffer.getvalue()).decode(errors="replace") for output in (out, errors)]
    return subprocess.CompletedProcess(line, ended.value.code, *texts)


class _Output(io.TextIOWrapper):
    """An output that takes bytes too, as a process's own does."""

    buffer: io.BytesIO

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)


def read(*arguments: str | Path) -> Any:
    """The output of a command line with `--json`, parsed."""
    return json.loads(rocelab(*arguments, "--json").stdout)


def rocelab_process(*arguments: str | Path, stdin: str = "") -> Outcome:
    """The outcome of a command line in a separate process."""
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
    )
