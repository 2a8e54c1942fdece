"""How much memory FRR's daemons use: as much as FRR takes by itself (`plain`), or less (`lean`).

When a session starts or ends, bgpd clears the whole read buffer of that neighbour, 640 KiB, and so
touches every page of it; and glibc keeps large blocks that were freed. `lean` changes neither FRR
nor what it does: glibc returns such blocks, and bgpd gets a library of one function that forgets
what a buffer holds instead of clearing it (`preload/ringbuf.c`). The library is first tried with
the lab's own bgpd, in the place where it will run; where that fails, bgpd runs without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rocelab.base import trust
from rocelab.base.files import replace_file
from rocelab.linux import clang
from rocelab.routing.frr.kind import FrrMemory

SOURCE = Path(__file__).with_name("preload") / "ringbuf.c"
CACHE = trust.CACHE / "preload"
FLAGS = (
    *("-O2", "-Wall", "-fPIC", "-shared", "-nostdlib", "-fno-stack-protector"),
    *("-Wl,-z,noseparate-code", "-Wl,-z,noexecstack", "-Wl,--build-id=none", "-s"),
)
"""A library without dependencies: that of libfrr and of any C library is in the process already."""

THRESHOLD = {"MALLOC_MMAP_THRESHOLD_": "131072"}
"""glibc's own first value (mallopt(3)), which otherwise grows, up to 32 MiB, with the blocks that
are freed: larger ones lie in the heap then, from which little returns to the kernel."""

CHECK = "ROCELAB_CHECK_RINGBUF"
_AGREES = "rocelab: rings agree"
_SAID = "rocelab: "
_FILE = "memory.json"


@dataclass(frozen=True, slots=True)
class Memory:
    """How a lab's daemons use memory, as its record says."""

    kind: FrrMemory
    preloads: bool = False
    """Whether bgpd gets the library."""
    problem: str | None = None
    """Why not, None if it does or is not to."""

    @property
    def text(self) -> str:
        """For people and results: `lean`, `plain`, or `lean, but ...` with the problem."""
        return str(self.kind) if self.problem is None else f"lean, but {self.problem}"

    @property
    def note(self) -> str | None:
        """What `up` says if a lab takes more memory than it was to take."""
        if self.problem is None:
            return None
        return f"FRR uses more memory than it needs : {self.problem}"

    def variables(self, daemon: str, library: Path) -> Mapping[str, str]:
        """The environment variables of a daemon; `library` is where it sees the library."""
        if self.kind is FrrMemory.PLAIN:
            return {}
        preload = {"LD_PRELOAD": str(library)} if self.preloads and daemon == "bgpd" else {}
        return {**THRESHOLD, **preload}


PLAIN = Memory(FrrMemory.PLAIN)


def library() -> Path:
    """The library, in a folder that only root can enter. Raises
    rocelab.linux.clang.CompileError if it cannot be compiled here."""
    return clang.compiled(SOURCE, FLAGS, CACHE)


def tried(try_bgpd: Callable[[Mapping[str, str]], str], place: Path) -> Memory:
    """`lean`, after a trial of the library at `place`, where daemons see it: `try_bgpd` runs bgpd
    with these environment variables and returns what it writes to its standard error."""
    said = try_bgpd({"LD_PRELOAD": str(place), CHECK: "1"}).splitlines()
    # A wrapper that starts bgpd loads the library as well.
    if _AGREES in said:
        return Memory(FrrMemory.LEAN, preloads=True)
    answers = [line.removeprefix(_SAID) for line in said if line.startswith(_SAID)]
    if answers:
        return Memory(FrrMemory.LEAN, problem=answers[-1] or "bgpd ends while its rings are tried")
    why = said[-1] if said else "bgpd does not load a library that is given to it"
    return Memory(FrrMemory.LEAN, problem=why)


def write_memory(folder: Path, memory: Memory) -> None:
    """Write it into a lab's folder."""
    replace_file(folder / _FILE, json.dumps(asdict(memory)))


def read_memory(folder: Path) -> Memory:
    """Read it from a lab's folder; `PLAIN` of a lab that was adopted, which has none."""
    try:
        fields = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        return PLAIN
    return Memory(FrrMemory(fields["kind"]), fields["preloads"], fields["problem"])
