"""How late netlink events are read in an idle process and in a busy one, without a lab.

    sudo .venv/bin/python -m bench.read_delay

A busy process is measured with Python's own time between threads and with that of a recording.
"""

from __future__ import annotations

import sys
import threading
import time

from rich.console import Console
from rich.table import Table

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
            probe.start()
            deadline = time.monotonic() + seconds
            while (left_s := deadline - time.monotonic()) > 0:
                if busy:
                    sum(range(1000))
                else:
                    time.sleep(left_s)
            probe.stop()
            stopping.set()
            reader.join()
    finally:
        sys.setswitchinterval(before_s)
        probe.close()
    return probe.delay(read_ns)


def main() -> None:
    """Print the delay of an idle process and of a busy one, with and without our interval."""
    table = Table("process", "between threads", "median", "p99", "worst", "n")
    for busy, interval_s in ((False, 0.005), (True, 0.005), (True, SWITCH_INTERVAL_S)):
        delay = measure_delay(RUN_S, busy=busy, switch_interval_s=interval_s)
        if delay is not None:
            times = (delay.median_ns, delay.p99_ns, delay.max_ns)
            table.add_row(
                "busy" if busy else "idle",
                quantities.duration(interval_s * 1e9),
                *map(quantities.duration, times),
                str(delay.probes),
            )
    Console().print(table)


if __name__ == "__main__":
    main()
