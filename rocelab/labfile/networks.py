"""The file format of labs with several networks, such as a back end and a front end.

The block `networks` has by name what a lab with one fabric has at its top. Nothing routes between
networks: they share servers, which do not forward. A switch of any network but the first begins
with the network's name, unless a graph names it; the servers of a regular kind are those of the
first network, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_network
from itertools import combinations
from typing import Annotated, Any, Self, cast

from pydantic import Field, ValidationError, model_validator

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.wording import (
    RefusedError,
    described,
    did_you_mean,
    listed,
    name_hint,
    shown,
)
from rocelab.fabrics.addressing import ASN_BASE, default_space
from rocelab.fabrics.graph import check_name, overlap
from rocelab.fabrics.homes import HomeCounts
from rocelab.fabrics.layout import Attachment, Cable, Layout, Site
from rocelab.labfile.addresses import POOLS
from rocelab.labfile.base import Name, SpecModel
from rocelab.labfile.model import LabSpec

MOST_NETWORKS = 8
ASNS_OF_NETWORK = 10**7
"""The AS numbers that the kit gives switches of the second network begin this far above those of
the first."""
WHOLE = ("name", "management", "dilation")
"""What all networks of a lab have together."""
_UNNAMED = "lab"


class NetworkPlace(SpecModel):
    """The place of a network in its lab."""

    network: str
    number: int
    """From 0."""
    servers: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The servers that networks before it have, those of the first network first."""
    alike: Annotated[int, Field(ge=0)] = 0
    """How many of them are the first network's."""


class NetworkSpec(LabSpec):
    """A network of a lab with several, as if it were the lab; `place` is not of the file."""

    place: NetworkPlace

    def kind_layout(self) -> Layout:
        """The layout of its kind, with the names that nodes have in the lab: the first servers are
        those of the first network, and others its own. Raises RefusedError for fewer servers."""
        layout = super().kind_layout()
        if self.place.number == 0 or not self.fabric.is_regular:
            return layout
        servers = [site.name for site in layout.sites if not site.role.is_switch]
        if servers and len(servers) < self.place.alike:
            raise RefusedError(
                f"network {self.place.network} has {len(servers):,} servers, and the first network "
                f"{self.place.alike:,}",
                "the first servers of a regular fabric are those of the first network, in their "
                "order: give it as many or more, or draw it with kind: graph",
                keys=(("fabric",),),
            )
        shared = self.place.servers[: self.place.alike]
        names = dict(zip(servers, shared, strict=False))
        for site in layout.sites:
            if site.name not in names:
                names[site.name] = f"{self.place.network}-{site.name}"
                check_name(names[site.name], ("fabric",))
        return _renamed(layout, names)

    def network(self, name: str | None = None) -> LabSpec:
        """Itself. Raises InputError for another name."""
        return self if name == self.place.network else super().network(name)

    def layout(self) -> Layout:
        """As of a lab, with AS numbers that no other network has where the file gives none."""
        layout = super().layout()
        above = self.place.number * ASNS_OF_NETWORK

        def is_fixed(site: Site) -> bool:
            return site.asn_is_given or site.role.name in self.addresses.asns

        return replace(
            layout,
            sites=tuple(
                site
                if site.asn is None or site.asn < ASN_BASE or is_fixed(site)
                else replace(site, asn=site.asn + above)
                for site in layout.sites
            ),
        )

    @model_validator(mode="after")
    def _has_no_tenants(self) -> Self:
        if self.tenants:
            raise RefusedError(
                "expected no tenants: a lab with several networks has none",
                "give the network with tenants a lab of its own",
                keys=(("tenants",),),
            )
        return self

    @model_validator(mode="after")
    def _is_routed_by_the_kit(self) -> Self:
        if self.routing.is_own:
            raise RefusedError(
                "expected the kit's own policy: a lab with several networks does not run files, "
                "templates or a policy that decides routes",
                "leave routing.config, routing.templates and such policies out, or give the "
                "network a lab of its own",
                keys=(("routing", "config"), ("routing", "templates"), ("routing", "policy")),
            )
        return self


