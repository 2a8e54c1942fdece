"""Commands that need no root, which run with the rights of who typed `sudo`."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.base.trust import become_sudo_user, use_private_caches
from rocelab.linux.rights import need_root

_COMMANDS = {
    *("labs", "plan", "render", "graph", "import", "schema", "diagnose"),
    *("simulate", "whatif", "longrun", "sweep", "reference"),
}
_UNLESS_UP = {"path", "predict"}
"""They call `take_rights_for` once they have read whether the lab is up."""
_OF_GROUPS = {"drill": {"list", "show", "diff", "gate"}, "fault": {"kinds"}}


def take_rights_of(command: str, rest: Sequence[str]) -> None:
    """Leave root's rights under sudo, for good, if this command needs none; else keep root's caches
    apart from others'. `rest`: the words after it."""
    if command in _UNLESS_UP:
        return
    if command in _COMMANDS or (rest and rest[0] in _OF_GROUPS.get(command, ())):
        become_sudo_user()
    use_private_caches()


def take_rights_for(what: str, *, is_up: bool) -> None:
    """The same for a command that needs root for a lab that is up alone. Raises MachineError where
    it is up and this is not root; `what` is for the message."""
    if is_up:
        need_root(what)
    else:
        become_sudo_user()
    use_private_caches()
