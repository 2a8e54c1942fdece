"""Packets per second from one server to another over three switches, by any sender.

Measures a `Throughput` on a running lab, with or without a second CPU at its first switch: packets
that arrived per second, their cost, and a check of a sample.

The kernel forwards a veth's packets in their sender's time, switch by switch. Receive packet
steering (Linux Documentation/networking/scaling.rst) on the first switch's port moves that to
another CPU. It sets the packet's hash, which the kernel's ECMP then uses: only a path without
choices, like this one, may be steered.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.arrivals import Sample, SampleCheck, check_sample, received_packets
from bench.senders import Sender
from rocelab import JobSpec, MachineError, RunningLab
from rocelab.jobs.flow import FIRST_QP, resolve_endpoints
from rocelab.jobs.jobplanning import plan_job
from rocelab.jobs.sport import FIRST_SPORT
from rocelab.linux import namespaces
from rocelab.linux.ring import open_sink
from rocelab.traffic.roce import Envelope, roce_frame
from rocelab.traffic.session import TrafficSession
from rocelab.wire.headers import Opcode

SOURCE, DESTINATION = "srv1-1", "srv2-1"
PAYLOAD_BYTES = 1024
IN_FLIGHT = 512
"""Unacknowledged packets of an agent's queue pairs together. The CPU that receives steered packets
queues 1,000 (net.core.netdev_max_backlog) and drops the rest."""

MEASURED_S, SETTLE_S, SAMPLE_S = 3.0, 0.3, 0.02
FIRST_PACKETS = 100
START_LIMIT_S = 20.0
STOP_LIMIT_S = 5.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Throughput:
    """One measurement; CPU times are per packet that arrived.

    sender_us, receiver_us: of the processes in each server, the sender's including the kernel's
    forwarding. machine_us: of all CPUs, including other work. retransmitted: packets, of agents
    only; `trouble` has an agent's unexpected events.
    """

    packets_per_s: float
    sender_us: float
    receiver_us: float
    machine_us: float
    sample: SampleCheck
    retransmitted: int = 0
    trouble: str | None = None


@contextmanager
def steering(lab: RunningLab) -> Iterator[None]:
    """Within the context the second CPU forwards packets from SOURCE.

    Raises MachineError if there is none or the kernel has no receive packet steering.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise MachineError("packets cannot be steered: this machine has one CPU")
    _steer(lab, 1 << cpus[1])
    try:
        yield
    finally:
        _steer(lab, 0)


def _steer(lab: RunningLab, mask: int) -> None:
    # A private sysfs: the one of the host shows the host's interfaces.
    file = f"/sys/class/net/{SOURCE}/queues/rx-0/rps_cpus"
    command = f"mount -t sysfs sysfs /sys && echo {mask:x} >{file}"
    switch = lab.fabric.uplinks(SOURCE)[0].b.node
    done = lab.node(switch).exec(["unshare", "--mount", "sh", "-c", command])
    if done.returncode != 0:
        raise MachineError(f"packets cannot be steered: {done.stderr.strip()}")


def measure_sender(lab: RunningLab, sender: Sender, *, steered: bool) -> Throughput:
    """One of the senders of `bench.senders`. Raises MachineError if nothing arrives."""
    ends = resolve_endpoints(lab.fabric, SOURCE, DESTINATION)
    envelope = Envelope(
        source_mac=ends.source_mac,
        next_hop_mac=ends.next_hop_mac,
        source_ip=ends.source_ip,
        destination_ip=ends.destination_ip,
        sport=FIRST_SPORT,
        dest_qp=FIRST_QP,
    )
    frame = roce_frame(envelope, Opcode.RC_WRITE_MIDDLE, psn=0, payload=bytes(PAYLOAD_BYTES))
    document = json.dumps({"interface": ends.interface, "frame": frame.hex()})
    with (
        namespaces.inside(lab.node(DESTINATION).netns, partial(open_sink, lab.fabric.family)),
        tempfile.TemporaryDirectory(prefix="rocelab-bench-") as scratch,
        tempfile.TemporaryFile("w+") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "bench.senders", sender, str(lab.node(SOURCE).netns)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            env={**os.environ, "TMPDIR": scratch},
        ) as process,
    ):
        assert process.stdin is not None
        try:
            if steered:
                os.sched_setaffinity(process.pid, _first_cpu())
            process.stdin.write(document)
            process.stdin.close()

            def check() -> None:
                if process.poll() is not None:
                    stderr.seek(0)
                    lines = stderr.read().strip().splitlines() or ["it said nothing"]
                    raise MachineError(f"{sender} ended: {lines[-1]}")

            return _measure(lab, check)
        finally:
            _interrupt(process)


