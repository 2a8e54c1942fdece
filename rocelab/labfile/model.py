"""The lab spec, the file format of labs, as pydantic models.

Units are parsed and limits checked here, and nothing is derived: `rocelab.planning` plans nodes,
addresses and sessions. The limits keep interface names within Linux's 15 characters and the fabric
within 198.18.0.0/15.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.units import DURATION, DurationNs, RateBps
from rocelab.base.wording import RefusedError, described, name_hint, shown
from rocelab.fabrics.addressing import SPACE_SIZE
from rocelab.fabrics.asns import with_asns, with_own_asns
from rocelab.fabrics.door import layout_of
from rocelab.fabrics.fabric_spec import FabricSpec
from rocelab.fabrics.graph import MAX_RATE, MIN_RATE
from rocelab.fabrics.homes import HomeCounts, counted
from rocelab.fabrics.layout import CableSettings, Layout
from rocelab.fabrics.overrides import OverridesSpec, overridden
from rocelab.labfile.addresses import AddressesSpec, check_numbers
from rocelab.labfile.base import MS, SECOND, Name, SpecModel, short_form
from rocelab.labfile.configuration import (
    ConfigSpec,
    ExpectSpec,
    TemplatesSpec,
    check_names,
)
from rocelab.labfile.frr_file import START_ORDER
from rocelab.labfile.headroom import check_shared_memory, headroom_of
from rocelab.labfile.policy import PolicySpec, policy_of
from rocelab.labfile.portsettings import PortSettings
from rocelab.labfile.queues import QueuesSpec
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.scheme_spec import SCHEMES, SchemeSpec
from rocelab.labfile.servers import HostModelBlock
from rocelab.labfile.stacks import DEFAULT_STACK, stack_names
from rocelab.labfile.switchports import PlaceOfPort
from rocelab.labfile.tenants import Tenants, check_beside_tenants, check_tenants

MAX_SEED = 2**32 - 1
USUAL_CABLE_NS = 200
"""40 m of fibre, or of copper, at two thirds of the speed of light."""


class LinksSpec(SpecModel):
    """Rates, MTU and delay of the modelled network's links."""

    rate: Annotated[
        RateBps, Field(ge=MIN_RATE, le=MAX_RATE, description="rate of switch-to-switch links")
    ] = 400 * 10**9
    server_rate: Annotated[
        RateBps, Field(ge=MIN_RATE, le=MAX_RATE, description="rate of a link to a NIC")
    ] = 400 * 10**9
    mtu: Annotated[
        int,
        Field(
            ge=1280, le=65535, description="IP MTU in bytes; RoCE's 4096-byte payload needs 4156"
        ),
    ] = 9000
    delay: Annotated[
        Annotated[DurationNs, Field(ge=0, le=SECOND)] | None,
        Field(
            description="what each link adds to a packet's time, one way: its cable (5 ns a metre) "
            "and the switch at its end; if left out, labs add none, headrooms have room for 40 m "
            "and simulations take 1us"
        ),
    ] = None

    @property
    def cable_ns(self) -> int:
        """The modelled time for which what a link carries is on its cable, as pauses count it."""
        return USUAL_CABLE_NS if self.delay is None else self.delay


class Numbering(StrEnum):
    """How switch-to-switch links are addressed."""

    AUTO = "auto"
    NUMBERED = "numbered"
    UNNUMBERED = "unnumbered"


class BfdSpec(SpecModel):
    """BFD (RFC 5880) on every session: detection takes interval x multiplier."""

    interval: Annotated[
        DurationNs,
        Field(ge=10 * MS, le=60 * SECOND, description="time between control packets, both ways"),
    ] = 300 * MS
    multiplier: Annotated[
        int, Field(ge=2, le=255, description="packets missed in a row before the session is down")
    ] = 3

    @field_validator("interval")
    @classmethod
    def _whole_milliseconds(cls, value: int) -> int:
        if value % MS:
            raise RefusedError(
                f"expected whole milliseconds, got {DURATION.written(value)}",
                "FRR takes BFD intervals in milliseconds",
            )
        return value


def _stack_name(name: str) -> str:
    if name not in stack_names():
        raise RefusedError(f"there is no routing stack {name}", name_hint(name, stack_names()))
    return name


def _stack_names(schema: dict[str, object]) -> None:
    schema["enum"] = stack_names()


def _daemon(name: str) -> str:
    if name not in START_ORDER:
        raise RefusedError(f"FRR has no daemon {name}", name_hint(name, START_ORDER))
    return name


