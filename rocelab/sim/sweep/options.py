"""How a sweep is run: each option with that of the command line. It loads no model of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.base.options import option


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Where results go, and who runs the cells. Raises InputError for workers of both kinds."""

    folder: Path | None = option(
        None,
        "Where cells.jsonl, sweep.parquet and report.html go; finished cells are kept.",
        name="out",
        metavar="DIR",
        default_text="results/sweep-FILE",
    )
    workers: int | None = option(
        None,
        "Processes at a time.",
        metavar="N",
        minimum=1,
        maximum=1024,
        default_text="CPUs",
    )
    cluster: str | None = option(
        None,
        "A Dask scheduler whose workers run the cells instead.",
        metavar="HOST:PORT",
    )

    def __post_init__(self) -> None:
        if self.cluster is not None and self.workers is not None:
            raise InputError(
                "--workers with --cluster", "a cluster has the workers that were started for it"
            )

    def folder_of(self, sweep_file: Path) -> Path:
        """Where results of the sweep in that file go."""
        return self.folder or Path("results") / f"sweep-{sweep_file.stem}"
