"""The file format of the queues of switch ports: buffer, traffic classes and marking.

The block `queues` of a lab's file, sizes in bytes of the modelled network, is a `QueuesSpec`;
`rocelab.planning.queues` plans the ports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from rocelab.base.units import SIZE, SizeBytes
from rocelab.base.wording import RefusedError, described, shown
from rocelab.labfile.base import SpecModel
from rocelab.labfile.pfc import PfcSpec

MAX_BUFFER = 64 * 10**9

TRAFFIC_CLASSES = 8
DSCPS = 64
DATA_DSCP, ACK_DSCP, CNP_DSCP = 26, 46, 48
"""What a job's packets have unless its `transport` says otherwise: data, ACKs and NAKs, and, as
from ConnectX NICs, CNPs."""
CLASS_OF_DSCP = {ACK_DSCP: 6, CNP_DSCP: 5}
"""DSCPs whose class is not DSCP / 8."""
DSCP_NAMES = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{drop}": 8 * n + 2 * drop for n in range(1, 5) for drop in range(1, 4)},
    "ef": 46,
}
"""RFC 2474, RFC 2597 and RFC 3246."""


class EcnSpec(SpecModel):
    """WRED/ECN marking line of a queue: 0 below kmin, rising to pmax at kmax, 1 above."""

    kmin: Annotated[
        SizeBytes, Field(ge=1, le=MAX_BUFFER, description="queue above which packets are marked")
    ] = 800 * 10**3
    kmax: Annotated[
        SizeBytes,
        Field(ge=1, le=MAX_BUFFER, description="queue above which every packet is marked"),
    ] = 3200 * 10**3
    pmax: Annotated[float, Field(gt=0, le=1, description="probability of a mark at kmax")] = 0.2

    @model_validator(mode="after")
    def _a_rising_line(self) -> Self:
        if self.kmax <= self.kmin:
            raise RefusedError(
                f"expected kmax to be above kmin ({SIZE.written(self.kmin)}), "
                f"got {SIZE.written(self.kmax)}",
                "marking rises from kmin to kmax",
                keys=("kmax", "kmin"),
            )
        return self


class QueueEngine(StrEnum):
    """What realises the queues of switch ports."""

    AUTO = "auto"
    BPF = "bpf"
    RED = "red"
    OFF = "off"


class QueuesSpec(SpecModel):
    """Buffer, traffic classes and marking of every switch port, in bytes of the modelled network.

    A port has a queue per traffic class. Classes 5, 6 and 7 go before all others, the highest
    first; 0 to 4 share what is left, byte by byte.
    """

    buffer: Annotated[
        SizeBytes, Field(ge=1, le=MAX_BUFFER, description="the most that a class of a port holds")
    ] = 16 * 10**6
    ecn: Annotated[EcnSpec, Field(description="when packets are marked")] = EcnSpec()
    dscp: Annotated[
        dict[int, int],
        Field(
            description="traffic classes of DSCPs; those not given are DSCP / 8, but 46 is 6 and "
            "48 is 5",
            json_schema_extra={
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    dscp: {"type": "integer", "minimum": 0, "maximum": TRAFFIC_CLASSES - 1}
                    for dscp in (*DSCP_NAMES, *map(str, range(DSCPS)))
                },
            },
        ),
    ] = CLASS_OF_DSCP
    marked: Annotated[
        tuple[Annotated[int, Field(ge=0, le=TRAFFIC_CLASSES - 1)], ...],
        Field(
            strict=False,
            max_length=TRAFFIC_CLASSES,
            description="traffic classes that are marked, 3 and 4",
        ),
    ] = (3, 4)
    pfc: Annotated[
        PfcSpec | None,
        Field(description="lossless traffic classes; {}: one with defaults; left out: none"),
    ] = None
    engine: Annotated[
        QueueEngine,
        Field(
            strict=False,
            description="bpf: a BPF program marks; red: the kernel's sch_red does; auto: bpf where "
            "it runs, else red, else off; off: ports without rate or queue",
        ),
    ] = QueueEngine.AUTO

    @field_validator("dscp", mode="before")
    @classmethod
    def _classes_by_dscp(cls, value: object) -> dict[int, int]:
        if not isinstance(value, Mapping):
            raise RefusedError(
                f"expected classes by DSCP such as {{af31: 3, cs6: 5}}, got {described(value)}"
            )
        chosen = dict(CLASS_OF_DSCP)
        for key, traffic_class in value.items():
            number = str(DSCP_NAMES.get(key, key))
            if not re.fullmatch(r"[0-9]{1,2}", number) or int(number) >= DSCPS:
                raise RefusedError(
                    f"expected a DSCP, got {shown(key)}",
                    f"a name such as af31, cs6 or ef, or a number from 0 to {DSCPS - 1} in quotes",
                    keys=(str(key),),
                )
            if type(traffic_class) is not int or not 0 <= traffic_class < TRAFFIC_CLASSES:
                raise RefusedError(
                    f"expected a traffic class from 0 to {TRAFFIC_CLASSES - 1}, "
                    f"got {described(traffic_class)}",
                    "3 and 4 are for data, 5 for CNPs, 6 for ACKs",
                    keys=(str(key),),
                )
            chosen[int(number)] = traffic_class
        return chosen

    @field_validator("marked")
    @classmethod
    def _in_order_and_once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _lossless_classes_have_their_engine(self) -> Self:
        if self.pfc is not None and self.engine in (QueueEngine.RED, QueueEngine.OFF):
            raise RefusedError(
                f"expected engine bpf or auto where classes are lossless, got {self.engine}",
                "the queues of no other engine can be paused: leave engine or pfc out",
                keys=("engine", "pfc"),
            )
        return self
