"""From a YAML file to a running fabric."""

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
