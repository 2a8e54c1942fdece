"""Kind `graph`: nodes, and links between any two of their ports, as a list of cables has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rocelab.base.wording import RefusedError, listed
from rocelab.fabrics.addressing import ASN_BASE
from rocelab.fabrics.base import FabricKind, check_links
from rocelab.fabrics.graph import (
    LinkSpec,
    NodeSpec,
    RoleName,
    check_name,
    check_ports,
    role_named,
    site_of,
    tiered,
    wired,
)
from rocelab.fabrics.layout import Layout, Site
from rocelab.fabrics.roles import SHIPPED, TOP_TIER, Role

_PATTERN = "*?["
_SHOWN = 6


class GraphSpec(FabricKind):
    """Nodes and links, drawn by hand or read from a list of cables.

    A key of `nodes` may be a pattern, such as `leaf*`, for all nodes of links that have no key of
    their own; the first that matches counts. If each link joins two tiers the fabric has tiers, as
    its roles have them; if not, it has none.
    """

    roles: ClassVar[tuple[Role, ...]] = tuple(role for role in SHIPPED if role.is_switch)
    is_regular: ClassVar[bool] = False

    kind: Annotated[Literal["graph"], Field(description="the kind of fabric")]
    tiers: Annotated[
        Mapping[RoleName, Annotated[int, Field(ge=1, le=TOP_TIER)]],
        Field(description="the tier of each role of your own: 1 for switches that servers are on"),
    ] = Field(default_factory=dict)
    nodes: Annotated[
        Mapping[str, NodeSpec], Field(description="each node, or a pattern of names, and its role")
    ] = Field(default_factory=dict)
    links: Annotated[
        tuple[LinkSpec, ...],
        Field(
            strict=False,
            min_length=1,
            description="the links; or `cables`, the path of a CSV of cables",
        ),
    ]

    @model_validator(mode="after")
    def _can_be_laid_out(self) -> Self:
        check_links(len(self.links), "those of the file")
        for name in self.nodes:
            if not _is_pattern(name):
                check_name(name, ("nodes", name))
        self.layout()
        return self

    def layout(self) -> Layout:
        """Switches have an ASN each, unless it is given. Raises RefusedError."""
        return self._laid_out

    @cached_property
    def _laid_out(self) -> Layout:
        sites = tiered(self._sites(), self.links)
        attachments, cables = wired(sites, self.links, ("links",))
        numbered = tuple(
            replace(site, asn=ASN_BASE + index)
            if site.asn is None and site.role.is_switch
            else site
            for index, site in enumerate(sites.values())
        )
        layout = Layout(numbered, tuple(attachments), tuple(cables))
        check_ports(layout, ("links",))
        return layout

    def _nodes(self) -> dict[str, NodeSpec | None]:
        """Each node in the order of the file, with what is said of it."""
        names = {name: spec for name, spec in self.nodes.items() if not _is_pattern(name)}
        patterns = {name: spec for name, spec in self.nodes.items() if _is_pattern(name)}
        nodes: dict[str, NodeSpec | None] = dict(names)
        for link in self.links:
            for end in (link.a, link.b):
                if end.node not in nodes:
                    nodes[end.node] = next(
                        (spec for text, spec in patterns.items() if fnmatchcase(end.node, text)),
                        None,
                    )
        return nodes

    def _sites(self) -> dict[str, Site]:
        nodes = self._nodes()
        unknown = [name for name, node in nodes.items() if node is None or node.role is None]
        if unknown:
            more = len(unknown) - _SHOWN
            names = listed(unknown[:_SHOWN], "and") + (f" and {more} more" if more > 0 else "")
            raise RefusedError(
                f"no role is known of {names}",
                "give each a role in nodes, or a pattern for several: leaf*: {role: leaf}",
                keys=("nodes", "links"),
            )
        wired_nodes = {end.node for link in self.links for end in (link.a, link.b)}
        for name in nodes:
            if name not in wired_nodes:
                raise RefusedError(
                    f"{name} is on no link", "remove it, or add a link", keys=(("nodes", name),)
                )
        return {
            name: site_of(name, node, role_named(node.role, self.tiers.get(node.role)))
            for name, node in nodes.items()
            if node is not None and node.role is not None
        }


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in _PATTERN)
