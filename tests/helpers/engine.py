"""Docker's engine for tests if none is running: from Debian's package, without a network.

It changes no bridge, firewall rule or forwarding setting of the machine; all its files are in its
own folder and are removed with it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.base.files import make_folders
from rocelab.lab.engine import ContainerEngine, find_engine
from rocelab.linux.rights import missing_capabilities

STARTS_WITHIN_S = 300.0
RUNC = Path(__file__).with_name("runc_without_sys_resource.py")
IMAGES = Path("/var/cache/rocelab/docker-for-tests")
"""Kept between runs, so that not each builds the image."""


@contextmanager
def docker_engine() -> Iterator[ContainerEngine]:
    """A running engine: the machine's own, or one that ends with the context."""
    try:
        engine = find_engine()
    except MachineError:
        with _own_engine() as engine:
            yield engine
    else:
        yield engine


@contextmanager
def _own_engine() -> Iterator[ContainerEngine]:
    program = shutil.which("dockerd")
    assert program is not None, "there is no Docker engine: `make setup` installs docker.io"
    with _alone(), tempfile.TemporaryDirectory(prefix="rocelab-docker-") as folder:
        socket = Path(folder, "docker.sock")
        options = (
            *("--host", f"unix://{socket}", "--data-root", str(IMAGES), "--exec-root", folder),
            *("--pidfile", str(Path(folder, "pid")), "--bridge=none", "--iptables=false"),
            *("--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
            *_mild_runc(Path(folder, "mild-runc")),
        )
        log = Path(folder, "log")
        with (
            log.open("wb") as output,
            subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", program, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            ) as daemon,
        ):
            os.environ["DOCKER_HOST"] = f"unix://{socket}"
            try:
                engine = _answering(daemon, log)
                # Whoever kills a suite leaves its containers, which the engine has kept as stopped.
                engine.run("container", "prune", "--force")
                yield engine
            finally:
                del os.environ["DOCKER_HOST"]
                daemon.terminate()


def _mild_runc(program: Path) -> tuple[str, ...]:
    """Options for a machine that refuses this right even to root: privileged containers would not
    start. The engine runs the program a thousand times, so it names its interpreter: a `python3` of
    the PATH may be a shell script that looks for one."""
    if all(capability.name != "CAP_SYS_RESOURCE" for capability in missing_capabilities()):
        return ()
    program.write_text(f"#!{Path(sys.executable).resolve()} -IS\n{RUNC.read_text()}")
    program.chmod(0o755)
    return ("--add-runtime", f"mild={program}", "--default-runtime", "mild")


@contextmanager
def _alone() -> Iterator[None]:
    """Wait for another suite's engine to end: only one engine can use a folder of images."""
    make_folders(IMAGES, 0o700)
    with Path(f"{IMAGES}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _answering(daemon: subprocess.Popen[bytes], log: Path) -> ContainerEngine:
    deadline = time.monotonic() + STARTS_WITHIN_S
    engine = ContainerEngine("docker")
    # Not `info`: that of Docker 20.10 ends with 0 where its daemon does not answer.
    while engine.call(("version",)).returncode != 0:
        assert daemon.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)
    return engine
