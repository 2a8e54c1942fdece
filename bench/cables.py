"""What links that take time cost where a process holds their packets: CPU time, lateness, loss.

    sudo .venv/bin/python -m bench.cables

A flow crosses four links of a lab with `links.delay`, at several rates: the CPU time of the delay
lines for each packet and link, and how much later than the four delays packets arrived.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.campaign import command
from bench.campaign.study import Measure, Series, Study
from rocelab import Lab, RunningLab
from rocelab.dataplane.impairments import lineprocess
from rocelab.dataplane.impairments.program import CABLES
from rocelab.jobs.flow import ProbeStream
from rocelab.linux import pidfile
from rocelab.planning.delays import lab_delays_ns
from rocelab.traffic.session import TrafficSession

BODY = """
name: bench-cables
fabric: {racks: 2, spines: 1, servers_per_rack: 2}
links: {delay: 1us}
dilation: 5000
"""
CROSSINGS = 4
RATES_PPS = (500, 1000, 2000)
PAYLOAD_BYTES = 4096
SECONDS = 3.0


@contextmanager
def _lab(_: Sequence[str]) -> Iterator[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lab.yaml")
        file.write_text(BODY)
        planned = Lab.planned(file)
    with planned.brought_up() as lab:
        yield lambda rate_pps: _measured(lab, rate_pps)


def _measured(lab: RunningLab, rate_pps: int) -> dict[str, float]:
    flow = ProbeStream(0, "srv1-1", 1, "srv2-1", 1, 50000, 17, rate_pps, PAYLOAD_BYTES)
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, [flow]) as session:
        session.start()
        began_s, began_cpu_s = time.monotonic(), _cpu_s(lab)
        time.sleep(SECONDS)
        cpu_s, took_s = _cpu_s(lab) - began_cpu_s, time.monotonic() - began_s
        (seen,) = session.stop().flows
    late_ns = seen.receive_ns - seen.send_ns - CROSSINGS * lab_delays_ns(lab.fabric)[-1]
    median_ms, p99_ms = (np.percentile(late_ns, (50, 99)) / 1e6).tolist()
    return {
        "packets_per_s": rate_pps,
        "cpu_us": cpu_s / (CROSSINGS * rate_pps * took_s) * 1e6,
        "cpus": cpu_s / took_s,
        "late_median_ms": median_ms,
        "late_p99_ms": p99_ms,
        "sent": len(seen.sent_seq),
        "lost": len(seen.sent_seq) - len(seen.received_seq),
    }


def _cpu_s(lab: RunningLab) -> float:
    """CPU time of all delay lines so far (proc_pid_stat(5), utime and stime)."""
    ticks = 0
    for node in lab.fabric.switches:
        pid = pidfile.holder(lineprocess.pid_file(CABLES, lab.runtime.files, node.name))
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


STUDY = Study(
    name="cables",
    about="what links that take time cost where a process holds their packets",
    series=lambda: [Series({f"{rate} packets per s": rate for rate in RATES_PPS}, _lab)],
    is_published=False,
)

if __name__ == "__main__":
    command.run(STUDY.name)
