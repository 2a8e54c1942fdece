"""The command line, as tests run it: in this process where that shows all there is to see, since a
command's start is a second of a CPU, and in one of its own where signals, input or becoming another
program matter."""

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

PROGRAM = (sys.executable, "-c", "from rocelab.cli.main import main; main()")
Outcome = subprocess.CompletedProcess[str]


def rocelab(*arguments: str | Path) -> Outcome:
    """What a command line does and says, in this process."""
    line = [str(each) for each in arguments]
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as errors,
        pytest.raises(SystemExit) as ended,
    ):
        main(line)
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(line, ended.value.code, out.getvalue(), errors.getvalue())


def read(*arguments: str | Path) -> Any:
    """What a command line answers with `--json`."""
    return json.loads(rocelab(*arguments, "--json").stdout)


def rocelab_process(*arguments: str | Path, stdin: str = "") -> Outcome:
    """The same in a process of its own."""
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
