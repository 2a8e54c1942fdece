"""`rocelab labs`: the labs, their size, the features that each uses, and whether it fits here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rocelab.base.quantities import Unit
from rocelab.cli.arguments import JsonOption
from rocelab.labfile.model import LabSpec
from rocelab.labfile.networks import NetworksLabSpec
from rocelab.labfile.queues import QueueEngine
from rocelab.report.console import note, say, show_blocks, write_json
from rocelab.report.document import Column, Table, columns

if TYPE_CHECKING:
    from rocelab.labfile.catalog import Catalog

Row = TypeVar("Row")

SWITCH_BYTES = 14 * 10**6
"""Memory of the daemons of a switch with few sessions: FRR 8.4, lean."""
SESSION_END_BYTES = 224 * 1024
"""Memory of a BGP session at each of its ends, and of its routes: together within an eighth of what
`status` measured of 8, 20, 160 and 270 switches."""


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """A lab. A GPU has one NIC."""

    name: str
    kind: str
    switches: int
    servers: int
    gpus: int
    sessions: int
    """BGP sessions. 0 where the user's own files have them, which are not known before it is up."""

    memory_bytes: int
    """An estimate."""

    uses: tuple[str, ...]
    """The features that the spec needs."""

    fits: bool
    """Whether the machine has that much memory."""


def catalog_row(spec: LabSpec, available_bytes: int) -> CatalogRow:
    """The row of a lab, on a machine with `available_bytes` of memory."""
    counts = spec.counts()
    sessions = counts.sessions if spec.routing.config is None else 0
    memory = counts.switches * SWITCH_BYTES + 2 * sessions * SESSION_END_BYTES
    return CatalogRow(
        name=spec.name,
        kind=", ".join(spec.kinds),
        switches=counts.switches,
        servers=counts.servers,
        gpus=counts.nics,
        sessions=sessions,
        memory_bytes=memory,
        uses=_uses(spec),
        fits=memory <= available_bytes,
    )


def memory_text(memory_bytes: int) -> str:
    """An estimate with its significant digits, as in the docs and the labs' files."""
    gigabytes = memory_bytes / 1e9
    decimals = 2 if gigabytes < 1 else 1 if gigabytes < 10 else 0
    return f"{gigabytes:.{decimals}f} GB"


def _uses(lab: LabSpec) -> tuple[str, ...]:
    features: dict[str, bool] = {}
    for spec in lab.networks.values() if isinstance(lab, NetworksLabSpec) else (lab,):
        engine = spec.queues.engine
        of_network = {
            "hash seed": spec.hashing.seed != 0,
            "bpf or red queues": engine is QueueEngine.AUTO,
            f"{engine} queues": engine in (QueueEngine.BPF, QueueEngine.RED),
            "bpf steering": spec.scheme.is_steered,
            "BFD": spec.routing.bfd is not None,
            "IPv6 (unnumbered)": not spec.is_numbered,
        }
        for name, used in of_network.items():
            features[name] = used or features.get(name, False)
    return tuple(name for name, used in features.items() if used)


def listed(catalog: Catalog, read: Callable[[Path], Row]) -> list[tuple[str, bool, Row]]:
    """The files of a catalog by name: whether each is the user's own, and its row from `read`.

    Invalid files of the user are named on stderr instead, each with its first problem.
    """
    from rocelab.base.errors import SpecError
    from rocelab.labfile.catalog import find, own_files, shipped_names

    files = own_files(catalog)
    rows = []
    for name in sorted({*files, *shipped_names(catalog)}):
        path = find(name, catalog)
        try:
            rows.append((name, name in files, read(path)))
        except SpecError as error:
            if name not in files:
                raise
            problem = replace(error.problems[0], hint=None)
            note(f"not listed, not a valid {catalog.kind}: {problem}")
    return rows


def marked(name: str, is_own: bool) -> str:
    """A name in a list, marked if it is of the user's own file."""
    return f"{name} (own)" if is_own else name


def explain_marks(catalog: Catalog, rows: Sequence[tuple[str, bool, object]]) -> None:
    """Explain the marks of a list, if it has any."""
    if any(is_own for _, is_own, _ in rows):
        say(f"(own): in {catalog.folder}/ of this folder, and preferred to a shipped one.")


def available_memory(meminfo: str) -> int:
    """Bytes that are still available to programs, from the text of /proc/meminfo
    (proc_meminfo(5))."""
    (kib,) = (
        int(line.split()[1]) for line in meminfo.splitlines() if line.startswith("MemAvailable:")
    )
    return kib * 1024


def list_catalog(json: JsonOption = False) -> None:
    """List the labs in labs/ of this folder and those that ship: size, memory, what each uses, and
    whether it fits this machine."""
    from rocelab.labfile.catalog import LABS
    from rocelab.labfile.load import load_spec

    available = available_memory(Path("/proc/meminfo").read_text())
    rows = listed(LABS, lambda path: catalog_row(load_spec(path), available))
    if json:
        write_json([{**asdict(row), "name": name, "own": is_own} for name, is_own, row in rows])
        return
    table = Table(
        "",
        (
            *columns(Unit.TEXT, "lab", "kind", "uses", "here"),
            *columns(Unit.COUNT, "switches", "servers", "GPUs", "BGP sessions"),
            Column("memory", Unit.FIGURE),
        ),
        tuple(
            (
                marked(name, is_own),
                row.kind,
                ", ".join(row.uses),
                "runs here" if row.fits else "simulate only",
                row.switches,
                row.servers,
                row.gpus,
                row.sessions,
                memory_text(row.memory_bytes),
            )
            for name, is_own, row in rows
        ),
    )
    show_blocks(table)
    explain_marks(LABS, rows)
    say(
        f"Memory is estimated: {SWITCH_BYTES / 1e6:.0f} MB a switch and "
        f"{SESSION_END_BYTES // 1024} KiB an end of a BGP session, with FRR 8.4. "
        f"{available / 1e9:.1f} GB are available here; only memory is compared."
    )
