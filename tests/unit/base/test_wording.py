"""Numbers with their nouns."""

from __future__ import annotations

from rocelab.base.wording import counted, of_plural


def test_one_is_singular_and_all_else_plural() -> None:
    assert (counted(1, "node"), counted(2000, "node")) == ("1 node", "2,000 nodes")
    assert (counted(1, "switch", "switches"), counted(0, "switch", "switches")) == (
        "1 switch",
        "0 switches",
    )


def test_a_unit_in_the_plural_has_a_singular() -> None:
    assert of_plural(1, "losses of carrier") == "1 loss of carrier"
    assert of_plural(3, "losses of carrier") == "3 losses of carrier"
    assert of_plural(1, "packets") == "1 packet"
    assert of_plural(5e6, "packets") == "5,000,000 packets"
