"""The command that simulates one cell of a sweep by itself, which makes the cell's own page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from rocelab.jobs.job_spec import KINDS
from rocelab.labfile.source import Data, written
from rocelab.sim.sweep.cells import merged
from rocelab.sim.sweep.sweep_spec import Sweep


def command_of(sweep: Sweep, values: Mapping[str, Data], name: str) -> str:
    """Lines for a shell in the folder where the sweep ran. They write the cell's lab and job beside
    each other, and its page into `results/NAME`. values: of all swept keys."""
    lab, job, options = (_part(sweep, part, values) for part in ("lab", "job", "simulate"))
    if not any(kind in job for kind in KINDS):
        job = {"collective": job}
    for kind in ("trace", "flows"):
        if kind in job:
            folder = sweep.parts["job"].path.parent
            job[kind] = {**job[kind], "file": str(folder / job[kind]["file"])}
    if "host_model" in options:
        # A block is no option's value; an option would come before the job's.
        job = {**job, "host_model": options.pop("host_model")}
    arguments = [
        word
        for key, value in options.items()
        for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    command = ["rocelab", "simulate", f"./{name}-lab.yaml", "--job", f"./{name}-job.yaml"]
    return "\n".join(
        (
            _written(f"{name}-lab.yaml", lab),
            _written(f"{name}-job.yaml", {"jobs": [{"name": "job", **job}]}),
            shlex.join([*command, *arguments, "--out", f"results/{name}"]),
        )
    )


def _part(sweep: Sweep, name: str, values: Mapping[str, Data]) -> dict[str, Any]:
    part_values = {key: value for key, value in values.items() if key.startswith(f"{name}.")}
    return dict(merged(sweep, name, part_values).data)


def _written(file: str, data: Mapping[str, Any]) -> str:
    return f"cat > {file} <<'END'\n{written(data, width=100)}END"
