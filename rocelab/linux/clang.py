"""Compiles C sources with clang, once: the objects stay in a cache that only root can write.

What is compiled runs in the kernel or in daemons that begin as root, so a folder that another user
could change is refused. The name of an object has the digest of all that it follows from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rocelab.base import trust
from rocelab.base.files import scratch_folder

TIMEOUT_S = 60.0
_SCRATCH = "new-"


class CompileError(OSError):
    """A source cannot be compiled here; the text says what is missing."""


def compiled(
    source: Path, flags: Sequence[str], cache: Path, included: Sequence[Path] = ()
) -> Path:
    """The object file of a C source, compiled if not in the folder `cache`; the source may include
    headers of its folder, and the files `included`. Raises CompileError."""
    sources = (source, *sorted(source.parent.glob("*.h")), *included)
    texts = [file.read_bytes() for file in sources]
    digest = hashlib.blake2s(b"\0".join([" ".join(flags).encode(), *texts]), digest_size=12)
    try:
        cache_folder = trust.private_folder(cache)
    except trust.UntrustedFolderError as error:
        raise CompileError(f"nothing is run from {cache}: {error}") from None
    kept = cache_folder / f"{source.name.partition('.')[0]}-{digest.hexdigest()}.o"
    if kept.exists():
        return kept
    clang = shutil.which("clang")
    if clang is None:
        raise CompileError("clang is missing")
    with scratch_folder(_SCRATCH, cache_folder) as folder:
        fresh = folder / "fresh.o"
        try:
            done = subprocess.run(
                [clang, *flags, str(source), "-o", str(fresh)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                # What it links from there becomes code of root.
                env={**os.environ, "TMPDIR": str(folder)},
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"clang did not end within {TIMEOUT_S:.0f} s") from None
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise CompileError(f"clang refuses {source.name}: {(errors or ['no reason given'])[0]}")
        fresh.chmod(0o600)
        fresh.replace(kept)
    return kept
