"""Runs programs on servers of a lab that is up, and reads what they write and how they end.

A program is this machine's, in its server's network: with the server's host name and the lab's
/etc/hosts, over kernel sockets of the server's NICs. `rocelab.programs.supervisor` starts them all
and ends with this process, however that ends.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import CLOCK_REALTIME, clock_gettime_ns
from typing import Any, Literal

from rocelab.base.errors import MachineError
from rocelab.base.files import write_file
from rocelab.lab.lab import RunningLab
from rocelab.linux import background
from rocelab.linux.closing import Holding
from rocelab.programs.ranks import RankedProgram
from rocelab.record import LabFiles

GRACE_S = 5.0
"""How long programs may take to end on a signal before they are killed."""

_PIECE_BYTES = 1 << 16
_MOST_LINE_BYTES = 1 << 20
"""A longer line is cut into several."""


_REMOTE_SHELL = """\
#!/bin/sh
node=$1; shift
netns="/proc/1/root{netns}/$node"  # process 1 is the supervisor, which sees the nodes
[ -e "$netns" ] || {{ echo "lab {lab} has no node $node" >&2; exit 255; }}
exec nsenter --net="$netns" unshare --uts /bin/sh -c \
  'echo "$0" > /proc/sys/kernel/hostname && exec /bin/sh -c "$1"' "$node" "$*"
"""


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line that a program wrote, and when it was read (CLOCK_REALTIME).

    A progress bar's carriage return ends a line, too.
    """

    rank: int
    stream: Literal["stdout", "stderr"]
    written: bytes
    """As the program wrote it, with its end, if it has one."""

    at_ns: int

    @property
    def text(self) -> str:
        """Without its end."""
        return self.written.rstrip(b"\r\n").decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Ended:
    """A program has ended: with an exit code, or -N by signal N; `failed` says why it was never
    started."""

    rank: int
    code: int
    at_ns: int
    failed: str | None = None


class _Lines:
    """Cuts an output into lines."""

    def __init__(self, rank: int, stream: Literal["stdout", "stderr"]) -> None:
        self._rank, self._stream = rank, stream
        self._rest = b""

    def lines(self, piece: bytes, now_ns: int) -> Iterator[OutputLine]:
        """The lines that a piece completes; with an empty one, the output's end, what is left."""
        lines = (self._rest + piece).splitlines(keepends=True)
        self._rest = b""
        # After a carriage return at the end a line feed of the same line may follow.
        if piece and not lines[-1].endswith(b"\n") and len(lines[-1]) <= _MOST_LINE_BYTES:
            self._rest = lines.pop()
        for line in lines:
            yield OutputLine(self._rank, self._stream, line, now_ns)


class _Events:
    """Cuts the supervisor's reports into documents."""

    def __init__(self) -> None:
        self._rest = b""

    def documents(self, piece: bytes) -> Iterator[Mapping[str, Any]]:
        *whole, self._rest = (self._rest + piece).split(b"\n")
        yield from map(json.loads, whole)


