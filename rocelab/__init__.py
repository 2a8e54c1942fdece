"""From a lab file to a result.

spec -> plan -> render | runtime -> traffic, faults -> measure -> results -> report, diagnose
                plan -> forwarding -> predict | sim   -> results

A YAML file of `labs/` is read (`spec`), planned (`plan`: every name, address and route) and brought
up (`runtime`). Jobs (`jobs`) become packets (`traffic`, sent by a process in each server: `agent`).
Drills of `scripts/` (`drills`) inject faults (`faults`) and measure (`measure`); `predict` and
`sim` compute the same without a running lab. Results (`results`) are shown (`report`) and explained
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
