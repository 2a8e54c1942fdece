"""`python -m bench.steering`: the steering program's cost per packet, scheme by scheme.

Uses a lab of two racks under four spines, without port queues. The loop in C sends one RoCE packet
as fast as it can over three switches; schemes take turns within a round, so that each is compared
with `ecmp`, which has no program, on the same machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import TypeAdapter

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.study import Measure, Series, Study
from bench.senders import Sender
from bench.throughput import measure_sender
from rocelab import Lab, LabSpec, plan
from rocelab.labfile.schemes.scheme_spec import SchemeSpec

SCHEMES = ("ecmp", "e-ecmp", "path-pinning", "flowlet", "spray")
SWITCHES = 3
TURNS = 5


def lab() -> Lab:
    """Links of 40 Gb/s: more than the machine can fill."""
    document = {
        "name": "bench-steering",
        "fabric": {"kind": "clos", "racks": 2, "spines": 4, "servers_per_rack": 1},
        "dilation": 10,
        "queues": {"engine": "off"},
    }
    return Lab(plan(LabSpec.model_validate(document)))


@contextmanager
def _lab(_: Sequence[str]) -> Iterator[Measure]:
    schemes: TypeAdapter[SchemeSpec] = TypeAdapter(SchemeSpec)
    with lab().brought_up() as bench:

        def rate(kind: str) -> float:
            bench.steering.set_scheme(schemes.validate_python(kind))
            sent = measure_sender(bench, Sender.FRAME_LOOP_IN_C, steered=False)
            return sent.packets_per_s

        yield rate


def figures(document: Document) -> dict[str, Any]:
    """Of each scheme its rates, and turn by turn its share of ecmp's and its cost for a switch."""
    rows = []
    plain = document.samples("ecmp")
    for kind, rates in document.measured.items():
        pairs = list(zip(rates, plain, strict=False))
        shares = [rate / base for rate, base in pairs]
        costs = [(1e9 / rate - 1e9 / base) / SWITCHES for rate, base in pairs]
        rows.append((kind, rates, shares, costs))
    return {"rows": rows}


STUDY = Study(
    name="steering",
    about="the steering program's cost per packet, scheme by scheme",
    series=lambda: [Series({kind: kind for kind in SCHEMES}, _lab, TURNS)],
    figures=figures,
    is_published=False,
)

if __name__ == "__main__":
    command.run(STUDY.name)
