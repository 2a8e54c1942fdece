"""The traffic matrix of a run, published while the run lasts for the lab's controller and for who
watches.

The planned probe flows and jobs become a JSON file below the lab's folder, removed at the end: a
list of flows, each with its addresses, UDP source port and destination QP, its sending server, NIC
(from 1) and port (from 0), and its rate in bit/s of the modelled network. Driver-side only: agents
do not import it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count

from rocelab.base.files import make_folder, replace_file
from rocelab.jobs.flow import ProbeStream, resolve_flow
from rocelab.jobs.jobplan import JobPlan
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles
from rocelab.routes.demand import files_of, is_left_behind
from rocelab.wire.headers import frame_overhead_bytes

_BITS = 8
_number = count(1)
FOLDER = "demand"
"""The folder of demands, in the lab's folder."""


@dataclass(frozen=True, slots=True)
class PublishedFlow:
    """A flow for a controller; field names are those of the file."""

    source_ip: str
    destination_ip: str
    source_port: int
    destination_qp: int
    bits_per_second: float
    server: str
    nic: int
    port: int


def probe_demands(fabric: Fabric, flows: Sequence[ProbeStream]) -> list[PublishedFlow]:
    """The demands of probe flows: their rate, converted to the modelled network."""
    demands = []
    for flow in flows:
        ends = resolve_flow(fabric, flow)
        frame_bytes = flow.payload_bytes + frame_overhead_bytes(fabric.family)
        demands.append(
            PublishedFlow(
                source_ip=ends.source_ip,
                destination_ip=ends.destination_ip,
                source_port=flow.sport,
                destination_qp=flow.dest_qp,
                bits_per_second=_BITS * frame_bytes * flow.rate_pps * fabric.spec.dilation,
                server=flow.source,
                nic=flow.source_nic,
                port=flow.leaves_by,
            )
        )
    return demands


def job_demands(jobs: Sequence[JobPlan]) -> list[PublishedFlow]:
    """The maximum demands of jobs' queue pairs: each port's rate, shared evenly by those on it.

    Queue pairs that only answer, and those for clear-to-sends, are omitted.
    """
    demands = []
    for job in jobs:
        senders = [end for end in job.ends if not end.control and job.sends_by(end)]
        sharing = Counter((end.rank, end.port) for end in senders)
        for end in senders:
            place = job.places[end.rank]
            ends = job.endpoints(end.rank, end.peer)
            demands.append(
                PublishedFlow(
                    source_ip=ends.source_ip,
                    destination_ip=ends.destination_ip,
                    source_port=end.sport,
                    destination_qp=end.remote,
                    bits_per_second=job.nic_link(end.rank).rate_bps / sharing[end.rank, end.port],
                    server=place.server,
                    nic=place.nic,
                    port=end.port,
                )
            )
    return demands


@contextmanager
def published(files: LabFiles, flows: Sequence[PublishedFlow]) -> Iterator[None]:
    """Publish `flows` in the lab's folder of demands while the block runs.

    Removes files of killed runs, which a controller ignores.

    Does nothing if the lab has no folder: a lab that is not up has no controller. Raises OSError.
    """
    if not files.root.is_dir():
        yield
        return
    folder = files.root / FOLDER
    make_folder(folder, exist_ok=True)
    for old in folder.iterdir():
        if is_left_behind(old):
            old.unlink(missing_ok=True)
    file = folder / f"{os.getpid()}-{next(_number)}.json"
    replace_file(file, json.dumps([asdict(flow) for flow in flows]))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def read_published(files: LabFiles) -> list[PublishedFlow]:
    """The flows of all runs on a lab that go on. Files that others wrote are left out."""
    flows: list[PublishedFlow] = []
    for file in files_of(files.root / FOLDER):
        with suppress(OSError, ValueError, TypeError):
            flows += [PublishedFlow(**flow) for flow in json.loads(file.read_text())]
    return flows
