"""`rocelab requests`: figures of a trace that are computed by hand here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.conftest import CommandLine

ROWS = """arrived_ms,prompt_tokens,completion_tokens,reused_blocks
0,1000,10,0
500,2000,20,1
1000,3000,30,0
4000,4000,40,4
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    file = tmp_path / "log.csv"
    file.write_text(ROWS)
    return str(file)


def test_a_trace_is_summed_up(rocelab: CommandLine, trace: str) -> None:
    outcome = rocelab("requests", trace, "--time", "arrived_ms:ms", "--json")
    summary = json.loads(outcome.out)
    assert (summary["requests"], summary["lasts_s"], summary["rate"]) == (4, 4, 0.75)
    assert summary["peak_rate"] == 2
    # Gaps of 0.5, 0.5 and 3 s: a mean of 4/3 s, a deviation of 1.1785 s.
    assert summary["gap_cv"] == pytest.approx(1.1785 / (4 / 3), rel=1e-3)
    assert summary["prompt"] == {
        "mean": 2500,
        "p50": 2000,
        "p90": 4000,
        "p99": 4000,
        "highest": 4000,
    }
    assert summary["reused"] == pytest.approx((512 + 4 * 512) / 10_000)
    cache = next(one for one in summary["caches"] if one["model"] == "llama3-70b")
    assert cache["token_bytes"] == 327_680
    assert cache["bytes_per_s"] == 10_000 * 327_680 / (4 * 4 / 3)
    assert cache["without_reused_bytes_per_s"] == (10_000 - 5 * 512) * 327_680 / (4 * 4 / 3)
    assert cache["peak_bytes_per_s"] == 4000 * 327_680


def test_a_person_reads_tables(rocelab: CommandLine, trace: str) -> None:
    text = rocelab("requests", trace, "--time", "arrived_ms:ms", "--first", "2").out
    assert "2 requests, the last 500 ms after the first: 2 a second; gaps" in text
    assert "llama3-70b" in text


def test_a_unit_that_is_none_is_refused(rocelab: CommandLine, trace: str) -> None:
    outcome = rocelab("requests", trace, "--time", "arrived_ms:h")
    assert outcome.code == 2
    assert "expected the unit s, ms, us or ns, got 'h'" in outcome.err


def test_a_file_without_times_is_summed_up_as_if_all_came_at_once(
    rocelab: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("isl,osl\n5,6\n7,8\n")
    assert "2 requests, all at once." in rocelab("requests", str(file)).out
