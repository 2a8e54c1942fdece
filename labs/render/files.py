"""Rendered configurations on disk: a folder per switch with the files its daemons read.

In: a `Fabric` and a folder. Out: DIR/<switch>/{zebra,bgpd,bfdd}.conf, and a marker by which a
later render knows that the folder is its own and may be written again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from labs.errors import InputError
from labs.plan.fabric import Fabric
from labs.render.frr import frr_configuration
from labs.runtime.base import Progress, ProgressSink, no_progress

MARKER = ".rocelab-render"
_RENDERED = ("zebra.conf", "bgpd.conf", "bfdd.conf")


def write_rendered(fabric: Fabric, folder: Path, progress: ProgressSink = no_progress) -> int:
    """Write every switch's configuration below `folder`; gives the number of switches.

    What an earlier render left there is replaced, other files stay. Raises InputError for a folder
    that holds anything and was not written by a render, and where it can not be written.
    """
    try:
        _claim(fabric, folder)
        for done, node in enumerate(fabric.switches, start=1):
            place = folder / node.name
            place.mkdir(exist_ok=True)
            for daemon, text in frr_configuration(fabric, node).items():
                (place / f"{daemon}.conf").write_text(text)
            progress(Progress("render", done, len(fabric.switches)))
    except OSError as error:
        raise InputError(
            f"can not write to {error.filename or folder}: {error.strerror}",
            hint="name a folder that you may write to, with room for the files",
        ) from error
    return len(fabric.switches)


def _claim(fabric: Fabric, folder: Path) -> None:
    """Make the folder ours and empty of earlier renders."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file", hint="name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / MARKER
    if not marker.exists() and any(folder.iterdir()):
        raise InputError(
            f"{folder} is not empty and was not written by `rocelab render`",
            hint="name an empty folder or a new one; a render overwrites only its own files",
        )
    marker.write_text(f"{fabric.name}\n")
    for place in folder.iterdir():
        if place.is_dir() and not place.is_symlink():
            for name in _RENDERED:
                (place / name).unlink(missing_ok=True)
            with suppress(OSError):
                place.rmdir()
