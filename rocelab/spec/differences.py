"""The differences of two specs of a lab, by the keys of the lab's file."""

from __future__ import annotations

from collections.abc import Mapping

from rocelab.spec.model import LabSpec


def differing_keys(wanted: LabSpec, running: LabSpec) -> tuple[str, ...]:
    """The keys, such as `routing.bfd`, whose values differ in two specs."""

    def keys(one: Mapping[str, object], other: Mapping[str, object], above: str) -> list[str]:
        found = []
        for key in sorted({*one, *other}):
            first, second = one.get(key), other.get(key)
            if first == second:
                continue
            if isinstance(first, dict) and isinstance(second, dict):
                found += keys(first, second, f"{above}{key}.")
            else:
                found.append(f"{above}{key}")
        return found

    return tuple(keys(wanted.model_dump(mode="json"), running.model_dump(mode="json"), ""))
