"""Runs `rocelab --host user@vm COMMAND`, and the commands about runs there: runs, attach.

The command's output appears on the same streams here, with its files and its exit code. All
messages about the connection go to stderr.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rocelab.base.errors import RocelabError
from rocelab.base.interruption import shielded, undone
from rocelab.base.quantities import Unit
from rocelab.remote import record
from rocelab.remote.address import parse_address, read_config, resolve
from rocelab.remote.answers import DOCTOR, parsed
from rocelab.remote.connection import Connection, connected
from rocelab.remote.errors import ConnectionLostError, DiskFullError, UnfitError
from rocelab.remote.host.frames import Frame, FrameKind
from rocelab.remote.install import InstalledKit, ensure_installed, this_kit
from rocelab.remote.runs import (
    Ending,
    RemoteRun,
    Terminal,
    choose,
    interrupts_passed_on,
    left_running,
    list_runs,
    new_name,
    places_of,
)
from rocelab.remote.tunnel import Tunnels
from rocelab.remote.upload import make_upload
from rocelab.report.console import err, progress_bars, say, show_blocks, write_json
from rocelab.report.document import Table, columns

MANY_FILES = 6
LIVE = "live"
"""The command whose page is opened here, through a tunnel, and the extra that it needs there."""


def run_elsewhere(
    host: str, words: Sequence[str], values: Mapping[str, object], *, talks: bool
) -> int:
    """Run `rocelab WORDS...` on another machine; return the exit code.

    `values` has the parsed parameters of the command. `talks`: the command needs a terminal. Raises
    as its parts do.
    """
    upload = make_upload(words, values, Path.cwd())
    extra = LIVE if _is_live(words) else None
    with _machine(host, extra) as (connection, installed):
        run = RemoteRun(new_name(), connection, installed)
        terminal = Terminal.here()
        with _discarded_unless_begun(run):
            with progress_bars() as progress:
                run.send(upload, terminal, progress)
            if talks:
                run.unpack()
            else:
                with shielded(f"run {run.name} is begun"):
                    record.remember(record.StartedRun(run.name, host, upload.outputs))
                    run.start()
        if talks:
            from rocelab.remote.terminal import talk

            code = talk(run, upload.words, upload.folder)
            run.remove()
            return code
        code = _follow_run(run, words, upload.outputs)
        if code != 0 and not installed.as_root:
            _note(
                f"on {connection.destination} you are not root and sudo asks for a password, "
                "which labs cannot give it"
            )
        return code


@contextmanager
def _discarded_unless_begun(run: RemoteRun) -> Iterator[None]:
    try:
        yield
    except ConnectionLostError as error:
        host = run.connection.destination
        raise ConnectionLostError(
            f"{error.message} before it was known whether run {run.name} began",
            hint=f"`rocelab --host {host} runs` shows it if it did",
        ) from None
    except RocelabError:
        record.forget(run.name)
        with suppress(ConnectionLostError):
            run.discard()
        raise
    except KeyboardInterrupt:
        host = run.connection.destination
        with shielded(f"run {run.name} is ended"), suppress(ConnectionLostError):
            if run.interrupt():
                undone(f"run {run.name} too: `rocelab --host {host} attach {run.name}` has its end")
            else:
                record.forget(run.name)
                run.discard()
                undone(f"what was sent to {host} was removed")
        raise


def show_runs(host: str, *, json: bool) -> None:
    """List the runs on a machine."""
    with _machine(host) as (connection, installed):
        runs = list_runs(connection, installed)
    if json:
        write_json([{**asdict(run), "state": run.state} for run in runs])
        return
    if not runs:
        say("no runs")
        return
    rows = tuple(
        (
            run.run,
            run.state,
            datetime.fromtimestamp(run.started_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
            run.client,
            run.command,
        )
        for run in runs
    )
    show_blocks(Table("", columns(Unit.TEXT, "run", "state", "since", "from", "command"), rows))


def remove_run(host: str, name: str) -> None:
    """Remove a finished run, with results that were not fetched. Raises InputError."""
    with _machine(host) as (connection, installed):
        chosen = choose(list_runs(connection, installed), name, host)
        RemoteRun(chosen.run, connection, installed).remove()


def attach_to(host: str, name: str | None) -> int:
    """Continue with a run, by default the only one; return its exit code."""
    with _machine(host) as (connection, installed):
        chosen = choose(list_runs(connection, installed), name, host)
        run = RemoteRun(chosen.run, connection, installed)
        words = shlex.split(chosen.command)[1:]
        return _follow_run(run, words, places_of(chosen.run, Path.cwd()))


@contextmanager
def _machine(host: str, extra: str | None = None) -> Iterator[tuple[Connection, InstalledKit]]:
    """A connection to a machine with rocelab installed, and with what an extra of it requires."""
    home = Path.home()
    address = parse_address(host)
    destination = resolve(address, read_config(home / ".ssh/config"), home)
    kit = this_kit(extra)
    with connected(destination, home) as connection:
        with progress_bars() as progress:
            installed = ensure_installed(connection, kit, progress)
        if installed.is_new:
            _show_missing(connection, installed)
        yield connection, installed


def _show_missing(connection: Connection, installed: InstalledKit) -> None:
    """After an installation, show the missing requirements that `doctor` finds there."""
    command = installed.command(*installed.rocelab(["doctor", "--json"])[2:])
    output = connection.run(command)
    try:
        answer = parsed(DOCTOR, output.out, connection.destination, "the checks of doctor")
    except UnfitError as error:
        reason = output.complaint or error.message
        _note(f"doctor did not run on {connection.destination}: {reason}")
        return
    for check in answer.checks:
        if check.needed and not check.ok:
            _note(
                f"{connection.destination} lacks {check.name} ({check.purpose}): "
                f"{check.found}; {check.remedy}"
            )


def _is_live(words: Sequence[str]) -> bool:
    """Whether `rocelab WORDS...` is LIVE, after options for all commands."""
    return next((word for word in words if not word.startswith("-")), None) == LIVE


def _follow_run(run: RemoteRun, words: Sequence[str], outputs: Sequence[str]) -> int:
    """Show the output of a run of `rocelab WORDS...`, fetch its files, remove it; return its exit
    code."""
    host = run.connection.destination

    def say_interrupted() -> None:
        _note(f"passing Ctrl-C on; a second one detaches, and the run continues on {host}")

    try:
        with (
            closing(Tunnels(run.connection, _note)) as tunnels,
            interrupts_passed_on(run, say_interrupted),
        ):
            ending = run.follow(_frame_writer(run, tunnels.led if _is_live(words) else bytes))
    except ConnectionLostError as error:
        raise left_running(run, error.message.partition(";")[0]) from None
    with progress_bars() as progress:
        files, others = run.fetch(outputs, progress)
    _report_files(run, files, others)
    if ending.lost_bytes:
        raise _full(run, ending)
    if not others:
        run.remove()
    return ending.exit_code


def _frame_writer(run: RemoteRun, led: Callable[[bytes], bytes]) -> Callable[[Frame], None]:
    """Writes a run's output to the matching streams, stdout as `led` gives it."""
    is_cut = False

    def show(frame: Frame) -> None:
        nonlocal is_cut
        is_out = frame.kind is FrameKind.OUT
        stream = sys.stdout if is_out else sys.stderr
        try:
            stream.buffer.write(led(frame.payload) if is_out else frame.payload)
            stream.flush()
        except BrokenPipeError:
            # The reader of the output has gone, like `| head`: the command ends as it would here.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if not is_cut:
                is_cut = True
                run.interrupt()

    return show


def _report_files(run: RemoteRun, files: Sequence[Path], others: Sequence[str]) -> None:
    if len(files) > MANY_FILES:
        _note(f"brought back: {len(files)} files in {_shown(Path(os.path.commonpath(files)))}")
    elif files:
        _note(f"brought back: {', '.join(map(_shown, files))}")
    if others:
        _note(
            f"{len(others)} files that you did not request stay in {run.folder}/files on "
            f"{run.connection.destination}: {', '.join(others[:MANY_FILES])}"
        )


def _shown(path: Path) -> str:
    """A path as a user would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _full(run: RemoteRun, ending: Ending) -> DiskFullError:
    host = run.connection.destination
    return DiskFullError(
        f"the disk of {host} was full: {ending.lost_bytes:,} bytes of output are lost, and files "
        f"may be cut short (the command's exit code: {ending.exit_code})",
        hint=f"make room there; `rocelab --host {host} runs --remove {run.name}` removes the run",
    )


def _note(text: str) -> None:
    err().print(f"note: {text}", markup=False, soft_wrap=True)
