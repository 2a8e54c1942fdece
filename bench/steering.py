"""`python -m bench.steering`: the steering program's cost per packet, scheme by scheme.

Uses a lab of two racks under four spines, without port queues. The loop in C sends one RoCE packet
as fast as it can over three switches; schemes take turns within a round, so that each is compared
with `ecmp`, which has no program, on the same machine. Prints a table.
"""

from __future__ import annotations

from statistics import median
from typing import Annotated

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from bench.senders import Sender
from bench.throughput import measure_sender
from rocelab import Lab, LabSpec, plan
from rocelab.base.interruption import ending
from rocelab.labfile.schemes.scheme_spec import SchemeSpec

SCHEMES = ("ecmp", "e-ecmp", "path-pinning", "flowlet", "spray")
SWITCHES = 3


def lab() -> Lab:
    """Links of 40 Gb/s: more than the machine can fill."""
    document = {
        "name": "bench-steering",
        "fabric": {"kind": "clos", "racks": 2, "spines": 4, "servers_per_rack": 1},
        "dilation": 10,
        "queues": {"engine": "off"},
    }
    return Lab(plan(LabSpec.model_validate(document)))


def main(
    rounds: Annotated[int, typer.Option(min=1, help="times that every scheme has its turn")] = 5,
) -> None:
    """Measure every scheme beside ecmp."""
    console = Console(highlight=False)
    measured: dict[str, list[float]] = {kind: [] for kind in SCHEMES}
    planned = lab()
    schemes: TypeAdapter[SchemeSpec] = TypeAdapter(SchemeSpec)
    with planned.brought_up() as bench:
        for number in range(1, rounds + 1):
            for kind in SCHEMES:
                bench.steering.set_scheme(schemes.validate_python(kind))
                rate = measure_sender(bench, Sender.FRAME_LOOP_IN_C, steered=False)
                measured[kind].append(rate.packets_per_s)
            Console(stderr=True).print(f"round {number} of {rounds}")
    grid = Table("scheme", "packets/s", "lowest", "highest", "of ecmp", "ns per switch")
    for kind, rates in measured.items():
        pairs = list(zip(rates, measured["ecmp"], strict=True))
        share = median(rate / plain for rate, plain in pairs)
        cost = median((1e9 / rate - 1e9 / plain) / SWITCHES for rate, plain in pairs)
        figures = (f"{value:,.0f}" for value in (median(rates), min(rates), max(rates)))
        grid.add_row(kind, *figures, f"{share:.1%}", f"{cost:.0f}")
    console.print(grid)


if __name__ == "__main__":
    with ending():
        typer.run(main)
