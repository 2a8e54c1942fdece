"""How NICs send, as a user writes it: queue pairs, packets, markings, congestion control; or the
kernel's TCP.

Validates the block `transport` of a job as a `TransportSpec`, with times in ns of the modelled
network and sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from rocelab.base.units import SIZE, DurationNs, SizeBytes
from rocelab.base.wording import RefusedError, described, did_you_mean, listed, shown
from rocelab.jobs.congestion import AnyCongestion, CongestionSpec, DcqcnSpec
from rocelab.jobs.dcqcn_profiles import PROFILES
from rocelab.jobs.sport import SourcePort
from rocelab.labfile.base import MS, SECOND, SpecModel, short_form
from rocelab.labfile.queues import ACK_DSCP, CNP_DSCP, DATA_DSCP

MIB = 2**20
MAX_SIZE = 64 * 10**9
MAX_MESSAGE = 2**31
"""The longest message of an RC queue pair (InfiniBand Architecture Specification 9.7.7)."""

MAX_PATH_MTU = 9216
MAX_WINDOW = 2**22
MAX_DURATION = 600 * SECOND
DCQCN_OFF = "off"

Dscp = Annotated[int, Field(ge=0, le=63)]


class TransportKind(StrEnum):
    """Who carries a job's sends."""

    ROCE = "roce"
    """RoCEv2's reliable connections, whose NICs the kit plays."""
    TCP = "tcp"
    """Sockets of the servers' kernel."""


class CongestionControl(StrEnum):
    """Congestion controls of Linux's TCP (tcp(7), TCP_CONGESTION)."""

    CUBIC = "cubic"
    BBR = "bbr"
    RENO = "reno"


class Strategy(StrEnum):
    """How messages are distributed over the queue pairs of a connection."""

    SPLIT = "split"
    ROUND_ROBIN = "round-robin"


class Ecn(StrEnum):
    """The ECN field of data packets as they leave the NIC (RFC 3168 section 5)."""

    ECT0 = "ect0"
    NOT_ECT = "not-ect"
    CE = "ce"


class AdmissionSpec(SpecModel):
    """Receiver-driven admission: a sender waits until the receiver has cleared room for the
    data."""

    channels: Annotated[
        int, Field(ge=1, le=64, description="buffers that the receiver has per connection")
    ] = 1
    buffer: Annotated[
        SizeBytes,
        Field(ge=256, le=MAX_SIZE, description="size of one; NCCL's NCCL_BUFFSIZE is 4MiB"),
    ] = 4 * MIB