class NetworksLabSpec(LabSpec):
    """A lab with several networks. What `LabSpec` has of a fabric is the first network's, which
    commands take unless they are told another."""

    networks: Mapping[str, NetworkSpec]

    @classmethod
    def of(cls, networks: Mapping[str, NetworkSpec]) -> NetworksLabSpec:
        """The lab of these networks, which agree on what they have together."""
        first = next(iter(networks.values()))
        values = {name: getattr(first, name) for name in LabSpec.model_fields}
        return cls.model_construct(**values, networks=networks)

    def network(self, name: str | None = None) -> LabSpec:
        """The network of that name; the first without one. Raises InputError."""
        if name is None:
            return next(iter(self.networks.values()))
        if name not in self.networks:
            raise InputError(
                f"lab {self.name} has no network {shown(name)}", name_hint(name, self.networks)
            )
        return self.networks[name]

    def counts(self) -> HomeCounts:
        """The size of the lab; NICs are those of the first network, one for each GPU."""
        sizes = [network.counts() for network in self.networks.values()]
        sites = (site for network in self.networks.values() for site in network.layout().sites)
        return HomeCounts(
            switches=sum(size.switches for size in sizes),
            servers=len({site.name for site in sites if not site.role.is_switch}),
            nics=sizes[0].nics,
            sessions=sum(size.sessions for size in sizes),
            addresses=sum(size.addresses for size in sizes),
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of fabric of its networks."""
        return tuple(dict.fromkeys(one.fabric.kind for one in self.networks.values()))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy. What is given of one network, such as a scheme, changes in all."""
        changes = dict(update or {})
        networks: Mapping[str, NetworkSpec] = changes.pop("networks", self.networks)
        copies = {
            name: network.model_copy(update=changes, deep=deep)
            for name, network in networks.items()
        }
        return cast("Self", self.of(copies))

    @classmethod
    def recorded(cls, document: Mapping[str, Any]) -> NetworksLabSpec:
        """The lab of a record or a result. Raises ValueError."""
        networks = document["networks"]
        if not isinstance(networks, Mapping) or not networks:
            raise ValueError("networks: expected a network")
        return cls.of({name: NetworkSpec.model_validate(block) for name, block in networks.items()})


class NetworksFile(SpecModel):
    """The file of a lab with several networks."""

    name: Annotated[Name, Field(description="names the lab's namespaces and files")]
    networks: Annotated[
        Mapping[Name, NetworkSpec],
        Field(
            min_length=1,
            max_length=MOST_NETWORKS,
            description="by name, what a lab with one network has at its top, the back end first",
        ),
    ]
    management: Annotated[bool, Field(description="as of a lab with one network")] = False
    dilation: Annotated[
        float, Field(ge=1, le=10**9, description="as of a lab with one network")
    ] = LabSpec.model_fields["dilation"].default

    @model_validator(mode="before")
    @classmethod
    def _networks_have_places(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        for key in LabSpec.model_fields:
            if key in value and key not in cls.model_fields:
                raise RefusedError(
                    f"expected no {key} beside networks, each of which has its own",
                    f"move it into networks, such as networks.backend.{key}"
                    + "; or draw all with kind: graph, whose nodes name their network"
                    * (key == "fabric"),
                    keys=((key,),),
                )
        networks = value.get("networks")
        if not isinstance(networks, Mapping) or not 0 < len(networks) <= MOST_NETWORKS:
            raise RefusedError(
                f"expected 1 to {MOST_NETWORKS} networks by name, got "
                + (str(len(networks)) if isinstance(networks, Mapping) else described(networks)),
                "such as networks: {backend: {fabric: ...}, frontend: {fabric: ...}}",
                keys=(("networks",),),
            )
        return {**value, "networks": dict(_placed(networks))}

    @model_validator(mode="after")
    def _networks_are_apart(self) -> Self:
        _check_names(self.networks)
        _check_pools(self.networks)
        return self

    @property
    def lab(self) -> NetworksLabSpec:
        """The lab that the file describes."""
        whole = {key: getattr(self, key) for key in WHOLE}
        return NetworksLabSpec.of(
            {name: network.model_copy(update=whole) for name, network in self.networks.items()}
        )


def _placed(networks: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Each network's block with its place, and with pools that no other network has."""
    servers: dict[str, None] = {}
    alike = 0
    for number, (name, block) in enumerate(networks.items()):
        allowed = [key for key in LabSpec.model_fields if key not in WHOLE]
        if not isinstance(block, Mapping):
            raise RefusedError(
                f"expected a block of keys ({', '.join(allowed)}), got {described(block)}",
                keys=(("networks", name),),
            )
        for key in block:
            if key in WHOLE:
                raise RefusedError(
                    f"expected no {key} of a network: all networks of a lab have one",
                    f"set {key} at the top of the file",
                    keys=(("networks", name, key),),
                )
            if key not in allowed:
                raise RefusedError(
                    "unknown key",
                    did_you_mean(str(key), allowed)
                    or f"the keys allowed here: {', '.join(allowed)}",
                    keys=(("networks", name, key),),
                )
        place = {"network": name, "number": number, "servers": tuple(servers), "alike": alike}
        addresses = _with_pools(block.get("addresses", {}), number, len(networks))
        made = {**block, "name": _UNNAMED, "place": place, "addresses": addresses}
        yield name, made
        if number < len(networks) - 1:
            with suppress(ValidationError):  # which the network's own validation shows
                sites = NetworkSpec.model_validate(made).layout().sites
                servers |= dict.fromkeys(site.name for site in sites if not site.role.is_switch)
        alike = alike or len(servers)


def _with_pools(addresses: object, number: int, count: int) -> object:
    """`addresses` with a part of the space for benchmarks for each pool that it does not give."""
    if not isinstance(addresses, Mapping):
        return addresses
    shares = []
    families = {"ipv6": (Family.IPV6,), "dual": (Family.IPV4, Family.IPV6)}
    for family in families.get(str(addresses.get("family")), (Family.IPV4,)):
        space = ip_network(default_space(family))
        parts = list(space.subnets(prefixlen_diff=(count - 1).bit_length()))
        shares.append(str(parts[number]))
    return {**dict.fromkeys(POOLS, shares), **addresses}


def _renamed(layout: Layout, names: Mapping[str, str]) -> Layout:
    def of(name: str) -> str:
        return names.get(name, name)

    return Layout(
        tuple(replace(site, name=of(site.name)) for site in layout.sites),
        tuple(
            Attachment(of(nic.server), tuple(map(of, nic.switches)), nic.wiring)
            for nic in layout.attachments
        ),
        tuple(
            Cable(of(cable.lower), of(cable.upper), cable.parallel, cable.wiring)
            for cable in layout.cables
        ),
    )


def _check_names(networks: Mapping[str, NetworkSpec]) -> None:
    """Raises RefusedError if two networks have a switch of one name, or a server of one has the
    name of a switch of another."""
    owner: dict[str, tuple[str, bool]] = {}
    for name, network in networks.items():
        for site in network.layout().sites:
            other, is_switch = owner.setdefault(site.name, (name, site.role.is_switch))
            if other != name and (is_switch or site.role.is_switch):
                raise RefusedError(
                    f"{site.name} is in network {other} and, as another node, in {name}",
                    "servers may be in several networks, switches in one: draw a switch that keeps "
                    "networks apart by VRFs once in each, with names that differ",
                    keys=(("networks", name, "fabric"),),
                )


def _check_pools(networks: Mapping[str, NetworkSpec]) -> None:
    """Raises RefusedError for networks of other families or stacks, or with addresses in common."""
    first = next(iter(networks.values()))
    for name, network in networks.items():
        if network.routing.stack != first.routing.stack:
            raise RefusedError(
                f"network {name} runs {network.routing.stack}, and the first {first.routing.stack}",
                "all switches of a lab run one routing stack",
                keys=(("networks", name, "routing", "stack"), ("networks", name)),
            )
        if network.addresses.family is not first.addresses.family:
            raise RefusedError(
                f"network {name} is {network.addresses.family}, and the first "
                f"{first.addresses.family}",
                "a server's kernel has one setting: give all networks the same family",
                keys=(("networks", name, "addresses", "family"), ("networks", name)),
            )
    for (one_name, one), (other_name, other) in combinations(networks.items(), 2):
        for family in first.addresses.families:
            for text in other.addresses.pools(family).prefixes:
                clash = [
                    pool
                    for pool in one.addresses.pools(family).prefixes
                    if overlap(ip_network(pool), ip_network(text))
                ]
                if clash:
                    raise RefusedError(
                        f"{text} of network {other_name} overlaps {listed(clash)} of {one_name}",
                        "give the networks prefixes apart: a server reaches one over each",
                        keys=(("networks", other_name, "addresses"), ("networks", other_name)),
                    )
