"""`make validation`: compares rocelab's simulator with published figures, as docs/validation.md.

Measures every task in a process per CPU; the data, the plots and the pages go to docs/.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from bench.campaign.document import Document
from bench.campaign.study import BENCH, Measure, Publication, Series, Study
from bench.validation import engineering, fluid, hashing, history, hpn, models, scaling, volumes
from bench.validation.document import FORMAT, SCHEMA_VERSION, Validation
from bench.validation.plot import plots
from bench.validation.render import DATA, pages
from bench.validation.tasks import Task
from rocelab import worker_processes
from rocelab.base.documents import to_json
from rocelab.results.environment import Environment
from rocelab.sim.figures import simulation_environment

SEEDS = 12
"""Repeats of whatever is drawn."""

COMMAND = "make validation"
DOCS = BENCH.parent / "docs"
CASES = (hashing, scaling, engineering, history, hpn, volumes, fluid, models)


def tasks() -> dict[str, Task]:
    """All tasks by name."""
    return {task.name: task for case in CASES for task in case.tasks(SEEDS)}


@contextmanager
def _workers(names: Sequence[str]) -> Iterator[Measure]:
    every = tasks()
    with worker_processes(len(os.sched_getaffinity(0))) as pool:
        waiting = {name: pool.executor.submit(every[name].measured) for name in names}
        yield lambda task: waiting[task.name].result()


def validation_of(document: Document) -> Validation:
    """The values of all tasks; those of one key in the order of tasks."""
    values: dict[str, tuple[float, ...]] = {}
    for sample in document.firsts:
        for key, measured in sample["values"].items():
            values[key] = (*values.get(key, ()), *measured)
    machine = Environment(**document.environment)
    took_s = sum(sample["took_s"] for sample in document.firsts) / machine.cpu_count
    return Validation(SCHEMA_VERSION, COMMAND, machine, SEEDS, round(took_s, 1), values)


def published() -> Validation:
    """The validation in docs/. Raises InputError if it is of another format."""
    return FORMAT.read((DOCS / DATA).read_text(encoding="utf-8"))


def files(validation: Validation) -> dict[str, str]:
    """The pages and the plots."""
    return {**pages(validation), **plots(validation)}


STUDY = Study(
    name="validation",
    about="the simulator beside what Meta, Alibaba and others published",
    series=lambda: [Series(tasks(), _workers)],
    environment=lambda: asdict(simulation_environment()),
    publication=Publication(
        DOCS,
        lambda document: {
            DATA: to_json(validation_of(document)),
            **files(validation_of(document)),
        },
        lambda: files(published()),
    ),
)
