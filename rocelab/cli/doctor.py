"""`rocelab doctor`: checks whether this machine has what a lab needs, and what installed packages
add to rocelab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rocelab.cli.arguments import JsonOption
from rocelab.report.console import out, say, table, write_json

if TYPE_CHECKING:
    from rocelab.base.doors import Door
    from rocelab.lab.checks import Check

CANNOT_RUN_EXIT_CODE = 3


def doctor(json: JsonOption = False) -> None:
    """Check this machine's requirements for labs: what is installed, its purpose, how to get it.

    Exits 3 when a lab cannot run here.
    """
    from dataclasses import asdict

    from rocelab.lab.doctor import MachineDiagnosis, diagnose

    diagnosis = MachineDiagnosis((*diagnose().checks, *plugin_checks()))
    if json:
        checks = [asdict(check) for check in diagnosis.checks]
        write_json({"can_run": diagnosis.can_run, "checks": checks})
    else:
        grid = table("", ("", "what", "found", "what for", "how to get it"), left=5, names=2)
        for check in diagnosis.checks:
            mark, style = ("ok", "") if check.ok else ("MISSING", "red")
            if not check.ok and not check.needed:
                mark, style = "not there", "yellow"
            remedy = "" if check.ok else check.remedy
            grid.add_row(mark, check.name, check.found, check.purpose, remedy, style=style)
        out().print(grid)
        say("Labs can run here." if diagnosis.can_run else "Labs cannot run here.")
    if not diagnosis.can_run:
        raise typer.Exit(CANNOT_RUN_EXIT_CODE)


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
