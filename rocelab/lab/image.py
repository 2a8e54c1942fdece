"""The default image of containers: Debian with FRR, built here.

It is built once per recipe from the Debian packages of this machine's own mirrors, so that no
registry need be reached. Its command starts the daemons that /etc/frr/daemons names, as that of
FRR's own image does (FRR docker/alpine/docker-start), so that it also runs in a topology that
containerlab deploys.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.base.files import scratch_folder
from rocelab.base.interruption import shielded, undone
from rocelab.base.progress import Progress, ProgressSink
from rocelab.base.trust import use_private_caches
from rocelab.lab.engine import ContainerEngine, find_engine, last_line

SUITE = "bookworm"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""Debian's keys, from the package debian-archive-keyring: a machine without Debian has no other
copy, and every package is verified."""
PACKAGES = ("frr", "iproute2", "iputils-ping", "procps", "tcpdump", "tini")
REPOSITORY = "rocelab/frr"
BUILD_TIMEOUT_S = 900.0
_RECIPE = ("mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE)
_START = (
    "install -d -o frr -g frr /run/frr && . /usr/lib/frr/frrcommon.sh && "
    "exec /usr/lib/frr/watchfrr $(daemon_list)"
)
"""watchfrr starts the daemons of the list and has `vtysh -b` configure them
(FRR tools/frrcommon.sh.in)."""
_RUNS = (
    f"ENTRYPOINT {json.dumps(['/usr/bin/tini', '--'])}",
    f"CMD {json.dumps(['/bin/bash', '-c', _START])}",
)


def image_name() -> str:
    """The image's name; its tag changes with the recipe."""
    recipe = repr((_RECIPE, _RUNS)).encode()
    return f"{REPOSITORY}:{hashlib.blake2s(recipe, digest_size=6).hexdigest()}"


def image_here() -> str | None:
    """The name of the default image if an engine of this machine has it."""
    try:
        engine = find_engine()
        return image_name() if _has_image(engine) else None
    except MachineError:
        return None


def _has_image(engine: ContainerEngine) -> bool:
    return engine.call(("image", "inspect", image_name())).returncode == 0


def built_image(engine: ContainerEngine, progress: ProgressSink) -> str:
    """The name of the default image, which is built if the engine does not have it.

    Raises MachineError where it cannot be built.
    """
    name = image_name()
    if _has_image(engine):
        return name
    _check_tools()
    progress(Progress("image", 0, 2))
    use_private_caches()
    with scratch_folder("rocelab-image-") as scratch:
        archive = scratch / "root.tar"
        _build(archive)
        progress(Progress("image", 1, 2))
        changes = (word for line in _RUNS for word in ("--change", line))
        engine.run("import", *changes, str(archive), name, timeout_s=BUILD_TIMEOUT_S)
    progress(Progress("image", 2, 2))
    return name


def _build(archive: Path) -> None:
    """Build the root file system, with scratch files beside the archive. If it is interrupted, all
    processes of the build have ended. Raises MachineError where it cannot be built."""
    # apt downloads as a user of its own, who has to reach the scratch files.
    archive.parent.chmod(0o755)
    # A signal before it is waited for would leave it.
    with (
        shielded(None) as shield,
        subprocess.Popen(
            [*_RECIPE, str(archive)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(archive.parent)},
            start_new_session=True,
        ) as process,
    ):
        try:
            with shield.lifted():
                _, said = process.communicate(timeout=BUILD_TIMEOUT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            # Until every process of the build has closed its end.
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise MachineError(
                    f"the image of containers was not built within {BUILD_TIMEOUT_S:.0f} s",
                    "check that this machine reaches its package mirrors",
                ) from None
            undone("removed the partly built image")
            raise
    if process.returncode != 0:
        raise MachineError(
            f"the image of containers was not built: {last_line(said)}",
            "name an image that has FRR with --image",
        )


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
