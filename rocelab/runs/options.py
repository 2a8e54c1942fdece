"""How a job is run on a lab: each option with that of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocelab.base.options import option

_OUTPUT = "Input and output"


@dataclass(frozen=True, slots=True)
class JobRunOptions:
    """What `run_job` takes by these names."""

    pcap: Path | None = option(
        None,
        "What the ranks' NICs send and receive, as pcapng. Uses CPU time.",
        metavar="FILE",
        panel=_OUTPUT,
    )
    allow_faults: bool = option(
        False,
        "Allow faults by hand or from the live page during the run; the result then names what "
        "disturbed it.",
        panel=_OUTPUT,
    )
