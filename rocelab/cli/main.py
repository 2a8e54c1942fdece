"""The console script `rocelab`: all commands of `rocelab.cli`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocelab.interruption import ending

if TYPE_CHECKING:
    import typer


def build() -> typer.Typer:
    """The whole command line."""
    from rocelab.cli import drill, fault, image
    from rocelab.cli.app import build_app
    from rocelab.cli.compare import compare
    from rocelab.cli.diagnose import diagnose
    from rocelab.cli.evidence import evidence
    from rocelab.cli.health import health
    from rocelab.cli.longrun import longrun, whatif
    from rocelab.cli.predict import predict
    from rocelab.cli.simulate import simulate
    from rocelab.cli.sweep import sweep
    from rocelab.cli.trace import reference
    from rocelab.cli.traffic import traffic

    app = build_app()
    app.add_typer(drill.app, name="drill", rich_help_panel="Measure")
    app.add_typer(fault.app, name="fault", rich_help_panel="Break")
    app.add_typer(image.app, name="image", rich_help_panel="Plan")
    app.command("traffic", rich_help_panel="Measure")(traffic)
    app.command("diagnose", rich_help_panel="Measure")(diagnose)
    app.command("compare", rich_help_panel="Measure")(compare)
    app.command("predict", rich_help_panel="Plan")(predict)
    app.command("simulate", rich_help_panel="Simulate")(simulate)
    app.command("whatif", rich_help_panel="Simulate")(whatif)
    app.command("longrun", rich_help_panel="Simulate")(longrun)
    app.command("sweep", rich_help_panel="Simulate")(sweep)
    app.command("reference", rich_help_panel="Simulate")(reference)
    app.command("health", rich_help_panel="Look in")(health)
    app.command("evidence", rich_help_panel="Look in")(evidence)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, sys.argv by default. Always ends with SystemExit."""
    # Loading the commands takes most of a second; signals are already handled during that time.
    with ending():
        from typer.core import TyperGroup
        from typer.main import get_command

        from rocelab.cli.app import run
        from rocelab.interpreter import leave_current_folder_out

        leave_current_folder_out()
        app = get_command(build())
        assert isinstance(app, TyperGroup)
        run(app, arguments)
