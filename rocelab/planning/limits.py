"""Keys of a lab's file that never come into play, because another key stops it first.

`unreached_marks` compares the marking line with the buffer, `lab_limits` also the timers of the
modelled network with how long a run of a lab lasts.
"""

from __future__ import annotations

from rocelab.base import quantities
from rocelab.base.wording import listed
from rocelab.labfile.base import SECOND
from rocelab.labfile.model import LabSpec
from rocelab.labfile.queues import QueueEngine

LONG_RUN_NS = 60 * SECOND
"""What hardly a run of a lab lasts, on the lab's clock."""


def lab_limits(spec: LabSpec) -> tuple[str, ...]:
    """What never comes into play in a lab."""
    queues = spec.queues
    if queues.engine is not QueueEngine.OFF:
        return (*unreached_marks(spec), *_slow_timers(spec))
    keys = [
        *queues.changed("queues", "buffer", "dscp", "marked"),
        *queues.ecn.changed("queues.ecn", "kmin", "kmax", "pmax"),
    ]
    without = [f"queues.engine: off: no port of a lab has {listed(keys, 'or')}"] if keys else []
    return (*without, *_slow_timers(spec))


def unreached_marks(spec: LabSpec) -> tuple[str, ...]:
    """Why packets of lossy classes are never marked, or never as often as `pmax`: queues drop
    before. For lossless classes `rocelab.planning.pfc.warnings` has it."""
    queues = spec.queues
    lossless = () if queues.pfc is None else queues.pfc.classes
    lossy = [number for number in queues.marked if number not in lossless]
    if not lossy:
        return ()
    classes = f"class{'es' * (len(lossy) > 1)} {listed(map(str, lossy), 'and')}"
    buffer, line = queues.buffer, queues.ecn
    if line.kmin >= buffer:
        return (
            f"queues.ecn.kmin ({quantities.size(line.kmin)}) is not below queues.buffer "
            f"({quantities.size(buffer)}): packets of {classes} are dropped before any is marked; "
            "lower kmin, raise buffer, or leave the classes out of queues.marked",
        )
    if line.kmax > buffer:
        share = line.pmax * (buffer - line.kmin) / (line.kmax - line.kmin)
        return (
            f"queues.ecn.kmax ({quantities.size(line.kmax)}) is above queues.buffer "
            f"({quantities.size(buffer)}): packets of {classes} are dropped before {share:.2g} of "
            f"them are marked, where pmax is {line.pmax:g}",
        )
    return ()


def _slow_timers(spec: LabSpec) -> tuple[str, ...]:
    """The timers of the modelled network that, on the lab's clock, outlast a run of a lab."""
    watchdog = None if spec.queues.pfc is None else spec.queues.pfc.watchdog
    timers = []
    if watchdog is not None:
        key = "queues.pfc.watchdog"
        timers.append((f"{key}.detection", watchdog.detection, "it never fires"))
        timers.append((f"{key}.restoration", watchdog.restoration, "what it frees stays free"))
    gap_ns = getattr(spec.scheme, "gap", None)
    if gap_ns is not None:
        timers.append(("scheme.gap", gap_ns, "no flow changes its path"))
    if spec.links.delay is not None:
        timers.append(("links.delay", spec.links.delay, "nothing arrives"))
    return tuple(
        f"{key} ({quantities.duration(time_ns)}) is {quantities.duration(time_ns * spec.dilation)} "
        f"on the lab's clock, at a dilation of {spec.dilation:g}: in a shorter run {then}; shorten "
        "it, or lower dilation"
        for key, time_ns, then in timers
        if time_ns * spec.dilation > LONG_RUN_NS
    )
