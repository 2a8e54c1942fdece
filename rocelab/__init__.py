"""From a lab file to a result.

labfile -> plan -> render | dataplane, lab -> traffic, faults -> observe, runs -> results -> report
                   plan -> jobs, routes -> predict | sim -> results -> report, diagnose

A YAML file of `labs/` is read (`labfile`), planned (`plan`: every name, address and route) and
brought up (`lab`, with the queues, PFC and steering of `dataplane`). Jobs (`jobs`) become packets
(`traffic`, sent by a process in each server: `agent`). Drills of `scripts/` (`drills`) inject
faults (`faults`), send and count (`runs`) and look at the lab (`observe`); `predict` and `sim`
compute the same without a running lab. Results (`results`) are shown (`report`) and explained
(`diagnose`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocelab.lab.lab import Lab, RunningLab

__all__ = ["Lab", "RunningLab", "__version__"]

__version__: str
"""The installed version, which is that of pyproject.toml."""


def __getattr__(name: str) -> object:
    # Late, since the command line imports this package for every `--help`.
    if name in ("Lab", "RunningLab"):
        from rocelab.lab import lab

        return getattr(lab, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("rocelab")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
