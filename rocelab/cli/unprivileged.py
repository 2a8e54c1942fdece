"""Commands that need no root, which run with the rights of who typed `sudo`."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.trust import become_sudo_user, use_private_caches

_COMMANDS = {
    *("labs", "plan", "render", "graph", "import", "schema", "diagnose"),
    *("simulate", "whatif", "longrun", "sweep", "reference"),
}
_OF_GROUPS = {"drill": {"list", "show", "diff"}, "fault": {"kinds"}}


def take_rights_of(command: str, rest: Sequence[str]) -> None:
    """Leave root's rights under sudo, for good, if this command needs none; else keep root's caches
    apart from others'. `rest`: the words after it."""
    if command in _COMMANDS or (rest and rest[0] in _OF_GROUPS.get(command, ())):
        become_sudo_user()
    use_private_caches()