class ProgramRun(Holding):
    """Programs that run within a context and are gone after it, with all that they started."""

    def __init__(self, lab: RunningLab, programs: Sequence[RankedProgram], folder: Path) -> None:
        """`folder`: where the programs begin. The context raises MachineError if they cannot be
        started."""
        self._lab, self._programs, self._folder = lab, programs, folder
        self._failed: dict[int, str] = {}
        self.running = {program.rank for program in programs}
        """The ranks that have not ended."""

    def _enter(self, stack: ExitStack) -> None:
        _write_remote_shell(self._lab)
        self._selector = stack.enter_context(selectors.DefaultSelector())
        with ExitStack() as far_ends:

            def pipe(key: object) -> int:
                reading, writing = os.pipe()
                stream = stack.enter_context(os.fdopen(reading, "rb", buffering=0))
                far_ends.callback(os.close, writing)
                self._selector.register(stream, selectors.EVENT_READ, key)
                return writing

            events = pipe(_Events())
            outputs = [
                tuple(pipe(_Lines(program.rank, name)) for name in ("stdout", "stderr"))
                for program in self._programs
            ]
            self._errors = stack.enter_context(os.fdopen(os.memfd_create("supervisor"), "w+b"))
            process = background.launch(
                "rocelab.programs.supervisor",
                str(events),
                stdin=subprocess.PIPE,
                errors=self._errors,
                pass_fds=(events, *(end for pair in outputs for end in pair)),
                site=False,
            )
        stack.callback(self._leave, process)
        assert process.stdin is not None
        self._commands = process.stdin.fileno()
        self._command(json.dumps({"programs": list(map(self._plan, self._programs, outputs))}))

    def _leave(self, process: subprocess.Popen[bytes]) -> None:
        """End the supervisor, and with it all programs."""
        assert process.stdin is not None
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        process.kill()
        process.wait()

    def _plan(self, program: RankedProgram, outputs: tuple[int, ...]) -> dict[str, object]:
        files = LabFiles(self._lab.name)
        return {
            "argv": program.argv,
            "environment": {**os.environ, **_mpi_variables(self._lab), **program.variables},
            "folder": str(self._folder),
            "node": program.node,
            "netns": str(files.netns_of(program.node)),
            "view": str(files.machine),
            "hosts": str(files.hosts),
            "outputs": outputs,
        }

    def events(self, timeout_s: float) -> Iterator[OutputLine | Ended]:
        """What programs wrote and which ended, waiting up to `timeout_s` for the first. Raises
        MachineError if their supervisor was killed, and they with it."""
        for key, _ in self._selector.select(timeout_s):
            piece = os.read(key.fd, _PIECE_BYTES)
            now_ns = clock_gettime_ns(CLOCK_REALTIME)
            if isinstance(key.data, _Lines):
                yield from key.data.lines(piece, now_ns)
            else:
                yield from self._ended(key.data.documents(piece), now_ns)
            if not piece:
                self._selector.unregister(key.fileobj)
                if isinstance(key.data, _Events) and self.running:
                    self.running.clear()
                    raise self._lost()

    @property
    def is_silent(self) -> bool:
        """Whether nothing more can come: every program has ended, and every output is closed."""
        return not self._selector.get_map()

    def send(self, number: int) -> None:
        """Send a signal to every program that still runs, and to its process group."""
        self._command(str(int(number)))

    def _command(self, line: str) -> None:
        rest = memoryview(line.encode() + b"\n")
        # Not by the pipe's own buffer: closed, it would write again what a lost supervisor left.
        with suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._commands, rest) :]

    def _ended(self, documents: Iterator[Mapping[str, Any]], now_ns: int) -> Iterator[Ended]:
        for document in documents:
            rank = document["rank"]
            if "failed" in document:
                self._failed[rank] = document["failed"]
            else:
                self.running.discard(rank)
                yield Ended(rank, document["code"], now_ns, self._failed.get(rank))

    def _lost(self) -> MachineError:
        self._errors.seek(0)
        said = background.last_line(self._errors.read().decode(errors="replace"))
        return MachineError(f"the programs' supervisor ended: {said or 'something killed it'}")


def _write_remote_shell(lab: RunningLab) -> Path:
    """Write the program that enters a node of the lab as ssh enters a machine: `remote-shell NODE
    COMMAND...`, with a shell of the node for the command's words."""
    files = LabFiles(lab.name)
    script = _REMOTE_SHELL.format(netns=files.netns, lab=lab.name)
    write_file(files.remote_shell, script, 0o644)
    return files.remote_shell


def _mpi_variables(lab: RunningLab) -> dict[str, str]:
    """How OpenMPI's `mpirun` enters other nodes, as root, which it refuses unless told twice."""
    # Through a shell, as /run may be mounted noexec.
    return {
        "OMPI_MCA_plm_rsh_agent": f"/bin/sh {LabFiles(lab.name).remote_shell}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
