"""The machine that measures, with the FRR of its labs."""

from __future__ import annotations

from dataclasses import replace

from rocelab.lab.installation import Installation, find_installation
from rocelab.lab.lab import RunningLab
from rocelab.results.environment import Environment, environment_with


def environment_of(lab: RunningLab) -> Environment:
    """This machine, now, with the FRR and the runtime of a lab that is up."""
    provider = lab.runtime.provider
    return replace(
        read_environment(lab.installation),
        runtime=str(provider.kind),
        runtime_versions=provider.versions(lab.runtime.files),
        frr_memory=lab.memory.text,
    )


def read_environment(frr: Installation | None = None) -> Environment:
    """This machine, now, with a lab's FRR or else its own. `cpu_count` is the CPUs this process may
    use.

    Raises MachineError when FRR is not installed.
    """
    return environment_with((frr or find_installation()).version)
