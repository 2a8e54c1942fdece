"""The spec of a lab that other tools made, as `rocelab adopt` found it: the kind `adopted`.

Nothing is planned: every interface, address and route is one that a kernel had. Nobody writes such
a spec, so the file format of labs does not have it; records and results do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from rocelab.base.errors import InputError
from rocelab.base.wording import RefusedError, name_hint, shown
from rocelab.fabrics.door import KINDS, roles
from rocelab.labfile.base import SpecModel
from rocelab.labfile.model import LabSpec

NodeName = Annotated[str, Field(min_length=1, max_length=64)]


def _is_role(name: str) -> str:
    if name not in roles():
        raise RefusedError(f"expected a role of nodes, got {shown(name)}", name_hint(name, roles()))
    return name


RoleName = Annotated[str, AfterValidator(_is_role)]


class AdoptedNodeSpec(SpecModel):
    """A node: what it is in the graph, and what its routing daemon and its kernel said of it."""

    name: NodeName
    role: RoleName
    asn: Annotated[int | None, Field(ge=0, le=2**32 - 1)] = None
    loopback: str | None = None
    hash_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    daemons: Annotated[tuple[str, ...], Field(strict=False)] = ()


class AdoptedPort(SpecModel):
    """An end of a link. `address` is its first IPv4 address with its length, if it has one."""

    node: NodeName
    interface: Annotated[str, Field(min_length=1, max_length=15)]
    index: Annotated[int, Field(ge=1)]
    mac: str
    address: str | None = None


class AdoptedLink(SpecModel):
    """A veth pair between two nodes: `a` is the end nearer the servers. `session`: whether its ends
    are BGP neighbours over it."""

    a: AdoptedPort
    b: AdoptedPort
    mtu: Annotated[int, Field(ge=68)]
    session: bool = False


class AdoptedSpec(SpecModel):
    """A fabric that `rocelab adopt` found. `routes` has, by switch and prefix, the interfaces of
    the next hops that its kernel had then: what a lab that is whole has."""

    kind: Annotated[Literal["adopted"], Field(description="the kind of fabric")]
    nodes: Annotated[tuple[AdoptedNodeSpec, ...], Field(strict=False)]
    links: Annotated[tuple[AdoptedLink, ...], Field(strict=False)]
    routes: Mapping[NodeName, Mapping[str, Annotated[tuple[str, ...], Field(strict=False)]]] = (
        Field(default_factory=dict)
    )


class AdoptedLabSpec(LabSpec):
    """A lab that was adopted."""

    fabric: AdoptedSpec  # type: ignore[assignment]


def recorded_spec(document: Mapping[str, Any]) -> LabSpec:
    """The spec of a lab in a record or a result. Raises ValueError, in one line if the package that
    added its kind of fabric is gone."""
    fabric = document.get("fabric")
    kind = fabric.get("kind") if isinstance(fabric, Mapping) else None
    if kind == "adopted":
        return AdoptedLabSpec.model_validate(document)
    if isinstance(kind, str):
        try:
            KINDS.find(kind)
        except InputError as error:
            raise ValueError(error.message) from error
    return LabSpec.model_validate(document)
