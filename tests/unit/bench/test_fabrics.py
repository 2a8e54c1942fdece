"""The table of `make bench`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.fabrics import HEADINGS, PLAIN, RAIL, rows
from bench.ups import Up
from rocelab.fabrics.kinds.rail import RailSpec
from rocelab.labfile.load import load_spec

LEAN = Up(2.0, 0.2, {"daemons": 1.0, "convergence": 0.8}, 0.1, 300_000_000, 0, 3.0, 20)


def test_each_row_has_the_others_beside_rocelab_and_their_ratio_to_it() -> None:
    plain = replace(LEAN, up_s=3.0, daemons_pss_bytes=600_000_000)
    wired = replace(LEAN, up_s=9.0, stages_s={"wiring": 9.0}, wiring_s=1.0, daemons_pss_bytes=0)
    table = {
        row[0]: row[1:] for row in rows({"rocelab": [LEAN], PLAIN: [plain], "mininet": [wired]})
    }
    assert {len(row) + 1 for row in table.values()} == {len(HEADINGS)}
    # Mininet was only wired: how long that took is no time to bring a lab up.
    assert table["up, s"] == ["2.00", "3.00", "1.5", "not measured", ""]
    assert table["- of a switch, MB"] == ["15.0", "30.0", "2.0", "not measured", ""]
    assert table["- wiring alone, s"][3:] == ["1.000", "5.0"]


def test_a_fabric_without_mininet_has_its_row_too() -> None:
    table = {row[0]: row[1:] for row in rows({"rocelab": [LEAN], PLAIN: [LEAN]})}
    assert table["up, s"] == ["2.00", "2.00", "1.0", "not measured", ""]


def test_the_rail_fabric_is_the_one_that_the_page_names() -> None:
    fabric = load_spec(Path(RAIL)).fabric
    assert isinstance(fabric, RailSpec)
    assert (fabric.kind, fabric.units, fabric.rails, fabric.spines) == ("rail", 16, 8, 32)
