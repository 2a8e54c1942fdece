"""Watches a lab's health on a thread of its own while the lab is in use.

    with HealthMonitor(lab, HealthSpec()) as monitor:
        ...
    report = monitor.report

The result is a frozen `HealthReport`. With a folder for evidence, the first breach of each SLI also
collects a bundle for the nodes concerned, at once or, with `evidence_later`, when the caller asks
for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rocelab.base.errors import RocelabError
from rocelab.base.outputs import OutputPlace
from rocelab.lab.lab import RunningLab
from rocelab.observe.evidence.bundle import Collection
from rocelab.observe.health.endpoints import LOOK_INTERVAL_S
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.health.networks import network_totals
from rocelab.observe.health.reading import HealthReader, Reading
from rocelab.observe.health.report import Account
from rocelab.observe.health.sample import Places, Sample, compare
from rocelab.results.health import HealthReport, Sli

MOST_NODES = 8
"""The most nodes of a bundle: those of the worst places."""

CAPTURE_S = 1.0
"""How long packets are captured for a bundle."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The newest state, for display and export."""

    lab: RunningLab
    spec: HealthSpec
    places: Places
    reading: Reading
    sample: Sample
    breached_samples: Mapping[Sli, int]
    samples: int
    read_s: float
    breached_in: Mapping[str, Mapping[Sli, int]] = field(default_factory=dict)
    """`breached_samples` of each network of a lab with several."""

    @property
    def breaches(self) -> dict[Sli, dict[str, float]]:
        """The newest sample's values that miss their objective."""
        return self.sample.breaches(self.spec, self.places.networks_of)


@dataclass(frozen=True, slots=True)
class _Breach:
    """A breach for which evidence has to be collected, and the reason."""

    nodes: tuple[str, ...]
    folder: OutputPlace
    why: str
    time_ns: int


OnSample = Callable[[Snapshot], None]


