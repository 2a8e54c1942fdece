"""`rocelab events`: what happens in a running lab, as lines."""

from __future__ import annotations

import json as jsonlib

from rocelab.base.interruption import undone
from rocelab.cli.arguments import JsonOption, OneRunningLab, running_lab
from rocelab.linux.rights import need_root
from rocelab.report.console import say, write


def events(lab: OneRunningLab = None, json: JsonOption = False) -> None:
    """Follow what happens in a running lab until Ctrl-C: carriers, BGP sessions, routes, faults,
    nodes that are not as planned.

    The events of `rocelab live`, after those that say how the lab is now. With --json each is a
    line. Exits 130 after Ctrl-C, 1 when the lab goes down.
    """
    from rocelab.live.following import follow, sentence

    need_root("reading counters in nodes")
    chosen = running_lab(lab)
    try:
        for event in follow(chosen):
            if json:
                write([jsonlib.dumps(event), "\n"])
            else:
                say(sentence(event))
    finally:
        undone(f"lab {chosen.name} has nothing to clean up")
