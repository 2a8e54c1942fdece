"""The machine that measures, with the routing stack of its labs."""

from __future__ import annotations

from dataclasses import replace

from rocelab.lab.lab import RunningLab
from rocelab.labfile.stacks import DEFAULT_STACK
from rocelab.results.environment import Environment, environment_with
from rocelab.routing.frr.installation import find_installation
from rocelab.routing.stack import STACKS, Installation


def environment_of(lab: RunningLab) -> Environment:
    """This machine, now, with the routing stack and the runtime of a lab that is up."""
    provider = lab.runtime.provider
    return replace(
        read_environment(lab.installation),
        runtime=str(provider.kind),
        runtime_versions=provider.versions(lab.runtime.files),
        frr_memory=lab.memory_text,
    )


def read_environment(installation: Installation | None = None) -> Environment:
    """This machine, now, with a lab's routing stack or else its own FRR. `cpu_count` is the CPUs
    this process may use.

    Raises MachineError when FRR is not installed.
    """
    routing = find_installation() if installation is None else installation
    if routing.stack == DEFAULT_STACK:
        return environment_with(routing.version)
    return replace(
        environment_with(""), routing=f"{STACKS.find(routing.stack).title} {routing.version}"
    )
