"""Finds reasons why a run of failures is not valid although the machine carried its traffic.

Pure: from a measured run and the flows over the failed part to a tuple of reasons, empty if there
are none.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.results.probes import ProbeRun

QUIET_NS = 400_000_000


def unsound(repeat: ProbeRun, crossing: Sequence[str], *, silent: bool) -> tuple[str, ...]:
    """Reasons not to count any failure of `repeat`.

    A table that changed within 400 ms before a failure was incomplete for another reason, such as a
    BFD session that missed packets while the machine was busy. A silent failure must affect exactly
    the flows named `crossing`, or it was elsewhere.
    """
    problems = []
    for index, record in enumerate(repeat.events):
        if record.event.change != "begin":
            continue
        at_ns = record.event.t_ns
        early = next((one for one in repeat.fib if at_ns - QUIET_NS <= one.t_ns < at_ns), None)
        if early is not None:
            problems.append(f"not valid because routes of {early.node} changed before a failure")
        touched = {
            flow.flow.name for flow in repeat.flows if flow.measurement.events[index].affected
        }
        if silent and touched != set(crossing):
            problems.append(
                f"not valid because a silent failure touched {len(touched & set(crossing))} of the "
                f"{len(crossing)} flows that should cross it, and {len(touched - set(crossing))} "
                "others"
            )
    return tuple(dict.fromkeys(problems))
