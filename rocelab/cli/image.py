"""`rocelab image`: the container image of nodes, with FRR."""

from __future__ import annotations

import typer

from rocelab.cli.arguments import JsonOption
from rocelab.report.console import progress_bars, say, write_json

app = typer.Typer(no_args_is_help=True, help="The container image of nodes, with FRR.")


@app.command()
def build(json: JsonOption = False) -> None:
    """Build the image of containers from Debian's packages, and print its name.

    Docker, or else Podman, keeps it. `up --runtime docker` builds it by itself; `render --target
    containerlab` names it if it is there. An image that is there is not built again.
    """
    from rocelab.lab.engine import find_engine
    from rocelab.lab.image import built_image

    engine = find_engine()
    with progress_bars() as progress:
        name = built_image(engine, progress)
    if json:
        write_json({"image": name, "engine": engine.program})
    else:
        say(name)
