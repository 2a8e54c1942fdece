"""Files of Chakra traces."""

from __future__ import annotations

from pathlib import Path

from rocelab.sim.traces.chakra import Trace, write_trace_to


def write_trace_file(path: Path, trace: Trace) -> None:
    with path.open("wb") as file:
        write_trace_to(file, trace)
