"""The file format of the queues of switch ports: buffer, traffic classes and marking.

The block `queues` of a lab's file, sizes in bytes of the modelled network, is a `QueuesSpec`;
`rocelab.planning.queues` plans the ports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from rocelab.base.units import SizeBytes
from rocelab.base.wording import RefusedError, described, shown
from rocelab.labfile.base import SpecModel
from rocelab.labfile.marking import MAX_BUFFER
from rocelab.labfile.marking import EcnSpec as EcnSpec
from rocelab.labfile.pfc import (
    MAX_CLASS,
    MAX_MEMORY,
    DynamicTh,
    Memory,
    Offset,
    Oversubscription,
    PfcSpec,
)
from rocelab.labfile.profile import ProfileSpec
from rocelab.labfile.profiles import catalog_profile
from rocelab.labfile.switchports import class_of_dscp, kind_of, usual_pfc, usual_settings

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


class QueueEngine(StrEnum):
    """What realises the queues of switch ports."""

    AUTO = "auto"
    BPF = "bpf"
    RED = "red"
    OFF = "off"


Buffer = Annotated[SizeBytes, Field(ge=1, le=MAX_BUFFER)]
Marked = Annotated[
    tuple[Annotated[int, Field(ge=0, le=TRAFFIC_CLASSES - 1)], ...],
    Field(strict=False, max_length=TRAFFIC_CLASSES),
]


def _read_profile(value: object) -> object:
    """A profile by its name in the catalog, or as a record has it. What names files was read with
    the lab's file (`rocelab.labfile.references`)."""
    if isinstance(value, Mapping | ProfileSpec) or value is None:
        return value
    if not isinstance(value, str):
        raise RefusedError(
            f"expected a name, a file or a list of files, got {described(value)}",
            "a switch model's name, or SONiC's files, such as [pg_profile_lookup.ini, qos.json]",
        )
    return catalog_profile(value)


Profile = Annotated[
    ProfileSpec | None,
    BeforeValidator(_read_profile),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "object"},
            ]
        }
    ),
]


class PortPfcSpec(SpecModel):
    """What differs of the memory of lossless classes; all that is left out is the fabric's."""

    memory: Annotated[
        Memory | None, Field(description="packet memory of a switch, for each of its ports")
    ] = None
    reserved: Annotated[
        Annotated[SizeBytes, Field(ge=0, le=MAX_MEMORY)] | None,
        Field(description="of the memory, for each port's lossless class alone"),
    ] = None
    dynamic_th: Annotated[
        DynamicTh | None,
        Field(description="XOFF is 2^dynamic_th of the free shared memory"),
    ] = None
    xoff: Annotated[
        Memory | None, Field(description="a static XOFF instead of the dynamic one")
    ] = None
    xon_offset: Annotated[
        Offset | None, Field(description="a resume comes this far below XOFF")
    ] = None
    headroom: Annotated[
        Memory | None, Field(description="memory for what arrives after XOFF, per port and class")
    ] = None
    oversubscription: Annotated[
        Oversubscription | None,
        Field(description="all ports' headroom : the pool that they share for it"),
    ] = None


class PortQueuesSpec(SpecModel):
    """What differs at the ports of a role or of links; all that is left out is the fabric's."""

    profile: Annotated[
        Profile, Field(description="a switch model by name, or its files as SONiC has them")
    ] = None
    buffer: Annotated[Buffer | None, Field(description="the most that a class of a port holds")] = (
        None
    )
    ecn: Annotated[EcnSpec | None, Field(description="when packets are marked")] = None
    marked: Annotated[Marked | None, Field(description="traffic classes that are marked")] = None
    pfc: Annotated[PortPfcSpec | None, Field(description="the memory of lossless classes")] = None


NOWHERE: dict[str, PortQueuesSpec] = {}
"""All ports have the same."""