DaemonName = Annotated[str, AfterValidator(_daemon)]


class RoutingSpec(SpecModel):
    """eBGP to RFC 7938: one session per link, ECMP over equal AS-path lengths."""

    stack: Annotated[
        str,
        AfterValidator(_stack_name),
        Field(
            description="the suite of routing daemons that switches run",
            json_schema_extra=_stack_names,
        ),
    ] = DEFAULT_STACK
    numbering: Annotated[
        Numbering,
        Field(
            strict=False,
            description="numbered: a /31 per switch-to-switch link; unnumbered: IPv6 link-local "
            "(RFC 8950); auto: numbered while 198.18.0.0/15 holds it",
        ),
    ] = Numbering.AUTO
    keepalive: Annotated[
        DurationNs,
        Field(ge=SECOND, le=21845 * SECOND, description="time between BGP keepalives"),
    ] = 3 * SECOND
    hold: Annotated[
        DurationNs,
        Field(
            ge=3 * SECOND,
            le=65535 * SECOND,
            description="silence after which a BGP session is down; longer than keepalive",
        ),
    ] = 9 * SECOND
    connect_retry: Annotated[
        DurationNs,
        Field(ge=SECOND, le=65535 * SECOND, description="time between attempts to open a session"),
    ] = SECOND
    bfd: Annotated[
        BfdSpec | None,
        Field(description="BFD timers; true: the default timers; false or left out: no BFD"),
    ] = None
    max_paths: Annotated[
        int, Field(ge=1, le=256, description="most next hops of an ECMP group")
    ] = 128
    graceful_restart: Annotated[
        bool, Field(description="keep forwarding while bgpd restarts (RFC 4724)")
    ] = False
    valley_free: Annotated[
        bool,
        Field(
            description="paths go up, then down, whichever links fail; false: every switch passes "
            "on all that it learns, and packets that came down may go up again"
        ),
    ] = True
    policy: Annotated[
        Mapping[str, PolicySpec],
        Field(description="by role or node, what BGP does beside the fabric's own policy"),
    ] = Field(default_factory=dict)
    templates: Annotated[
        TemplatesSpec | None,
        Field(
            description="a folder of Jinja2 templates that extend or replace those of the kit",
        ),
        short_form({"type": "string"}),
    ] = None
    config: Annotated[
        ConfigSpec | None,
        Field(description="the files of whole switches, such as configs/{node}.conf"),
        short_form({"type": "string", "pattern": r"\{node\}"}),
    ] = None
    daemons: Annotated[
        Mapping[str, Annotated[tuple[DaemonName, ...], Field(strict=False, min_length=1)]],
        Field(
            description="by role or node, the daemons that run, where templates or files do not "
            "say it; zebra always runs"
        ),
    ] = Field(default_factory=dict)
    expect: Annotated[
        ExpectSpec | None,
        Field(
            description="what the lab has when it is whole, if its routing is the user's own; left "
            "out: what it has when its routes are first still"
        ),
    ] = None

    @field_validator("bfd", mode="before")
    @classmethod
    def _bfd_on_or_off(cls, value: object) -> object:
        if isinstance(value, bool):
            return BfdSpec() if value else None
        if value is None or isinstance(value, Mapping | BfdSpec):
            return value
        raise RefusedError(
            "expected true, false or a block of keys (interval, multiplier), "
            f"got {described(value)}"
        )

    @field_validator("keepalive", "hold", "connect_retry")
    @classmethod
    def _whole_seconds(cls, value: int) -> int:
        if value % SECOND:
            raise RefusedError(
                f"expected whole seconds, got {DURATION.written(value)}",
                "BGP timers are whole seconds (RFC 4271 section 4.2)",
            )
        return value

    @property
    def is_rendered(self) -> bool:
        """Whether the configuration is the kit's, with values of the user's or without."""
        return self.templates is None and self.config is None

    @property
    def is_own(self) -> bool:
        """Whether the user's configuration decides routes, and not the fabric's own policy."""
        return not self.is_rendered or any(policy.decides_routes for policy in self.policy.values())

    def policy_of(self, node: str, role: str) -> PolicySpec:
        """The policy of a switch."""
        return policy_of(self.policy, node, role)

    @model_validator(mode="after")
    def _expectations_are_of_own_routing(self) -> Self:
        if self.expect is not None and not self.is_own:
            raise RefusedError(
                "expected none: the kit's own policy says what a whole lab has",
                "leave routing.expect out, or give routing.config or routing.templates",
                keys=("expect",),
            )
        return self

    @model_validator(mode="after")
    def _hold_outlasts_keepalive(self) -> Self:
        if self.hold <= self.keepalive:
            raise RefusedError(
                f"expected hold to be longer than keepalive ({DURATION.written(self.keepalive)}), "
                f"got {DURATION.written(self.hold)}",
                "three times keepalive is usual (RFC 4271 section 4.4)",
                keys=("hold", "keepalive"),
            )
        return self


