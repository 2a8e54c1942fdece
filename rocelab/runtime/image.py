"""The default image of containers: Debian with FRR, built here.

It is built once per recipe from the Debian packages of this machine's own mirrors, so that no
registry need be reached.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from rocelab.errors import MachineError
from rocelab.progress import Progress, ProgressSink
from rocelab.runtime.engine import Engine, last_line

SUITE = "bookworm"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""Debian's keys, from the package debian-archive-keyring: a machine without Debian has no other
copy, and every package is verified."""
PACKAGES = ("frr", "iproute2", "iputils-ping", "procps", "tcpdump")
REPOSITORY = "rocelab/frr"
BUILD_TIMEOUT_S = 900.0
_RECIPE = ("mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE)


def image_name() -> str:
    """The image's name; its tag changes with the recipe."""
    return f"{REPOSITORY}:{hashlib.blake2s(repr(_RECIPE).encode(), digest_size=6).hexdigest()}"


def built_image(engine: Engine, progress: ProgressSink) -> str:
    """The name of the default image, which is built if the engine does not have it.

    Raises MachineError where it cannot be built.
    """
    name = image_name()
    if engine.call(("image", "inspect", name)).returncode == 0:
        return name
    _check_tools()
    progress(Progress("image", 0, 2))
    with tempfile.TemporaryDirectory(prefix="rocelab-image-") as scratch:
        archive = Path(scratch, "root.tar")
        built = subprocess.run(
            [*_RECIPE, str(archive)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if built.returncode != 0:
            raise MachineError(
                f"the image of containers was not built: {last_line(built.stderr)}",
                "name an image that has FRR with --image",
            )
        progress(Progress("image", 1, 2))
        engine.run("import", str(archive), name, timeout_s=BUILD_TIMEOUT_S)
    progress(Progress("image", 2, 2))
    return name


def _check_tools() -> None:
    """Raises MachineError if this machine lacks a tool that builds the image."""
    missing = [] if shutil.which(_RECIPE[0]) else [_RECIPE[0]]
    if not KEYRING.exists():
        missing.append("debian-archive-keyring")
    if missing:
        raise MachineError(
            f"the image of containers cannot be built without {' and '.join(missing)}",
            "install it with `make setup`, or name an image that has FRR with --image",
        )
