"""`rocelab doctor`: checks whether this machine has what a lab needs, and what installed packages
add to rocelab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rocelab.base.quantities import Unit
from rocelab.cli.arguments import JsonOption
from rocelab.report.console import say, show_blocks, write_json
from rocelab.report.document import Table, Tone, Toned, columns

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
        rows = tuple(
            (
                _mark(check),
                check.name,
                check.found,
                check.purpose,
                "" if check.ok else check.remedy,
            )
            for check in diagnosis.checks
        )
        head = columns(Unit.TEXT, "", "what", "found", "what for", "how to get it")
        show_blocks(Table("", head, rows, names=2))
        say("Labs can run here." if diagnosis.can_run else "Labs cannot run here.")
    if not diagnosis.can_run:
        raise typer.Exit(CANNOT_RUN_EXIT_CODE)


def _mark(check: Check) -> Toned:
    if check.ok:
        return Toned("ok", Tone.PLAIN)
    return Toned("MISSING", Tone.BAD) if check.needed else Toned("not there", Tone.CAUTION)


def doors() -> tuple[Door[Any], ...]:
    """Every door."""
    from rocelab.fabrics.door import KINDS as FABRICS
    from rocelab.faults.door import KINDS as FAULTS
    from rocelab.jobs.congestion import CONTROLS
    from rocelab.jobs.patterns.door import PATTERNS
    from rocelab.jobs.workloads import WORKLOADS
    from rocelab.lab.providers.door import RUNTIMES
    from rocelab.labfile.schemes.scheme_spec import SCHEME_DOOR
    from rocelab.results.kpis import KPI_DOOR
    from rocelab.routing.stack import STACKS

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
