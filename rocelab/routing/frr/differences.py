"""Compares what a daemon of FRR runs with what was rendered for it.

`show running-config` is not the text that was read: FRR numbers the entries of lists, leaves out
defaults, adds the state of its machine, and has its own order. Lines are compared with the block in
which they stand, without all that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_UNIMPORTANT = re.compile(
    r"end$|frr |hostname |log |line vty|(no )?service |domainname |interface |debug "
    r"|(no )?ip(v6)? forwarding$|bgp log-neighbor-changes$|neighbor \S+ (activate|bfd)$"
    r"|detect-multiplier 3$|(receive|transmit)-interval 300$|Building |Current "
)
"""Defaults of FRR that are rendered or printed all the same, and what changes no route."""
_OMITTED = re.compile(r" seq \d+| interface(?= remote-as )")
"""What FRR adds to lines, or leaves out of them."""


def changed_lines(planned: str, running: str) -> tuple[str, ...]:
    """The lines that a daemon runs and were not rendered, as `+ router bgp 65001: neighbor ...`,
    then those that were rendered and do not run, with `-`."""
    before, now = (dict.fromkeys(_lines(text)) for text in (planned, running))
    added = (f"+ {line}" for line in now if line not in before)
    return (*added, *(f"- {line}" for line in before if line not in now))


def _lines(configuration: str) -> Iterator[str]:
    """The lines, each after the blocks that it stands in."""
    blocks: list[tuple[int, str]] = []
    for text in configuration.splitlines():
        line = _OMITTED.sub("", text.strip())
        depth = len(text) - len(text.lstrip())
        if not line or line.startswith(("!", "exit")):
            continue
        while blocks and blocks[-1][0] >= depth:
            blocks.pop()
        if _UNIMPORTANT.match(line) is None:
            yield ": ".join([*(block for _, block in blocks), line])
        blocks.append((depth, line))
