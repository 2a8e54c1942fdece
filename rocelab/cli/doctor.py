"""`rocelab doctor`: checks whether this machine has what a lab needs."""

from __future__ import annotations

import typer

from rocelab.cli.arguments import JsonOption
from rocelab.report.console import out, say, table, write_json

CANNOT_RUN_EXIT_CODE = 3


def doctor(json: JsonOption = False) -> None:
    """Check this machine's requirements for labs: what is installed, its purpose, how to get it.

    Exits 3 when a lab cannot run here.
    """
    from dataclasses import asdict

    from rocelab.cli.plugins import plugin_checks
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