class HashPolicy(StrEnum):
    """What the kernel's ECMP hash reads: net.ipv4.fib_multipath_hash_policy."""

    L3 = "l3"
    L4 = "l4"
    CUSTOM = "custom"


class HashField(StrEnum):
    """What the custom policy may read of a packet: net.ipv4.fib_multipath_hash_fields."""

    SOURCE_IP = "source-ip"
    DESTINATION_IP = "destination-ip"
    PROTOCOL = "protocol"
    SOURCE_PORT = "source-port"
    DESTINATION_PORT = "destination-port"
    FLOW_LABEL = "flow-label"


_FIELDS_HINT = (
    "for example [source-ip, destination-ip, source-port]; packets of IPv4 have no flow-label"
)


class HashWeights(StrEnum):
    """How much of the hash space each next hop of a group gets."""

    EQUAL = "equal"
    PATHS = "paths"


class SeedPlan(StrEnum):
    """How hash seeds (net.ipv4.fib_multipath_hash_seed) are handed to switches."""

    PER_NODE = "per-node"
    PER_TIER = "per-tier"
    SHARED = "shared"


class HashingSpec(SpecModel):
    """The ECMP hash of every switch.

    `hashing: shared` is short for `hashing: {seed: shared}`. Equal seeds at two tiers make both
    take the same choice for every flow (polarization); seed 0 is the kernel's default, one secret
    shared by all namespaces, which polarizes too and cannot be predicted.
    """

    policy: Annotated[
        HashPolicy,
        Field(
            strict=False,
            description="l3: addresses; l4: addresses, protocol and ports; custom: `fields`",
        ),
    ] = HashPolicy.L4
    fields: Annotated[
        tuple[Annotated[HashField, Field(strict=False)], ...],
        Field(
            strict=False,  # a list of YAML
            max_length=len(HashField),
            description="what policy custom hashes: source-ip, destination-ip, protocol, "
            "source-port, destination-port, flow-label (IPv6's)",
        ),
    ] = ()
    seed: Annotated[
        Annotated[SeedPlan, Field(strict=False)] | Annotated[int, Field(ge=0, le=MAX_SEED)],
        Field(description="per-node, per-tier, shared, or a number used by every switch"),
    ] = SeedPlan.PER_NODE
    weights: Annotated[
        HashWeights,
        Field(
            strict=False,
            description="equal: next hops share the flows; paths: by the paths each still has to "
            "the destination (BGP link bandwidth)",
        ),
    ] = HashWeights.EQUAL

    @field_validator("fields")
    @classmethod
    def _in_order_and_once(cls, value: tuple[HashField, ...]) -> tuple[HashField, ...]:
        return tuple(field for field in HashField if field in value)

    @model_validator(mode="after")
    def _fields_belong_to_the_custom_policy(self) -> Self:
        if self.policy is not HashPolicy.CUSTOM:
            if self.fields:
                raise RefusedError(
                    f"expected no fields with policy {self.policy}, got {_listed(self.fields)}",
                    "set policy: custom, or leave fields out",
                    keys=("fields",),
                )
        elif not self.fields:
            raise RefusedError(
                "expected fields with policy custom, got none", _FIELDS_HINT, keys=("policy",)
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return {"seed": value}
        if isinstance(value, Mapping | HashingSpec):
            return value
        raise RefusedError(
            "expected per-node, per-tier, shared, a whole number or a block of keys "
            f"(policy, fields, seed, weights), got {described(value)}"
        )


def _listed(fields: tuple[HashField, ...]) -> str:
    return ", ".join(fields)


class LabSpec(SpecModel):
    """A lab: one fabric and everything a person may set about it."""

    name: Annotated[Name, Field(description="names the lab's namespaces and files")]
    fabric: Annotated[FabricSpec, Field(description="nodes and how they are wired")]
    overrides: Annotated[
        OverridesSpec, Field(description="nodes and links that differ from the kind of fabric")
    ] = OverridesSpec()
    addresses: Annotated[
        AddressesSpec, Field(description="where addresses and AS numbers come from")
    ] = AddressesSpec()
    links: Annotated[LinksSpec, Field(description="rates, MTU and delay")] = LinksSpec()
    routing: Annotated[RoutingSpec, Field(description="BGP, BFD and addressing")] = RoutingSpec()
    hashing: Annotated[
        HashingSpec, Field(description="how switches choose among equal paths; short form: a seed")
    ] = HashingSpec()
    scheme: Annotated[
        SchemeSpec,
        Field(description="how flows are spread over equal paths; short form: its kind"),
        short_form({"enum": list(SCHEMES)}),
    ] = EcmpScheme()
    queues: Annotated[QueuesSpec, Field(description="buffers and ECN marking")] = QueuesSpec()
    host_model: Annotated[
        HostModelBlock | None,
        Field(
            description="the type of its servers; left out: hosts take no time, in a lab their own"
        ),
    ] = None
    tenants: Annotated[
        Tenants, Field(description="by name, who shares the fabric without reaching the others")
    ] = Field(default_factory=dict)
    management: Annotated[
        bool, Field(description="an sshd in every node, reached over a management port")
    ] = False
    dilation: Annotated[
        float,
        Field(
            ge=1,
            le=10**9,
            description="how many times slower the lab's clock runs than the modelled network's",
        ),
    ] = 5000.0

    @model_validator(mode="after")
    def _steering_needs_the_l4_hash(self) -> Self:
        if self.scheme.is_steered and self.hashing.policy is not HashPolicy.L4:
            raise RefusedError(
                f"scheme {self.scheme.kind} needs hashing.policy: l4, got {self.hashing.policy}",
                "only with that policy does the kernel use a packet's own hash",
                keys=("scheme", "hashing"),
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _graphs_have_no_policy_unless_asked(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        fabric, routing = value.get("fabric"), value.get("routing", {})
        is_graph = isinstance(fabric, Mapping) and fabric.get("kind") == "graph"
        if is_graph and isinstance(routing, Mapping) and "valley_free" not in routing:
            return {**value, "routing": {**routing, "valley_free": False}}
        return value

    @model_validator(mode="after")
    def _exceptions_fit(self) -> Self:
        if not self.overrides.is_empty:
            try:
                overridden(self.kind_layout(), self.overrides)
            except RefusedError as error:
                keys = [("overrides", *path) for path in error.keys]
                raise RefusedError(error.message, error.hint, keys) from None
        return self

    @model_validator(mode="after")
    def _hash_reads_something(self) -> Self:
        is_ipv4 = self.addresses.families[0] is Family.IPV4
        if is_ipv4 and self.hashing.fields == (HashField.FLOW_LABEL,):
            raise RefusedError(
                f"expected fields with policy custom, got {HashField.FLOW_LABEL} alone",
                _FIELDS_HINT,
                keys=(("hashing", "fields"),),
            )
        return self

    @model_validator(mode="after")
    def _numbers_suffice(self) -> Self:
        if self.is_usual:
            return self  # `is_numbered` knows without a layout
        check_numbers(self.layout, self.addresses, numbered=self.is_numbered)
        return self

    @model_validator(mode="after")
    def _tenants_fit(self) -> Self:
        if self.tenants:
            check_beside_tenants(
                stack=self.routing.stack, scheme=self.scheme.kind, policy=self.hashing.policy
            )
            check_tenants(self.layout(), self.tenants, self.addresses, self.links.mtu)
        return self

    @model_validator(mode="after")
    def _lossless_classes_leave_memory_to_share(self) -> Self:
        if self.queues.pfc is None:
            return self
        links, settings = self.links, PortSettings(self.queues)
        for role in self.fabric.roles:
            pfc = settings.pfc(PlaceOfPort(role.name, 0))
            if pfc is None or settings.memory(role.name) is not None:
                continue
            to_nic, to_switch = (
                headroom_of(pfc, rate, links.mtu, links.cable_ns)
                for rate in (links.server_rate, links.rate)
            )
            if role.tier == 1:
                down, up = self.fabric.leaf_ports
                check_shared_memory(pfc, [(to_nic, down), (to_switch, up)])
            # All ports of a higher switch are alike, so any number of them has as much.
            check_shared_memory(pfc, [(to_switch, 1)])
        return self

    @model_validator(mode="after")
    def _queues_name_roles_and_links(self) -> Self:
        if self.queues.roles:
            known = sorted(set(self.switches.values()))
            for name in self.queues.roles:
                if name not in known:
                    raise RefusedError(
                        f"there is no switch of the role {shown(name)}",
                        name_hint(name, known),
                        keys=(("queues", "roles", name),),
                    )
        if not self.is_usual:
            for link_name in dict.fromkeys(wiring.queues for wiring in self._wirings()):
                if link_name is not None and link_name not in self.queues.links:
                    raise RefusedError(
                        f"links have the queues {shown(link_name)}, which are not in queues.links",
                        name_hint(link_name, list(self.queues.links)) or "add a block of that name",
                        keys=(("queues", "links"), ("queues",), ("fabric",)),
                    )
        return self

    def _wirings(self) -> Iterator[CableSettings]:
        """What cables have of their own."""
        layout = self.layout()
        for attachment in layout.attachments:
            yield from attachment.wiring
        for cable in layout.cables:
            yield cable.wiring

    @cached_property
    def has_delays(self) -> bool:
        """Whether a lab holds packets on some link."""
        of_links = () if self.is_usual else self._wirings()
        return bool(self.links.delay) or any(wiring.delay_ns for wiring in of_links)

    @property
    def is_usual(self) -> bool:
        """Whether nodes, links and addresses follow from the kind of fabric alone."""
        return (
            self.fabric.is_regular
            and self.overrides.is_empty
            and self.addresses == AddressesSpec()
            and not self.routing.is_own
            and not self.tenants
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of fabric, of a lab with several networks those of all."""
        return (self.fabric.kind,)

    def kind_layout(self) -> Layout:
        """The nodes, NICs and cables that the kind of fabric has."""
        return layout_of(self.fabric)

    def layout(self) -> Layout:
        """The nodes, NICs and cables, with the exceptions and AS numbers of the lab, in build
        order. Raises AsnsExhaustedError."""
        layout = self.kind_layout()
        if not self.routing.valley_free and self.fabric.is_regular:
            layout = with_own_asns(layout)
        layout = overridden(layout, self.overrides)
        ranges = {role: spec.range for role, spec in self.addresses.asns.items()}
        return with_asns(layout, ranges)

    def network(self, name: str | None = None) -> LabSpec:
        """The network of that name, of a lab with several; the first without one. Raises
        InputError."""
        if name is not None:
            raise InputError(
                f"lab {self.name} has no network {shown(name)}", "it has one, which has no name"
            )
        return self

    def counts(self) -> HomeCounts:
        """The size of the fabric."""
        return counted(self.layout()) if self.overrides.is_rewired else self.fabric.counts()

    @model_validator(mode="after")
    def _routing_names_roles_and_nodes(self) -> Self:
        routing = self.routing
        files = routing.config.files if routing.config is not None else {}
        blocks: dict[str, Iterable[str]] = {
            "policy": routing.policy,
            "daemons": routing.daemons,
            "expect": () if routing.expect is None else routing.expect.next_hops,
            "config": () if isinstance(files, str) else files,
        }
        if any(blocks.values()):
            switches = self.switches
            for block, names in blocks.items():
                roles = () if block == "config" else switches.values()
                check_names(block, names, {*switches, *roles})
        return self

    @property
    def switches(self) -> dict[str, str]:
        """The names of the switches, with the names of their roles."""
        sites = self.layout().sites
        return {site.name: site.role.name for site in sites if site.role.is_switch}

    @property
    def is_numbered(self) -> bool:
        """Whether links between switches have addresses: `auto` numbers them if they fit."""
        if self.routing.numbering is not Numbering.AUTO:
            return self.routing.numbering is Numbering.NUMBERED
        if self.addresses != AddressesSpec():
            return True
        counts = self.counts()
        return counts.addresses + counts.addresses % 2 + 2 * counts.sessions <= SPACE_SIZE


def differing_keys(wanted: LabSpec, running: LabSpec) -> tuple[str, ...]:
    """The keys, such as `routing.bfd`, whose values differ in two specs."""

    def keys(one: Mapping[str, object], other: Mapping[str, object], above: str) -> list[str]:
        names = []
        for key in sorted({*one, *other}):
            first, second = one.get(key), other.get(key)
            if first == second:
                continue
            if isinstance(first, dict) and isinstance(second, dict):
                names += keys(first, second, f"{above}{key}.")
            else:
                names.append(f"{above}{key}")
        return names

    of_file = {*LabSpec.model_fields, "networks"}
    first, second = (spec.model_dump(mode="json", include=of_file) for spec in (wanted, running))
    return tuple(keys(first, second, ""))