class TransportSpec(SpecModel):
    """Reliable connections between NICs: queue pairs, packets, markings and congestion control; or,
    with `kind: tcp`, connections of the kernel, which decides on packets itself."""

    kind: Annotated[
        TransportKind,
        Field(
            strict=False,
            description="roce: queue pairs of RoCEv2; tcp: the kernel's own TCP, which has the "
            "keys congestion_control, connections, rto_min and dscp only",
        ),
    ] = TransportKind.ROCE
    congestion_control: Annotated[
        Annotated[CongestionControl, Field(strict=False)] | None,
        Field(description="of tcp: cubic, which is the default, bbr or reno"),
    ] = None
    connections: Annotated[
        Annotated[int, Field(ge=1, le=256)] | None,
        Field(
            description="of tcp: connections from a rank to another, 1 if left out; each carries "
            "a part of every send"
        ),
    ] = None
    rto_min: Annotated[
        Annotated[DurationNs, Field(gt=0, le=MAX_DURATION)] | None,
        Field(
            description="of tcp: the least retransmission timeout, 200 ms if left out; the lab "
            "has it times the dilation, as far as Linux lets it"
        ),
    ] = None
    qps: Annotated[
        int, Field(ge=1, le=256, description="queue pairs per connection of two NICs")
    ] = 1
    strategy: Annotated[
        Strategy,
        Field(
            strict=False,
            description="split: every message over all queue pairs; round-robin: each over the "
            "next one",
        ),
    ] = Strategy.ROUND_ROBIN
    message: Annotated[
        SizeBytes,
        Field(ge=1, le=MAX_MESSAGE, description="a send is cut into messages of at most this"),
    ] = MIB
    mtu: Annotated[
        int,
        Field(
            ge=256,
            le=MAX_PATH_MTU,
            json_schema_extra={"multipleOf": 2},
            description="path MTU: bytes of payload per packet, even; RoCE's are 256, 512, 1024, "
            "2048 and 4096, and labs carry no more",
        ),
    ] = 4096
    window: Annotated[
        int,
        Field(ge=1, le=MAX_WINDOW, description="unacknowledged packets of a queue pair at most"),
    ] = 512
    ack_every: Annotated[
        int, Field(ge=1, le=MAX_WINDOW, description="packets that one ACK is sent for")
    ] = 16
    ack_timeout: Annotated[
        DurationNs,
        Field(gt=0, le=MAX_DURATION, description="silence after which packets are sent again"),
    ] = MS
    retries: Annotated[
        int, Field(ge=0, le=7, description="timeouts and NAKs in a row that a queue pair survives")
    ] = 7
    out_of_order: Annotated[
        bool,
        Field(
            description="receivers accept packets in any order, as NICs for sprayed traffic do; "
            "only ack_timeout then detects a loss; false: go-back-N, as RoCE was specified"
        ),
    ] = False
    selective_repeat: Annotated[
        bool,
        Field(
            description="receivers keep packets beyond a gap, NAKs name it, and senders resend "
            "only missing packets, as IRN; simulated with packets only, as labs go back N"
        ),
    ] = False
    source_port: Annotated[
        SourcePort,
        Field(
            strict=False,
            description="UDP source port: fixed for all, per-qp, Linux's flow-label formula or "
            "that of its software RoCE, rxe",
        ),
    ] = SourcePort.PER_QP
    dscp: Annotated[
        Dscp, Field(description=f"DSCP of data packets; {DATA_DSCP} if left out, 0 with tcp")
    ] = DATA_DSCP
    ack_dscp: Annotated[Dscp, Field(description="DSCP of ACKs and NAKs")] = ACK_DSCP
    cnp_dscp: Annotated[Dscp, Field(description="DSCP of congestion notifications (CNP)")] = (
        CNP_DSCP
    )
    ecn: Annotated[
        Ecn,
        Field(
            strict=False,
            description="ect0: switches may mark; not-ect: they drop instead; ce: all leave marked",
        ),
    ] = Ecn.ECT0
    dcqcn: Annotated[
        str,
        WithJsonSchema({"enum": [DCQCN_OFF, False, *PROFILES]}),
        Field(description=f"congestion control: off, or parameters: {', '.join(PROFILES)}"),
    ] = DCQCN_OFF
    congestion: Annotated[
        AnyCongestion | None,
        Field(
            description="another congestion control than by dcqcn, with its parameters; simulated "
            "with packets only"
        ),
    ] = None
    admission: Annotated[
        AdmissionSpec | None,
        short_form({"type": "boolean"}),
        Field(
            description="clear-to-send before data; true: the default buffers; false or left out: "
            "none"
        ),
    ] = None

    @property
    def is_tcp(self) -> bool:
        """Whether the kernel carries it."""
        return self.kind is TransportKind.TCP

    @property
    def queue_pairs(self) -> int:
        """Queue pairs of a connection: those for data, then the one for clear-to-sends if any."""
        return self.qps + (self.admission is not None)

    @property
    def control(self) -> CongestionSpec | None:
        """Its congestion control, None without."""
        return self.congestion if self.dcqcn == DCQCN_OFF else DcqcnSpec(profile=self.dcqcn)

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> Self:
        others = ROCE_KEYS if self.is_tcp else TCP_KEYS
        fields = type(self).model_fields
        # A key with its default is as good as left out.
        wrong = [key for key in others if getattr(self, key) != fields[key].default]
        if wrong:
            means = f"{listed(wrong, 'and')} {'means' if len(wrong) == 1 else 'mean'}"
            raise RefusedError(
                f"{means} nothing with kind: {self.kind}",
                "remove it" if self.is_tcp else "remove it, or write kind: tcp",
                keys=tuple(wrong),
            )
        if self.is_tcp:
            # What it is as queue pairs, which simulated fluids take it for: no window holds it
            # back, and each send is a part on every connection. The model is frozen, but the
            # validator still completes it.
            held = {"qps": self.connections or 1, "strategy": Strategy.SPLIT, "window": MAX_WINDOW}
            if "dscp" not in self.model_fields_set:
                held["dscp"] = TCP_DSCP
            for key, value in held.items():
                object.__setattr__(self, key, value)
        return self

    @model_serializer(mode="wrap")
    def _only_its_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        others = ROCE_KEYS if self.is_tcp else ("kind", *TCP_KEYS)
        return {key: value for key, value in handler(self).items() if key not in others}

    @field_validator("dcqcn", mode="before")
    @classmethod
    def _a_known_profile(cls, value: object) -> object:
        # YAML parses a bare `off` as false.
        if value is False or value == DCQCN_OFF:
            return DCQCN_OFF
        if isinstance(value, str) and value in PROFILES:
            return value
        words = [DCQCN_OFF, *PROFILES]
        raise RefusedError(
            f"expected {listed(words)}, got {shown(value)}",
            did_you_mean(value, words) if isinstance(value, str) else None,
        )

    @field_validator("mtu")
    @classmethod
    def _an_even_mtu(cls, value: int) -> int:
        if value % 2:
            raise RefusedError(f"expected an even number, got {value}", f"{value - 1} is one")
        return value

    @field_validator("admission", mode="before")
    @classmethod
    def _admission_on_or_off(cls, value: object) -> object:
        if isinstance(value, bool):
            return AdmissionSpec() if value else None
        if value is None or isinstance(value, Mapping | AdmissionSpec):
            return value
        raise RefusedError(
            f"expected true, false or a block of keys (channels, buffer), got {described(value)}"
        )

    @model_validator(mode="after")
    def _one_congestion_control(self) -> Self:
        if self.congestion is not None and self.dcqcn != DCQCN_OFF:
            raise RefusedError(
                f"DCQCN ({self.dcqcn}) and {self.congestion.kind}: a NIC has one congestion "
                "control",
                "keep dcqcn or congestion, one of the two",
                keys=("dcqcn", "congestion"),
            )
        if isinstance(self.congestion, DcqcnSpec):
            # The model is frozen, but the validator still completes it.
            object.__setattr__(self, "dcqcn", self.congestion.profile)
            object.__setattr__(self, "congestion", None)
        return self

    @model_validator(mode="after")
    def _marks_reach_dcqcn(self) -> Self:
        if self.dcqcn != DCQCN_OFF and self.ecn is Ecn.NOT_ECT:
            raise RefusedError(
                f"DCQCN ({self.dcqcn}) never acts on packets that are not ECN-capable",
                "set ecn: ect0, or dcqcn: off",
                keys=("ecn", "dcqcn"),
            )
        return self

    @model_validator(mode="after")
    def _one_kind_of_receiver(self) -> Self:
        if self.out_of_order and self.selective_repeat:
            raise RefusedError(
                "a gap causes no NAK where packets may come in any order",
                "keep out_of_order or selective_repeat, one of the two",
                keys=("out_of_order", "selective_repeat"),
            )
        return self

    @model_validator(mode="after")
    def _a_message_fits_the_buffers(self) -> Self:
        if self.admission is not None:
            room = self.admission.channels * self.admission.buffer
            if self.message > room:
                raise RefusedError(
                    f"a message of {SIZE.written(self.message)} is never cleared to send: the "
                    f"receiver's buffers hold {SIZE.written(room)}",
                    "shorten message, or raise admission.channels or admission.buffer",
                    keys=("message", "admission"),
                )
        return self


def message_bytes(transport: TransportSpec) -> int:
    """The longest message: of the transport, or a receiver's buffer where that is shorter."""
    if transport.admission is None:
        return transport.message
    return min(transport.message, transport.admission.buffer)


TCP_KEYS = ("congestion_control", "connections", "rto_min")
ROCE_KEYS = tuple(
    key for key in TransportSpec.model_fields if key not in ("kind", "dscp", *TCP_KEYS)
)
TCP_DSCP = 0
"""Best effort (RFC 2474 section 4.1), as of sockets that ask for nothing."""
