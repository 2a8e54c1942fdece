"""The runs of the adversarial suite, and the table at its end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from rocelab.drills.drill_spec import load_drill
from rocelab.labfile.catalog import DRILLS, find, shipped_names
from tests.adversary.disturbances import ASKED_FOR, DISTURBANCES, OF_FAULTS, OF_SEVERAL_KINDS
from tests.adversary.run import Outcome

OUTCOMES = pytest.StashKey[list[tuple[str, str, Outcome]]]()
Pair = tuple[str, str]


def pairs(drills: str, against: str) -> list[Pair]:
    """Every drill with every disturbance that concerns it, or only the named ones. The control
    comes first: it must be right."""
    chosen = against.split() or [
        disturbance for disturbance in DISTURBANCES if disturbance not in ASKED_FOR
    ]
    names = drills.split() or shipped_names(DRILLS)
    unknown = {*chosen} - {*DISTURBANCES} | {*names} - {*shipped_names(DRILLS)}
    if unknown:
        raise pytest.UsageError(f"no such drill or disturbance: {', '.join(sorted(unknown))}")
    return [
        (drill, disturbance)
        for drill in names
        for disturbance in chosen
        if _kinds_of_faults(drill) >= _least_kinds(disturbance)
    ]


def _least_kinds(disturbance: str) -> int:
    return 2 if disturbance in OF_SEVERAL_KINDS else int(disturbance in OF_FAULTS)


def _kinds_of_faults(drill: str) -> int:
    spec = load_drill(find(drill, DRILLS))
    return len({fault.kind for phase in spec.phases for fault in phase.faults})


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OUTCOMES] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"drill", "against"} <= {*metafunc.fixturenames}:
        chosen = pairs(os.environ.get("DRILLS", ""), os.environ.get("AGAINST", ""))
        metafunc.parametrize(("drill", "against"), chosen, ids=[f"{d}/{a}" for d, a in chosen])


@pytest.fixture(scope="session", autouse=True)
def root() -> Iterator[None]:
    """These tests make real labs: without root they fail rather than skip."""
    assert os.geteuid() == 0, "the adversary needs root: run `make adversary`"
    yield


@pytest.fixture(scope="session")
def outcomes(pytestconfig: pytest.Config) -> list[tuple[str, str, Outcome]]:
    return pytestconfig.stash[OUTCOMES]


def table(outcomes: Sequence[tuple[str, str, Outcome]]) -> list[str]:
    """How many repeats of each disturbance were valid, invalid and wrong; comparisons made."""
    lines = [
        f"{'against':<10}{'drills':>8}{'repeats':>9}{'valid':>7}{'invalid':>9}{'refused':>9}"
        f"{'wrong':>7}{'unseen':>8}{'compared':>10}"
    ]
    for name in DISTURBANCES:
        of = [outcome for _, against, outcome in outcomes if against == name]
        if not of:
            continue
        total: Counter[str] = Counter()
        for record in of:
            total["repeats"] += record.repeats
            total["valid"] += record.valid
            total["refused"] += record.refused is not None
            total["wrong"] += bool(record.wrong)
            total["unseen"] += record.unseen
            total["compared"] += len(record.comparisons)
        invalid = total["repeats"] - total["valid"] - total["refused"]
        lines.append(
            f"{name:<10}{len(of):>8}{total['repeats']:>9}{total['valid']:>7}{invalid:>9}"
            f"{total['refused']:>9}{total['wrong']:>7}{total['unseen']:>8}{total['compared']:>10}"
        )
    return lines


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    outcomes = config.stash[OUTCOMES]
    if not outcomes:
        return
    terminalreporter.section("drills against an adversary")
    for line in table(outcomes):
        terminalreporter.line(line)
