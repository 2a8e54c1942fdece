"""The process that holds a file: found and ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocelab.linux import pidfile
from tests.helpers.waiting import LIMIT_S

HOLDER = """
import signal, sys
from pathlib import Path
from rocelab.linux import pidfile
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with pidfile.claim(Path(sys.argv[1])):
    print("ready", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_holder_ends_as_it_wishes_even_if_a_signal_has_stopped_it(
    is_stopped: bool, tmp_path: Path
) -> None:
    file = tmp_path / "held"
    file.touch()
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert pidfile.holder(file) == process.pid
        if is_stopped:
            process.send_signal(signal.SIGSTOP)
        pidfile.end(file, LIMIT_S)
        assert process.wait() == 7
    assert pidfile.holder(file) is None
