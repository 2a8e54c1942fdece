"""Prepares what the tests with containerlab need and a network brings: the program, the images.

`python -m tests.containerlab.prepare` prints the folder to put on the PATH.

The program is this machine's own containerlab, or else the pinned release, built by Go through its
module proxy and kept. On a kernel without loadable modules, whose /proc has no `modules`, it is run
by a wrapper: containerlab 0.79 opens that file and gives up without it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rocelab.base.files import make_folders, replace_file
from rocelab.base.progress import no_progress
from rocelab.lab.engine import ContainerEngine
from rocelab.lab.image import SUITE, built_image
from tests.helpers.engine import docker_engine
from tests.helpers.goprograms import BUILD_TIMEOUT_S, KEPT, go_program

VERSION = "v0.79.0"
HOW = (
    "containerlab is not installed, and there is no Go to build it: install it as "
    "https://containerlab.dev/install says, or install Go, and run `make test-containerlab` again"
)
BIRD = "rocelab-tests/bird:1"
WRAPPER = Path(__file__).with_name("with-proc-modules")


def folder_of_containerlab() -> Path:
    """A folder whose `containerlab` runs on this machine. Raises SystemExit with what to do."""
    local = shutil.which("containerlab")
    program = (
        Path(local)
        if local
        else go_program("containerlab", "github.com/srl-labs/containerlab", VERSION, HOW)
    )
    if Path("/proc/modules").exists():
        return program.parent
    wrapped = KEPT / "containerlab-wrapped"
    make_folders(wrapped, 0o755)
    replace_file(wrapped / "containerlab", f'#!/bin/sh\nexec {WRAPPER} {program} "$@"\n', 0o755)
    return wrapped


def built_bird(engine: ContainerEngine) -> None:
    """An image of Debian with BIRD, which starts it."""
    if engine.call(("image", "inspect", BIRD)).returncode == 0:
        return
    with tempfile.TemporaryDirectory(prefix="rocelab-bird-") as scratch:
        archive = Path(scratch, "root.tar")
        wanted = "--include=bird2,iproute2,procps"
        command = ["mmdebstrap", "--variant=minbase", wanted, SUITE, str(archive)]
        subprocess.run(command, check=True, timeout=BUILD_TIMEOUT_S, capture_output=True)
        starts = "mkdir -p /run/bird && exec bird -f -c /etc/bird/bird.conf"
        entry = f"ENTRYPOINT {json.dumps(['/bin/sh', '-c', starts])}"
        engine.run("import", "--change", entry, str(archive), BIRD, timeout_s=BUILD_TIMEOUT_S)


if __name__ == "__main__":
    folder = folder_of_containerlab()
    with docker_engine() as engine:
        built_image(engine, no_progress)
        built_bird(engine)
    sys.stdout.write(f"{folder}\n")
