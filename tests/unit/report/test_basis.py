"""How documents say where the routes of their lab are known from."""

from __future__ import annotations

import pytest

from rocelab.planning.fabric import RouteBasis
from rocelab.report.basis import with_basis
from rocelab.report.document import Document


def test_a_document_of_the_kit_s_policy_is_as_it_was() -> None:
    document = Document("A title", (), meta="when")

    assert with_basis(document, RouteBasis.PLANNED) is document


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        (RouteBasis.ASSUMED, "routes are assumed: shortest paths stand in"),
        (RouteBasis.OBSERVED, "routes are as observed when they were first still"),
        (RouteBasis.DECLARED, "and meet routing.expect"),
    ],
)
def test_other_documents_begin_with_it(basis: RouteBasis, words: str) -> None:
    meta = with_basis(Document("A title", (), meta="when"), basis).meta

    assert words in meta
    assert meta.endswith(" · when")
    assert with_basis(Document("A title", ()), basis).meta == basis.text


def test_a_simulated_failure_says_that_no_daemon_of_the_lab_reacts() -> None:
    document = Document("A title", (), meta="when")
    meta = with_basis(document, RouteBasis.OBSERVED, fails=True).meta
    assert meta.startswith(f"{RouteBasis.OBSERVED.text}; after a failure they are the shortest")
    assert meta.endswith(" · when")
    assert with_basis(document, RouteBasis.PLANNED, fails=True) is document
