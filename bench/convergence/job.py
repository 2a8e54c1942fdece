"""The cost of a failed link for a job: the link-failure test of the IETF's draft, repeated.

The `LinkFailureTest` comes from the shipped drill `ietf-link-failure`
(draft-calabria-bmwg-ai-fabric-training-bench).
"""

from __future__ import annotations

from bench.convergence.document import SCHEMA_VERSION, LinkFailureTest
from rocelab import run_drill
from rocelab.labfile.catalog import DRILLS, find

DRILL = "ietf-link-failure"


def measure_job(repeats: int) -> LinkFailureTest:
    """Run the drill `repeats` times on one lab. Raises as `run_drill` does."""
    result = run_drill(find(DRILL, DRILLS), repeats=repeats)
    reports = [run.reports[0] for repeat in result.repeats for run in repeat]
    valid = [report for report in reports if report.valid]
    return LinkFailureTest(
        schema_version=SCHEMA_VERSION,
        drill=DRILL,
        dilation=result.dilation,
        environment=result.environment,
        impacts=tuple(report.impact for report in valid if report.impact is not None),
        retransmitted=tuple(report.roce.retransmitted for report in valid),
        rejected=len(reports) - len(valid),
    )
