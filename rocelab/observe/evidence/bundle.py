"""Collects a bundle of evidence: the current state of some nodes of a lab, for later analysis.

The bundle has a folder per node and one for the lab, with `evidence.json` as its index: what, when,
why, and what could not be read. Works on a broken lab.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rocelab.agent.live import unpacked
from rocelab.base.errors import InputError
from rocelab.base.interruption import shielded, undone
from rocelab.base.outputs import Folder, OutputPlace
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.base.workers import workers
from rocelab.dataplane.queues.engine import read_engine
from rocelab.dataplane.queues.reading import read_queue_counters
from rocelab.lab.lab import RunningLab
from rocelab.labfile.queues import QueueEngine
from rocelab.observe.environment import environment_of
from rocelab.observe.evidence.node import Capture, collect_node
from rocelab.observe.evidence.shelf import EvidenceFolder, Gap, Item
from rocelab.record import LabFiles
from rocelab.traffic.session import LIVE_FOLDER

INDEX = "evidence.json"
LAB_FOLDER = "_lab"
"""The lab's folder, beside the nodes' folders, whose names never start like this."""

SCHEMA_VERSION = 1
WORKERS = 8


@dataclass(frozen=True, slots=True)
class Evidence:
    """The index of a bundle. `collected_ns` is CLOCK_REALTIME at the start; `breach_ns` that of the
    sample that triggered it, None if a user did."""

    schema_version: int
    lab: str
    nodes: tuple[str, ...]
    why: str
    breach_ns: int | None
    collected_ns: int
    took_s: float
    capture_s: float
    items: tuple[Item, ...]
    gaps: tuple[Gap, ...]
    networks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of each node, in a lab with several."""


def collect_evidence(
    lab: RunningLab,
    nodes: Sequence[str],
    folder: Path | OutputPlace,
    *,
    capture_s: float = 1.0,
    why: str = "asked for",
    breach_ns: int | None = None,
    progress: ProgressSink = no_progress,
) -> Evidence:
    """Collect from `nodes` of a lab into `folder`, which is created if missing.

    Captures packets for `capture_s` meanwhile, 0 for none. Raises InputError if the lab has no such
    node or the folder is not empty or cannot be created; what cannot be read is a gap.
    """
    with shielded(f"{folder} is removed") as shield:
        begun = Collection(lab, nodes, folder, capture_s=capture_s, why=why, breach_ns=breach_ns)
        try:
            with shield.lifted():
                return begun.collect(progress)
        except KeyboardInterrupt:
            begun.end_captures()
            begun.remove()
            undone(f"{folder} was incomplete and was removed")
            raise


class Collection:
    """A bundle whose captures run from now on; `collect` reads the rest.

    Packets cannot be read later, so captures start before anything is read.
    """

    def __init__(
        self,
        lab: RunningLab,
        nodes: Sequence[str],
        folder: Path | OutputPlace,
        *,
        capture_s: float = 1.0,
        why: str,
        breach_ns: int | None,
    ) -> None:
        """Starts the captures. Raises as `collect_evidence` does."""
        handles = {name: lab.node(name) for name in nodes}
        self._folder = _new_folder(OutputPlace(folder) if isinstance(folder, Path) else folder)
        self._lab, self._why, self._breach_ns = lab, why, breach_ns
        self._capture_s = capture_s
        self._collected_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        self._started_s = time.monotonic()
        self._shelves = {name: EvidenceFolder(self._folder, name) for name in nodes}
        self._captures = {
            name: Capture(handles[name], shelf, capture_s) if capture_s else None
            for name, shelf in self._shelves.items()
        }

    def collect(self, progress: ProgressSink = no_progress) -> Evidence:
        """Read everything else, and wait for the captures to end."""
        common = EvidenceFolder(self._folder, LAB_FOLDER)
        with workers(WORKERS) as pool:
            try:
                tasks = [
                    pool.submit(collect_node, self._lab, name, shelf, self._captures[name])
                    for name, shelf in self._shelves.items()
                ]
                _collect_lab(self._lab, tuple(self._shelves), common)
                for done, task in enumerate(as_completed(tasks), start=1):
                    task.result()
                    progress(Progress("evidence", done, len(tasks)))
            except BaseException:
                self._kill_captures()
                raise
        every = (common, *self._shelves.values())
        evidence = Evidence(
            schema_version=SCHEMA_VERSION,
            lab=self._lab.name,
            nodes=tuple(self._shelves),
            why=self._why,
            breach_ns=self._breach_ns,
            collected_ns=self._collected_ns,
            took_s=time.monotonic() - self._started_s,
            capture_s=self._capture_s,
            items=tuple(item for shelf in every for item in shelf.items),
            gaps=tuple(gap for shelf in every for gap in shelf.gaps),
            networks={
                name: networks
                for name in self._shelves
                if (networks := self._lab.whole.fabric.networks_of[name])
            },
        )
        index = json.dumps(asdict(evidence), indent=1) + "\n"
        self._folder.replace(INDEX, index, 0o600)
        return evidence

    def end_captures(self) -> None:
        """End captures early, while `collect` does not run: nothing writes to the folder then."""
        self._kill_captures()
        for capture in self._captures.values():
            if capture is not None:
                capture.wait()

    def remove(self) -> None:
        """Remove what was written, and the folders that were made."""
        for name in self._folder.names():
            self._folder.remove(name)
        self._folder.remove_made()

    def _kill_captures(self) -> None:
        for capture in self._captures.values():
            if capture is not None:
                capture.kill()


