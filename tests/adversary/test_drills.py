"""Every shipped drill against every disturbance: a valid repeat is right, or this fails."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from tests.adversary.run import Outcome, run_against

SHOWN = 12


def test_a_valid_repeat_is_right(
    drill: str,
    against: str,
    outcomes: list[tuple[str, str, Outcome]],
    record_property: Callable[[str, object], None],
) -> None:
    outcome = run_against(drill, against, seed=zlib.crc32(f"{drill}/{against}".encode()))
    outcomes.append((drill, against, outcome))
    for name in ("repeats", "valid", "unseen", "refused"):
        record_property(name, getattr(outcome, name))
    record_property("compared", len(outcome.comparisons))
    for problem in outcome.problems:
        record_property("problem", problem)
    wrong = "\n".join(map(str, outcome.wrong[:SHOWN]))
    assert not wrong, f"{len(outcome.wrong)} of {len(outcome.comparisons)} figures:\n{wrong}"
    compared = bool(outcome.comparisons)
    assert compared or outcome.valid == outcome.unseen, "no figure of a valid repeat was compared"
    if against == "none":
        assert outcome.refused is None, f"nothing disturbed it, and it failed: {outcome.refused}"
        assert compared, "nothing disturbed it, and no repeat was valid: is this machine busy?"
    if against == "nothing":
        assert outcome.refused is None, f"it failed, which finds no idle fault: {outcome.refused}"
        assert outcome.idle == outcome.faults > 0, "not every fault that did nothing was found out"
    if against == "partly":
        assert outcome.idle > 0, "no fault that did nothing was found out"
