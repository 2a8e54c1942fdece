"""Writes rendered files to a folder, with a marker that lists them.

Targets are a machine's routing stack (DIR/<switch>/{zebra,bgpd,bfdd}.conf for FRR), containerlab
and clabernetes.
With `overwrite` a later render replaces the files in the marker, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from rocelab.base.errors import InputError, MachineError
from rocelab.base.files import MOST_BYTES
from rocelab.base.interruption import undone
from rocelab.base.outputs import OVERWRITE, Folder, open_folder
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.planning.fabric import Fabric
from rocelab.render import clabernetes
from rocelab.render.containerlab import mounted_files, topology_file, topology_text
from rocelab.render.deployment import deployment, left_out, warnings
from rocelab.render.frr_image import DEFAULT_IMAGE
from rocelab.routing.stack import stack_for

MARKER = ".rocelab-render"


def write_rendered(
    fabric: Fabric,
    folder: Path,
    progress: ProgressSink = no_progress,
    *,
    overwrite: bool = False,
) -> int:
    """Write every switch's configuration below `folder`. Returns the number of switches.

    With `overwrite` the files of an earlier render are replaced; other files stay. Raises
    InputError for a folder with other content, or with an earlier render without `overwrite`, and
    if it cannot be written.
    """

    stack = stack_for(fabric)
    for network in fabric.networks:
        stack.check(network)
    with suppress(MachineError):  # A machine without the stack renders too.
        stack.check_configuration(fabric, stack.find(None))

    def files() -> Iterator[tuple[str, str]]:
        for done, node in enumerate(fabric.switches, start=1):
            network = fabric.network_of(node.name)
            daemons = stack.daemons(network, node)
            texts = stack.configuration(network, node, daemons, None, interfaces=True)
            for daemon, text in texts.items():
                yield f"{node.name}/{daemon}.conf", text
            progress(Progress("render", done, len(fabric.switches)))

    _write(fabric.name, folder, files(), overwrite=overwrite)
    return len(fabric.switches)


def write_containerlab(
    fabric: Fabric,
    folder: Path,
    image: str = DEFAULT_IMAGE,
    progress: ProgressSink = no_progress,
    *,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write a folder that containerlab deploys. Returns warnings. Raises InputError as
    `write_rendered`."""
    made = deployment(fabric, image)
    mounted = dict(mounted_files(made))
    topology = topology_text(made)

    def files() -> Iterator[tuple[str, str]]:
        for done, (path, text) in enumerate(mounted.items(), start=1):
            yield path, text
            progress(Progress("render", done, len(mounted)))
        # Last, so that a folder with a topology file is complete.
        yield topology_file(made.name), topology

    _write(fabric.name, folder, files(), overwrite=overwrite)
    return warnings(fabric)


def write_clabernetes(
    fabric: Fabric, folder: Path, image: str = DEFAULT_IMAGE, *, overwrite: bool = False
) -> tuple[str, ...]:
    """Write manifests for `kubectl apply`. Returns warnings. Raises InputError as
    `write_rendered`, and if an object would be too large for a cluster."""
    files = clabernetes.manifests(fabric, image)
    _write(fabric.name, folder, files.items(), overwrite=overwrite)
    return left_out(fabric)


def _write(name: str, folder: Path, files: Iterable[tuple[str, str]], *, overwrite: bool) -> None:
    """Write files by path relative to the folder; the marker lists each before it is created."""
    try:
        with open_folder(folder, make=True) as opened:
            _claim(opened, overwrite=overwrite)
            opened.replace(MARKER, f"{name}\n")
            try:
                _fill(opened, files)
            except KeyboardInterrupt:
                undone(f"{folder} is not whole: `render --force` writes it again")
                raise
    except OSError as error:
        raise InputError(
            f"cannot write to {error.filename or folder}: {error.strerror}",
            hint="name a folder that you may write to, with room for the files",
        ) from error


def _fill(folder: Folder, files: Iterable[tuple[str, str]]) -> None:
    with folder.append(MARKER) as marker:
        for path, text in files:
            marker.write(f"{path}\n".encode())
            marker.flush()
            *above, name = PurePosixPath(path).parts
            with folder.below(*above) as place:
                place.replace(name, text)


def _claim(folder: Folder, *, overwrite: bool) -> None:
    """Remove the files of an earlier render. Raises InputError, and OSError."""
    if not folder.has(MARKER):
        if folder.names():
            raise InputError(
                f"{folder.path} is not empty and was not written by `rocelab render`",
                hint="name an empty folder or a new one; a render overwrites only its own files",
            )
        return
    if not overwrite:
        raise InputError(f"{folder.path} has rendered files already", hint=OVERWRITE)
    with folder.read(MARKER) as marker:
        lines = marker.read(MOST_BYTES).decode(errors="replace").splitlines()[1:]
    for path in [PurePosixPath(line) for line in lines if "\0" not in line]:
        if not path.is_absolute() and ".." not in path.parts and len(path.parts) <= 2:
            _remove(folder, path)


def _remove(folder: Folder, path: PurePosixPath) -> None:
    """Remove a file of an earlier render, and the switch's folder if empty."""
    if len(path.parts) == 1:
        folder.remove(path.name)
    elif folder.has_folder(path.parts[0]):
        with folder.below(path.parts[0]) as place:
            place.remove(path.name)
        folder.remove_empty(path.parts[0])
