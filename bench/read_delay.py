"""How late netlink events are read in an idle process and in a busy one, without a lab.

    sudo .venv/bin/python -m bench.read_delay

A busy process is measured with Python's own time between threads and with that of a recording.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import asdict

from bench.campaign import command
from bench.campaign.study import Series, Study
from rocelab.base import quantities
from rocelab.linux.linkwatch import LinkWatch
from rocelab.linux.priority import run_first
from rocelab.observe.stages.delay import DelayProbe
from rocelab.observe.timeline import SWITCH_INTERVAL_S
from rocelab.results.stages import ReadDelay

POLL_S = 0.25
RUN_S = 6.0


def measure_delay(seconds: float, *, busy: bool, switch_interval_s: float) -> ReadDelay | None:
    """The delay of a watch in this process; with `busy` another of its threads computes."""
    probe = DelayProbe()
    read_ns: list[int] = []
    stopping = threading.Event()
    before_s = sys.getswitchinterval()

    def read() -> None:
        run_first()
        while not stopping.is_set():
            read_ns.extend(event.time_ns for event in watch.events(POLL_S))

    try:
        sys.setswitchinterval(switch_interval_s)
        with LinkWatch({"probe": probe.descriptor}) as watch:
            reader = threading.Thread(target=read, name="links")
            reader.start()
            try:
                probe.start()
                deadline = time.monotonic() + seconds
                while (left_s := deadline - time.monotonic()) > 0:
                    if busy:
                        sum(range(1000))
                    else:
                        time.sleep(left_s)
                probe.stop()
            finally:
                stopping.set()
                reader.join()
    finally:
        sys.setswitchinterval(before_s)
        probe.close()
    return probe.delay(read_ns)


def measured(process: tuple[bool, float]) -> dict[str, float]:
    """The delay of an idle or a busy process with a time between threads. Raises ValueError if no
    event was read."""
    busy, interval_s = process
    delay = measure_delay(RUN_S, busy=busy, switch_interval_s=interval_s)
    if delay is None:
        raise ValueError("no event was read")
    return {**asdict(delay), "interval_ns": interval_s * 1e9}


STUDY = Study(
    name="read_delay",
    about="how late netlink events are read in an idle process and in a busy one",
    series=lambda: [
        Series.alone(
            {
                "idle": (False, 0.005),
                "busy": (True, 0.005),
                "busy, as in a recording": (True, SWITCH_INTERVAL_S),
            },
            measured,
        )
    ],
    figures=lambda _: {"duration": quantities.duration},
    is_published=False,
)

if __name__ == "__main__":
    command.run(STUDY.name)
