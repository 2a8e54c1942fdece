"""Whether this machine can run labs at all, asked once before the first test that needs one.

Nothing goes in. Out comes what is missing and what to do about it, as `rocelab doctor` has it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rocelab.kernel import probes
from rocelab.kernel.rights import effective_capabilities
from rocelab.runtime import doctor


@cache
def why_not(*, own_frr: bool) -> str | None:
    """What keeps labs from running here, with this machine's FRR or another, and the remedies; None
    where nothing does."""
    status = Path("/proc/self/status").read_text()
    checks = doctor.capability_checks(effective_capabilities(status))
    checks += doctor.place_checks()
    if all(check.ok for check in checks if check.needed):
        checks += doctor.kernel_checks(probes.probe_kernel())
    if own_frr:
        checks.append(doctor.frr_check())
    return explained(checks)


def explained(checks: list[doctor.Check]) -> str | None:
    """Of the checks, those without which no lab runs, in words; None where all are fine."""
    missing = [check for check in checks if check.needed and not check.ok]
    if not missing:
        return None
    remedies = dict.fromkeys(check.remedy for check in missing)
    named = ", ".join(f"{check.name} ({check.found})" for check in missing)
    return f"this machine can not run labs: {named}; {'; '.join(remedies)}"
