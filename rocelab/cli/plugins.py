"""What installed packages add to rocelab, as a check of `rocelab doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocelab.base.doors import Door
    from rocelab.lab.checks import Check


def doors() -> tuple[Door[Any], ...]:
    """Every door."""
    from rocelab.fabrics.door import KINDS as FABRICS
    from rocelab.faults.door import KINDS as FAULTS
    from rocelab.jobs.congestion import CONTROLS
    from rocelab.jobs.patterns.door import PATTERNS
    from rocelab.jobs.workloads import WORKLOADS
    from rocelab.lab.providers.door import RUNTIMES
    from rocelab.labfile.schemes.scheme_spec import SCHEME_DOOR
    from rocelab.labfile.stacks import STACKS
    from rocelab.results.kpis import KPI_DOOR

    return FAULTS, FABRICS, KPI_DOOR, CONTROLS, PATTERNS, WORKLOADS, SCHEME_DOOR, STACKS, RUNTIMES


def plugin_checks() -> tuple[Check, ...]:
    """A check of each package that adds something; loads all of them."""
    from rocelab.base.doors import plugins
    from rocelab.lab.checks import Check

    refusals = [refusal for door in doors() for refusal in door.refusals()]
    checks = []
    for package in plugins():
        added = [
            f"{door.noun} {name}"
            for door in doors()
            for name in door.all()
            if door.origin(name) == package
        ]
        refused = [str(refusal) for refusal in refusals if refusal.distribution == package]
        checks.append(
            Check(
                name=package,
                ok=not refused,
                needed=False,
                found=", ".join(added) or "nothing that can be used",
                purpose="what this package adds to rocelab",
                remedy="; ".join((*refused, "fix or uninstall that package")) if refused else "",
            )
        )
    return tuple(checks)
