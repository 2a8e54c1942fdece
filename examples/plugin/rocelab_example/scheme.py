"""Scheme `qp-hash`: every switch hashes the destination QP alone."""

from __future__ import annotations

from typing import Literal

from rocelab.labfile.schemes.base import Hashed, Scheme, Treatment


class QpHashScheme(Scheme):
    """Every switch hashes the destination QP alone."""

    title = "Hash of the QP"
    kind: Literal["qp-hash"]

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.HASH

    @property
    def hashed(self) -> Hashed:
        return Hashed.DESTINATION_QP
