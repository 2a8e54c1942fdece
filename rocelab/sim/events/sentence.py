"""Parses an event from a line, as commands take it: `drain ctsw7 for 2h`.

    EVENT  = VERB TARGET ["to" SHARE] ["at" TIME] ["for" TIME] ["reaction" TIME|median|p95]
    VERB   = fail | lose | blackhole | drain | crash | degrade
    TARGET = ["link"] NODE:NODE | N ["random"] links of (rack N | NODE) | ["switch"] NODE
           | plane N | nic SERVER:NIC | port SERVER:NIC:PORT

The result is the `EventSpec` that a timeline file would hold, with the same error messages. The
clauses after the target may be in any order; `lose` is the same as `fail`.
"""

from __future__ import annotations

from rocelab.base.errors import COMMAND_LINE, InputError
from rocelab.base.wording import did_you_mean, listed, shown
from rocelab.labfile.load import validate
from rocelab.labfile.source import Data, YamlSource
from rocelab.sim.events.event_spec import EventKind, EventSpec

EXAMPLE = "for example 'drain ctsw7 for 2h' or 'lose 2 links of rack 40'"
_CLAUSES = {"to": "to", "at": "at", "for": "lasts", "reaction": "reaction"}
_VERBS = {**{kind.value: kind for kind in EventKind}, "lose": EventKind.FAIL}


def parse_event(line: str) -> EventSpec:
    """The event of a line. Raises InputError if the line has another form, SpecError for its
    parts."""
    words = line.split()
    if not words:
        raise InputError("no event is given", EXAMPLE)
    verb, *rest = words
    if verb not in _VERBS:
        raise InputError(
            f"expected {listed(_VERBS)}, got {shown(verb)}",
            did_you_mean(verb, _VERBS) or EXAMPLE,
        )
    begin = next((index for index, word in enumerate(rest) if word in _CLAUSES), len(rest))
    if not begin:
        raise InputError(f"{verb} what?", EXAMPLE)
    data: dict[str, Data] = {_VERBS[verb].value: " ".join(rest[:begin])}
    clauses = rest[begin:]
    while clauses:
        word, *clauses = clauses
        if word not in _CLAUSES:
            raise InputError(
                f"expected {listed(_CLAUSES)} before {shown(word)}", "a time is one word, as 2h"
            )
        if not clauses:
            raise InputError(f"nothing follows {shown(word)}", EXAMPLE)
        key = _CLAUSES[word]
        if key in data:
            raise InputError(f"{word} is given twice")
        data[key], *clauses = clauses
    return validate(YamlSource(COMMAND_LINE, data, {}), EventSpec)