def _interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()


def measure_agent(lab: RunningLab, queue_pairs: int, *, steered: bool) -> Throughput:
    """A stream over queue pairs of one agent, acknowledged by another. Raises MachineError."""
    window = IN_FLIGHT // queue_pairs
    transport = {
        "qps": queue_pairs,
        "mtu": PAYLOAD_BYTES,
        "window": window,
        "ack_every": max(1, window // 8),
        "ack_timeout": "10ms",
    }
    job = JobSpec.model_validate(
        {
            "pattern": "pairs",
            "ranks": 2,
            "duration": "600s",
            "placement": [SOURCE, DESTINATION],
            "transport": transport,
        }
    )
    plan = plan_job(lab.fabric, job)
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, jobs=[plan]) as session:
        if steered:
            for process in namespaces.processes_in([_inode(lab, SOURCE)]):
                os.sched_setaffinity(process, _first_cpu())
        session.start()
        measured = _measure(lab, lambda: None)
        result = session.stop()
    (job_result,) = result.jobs
    pairs = job_result.queue_pairs
    wrong = {
        "wrong ICRCs": sum(agent.icrc_errors for agent in result.agents),
        "unexpected packets": sum(agent.unexpected for agent in result.agents),
        "packets the receive ring had no room for": sum(a.socket_drops for a in result.agents),
        "refused packets": sum(port.refused for port in job_result.ports),
        "bytes not delivered": job_result.posted_bytes - job_result.delivered_bytes,
    }
    trouble = [f"{count:,} {what}" for what, count in wrong.items() if count]
    trouble += [pair.error for pair in pairs if pair.error is not None]
    return Throughput(
        measured.packets_per_s,
        measured.sender_us,
        measured.receiver_us,
        measured.machine_us,
        measured.sample,
        retransmitted=sum(pair.requester.retransmitted for pair in pairs),
        trouble="; ".join(trouble) or None,
    )


def _measure(lab: RunningLab, check: Callable[[], None]) -> Throughput:
    """Wait for packets, let them settle, and measure. `check` raises if the sender is gone."""
    netns = lab.node(DESTINATION).netns
    interface = lab.fabric.uplinks(DESTINATION)[0].a.interface
    before = received_packets(netns, interface)
    end_s = time.monotonic() + START_LIMIT_S
    while received_packets(netns, interface) < before + FIRST_PACKETS:
        check()
        if time.monotonic() > end_s:
            raise MachineError(f"nothing arrived at {DESTINATION} for {START_LIMIT_S:.0f} s")
        time.sleep(0.02)
    time.sleep(SETTLE_S)
    servers = [_inode(lab, SOURCE)], [_inode(lab, DESTINATION)]
    cpu_s = [_cpu_s(inodes) for inodes in servers]
    busy_s = _busy_s()
    packets, started_s = received_packets(netns, interface), time.monotonic()
    time.sleep(MEASURED_S / 2)
    sample = Sample(netns, interface)
    time.sleep(SAMPLE_S)
    sample.close_off()
    time.sleep(MEASURED_S / 2)
    packets = received_packets(netns, interface) - packets
    elapsed_s = time.monotonic() - started_s
    busy_s = _busy_s() - busy_s
    sender_s, receiver_s = (
        _cpu_s(inodes) - spent for inodes, spent in zip(servers, cpu_s, strict=True)
    )
    return Throughput(
        packets_per_s=packets / elapsed_s,
        sender_us=1e6 * sender_s / packets,
        receiver_us=1e6 * receiver_s / packets,
        machine_us=1e6 * busy_s / packets,
        sample=check_sample(sample.frames()),
    )


def _first_cpu() -> set[int]:
    return {min(os.sched_getaffinity(0))}


def _inode(lab: RunningLab, server: str) -> int:
    return lab.node(server).netns.stat().st_ino


def _cpu_s(inodes: list[int]) -> float:
    """CPU seconds of the processes in a namespace (proc(5), utime and stime)."""
    ticks = 0
    for process in namespaces.processes_in(inodes):
        # The name, in parentheses, may hold spaces.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_SECOND


def _busy_s() -> float:
    """CPU seconds of this machine since boot (proc(5): all except idle and iowait)."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS_PER_SECOND
