"""Programs that Go builds from its module proxy, for tests: each once, and kept."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rocelab.base.files import make_folders

KEPT = Path("/var/cache/rocelab")
BUILD_TIMEOUT_S = 3600.0
_PLACEHOLDER = re.compile(r"^\s+(\S+) v0\.0\.0$", re.MULTILINE)


def go_module(module: str, version: str, how: str) -> dict[str, str]:
    """Where Go keeps a module: `Dir`, its files, and `GoMod`. It is downloaded if it is missing.

    Raises SystemExit with `how` if there is no Go.
    """
    command = [_go(how), "mod", "download", "-json", f"{module}@{version}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=BUILD_TIMEOUT_S)
    document: dict[str, str] = json.loads(done.stdout)
    return document


def go_program(name: str, module: str, version: str, how: str, package: str = "") -> Path:
    """The program of a module's package, by default of its root. Raises as `go_module`.

    It is built in a module of its own that requires it: `go install` asks the proxy for the list of
    versions, which not every proxy has.
    """
    folder = KEPT / f"{name}-{version.removeprefix('v')}"
    program = folder / name
    if program.exists():
        return program
    sys.stderr.write(f"building {name} {version}: some minutes, once\n")
    download = go_module(module, version, how)
    source = folder / "build"
    make_folders(source, 0o755)
    # What a module replaces is not replaced in those that require it: Kubernetes has its parts at
    # v0.0.0, which its own tree replaces, and releases them as v0.X for its v1.X.
    replaced = "".join(
        f"replace {part} => {part} v0.{version.removeprefix('v1.')}\n"
        for part in _PLACEHOLDER.findall(Path(download["GoMod"]).read_text())
    )
    (source / "go.mod").write_text(
        f"module build\n\ngo 1.24\n\nrequire {module} {version}\n{replaced}"
    )
    sums = Path(download["Dir"], "go.sum")
    if sums.exists():
        shutil.copyfile(sums, source / "go.sum")
    fresh = folder / f"{name}.new"
    build = [_go(how), "build", "-mod=mod", "-o", str(fresh), f"{module}/{package}".rstrip("/")]
    # Without C a program runs in any root folder.
    environment = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(build, cwd=source, check=True, timeout=BUILD_TIMEOUT_S, env=environment)
    fresh.replace(program)
    return program


def _go(how: str) -> str:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise SystemExit(how)
    return go
