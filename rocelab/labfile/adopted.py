"""The spec of a lab that other tools made, as `rocelab adopt` found it: the kind `adopted`.

Nothing is planned: every interface, address and route is one that a kernel had. Nobody writes such
a spec, so the file format of labs does not have it; records and results do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from rocelab.base.doors import Door, of_gone
from rocelab.base.errors import InputError, PackageGoneError
from rocelab.base.wording import RefusedError, name_hint, shown
from rocelab.fabrics.door import KINDS, roles
from rocelab.labfile.base import SpecModel
from rocelab.labfile.model import LabSpec
from rocelab.labfile.networks import NetworksLabSpec, NetworkSpec
from rocelab.labfile.observed import ObservedLabSpec
from rocelab.labfile.schemes.scheme_spec import SCHEME_DOOR
from rocelab.labfile.stacks import stack_names

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
    peers: Annotated[tuple[str, ...], Field(strict=False)] = ()


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

    is_regular: ClassVar[bool] = True

    kind: Annotated[Literal["adopted"], Field(description="the kind of fabric")]
    nodes: Annotated[tuple[AdoptedNodeSpec, ...], Field(strict=False)]
    links: Annotated[tuple[AdoptedLink, ...], Field(strict=False)]
    routes: Mapping[NodeName, Mapping[str, Annotated[tuple[str, ...], Field(strict=False)]]] = (
        Field(default_factory=dict)
    )


class AdoptedLabSpec(LabSpec):
    """A lab that was adopted."""

    fabric: AdoptedSpec  # type: ignore[assignment]


_DOORS: tuple[tuple[Door[Any], str, str], ...] = (
    (KINDS, "fabric", "kind"),
    (SCHEME_DOOR, "scheme", "kind"),
)
"""What a lab's file names of each door: the block and its key."""


def recorded_spec(document: Mapping[str, Any], plugins: Iterable[str] = ()) -> LabSpec:
    """The spec of a lab in a record or a result. plugins: the packages that were installed when it
    was written. Raises ValueError; PackageGoneError if it names something of a package that is not
    there any more."""
    if _named(document, "fabric", "kind") == "adopted":
        return AdoptedLabSpec.model_validate(document)
    for door, block, key in _DOORS:
        name = _named(document, block, key)
        if name is not None:
            _check(door, name, plugins)
    stack = _named(document, "routing", "stack")
    if stack is not None and stack not in stack_names():
        raise _gone(f"there is no routing stack {stack}", plugins)
    if "networks" in document:
        return NetworksLabSpec.recorded(document)
    if "place" in document:
        return NetworkSpec.model_validate(document)
    model = ObservedLabSpec if "observed" in document else LabSpec
    return model.model_validate(document)


def _named(document: Mapping[str, Any], block: str, key: str) -> str | None:
    keys = document.get(block)
    name = keys.get(key) if isinstance(keys, Mapping) else None
    return name if isinstance(name, str) else None


def _check(door: Door[Any], name: str, plugins: Iterable[str]) -> None:
    """Raises PackageGoneError for what the door does not have or cannot load."""
    try:
        door.find(name)
    except InputError as error:
        if not door.has(name):
            raise _gone(error.message, plugins) from error
        raise PackageGoneError(f"{error.message}{of_gone(plugins)}", error.hint) from error


def _gone(message: str, plugins: Iterable[str]) -> PackageGoneError:
    return PackageGoneError(f"{message}{of_gone(plugins)}", "install its package again")