class HealthMonitor:
    """Samples within its context; `report` is complete after it, and partial during it."""

    def __init__(
        self,
        lab: RunningLab,
        spec: HealthSpec | None = None,
        *,
        evidence: Path | OutputPlace | None = None,
        evidence_later: bool = False,
        asks: bool = False,
        on_sample: OnSample | None = None,
    ) -> None:
        """`lab`: a network of a lab with several is watched alone (`RunningLab.network`).
        `evidence` is a folder for bundles; `evidence_later` postpones them until
        `collect_evidence`. `asks`: whether daemons are asked too, as `rocelab status` does, which
        takes time that a measured run has not. `on_sample` is called after each sample, on the
        monitor's thread; an exception in it ends the monitoring. Raises InputError if the lab lacks
        a network that `spec` has objectives of."""
        self._lab = lab
        self._spec = spec or HealthSpec()
        self._spec.check_networks([part.network_name for part in lab.whole.fabric.networks])
        self._folder = OutputPlace(evidence) if isinstance(evidence, Path) else evidence
        self._later = evidence_later
        self._put_off: list[_Breach] = []
        self._on_sample = on_sample
        self._places = Places(lab.fabric)
        self._reader = HealthReader(lab, asks=asks)
        places = self._places
        self._account = Account(self._spec, places.networks, places.networks_of)
        self._collected: dict[Sli, OutputPlace] = {}
        self._collectors = ThreadPoolExecutor(max_workers=1, thread_name_prefix="evidence")
        self._cpu_s = 0.0
        self._started_ns = self._ended_ns = 0
        self._stop = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        """Take the first reading, the baseline of later ones. Raises InputError if the lab is not
        up, OSError if it cannot be read."""
        self._reader.__enter__()
        try:
            self._before = self._first = self._reader.read()
        except BaseException:
            self._reader.__exit__(None, None, None)
            raise
        self._account.leave_out(self._reader.unmeasured)
        self._started_ns = self._ended_ns = self._before.time_ns
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take a last sample and wait for evidence under collection."""
        self._stop.set()
        self._thread.join()
        self._collectors.shutdown()

    @property
    def report(self) -> HealthReport:
        """The report so far, complete after the context."""
        return HealthReport(
            lab=self._lab.name,
            started_ns=self._started_ns,
            ended_ns=self._ended_ns,
            interval_ns=self._spec.interval,
            samples=self._account.samples,
            slis=self._account.slis(),
            problems=self._account.problems,
            cpu_s=self._cpu_s,
            evidence=tuple(str(folder) for folder in self._collected.values()),
            unread_samples=self._account.unread_samples,
            longest_interval_ns=self._account.longest_interval_ns,
            networks=network_totals(
                self._lab.fabric, self._first, self._before, self._account.missed
            ),
        )

    def collect_evidence(self) -> None:
        """Collect postponed evidence, without packets: those are gone. Later breaches collect
        nothing."""
        self._folder = None
        while self._put_off:
            breach = self._put_off.pop(0)
            try:
                self._begun(breach, capture_s=0).collect()
            except (RocelabError, OSError) as error:
                self._account.note(f"no evidence in {breach.folder}: {error}")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the monitoring to end by itself, as it does when the lab ends; whether it
        has."""
        # Not join(): when interrupted it takes a running thread for one that has ended (bpo-45274).
        return self._over.wait(timeout_s)

    def _run(self) -> None:
        interval_s = self._spec.interval / 1e9
        due_s = time.monotonic() + interval_s
        try:
            while not self._stop.is_set():
                if self._stop.wait(min(LOOK_INTERVAL_S, max(0.0, due_s - time.monotonic()))):
                    break
                if time.monotonic() < due_s:
                    self._reader.endpoints.update()
                    continue
                self._sample()
                due_s = max(due_s + interval_s, time.monotonic())
            self._sample(is_last=True)
        except RocelabError as error:
            self.failure = error
            self._account.note(error.message)
        except BaseException as error:
            self.failure = error
            self._account.note(f"watching ended: {type(error).__name__}: {error}")
        finally:
            self._reader.__exit__(None, None, None)
            self._cpu_s = time.thread_time()
            self._over.set()

    def _sample(self, *, is_last: bool = False) -> None:
        started_s = time.monotonic()
        reading = self._reader.read(is_last=is_last)
        sample = compare(self._places, self._reader.plans, self._before, reading)
        self._before, self._ended_ns = reading, reading.time_ns
        breaches = self._account.add(sample)
        read_s = time.monotonic() - started_s
        self._cpu_s = time.thread_time()
        for sli, places in breaches.items():
            self._collect(sli, places, reading.time_ns)
        if self._on_sample is not None:
            counts = {sli: self._account.breached_samples(sli) for sli in Sli}
            self._on_sample(
                Snapshot(
                    self._lab,
                    self._spec,
                    self._places,
                    reading,
                    sample,
                    counts,
                    self._account.samples,
                    read_s,
                    {
                        name: {sli: self._account.breached_samples(sli, name) for sli in Sli}
                        for name in self._places.networks
                    },
                )
            )

    def _collect(self, sli: Sli, places: Mapping[str, float], time_ns: int) -> None:
        """Start captures at the first breach of an SLI and collect the rest on another thread, or
        note it for later."""
        if self._folder is None or sli in self._collected:
            return
        if len(self._collected) >= self._spec.evidence:
            return
        worst = sorted(places, key=lambda where: (-places[where], where))
        nodes = list(
            dict.fromkeys(node for where in worst for node in self._places.nodes_of(sli, where))
        )
        folder = self._folder / f"{len(self._collected) + 1}-{sli.value}"
        self._collected[sli] = folder
        networks = self._places.networks_of(sli, worst[0])
        objective = self._spec.objective(sli, networks)
        where = f"{worst[0]} of network {' and '.join(networks)}" if networks else worst[0]
        why = f"{sli.value} was {places[worst[0]]:g} at {where}; the objective is {objective:g}"
        breach = _Breach(tuple(nodes[:MOST_NODES]), folder, why, time_ns)
        if self._later:
            self._put_off.append(breach)
            return
        try:
            begun = self._begun(breach, capture_s=CAPTURE_S)
        except (RocelabError, OSError) as error:
            self._account.note(f"no evidence in {folder}: {error}")
        else:
            self._collectors.submit(self._collect_rest, begun, folder)

    def _begun(self, breach: _Breach, capture_s: float) -> Collection:
        return Collection(
            self._lab,
            breach.nodes,
            breach.folder,
            capture_s=capture_s,
            why=breach.why,
            breach_ns=breach.time_ns,
        )

    def _collect_rest(self, begun: Collection, folder: OutputPlace) -> None:
        try:
            begun.collect()
        except (RocelabError, OSError) as error:
            self._account.note(f"no evidence in {folder}: {error}")