class QueuesSpec(SpecModel):
    """Buffer, traffic classes and marking of every switch port, in bytes of the modelled network.

    A port has a queue per traffic class. Classes 5, 6 and 7 go before all others, the highest
    first; 0 to 4 share what is left, byte by byte. With a `profile` all this is as the switch's
    files say, and keys beside it override them for every port.
    """

    profile: Annotated[
        Profile,
        Field(
            description="a switch model: its name in the catalog, or its files as SONiC has them "
            "(pg_profile_lookup.ini, config_db.json, buffers.json, qos.json), or their folder"
        ),
    ] = None
    roles: Annotated[
        dict[str, PortQueuesSpec],
        Field(description="what differs at the switches of a role, by its name"),
    ] = NOWHERE
    links: Annotated[
        dict[str, PortQueuesSpec],
        Field(description="what differs at links that name it in their `queues`"),
    ] = NOWHERE
    buffer: Annotated[Buffer, Field(description="the most that a class of a port holds")] = (
        16 * 10**6
    )
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
    marked: Annotated[Marked, Field(description="traffic classes that are marked, 3 and 4")] = (
        3,
        4,
    )
    pfc: Annotated[
        PfcSpec | None,
        Field(
            description="lossless traffic classes; {}: one with defaults; left out: none, or those "
            "of the profile; false: none"
        ),
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
    def _classes_by_dscp(cls, value: object, info: ValidationInfo) -> dict[int, int]:
        if not isinstance(value, Mapping):
            raise RefusedError(
                f"expected classes by DSCP such as {{af31: 3, cs6: 5}}, got {described(value)}"
            )
        profile = info.data.get("profile")
        mapped = None if profile is None else class_of_dscp(profile, kind_of(profile))
        chosen = dict(CLASS_OF_DSCP) if mapped is None else dict(enumerate(mapped))
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

    @field_validator("pfc", mode="before")
    @classmethod
    def _none_though_a_profile_has_some(cls, value: object) -> object:
        return None if value is False else value

    @field_validator("marked")
    @classmethod
    def _in_order_and_once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _as_its_profile(self) -> Self:
        """What the file leaves out is what most ports of the profile have."""
        profile = self.profile
        if profile is None:
            profile = next((role.profile for role in self.roles.values() if role.profile), None)
        if profile is not None:
            usual = usual_settings(profile)
            for name in usual.keys() - self.model_fields_set:
                object.__setattr__(self, name, usual[name])
            if self.pfc is not None:
                missing = {
                    name: value
                    for name, value in usual_pfc(profile).items()
                    if name not in self.pfc.model_fields_set
                }
                object.__setattr__(self, "pfc", self.pfc.model_copy(update=missing))
        return self

    @model_validator(mode="after")
    def _links_share_their_switches_memory(self) -> Self:
        for name, link in self.links.items():
            for key in ("memory", "oversubscription"):
                if link.pfc is not None and getattr(link.pfc, key) is not None:
                    raise RefusedError(
                        f"expected no {key} of a link, as all ports of a switch share its memory",
                        f"set it in queues.roles, or leave {key} out",
                        keys=(("links", name, "pfc", key),),
                    )
        return self

    @model_validator(mode="after")
    def _classes_of_control_are_never_paused(self) -> Self:
        if self.pfc is not None and self.profile is None and self.pfc.classes[-1] > MAX_CLASS:
            raise RefusedError(
                f"expected lossless classes from 0 to {MAX_CLASS}, got {self.pfc.classes[-1]}",
                "classes 5 to 7 are those of CNPs, ACKs and control; only a switch's profile may "
                "pause them",
                keys=(("pfc", "classes"),),
            )
        return self

    @model_validator(mode="after")
    def _lossless_classes_have_their_engine(self) -> Self:
        if self.pfc is not None and self.engine in (QueueEngine.RED, QueueEngine.OFF):
            raise RefusedError(
                f"expected engine bpf or auto where classes are lossless, got {self.engine}",
                "the queues of no other engine can be paused: leave engine or pfc out",
                keys=("engine", "pfc"),
            )
        return self
