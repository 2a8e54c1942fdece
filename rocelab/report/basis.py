"""How a document says where the routes of its lab are known from."""

from __future__ import annotations

from dataclasses import replace

from rocelab.planning.fabric import RouteBasis
from rocelab.report.document import Document


def with_basis(document: Document, basis: RouteBasis) -> Document:
    """The document with the basis in the first line below its title."""
    if basis is RouteBasis.PLANNED:
        return document
    return replace(document, meta=" · ".join(filter(None, (basis.text, document.meta))))
