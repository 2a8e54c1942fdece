"""The process that sends for the page: a job, as `rocelab traffic` does, or a drill's probes.

Runs as a program beside the server (`rocelab.live.traffic`), since a run measures by the clock: the
server's threads would delay it. Others may break the lab meanwhile. It writes a JSON object a line
to a pipe: `progress` with `t_ns`; at the end `report`, the text of the result, with its `impact`
(`rocelab.live.impact`), or `error` with `hint` and `exit_code`. A line of standard input ends
probes, which are then measured; its end, whose other end the server holds, interrupts the process
as Ctrl-C does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict

from rocelab.base.interruption import ending
from rocelab.base.progress import ProgressSink

Message = Mapping[str, object]
Write = Callable[[Message], None]


def main(lab: str, kind: str, spec: str, pipe: int) -> None:
    """Send on a lab that is up. `kind`: `job` or `probes`; `spec`: JSON of a `JobSpec` or of a
    `TrafficSpec`."""
    stopped = threading.Event()
    with ending(), os.fdopen(pipe, "w") as lines:
        threading.Thread(target=_listen, args=(stopped,), daemon=True).start()

        def write(message: Mapping[str, object]) -> None:
            print(json.dumps(message), file=lines, flush=True)

        _run(lab, kind, spec, stopped, write)


def _listen(stopped: threading.Event) -> None:
    for _ in sys.stdin:
        stopped.set()
    # Not SIGINT, which a shell's background job ignores.
    os.kill(os.getpid(), signal.SIGTERM)


def _run(name: str, kind: str, spec: str, stopped: threading.Event, write: Write) -> None:
    # Imported here, so that the end of standard input is noticed meanwhile.
    from rocelab.base.errors import RocelabError
    from rocelab.base.plugin_errors import plugin_error
    from rocelab.base.progress import Progress
    from rocelab.base.refusal import refusal
    from rocelab.linux.bracket import realtime_ns

    def show(step: Progress) -> None:
        write({"progress": asdict(step), "t_ns": realtime_ns()})

    try:
        report = _job(name, spec, show) if kind == "job" else _probes(name, spec, stopped, show)
    except Exception as error:
        refused = error if isinstance(error, RocelabError) else plugin_error(error)
        refused = refused or refusal(error)
        if refused is None:
            raise
        write({"error": refused.message, "hint": refused.hint, "exit_code": refused.exit_code})
    else:
        write(report)


def _job(name: str, spec: str, show: ProgressSink) -> Message:
    from rocelab.base.documents import to_json
    from rocelab.jobs.job import JobSpec
    from rocelab.lab.lab import RunningLab
    from rocelab.live.impact import job_impact
    from rocelab.runs.jobs import run_job_under_faults

    job = JobSpec.model_validate_json(spec)
    measured = run_job_under_faults(RunningLab.open(name), job, show)
    (report,) = measured.reports
    return {"report": to_json(report), "impact": job_impact(report, measured.started_ns)}


def _probes(name: str, spec: str, stopped: threading.Event, show: ProgressSink) -> Message:
    from rocelab.base.documents import to_json
    from rocelab.drills.drill_spec import TrafficSpec
    from rocelab.drills.openprobes import run_open_probes
    from rocelab.lab.lab import RunningLab
    from rocelab.live.impact import probes_impact

    traffic = TrafficSpec.model_validate_json(spec)
    report = run_open_probes(RunningLab.open(name), traffic, stopped.is_set, show)
    return {"report": to_json(report), "impact": probes_impact(report)}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
