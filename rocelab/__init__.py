"""From a lab file to a result.

spec -> plan -> render | runtime -> traffic, faults -> measure -> results -> report, diagnose
                plan -> forwarding -> predict | sim   -> results

A YAML file of `labs/` is read (`spec`), planned (`plan`: every name, address and route) and brought
up (`runtime`). Jobs (`jobs`) become packets in it (`traffic`, by a process in each server:
`agent`), it is broken (`faults`) and watched (`measure`), by a drill of `scripts/` (`drills`), or
on paper (`predict`, `sim`). What came of it (`results`) is drawn (`report`) and explained
(`diagnose`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocelab.runtime.lab import Lab

__all__ = ["Lab"]


def __getattr__(name: str) -> object:
    # Late, since the command line imports this package for every `--help`.
    if name == "Lab":
        from rocelab.runtime.lab import Lab

        return Lab
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
