"""The interfaces that ports of a switch become: Linux's names for names as on the switch.

Linux takes up to 15 characters without `/`, `:` and blanks (net/core/dev.c, dev_valid_name). A name
that is valid is kept; another has its separators replaced and its words shortened as vendors
shorten them: `Ethernet1/1` is `Ethernet1-1`, `HundredGigE0/0/0/12` is `Hu0-0-0-12`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rocelab.fabrics.layout import IFNAMSIZ

_VALID = re.compile(r"[A-Za-z0-9._-]{1,15}")
_SHORT = (
    ("FourHundredGigabitEthernet", "Fh"),
    ("EightHundredGigE", "Eh"),
    ("FourHundredGigE", "Fh"),
    ("TwoHundredGigE", "Th"),
    ("HundredGigabitEthernet", "Hu"),
    ("HundredGigE", "Hu"),
    ("FortyGigE", "Fo"),
    ("TwentyFiveGigE", "Tf"),
    ("TenGigabitEthernet", "Te"),
    ("TenGigE", "Te"),
    ("GigabitEthernet", "Gi"),
    ("Ethernet", "Eth"),
)
_RESERVED = frozenset(("lo", ".", "..", "all", "default"))


def interfaces_of(ports: Iterable[str]) -> dict[str, str]:
    """The interface of each port of a node by its name on the switch; all differ.

    Raises ValueError for a name of which nothing can be in an interface's.
    """
    names = dict.fromkeys(ports)
    taken = {name for name in names if is_interface(name)}
    made: dict[str, str] = {}
    for name in names:
        if is_interface(name):
            made[name] = name
            continue
        made[name] = _free(_shortened(name), taken)
        taken.add(made[name])
    return made


def is_interface(name: str) -> bool:
    """Whether Linux takes a port's name as it is."""
    return _VALID.fullmatch(name) is not None and name not in _RESERVED


def _shortened(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    if not plain:
        raise ValueError(f"no interface can be named after {name!r}")
    for word, short in _SHORT:
        if len(plain) > IFNAMSIZ:
            plain = re.sub(re.escape(word), short, plain, flags=re.IGNORECASE)
    return f"port-{plain}"[:IFNAMSIZ] if plain in _RESERVED else plain


def _free(name: str, taken: set[str]) -> str:
    """`name` within 15 characters, its start cut, and numbered if it is taken."""
    short = name if len(name) <= IFNAMSIZ else name[-IFNAMSIZ:].lstrip("-.")
    number = 1
    while short in taken:
        number += 1
        tail = f"~{number}"
        short = name[: IFNAMSIZ - len(tail)] + tail
    return short
