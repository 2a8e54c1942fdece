"""Fake cells for sweeps, in a module that workers can import; as a script, it runs a sweep of
`counted` by two processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from rocelab.sim.sweep.run import run_sweep
from rocelab.sim.sweep.sweep_spec import read_sweep
from rocelab.sim.sweep.workerpool import worker_processes

FOLDER = "ROCELAB_TEST_SWEEP"
"""The variable with the folder for the cells' records and signals."""


def closed_form(inputs: dict[str, Any]) -> dict[str, Any]:
    """Figures computed from the inputs, different for each cell."""
    spines = inputs["lab"]["fabric"]["spines"]
    qps = inputs["job"]["transport"]["qps"]
    return {"iteration_time": 1e6 / spines + inputs["job"]["seed"], "busbw": qps * 2.5}


def fails_with_two_spines(inputs: dict[str, Any]) -> dict[str, Any]:
    if inputs["lab"]["fabric"]["spines"] == 2:
        raise ValueError("two are too few")
    return closed_form(inputs)


def dies_with_two_spines(inputs: dict[str, Any]) -> dict[str, Any]:
    if inputs["lab"]["fabric"]["spines"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return closed_form(inputs)


def where(inputs: dict[str, Any]) -> dict[str, Any]:
    """Which process ran the cell; none ends before two processes have begun."""
    folder = Path(os.environ[FOLDER])
    (folder / f"process-{os.getpid()}").touch()
    while len(list(folder.glob("process-*"))) < 2:
        time.sleep(0.01)
    return {"pid": os.getpid()}


def counted(inputs: dict[str, Any]) -> dict[str, Any]:
    """Records its end in a file; cells with more than four queue pairs wait for the file `go`."""
    folder = Path(os.environ[FOLDER])
    qps = inputs["job"]["transport"]["qps"]
    with (folder / "begun").open("a") as file:
        file.write(f"{qps}\n")
    while qps > 4 and not (folder / "go").exists():
        time.sleep(0.01)
    with (folder / "ended").open("a") as file:
        file.write(f"{qps}\n")
    return {"busbw": qps}


if __name__ == "__main__":
    run_sweep(
        read_sweep(Path(sys.argv[1])),
        Path(sys.argv[2]),
        partial(worker_processes, 2),
        function=counted,
    )