def _new_folder(place: OutputPlace) -> Folder:
    try:
        folder = place.open(0o700)
        is_empty = not folder.names()
    except OSError as error:
        raise InputError(
            f"evidence cannot be written to {place}: {error.strerror}", hint="name another folder"
        ) from None
    if not is_empty:
        raise InputError(f"{place} is not empty", hint="name a new folder")
    return folder


def _collect_lab(lab: RunningLab, nodes: Sequence[str], shelf: EvidenceFolder) -> None:
    """Collect what belongs to the whole lab: record, spec, injected faults, queues, agents,
    machine."""
    files, lab = LabFiles(lab.name), lab.whole
    shelf.keep("record.json", "the lab's record", files.record.read_bytes)
    spec = lab.fabric.spec.model_dump(mode="json", exclude_none=True)
    shelf.keep("spec.json", "what the lab was made from", lambda: json.dumps(spec, indent=1))
    shelf.keep("machine.json", "the machine and its load", lambda: _machine(lab))
    shelf.keep("queues.json", "counters of the nodes' queues", lambda: _queues(lab, nodes))
    shelf.keep("endpoints.json", "counters of the agents that run", lambda: _endpoints(files))
    for name in ("scheme", "queues"):
        path = files.root / name
        if path.exists():
            shelf.keep(f"{name}.txt", f"the lab's {name}", path.read_bytes)
    faults = files.root / "faults"
    for path in sorted(faults.rglob("*")) if faults.is_dir() else ():
        if path.is_file():
            name = "fault-" + "-".join(path.relative_to(faults).parts)
            shelf.keep(name, "an injected fault's record", path.read_bytes)


def _machine(lab: RunningLab) -> str:
    load = {name: Path("/proc", name).read_text() for name in ("loadavg", "uptime", "meminfo")}
    clocks = {
        "realtime_ns": time.clock_gettime_ns(time.CLOCK_REALTIME),
        "monotonic_ns": time.monotonic_ns(),
    }
    return json.dumps(asdict(environment_of(lab)) | clocks | load, indent=1)


def _queues(lab: RunningLab, nodes: Sequence[str]) -> str:
    counters = {
        f"{node}:{interface}": {number: asdict(queue) for number, queue in queues.items()}
        for network in lab.fabric.networks
        if read_engine(LabFiles.of(network)) is not QueueEngine.OFF
        for (node, interface), queues in read_queue_counters(network).items()
        if node in nodes
    }
    return json.dumps(counters, indent=1)


def _endpoints(files: LabFiles) -> str:
    folder = files.root / LIVE_FOLDER
    counts = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        counters = unpacked(file.read_bytes())
        if counters is not None:
            counts[file.name] = asdict(counters)
    return json.dumps(counts, indent=1)
