"""The process that runs a job for the page, as `rocelab traffic` does.

Runs as a program beside the server (`rocelab.live.traffic`), since a run measures by the clock: the
server's threads would delay it. It writes a JSON object a line to a pipe: `progress` with `t_ns`;
at the end `report`, the text of the result, or `error` with `hint` and `exit_code`. The end of its
standard input, whose other end the server holds, interrupts it as Ctrl-C does.
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

Write = Callable[[Mapping[str, object]], None]


def main(lab: str, job: str, pipe: int) -> None:
    """Run a job, JSON of a `JobSpec`, on a lab that is up."""
    with ending(), os.fdopen(pipe, "w") as lines:
        threading.Thread(target=_interrupt_at_end, daemon=True).start()

        def write(message: Mapping[str, object]) -> None:
            print(json.dumps(message), file=lines, flush=True)

        _run(lab, job, write)


def _interrupt_at_end() -> None:
    sys.stdin.read()
    # Not SIGINT, which a shell's background job ignores.
    os.kill(os.getpid(), signal.SIGTERM)


def _run(name: str, job: str, write: Write) -> None:
    # Imported here, so that the end of standard input is noticed meanwhile.
    from rocelab.base.documents import to_json
    from rocelab.base.errors import RocelabError
    from rocelab.base.progress import Progress
    from rocelab.base.refusal import refusal
    from rocelab.jobs.job import JobSpec
    from rocelab.lab.lab import RunningLab
    from rocelab.linux.bracket import realtime_ns
    from rocelab.runs.jobs import run_job

    def show(step: Progress) -> None:
        write({"progress": asdict(step), "t_ns": realtime_ns()})

    try:
        spec = JobSpec.model_validate_json(job)
        report = run_job(RunningLab.open(name), spec, progress=show)
    except (RocelabError, OSError) as error:
        refused = error if isinstance(error, RocelabError) else refusal(error)
        if refused is None:
            raise
        write({"error": refused.message, "hint": refused.hint, "exit_code": refused.exit_code})
    else:
        write({"report": to_json(report)})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
