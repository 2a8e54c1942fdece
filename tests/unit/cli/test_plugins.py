"""`rocelab doctor` knows every door, and what ships comes through them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from rocelab.cli.doctor import doors

ROOT = Path(__file__).parents[3]


def test_every_group_that_ships_is_a_door_and_everything_in_it_can_be_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shipped = {
        group: set(points)
        for group, points in project["entry-points"].items()
        if group.startswith("rocelab.")
    }
    groups = {
        door.group: {name for name in door.all() if door.origin(name) is None} for door in doors()
    }
    assert groups == shipped
