"""A lab that tests share: brought up once, checked after each test, and rebuilt if a test left
changes.

The `RunningLab` has a name of this process. After a test the bench reports what it left, and
collects evidence if it failed. One test uses the lab at a time.
"""

from __future__ import annotations

import re
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

from rocelab.base.documents import to_json
from rocelab.base.errors import ExpectationError, InputError
from rocelab.base.outputs import OutputPlace, open_folder
from rocelab.faults.record import read_faults
from rocelab.lab.convergence import convergence_timeout_s
from rocelab.lab.inuse import turn
from rocelab.lab.providers import provider_of
from rocelab.lab.teardown import take_down
from rocelab.labfile.load import load_spec
from rocelab.observe.evidence.bundle import collect_evidence
from rocelab.observe.evidence.unconverged import keep_unconverged
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.planning.build import plan
from rocelab.record import LabFiles, recorded_labs
from rocelab.testkit.fingerprint import Facts, differences, read_facts
from rocelab.testkit.kit import Experiment
from rocelab.testkit.lab import Lab
from rocelab.testkit.naming import suite_name

SETTLE_S = 10.0
"""Carrier and processes get this long to return to their state before a test counts as unclean."""

SETTLE_STEP_S = 0.1
SHOWN = 12
MOST_NODES = 16
"""Evidence of a test without faults covers all nodes of a lab up to this size."""


class Bench:
    """A lab and the test that uses it."""

    def __init__(self, file: Path, evidence: Path, frr: Path | None = None) -> None:
        """Plans only. `evidence` is the folder for that of a lab that does not come up, `frr` that
        of another FRR than this machine's. Raises InputError, and SpecError with every
        problem of the file."""
        spec = load_spec(file)
        name = suite_name(spec.name, recorded_labs())
        provider = provider_of("netns", frr=frr)
        lab = Lab(plan(spec.model_copy(update={"name": name})), provider)
        keep_unconverged(lab, OutputPlace(evidence))
        self.lab = lab.unstarted()
        self.evidence: Path | None = None
        self._facts: Facts = {}
        self._unclean = False
        self._folder = Path()

    def up(self) -> None:
        """Bring the lab up and record its state. Raises as `Lab.up` does."""
        with turn():
            self.lab.start()
            try:
                self._facts = read_facts(self.lab)
            except BaseException:
                self.down()
                raise
        self._unclean = False

    def down(self) -> None:
        """Take the lab down. Idempotent."""
        take_down(self.lab.name)

    def begin(self, folder: Path) -> None:
        """Begin a test; its evidence goes to `folder`, which need not exist.

        Rebuilds the lab if the last test left something in it. Raises as `Lab.up` does.
        """
        self.evidence, self._folder = None, folder
        self.lab.experiment = Experiment(self.lab, on_failure=self.collect)
        if self._unclean:
            self.down()
            self.up()

    def end(self) -> None:
        """End the test. Raises ExpectationError with what it left; the lab is then rebuilt before
        it is used again."""
        left = self._left()
        if not left:
            return
        self._unclean = True
        more = [f"and {len(left) - SHOWN} more"] if len(left) > SHOWN else []
        self.collect("the test left changes in the lab")
        raise ExpectationError(
            "the test changed the lab:\n  " + "\n  ".join([*left[:SHOWN], *more]),
            hint="revert these changes in the test, as `with fault(...)` does. The next test "
            "gets a new lab",
        )

    def _left(self) -> tuple[str, ...]:
        """What differs from the lab's recorded state, after the time that changes may take."""
        differences = self._differing()
        deadline = time.monotonic() + SETTLE_S
        # Traffic control and processes send no notification of changes, so they are polled.
        while _but_routes(differences) and time.monotonic() < deadline:
            time.sleep(SETTLE_STEP_S)
            differences = self._differing()
        if not differences or _but_routes(differences):
            return differences
        self._wait_until_whole()
        deadline = time.monotonic() + SETTLE_S
        while (differences := self._differing()) and time.monotonic() < deadline:
            time.sleep(SETTLE_STEP_S)
        return differences

    def _differing(self) -> tuple[str, ...]:
        injected = tuple(
            f"{self.lab.name}: fault {fault.spec.kind} is in the lab's record"
            for fault in read_faults(LabFiles(self.lab.name))
        )
        try:
            return injected + differences(self._facts, read_facts(self.lab))
        except OSError as error:
            return (*injected, f"{self.lab.name}: it cannot be read: {error}")

    def _wait_until_whole(self) -> None:
        """Wait for routing, which takes its time to converge after a fault is gone."""
        with ExitStack() as stack:
            netns_of = stack.enter_context(opened_namespaces(self.lab, self.lab.fabric.switches))
            fib = stack.enter_context(FibTimeline(self.lab, netns_of))
            try:
                fib.wait_until_whole(convergence_timeout_s(self.lab.fabric))
            except ExpectationError:
                return  # what is missing shows in the differences

    def collect(self, why: str) -> None:
        """Collect evidence for the test, once."""
        if self.evidence is not None:
            return
        nodes = dict.fromkeys(node for fault in self.lab.experiment.faults for node in fault.nodes)
        everything = [node.name for node in self.lab.fabric.nodes]
        if not nodes and len(everything) <= MOST_NODES:
            nodes = dict.fromkeys(everything)
        folder = _unused(self._folder)
        try:
            collect_evidence(self.lab, tuple(nodes), folder, capture_s=0, why=why)
            with open_folder(folder) as opened:
                for number, repeat in enumerate(self.lab.experiment.runs, 1):
                    opened.replace(f"run-{number}.json", to_json(repeat))
        except (InputError, OSError) as error:
            with open_folder(folder, make=True) as opened:
                opened.replace("incomplete.txt", f"{error}\n")
        self.evidence = folder

    def discard_evidence(self) -> None:
        """Remove the evidence of a test that passed after all."""
        if self.evidence is not None:
            shutil.rmtree(self.evidence, ignore_errors=True)
            self.evidence = None


def evidence_folder(base: Path, test: str) -> Path:
    """The folder of a test's evidence, from its id such as `tests/test_x.py::test_y[tiny]`."""
    return base / re.sub(r"[^\w.-]+", "-", test).strip("-")


def _unused(folder: Path) -> Path:
    """The folder, or one with a number if earlier runs have left theirs."""
    number, path = 2, folder
    while path.exists():
        path = folder.with_name(f"{folder.name}-{number}")
        number += 1
    return path


def _but_routes(differences: tuple[str, ...]) -> bool:
    """Whether anything differs that is not a route."""
    return any(": route " not in difference for difference in differences)
