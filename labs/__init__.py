"""From a YAML file to a running fabric."""

from labs.lab import Lab

__all__ = ["Lab"]
