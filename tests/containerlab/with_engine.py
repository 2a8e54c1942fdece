"""Runs a command while a Docker engine runs: `python -m tests.containerlab.with_engine ARGS...`."""

from __future__ import annotations

import subprocess
import sys

from tests.helpers.engine import docker_engine

if __name__ == "__main__":
    with docker_engine():
        sys.exit(subprocess.run(sys.argv[1:]).returncode)
