"""How a document says where the routes of its lab are known from."""

from __future__ import annotations

from dataclasses import replace

from rocelab.planning.fabric import RouteBasis
from rocelab.report.document import Document

AFTER_FAILURES = (
    "after a failure they are the shortest paths that are left, and move after the time that "
    "rocelab's own eBGP took: an event's `reaction TIME` sets that of the lab's daemons"
)
"""Of simulations, which run no daemon."""


def with_basis(document: Document, basis: RouteBasis, *, fails: bool = False) -> Document:
    """The document with the basis in the first line below its title. fails: whether it is of
    simulated failures."""
    if basis is RouteBasis.PLANNED:
        return document
    text = f"{basis.text}; {AFTER_FAILURES}" if fails else basis.text
    return replace(document, meta=" · ".join(filter(None, (text, document.meta))))
